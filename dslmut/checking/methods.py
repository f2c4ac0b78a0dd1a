"""Calls of methods: known by what the receiver is, not by the method's name alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.arguments import Given, mark, mark_unknown, meet_parameters
from dslmut.checking.entities import Function, Kind, Role, Type
from dslmut.checking.facts import Argument, Verb
from dslmut.checking.origins import PLAIN_VALUE, Origin, Value, fresh_tensor, holding, join, part
from dslmut.checking.results import construct, result, unknown_result
from dslmut.checking.walk import Walk, is_tensor


def call_method(
    walk: Walk, node: ast.Call, func: ast.Attribute, receiver: Given, given: list[Given]
) -> Value:
    """Return what ``receiver.name(...)`` gives, and record what it changes."""
    name, value = func.attr, receiver.value
    method = value.type.cls.members.method(name) if value.type.cls else None
    if method is not None and method.role is not Role.BUILTIN:
        return own_method(walk, node, method, receiver, given)
    touched = frozenset(changed_by(value, name))
    if value.type.kind in (Kind.FIELD, Kind.PART) and kn.in_place(name) and not _own(value, name):
        walk.facts.in_place.add(id(node))
    walk.change(node, receiver.subject, touched, Verb.METHOD, name)
    if receiver.marked and not touched:
        mark(walk, receiver, f"`{name}`")
    if method is not None:
        meet_parameters(walk, method, given)
    else:
        mark_unknown(walk, given)
    if value.type.kind is Kind.STATE and name == "step":
        age_models(walk, node, receiver)
    if is_container(value) and name in kn.CONTAINER_ADDERS:
        for argument in given:
            walk.hold(receiver.subject, argument.value, node)
    return method_result(walk, node, name, value, given)


def own_method(
    walk: Walk, node: ast.Call, method: Function, receiver: Given, given: list[Given]
) -> Value:
    """Call a method whose definition is known."""
    if method.marks_receiver and not receiver.marked and not is_super(receiver):
        walk.facts.record(
            Argument(
                receiver.node, False, method, method.parameters[0] if method.parameters else None,
                method.name, receiver.value,
            )
        )  # fmt: skip
    elif receiver.marked or method.marks_receiver:
        mark(walk, receiver, method.name)
    rest = method.parameters[1:] if method.parameters and method.method else method.parameters
    meet_parameters(walk, bound(method, rest), given)
    return result(walk, node, method, given, receiver.value)


def bound(method: Function, rest: tuple[en.Parameter, ...] | None) -> Function:
    """Return a method without its receiver."""
    return replace(method, parameters=rest, method=False)


def is_super(receiver: Given) -> bool:
    """Say whether a receiver is ``super()``, which counts as marked."""
    node = receiver.subject
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )


def is_container(value: Value) -> bool:
    """Say whether a value may be an ordinary container of Python."""
    return value.type.kind in (Kind.CONTAINER, Kind.UNKNOWN, Kind.OBJECT)


def age_models(walk: Walk, node: ast.AST, receiver: Given) -> None:
    """``opt.step()`` changes the model that the state holds."""
    held = receiver.value.holds
    walk.change(node, receiver.subject, held, Verb.METHOD, "step")
    if not held:
        # A state that came as a parameter: any model may be its own.
        every = {o for b in walk.env.values() for o in b.value.origins if o.kind is Kind.MODEL}
        walk.env.stale(frozenset(every))


def _own(value: Value, name: str) -> bool:
    return value.view and name in kn.OWN_ATTRIBUTES


def changed_by(value: Value, name: str) -> Iterator[Origin]:
    """Yield those things that a receiver may be which a method of that name changes."""
    if _own(value, name):
        return
    for origin in value.origins:
        known = value.type.kind not in (Kind.UNKNOWN, Kind.PART)
        type_ = value.type if known else origin.type
        if changes(type_.kind, name, exactly=known) and (known or not value.view):
            yield origin


def changes(kind: Kind, name: str, exactly: bool) -> bool:
    """Say whether a method of that name changes a receiver of a kind.

    Args:
        kind: What the receiver is.
        name: The method.
        exactly: Whether that is certain; if not, names that tensors have too don't count.
    """
    match kind:
        case Kind.MODEL:
            container = exactly and name in kn.MODULE_CONTAINER_WRITERS
            mover = exactly and name in kn.MODULE_MOVERS
            shared = not exactly and name == "requires_grad_"
            return (name in kn.MODULE_WRITERS and not shared) or mover or container
        case Kind.STATE:
            return name in kn.STATE_WRITERS
        case Kind.TENSOR | Kind.FIELD:
            return kn.in_place(name)
        case Kind.PART:
            return (
                kn.in_place(name)
                or name in kn.MODULE_WRITERS
                or name in kn.MODULE_CONTAINER_WRITERS
            )
    return False


def method_result(walk: Walk, node: ast.Call, name: str, value: Value, given: list[Given]) -> Value:
    """Return what a method of torch or Python gives, by what its receiver is."""
    fresh = walk.fresh(node)
    kind = value.type.kind
    if is_tensor(value):
        return _tensor_method(walk, node, name, value)
    if kind is Kind.STATE and name == "bind":
        return construct(walk, node, en.Class("OptState", Kind.STATE), given)
    if kind is Kind.MODEL or (kind is Kind.PART and name in kn.MODULE_PARTS):
        if name in kn.MODULE_ITSELF:
            return value
        if name in kn.MODULE_PARTS:
            return _module_parts(name, value, fresh)
        return fresh_tensor(walk.fresh(node, Kind.TENSOR))
    if kind is Kind.PART:
        # A tensor's or a module's method: it may give the same storage, or the module itself.
        if kn.in_place(name) or name in kn.VIEWS | kn.MODULE_ITSELF:
            return Value(value.type, value.origins, value.holds, reads=value.reads, view=True)
        return Value(
            en.UNKNOWN,
            frozenset({fresh}),
            value.reachable if name in kn.CONTAINER_VIEWS else frozenset(),
        )
    if kind in (Kind.CONTAINER, Kind.UNKNOWN, Kind.OBJECT):
        if name == "items" and kind is Kind.CONTAINER:
            return holding([holding([PLAIN_VALUE, part(value, "[]")], fresh, True)], fresh)
        if name in kn.CONTAINER_VIEWS:
            return holding([part(value, "[]")], fresh)
        if name in kn.CONTAINER_GETTERS and kind is Kind.CONTAINER:
            return join(part(value, "[]"), given[1].value) if len(given) > 1 else part(value, "[]")
    return unknown_result(walk, node, given)


def _tensor_method(walk: Walk, node: ast.Call, name: str, value: Value) -> Value:
    if kn.in_place(name):
        return value
    if name in kn.PLAIN_METHODS or name in kn.TENSOR_NUMBERS:
        return PLAIN_VALUE
    if name in kn.VIEWS:
        return Value(value.type, value.origins, value.holds, reads=value.reads, view=True)
    if name in kn.VIEW_LISTS:
        inner = Value(value.type, value.origins, value.holds, reads=value.reads, view=True)
        return holding([inner], walk.fresh(node))
    return fresh_tensor(walk.fresh(node, Kind.TENSOR))


def _module_parts(name: str, value: Value, fresh: Origin) -> Value:
    """``m.parameters()`` and its like: an iterator that holds parts of the module."""
    type_ = Type(Kind.FIELD) if name in kn.MODULE_TENSORS else Type(Kind.MODEL)
    if name in ("state_dict",):
        type_ = Type(Kind.FIELD)
    inner = part(value, "[]", type_)
    if name.startswith("get_"):
        return inner
    if name in kn.NAMED_PARTS:
        inner = holding([PLAIN_VALUE, inner], fresh, positions=True)
    return holding([inner], fresh)
