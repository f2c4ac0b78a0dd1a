"""Calls of methods: known by what the receiver is, not by the method's name alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.arguments import mark, mark_all, meet
from dslmut.checking.differentiation import backward, note_writes
from dslmut.checking.entities import Function, Kind, Role
from dslmut.checking.facts import Call, Passed, Verb
from dslmut.checking.lattice import PLAIN_VALUE, Given, Value, fresh_tensor, holding, join, part
from dslmut.checking.origins import Origin, Root
from dslmut.checking.results import construct, result, unknown_result
from dslmut.checking.trees import is_super, root_name
from dslmut.checking.values import cut_off
from dslmut.checking.walk import Walk


def call_method(
    walk: Walk, node: ast.Call, name: str, receiver: Given, given: list[Given]
) -> Value:
    """Return what ``receiver.name(...)`` gives, and record what it changes."""
    value = receiver.value
    method = value.type.cls.members.method(name) if value.type.cls else None
    if method is not None and method.role is not Role.BUILTIN:
        return _own_method(walk, node, method, receiver, given)
    if kn.in_place(name) and not _is_own(value, name):
        walk.written(node, value, new=name not in kn.OWN_ATTRIBUTES)
    if name == "backward":
        backward(walk, node, [value, *(g.value for g in given)])
    touched = frozenset(changed_by(value, name))
    walk.change(node, receiver.subject, touched, Verb.METHOD, name)
    if receiver.marked:
        foreign = Function(f"{value.type.name}.{name}", Role.PLAIN)
        walk.facts.record(Call(node, foreign, (), Passed(receiver.node, True)))
        if not touched:
            mark(walk, receiver, f"`{name}`")
    mark_all(walk, given, "this call")
    if name == "load_state_dict":
        _assigns(walk, node, value, given)
    if name in kn.VALUE_WRITERS and value.type.kind is Kind.MODEL:
        walk.rewritten(node, touched, trained=True)
    if value.type.kind is Kind.STATE and name == "step":
        walk.change(node, receiver.subject, value.held, Verb.METHOD, "step")
        walk.rewritten(node, value.reachable | _only_model(walk), trained=True)
    if name == "step":  # scaler.step(opt) is trusted to be allowed, and steps
        for state in (value, *(g.value for g in given)):
            if state.type.kind is Kind.STATE:
                _age_models(walk, state)
    if value.type.kind in (Kind.CONTAINER, Kind.UNKNOWN, Kind.OBJECT):
        _fill(walk, node, name, receiver, given)
    return _method_result(walk, node, name, value, given)


def _only_model(walk: Walk) -> frozenset[Origin]:
    """Return the model of a state that came as a parameter: the one that may change beside it."""
    signature = walk.root.signature
    changing = [p for p in signature.parameters if p.mut] if signature is not None else []
    models = [p for p in changing if p.type.kind is Kind.MODEL]
    states = [p for p in changing if p.type.kind is Kind.STATE]
    if len(models) != 1 or len(states) != 1:
        return frozenset()
    return frozenset({Origin(Root.MUT, models[0].name, Kind.MODEL)})


def _assigns(walk: Walk, node: ast.Call, value: Value, given: list[Given]) -> None:
    """Record that tensors of a file, or of another model, take the places of a model's own."""
    for argument in given:
        off = isinstance(argument.subject, ast.Constant) and not argument.subject.value
        if argument.keyword == "assign" and not off:
            what = "`assign=True` puts other tensors in the place of the parameters, which optimizers and ties still hold"
            walk.opaque(node, value, what, "copy the values: `m.load_state_dict(state)`")


def _own_method(
    walk: Walk, node: ast.Call, method: Function, receiver: Given, given: list[Given]
) -> Value:
    """Call a method whose definition is known."""
    parameters = method.parameters or ()
    itself = parameters[0] if method.method and parameters else None
    # Nobody can mark `super()`: where a marker is due, it counts as marked.
    marked = receiver.marked or (method.marks_receiver and is_super(receiver.subject))
    passed = Passed(receiver.node, marked, itself, receiver.value)
    if receiver.marked or method.marks_receiver:
        mark(walk, receiver, method.name)
    rest = method.parameters and method.parameters[1:] if method.method else method.parameters
    meet(walk, node, replace(method, parameters=rest, method=False), given, passed)
    note_writes(walk, node, method, given, receiver.value)
    return result(walk, node, method, given, receiver.value)


def _fill(walk: Walk, node: ast.Call, name: str, receiver: Given, given: list[Given]) -> None:
    """Note that a container comes to hold what it is given, or the items of it."""
    if name in kn.CONTAINER_ADDERS:
        for argument in given:
            walk.hold(receiver.subject, argument.value, node)
    elif name in kn.CONTAINER_EXTENDERS:
        for argument in given:
            walk.hold(receiver.subject, part(argument.value, "[]"), node)
    elif name == "clear":
        walk.env.empty(receiver.subject)


def _age_models(walk: Walk, state: Value) -> None:
    """What was read of the models that a state holds, or may hold, is of the past."""
    models = state.held
    if not models:  # it came as a parameter: any model may be its own
        models = frozenset(
            o for b in walk.env.values() for o in b.value.reachable if o.kind is Kind.MODEL
        )
    walk.stale(models)
    walk.facts.changed |= models


def _is_own(value: Value, name: str) -> bool:
    """Say whether a method changes what belongs to the tensor object, and this is another one."""
    return value.view and name in kn.OWN_ATTRIBUTES


def changed_by(value: Value, name: str) -> Iterator[Origin]:
    """Yield those things that a receiver may be which a method of that name changes."""
    if _is_own(value, name):
        return
    for origin in value.origins:
        known = value.type.kind not in (Kind.UNKNOWN, Kind.PART)
        type_ = value.type if known else origin.type
        sure = known or not value.view or kn.in_place(name)
        if sure and changes(type_.kind, name, exactly=known):
            yield origin


def changes(kind: Kind, name: str, exactly: bool) -> bool:
    """Say whether a method of that name changes a receiver of a kind.

    Args:
        kind: What the receiver is.
        name: The method.
        exactly: Whether that is certain; if not, names that tensors have too don't count.
    """
    match kind:
        case Kind.MODEL if exactly:
            return name in kn.MODULE_WRITERS | kn.MODULE_MOVERS | kn.MODULE_CONTAINER_WRITERS
        case Kind.MODEL:
            return name in kn.MODULE_WRITERS and name != "requires_grad_"
        case Kind.STATE:
            return name in kn.STATE_WRITERS
        case Kind.TENSOR | Kind.FIELD:
            return kn.in_place(name)
        case Kind.PART:
            return kn.in_place(name) or name in kn.MODULE_WRITERS | kn.MODULE_CONTAINER_WRITERS
    return False


# -- what a method gives -------------------------------------------------------------------------


def _method_result(
    walk: Walk, node: ast.Call, name: str, value: Value, given: list[Given]
) -> Value:
    """Return what a method of torch or Python gives, by what its receiver is."""
    match value.type.kind:
        case Kind.TENSOR | Kind.FIELD:
            return _tensor_method(walk, node, name, value, given)
        case Kind.MODEL:
            return _module_method(walk, node, name, value, given)
        case Kind.PART:
            return _part_method(walk, node, name, value)
        case Kind.STATE if name == "bind":
            return construct(walk, node, en.Class("OptState", Kind.STATE), given)
        case Kind.CONTAINER | Kind.UNKNOWN | Kind.OBJECT:
            found = _container_method(walk, node, name, value, given)
            if found is not None:
                return found
    return unknown_result(walk, node, [g.value for g in given])


def _tensor_method(
    walk: Walk, node: ast.Call, name: str, value: Value, given: list[Given]
) -> Value:
    cut = name in kn.CONSTANTS
    if cut:
        value = cut_off(value)
    if name == "detach_" and isinstance(node.func, ast.Attribute):
        walk.set_graph(root_name(node.func.value) or "", frozenset())
    if kn.in_place(name):
        return value
    if name in kn.TENSOR_NUMBERS:
        return PLAIN_VALUE
    if name in kn.VIEWS:
        return value._replace(view=True)
    if name in kn.VIEW_LISTS:
        return holding([value._replace(view=True)], walk.fresh(node))
    others = [] if cut else [g.value for g in given]
    return fresh_tensor(walk.fresh(node, Kind.TENSOR), value, *others, pair=name in kn.PAIRS)


def _module_method(
    walk: Walk, node: ast.Call, name: str, value: Value, given: list[Given]
) -> Value:
    if name in kn.MODULE_ITSELF:
        return value
    if name in kn.MODULE_PARTS:
        return _module_parts(walk, node, name, value)
    field = walk.attribute(value, name)
    if field.type.kind is Kind.MODEL:  # m.enc(x): a call of a module
        out = fresh_tensor(walk.fresh(node, Kind.TENSOR), *(g.value for g in given))
        walk.forward_runs(field)
        return walk.differentiable(out, field)
    return Value(en.UNKNOWN, frozenset({walk.fresh(node)}))


def _part_method(walk: Walk, node: ast.Call, name: str, value: Value) -> Value:
    """A tensor's or a module's method: it may give the same storage, or the module itself."""
    if name in kn.MODULE_PARTS:
        return _module_parts(walk, node, name, value)
    if kn.in_place(name) or name in kn.VIEWS | kn.MODULE_ITSELF:
        return value._replace(view=True)
    if name in kn.VIEW_LISTS:
        return holding([value._replace(view=True)], walk.fresh(node))
    if name in kn.CONTAINER_VIEWS:
        return _view_of_items(walk, node, name, value)
    return Value(en.UNKNOWN, frozenset({walk.fresh(node)}))


def _module_parts(walk: Walk, node: ast.Call, name: str, value: Value) -> Value:
    """``m.parameters()`` and its like: an iterator that holds parts of the module."""
    type_ = en.PARAMETER if name in kn.MODULE_PARAMETERS else en.FIELD
    inner = part(value, "[]", type_ if name in kn.MODULE_TENSORS else en.Type(Kind.MODEL))
    if type_.trained and name in kn.MODULE_TENSORS:
        inner = walk.differentiable(inner, inner)
    if name.startswith("get_"):
        return walk.field_read(node, inner)
    if name in kn.NAMED_PARTS:
        inner = holding([PLAIN_VALUE, inner], walk.fresh(node), positional=True)
    return holding([inner], walk.fresh(node))


def _container_method(
    walk: Walk, node: ast.Call, name: str, value: Value, given: list[Given]
) -> Value | None:
    if name in kn.CONTAINER_VIEWS:
        return _view_of_items(walk, node, name, value)
    if name in kn.CONTAINER_GETTERS and value.type.kind is Kind.CONTAINER:
        item = cut_off(part(value, "[]"))
        return join(item, given[1].value) if len(given) > 1 else item
    return None


def _view_of_items(walk: Walk, node: ast.Call, name: str, value: Value) -> Value:
    """``d.values()``, ``d.items()``."""
    item, fresh = part(value, "[]"), walk.fresh(node)
    return holding([holding([PLAIN_VALUE, item], fresh, True) if name == "items" else item], fresh)
