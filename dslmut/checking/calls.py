"""Calls: which function, with which markers, and what is changed by it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.arguments import arguments, is_marker, mark_all, matched, meet, unmarked
from dslmut.checking.builtin_calls import call_builtin
from dslmut.checking.differentiation import backward, check_differentiated, note_writes
from dslmut.checking.entities import Function, Kind
from dslmut.checking.facts import Misplaced, Place, Verb
from dslmut.checking.lattice import (
    NOTHING,
    Bound,
    Given,
    Partial,
    Value,
    fresh_tensor,
    holding,
    join,
    join_all,
    part,
)
from dslmut.checking.methods import call_method, changed_by
from dslmut.checking.resolve import last_name
from dslmut.checking.results import construct, result, unknown_result
from dslmut.checking.running import age_what_may_change, follow
from dslmut.checking.values import constant_parts, is_tensor, now
from dslmut.checking.walk import Walk


def call(walk: Walk, node: ast.Call) -> Value:
    """Return what a call may give, and record what it changes."""
    if is_marker(walk, node):
        walk.facts.record(Misplaced(node, Place.NOT_AN_ARGUMENT))
        return join_all(walk.evaluate(a) for a in node.args)
    func = node.func
    if not isinstance(func, ast.Attribute):
        callee = walk.peek(func)
        given = arguments(walk, node)
        _called_back(walk, node, given)
        return apply(walk, node, callee, given)
    marked, subject = unmarked(walk, func.value)
    walk.wait(func, _receiver(walk, subject, func.attr, marked))
    given = arguments(walk, node)
    _called_back(walk, node, given)
    receiver = walk.used(walk.done(func))
    if func.attr in ("__setattr__", "__delattr__"):
        own = (
            [] if isinstance(receiver.entity, en.Class) else [Given(func.value, subject, receiver)]
        )
        return call_builtin(walk, node, func.attr.strip("_"), [*own, *given]) or NOTHING
    if isinstance(receiver.entity, en.Module | en.Class):
        return apply(walk, node, walk.attribute(receiver, func.attr), given)
    return call_method(walk, node, func.attr, Given(func.value, subject, receiver, marked), given)


def _receiver(walk: Walk, subject: ast.expr, method: str, marked: bool) -> Value:
    """Evaluate a receiver: its value is needed, or the very object, or neither."""
    if marked or kn.in_place(method) or method in kn.OBJECT_METHODS:
        return walk.handle(subject)
    if method in kn.TENSOR_NUMBERS - kn.VALUE_METHODS:
        return walk.peek(subject)
    return walk.evaluate(subject)


def apply(walk: Walk, node: ast.Call, callee: Value, given: list[Given]) -> Value:
    """Return what calling *callee* gives."""
    entity = callee.entity
    if isinstance(entity, Bound) and not callee.contents:
        return call_method(walk, node, entity.name, given[0], given[1:]) if given else NOTHING
    if isinstance(entity, Bound):
        kept = _kept_receiver(walk, callee.contents[0], entity.name)
        receiver = Given(node.func, node.func, kept)
        return call_method(walk, node, entity.name, receiver, given)
    if isinstance(entity, Partial):
        return _call_partial(walk, node, callee, entity, given)
    if isinstance(entity, Function):
        return call_function(walk, node, callee, entity, given)
    age_what_may_change(walk, callee)
    if isinstance(entity, en.Class):
        if entity.name in ("map", "filter") and entity.kind is Kind.OBJECT and given:
            return _mapped(walk, node, entity.name, given)
        return construct(walk, node, entity, given)
    cls = callee.type.cls
    if callee.type.kind is Kind.OBJECT and cls is not None and cls.members.method("__call__"):
        return call_method(walk, node, "__call__", Given(node.func, node.func, callee), given)
    mark_all(walk, given, "this call")
    if is_callable_model(callee):
        out = fresh_tensor(walk.fresh(node, Kind.TENSOR), *(g.value for g in given))
        walk.forward_runs(callee)
        return walk.differentiable(out, callee)
    values = [g.value for g in given]
    if not walk.restricted:  # a function that others gave to this one: it may cut anything off
        values = list(map(constant_parts, values))
    found = unknown_result(walk, node, values)
    if callee.type.kind is Kind.CALLABLE and callee.contents:
        return walk.field_read(node, join(now(join_all(callee.contents)), found))
    return found


def _kept_receiver(walk: Walk, receiver: Value, method: str) -> Value:
    """Return the receiver of a method that was kept: what was read then is used now."""
    if kn.in_place(method) or method in kn.OBJECT_METHODS:
        return walk.needed(receiver)
    return walk.used(receiver)


def _called_back(walk: Walk, node: ast.Call, given: list[Given]) -> None:
    """The functions that a call gets may be called by it, and generators asked for items."""
    for argument in given:
        entity = argument.value.entity
        if isinstance(entity, Bound) and last_name(node.func) != "partial":  # call(m.eval)
            for receiver in argument.value.contents:
                touched = changed_by(receiver, entity.name)
                walk.change(argument.node, argument.subject, touched, Verb.METHOD, entity.name)
        if not isinstance(entity, Function) or follow(walk, entity, None, node) is None:
            age_what_may_change(walk, argument.value)


def _call_partial(
    walk: Walk, node: ast.Call, callee: Value, entity: Partial, given: list[Given]
) -> Value:
    """Call a function that has got some of its arguments before."""
    function, *values = callee.contents  # not those of the entity: changes since have aged these
    kept = [g._replace(value=walk.used(v)) for g, v in zip(entity.given, values)]
    if not isinstance(function.entity, Function):
        return apply(walk, node, function, [*kept, *given])
    met = [p.name for _, p in matched(function.entity.parameters or (), kept) if p is not None]
    rest = [p for p in function.entity.parameters or () if p.name not in met]
    mark_all(walk, kept, function.entity.name)
    open_ = replace(function.entity, parameters=tuple(rest))
    return call_function(walk, node, function, open_, given, kept)


def _mapped(walk: Walk, node: ast.Call, name: str, given: list[Given]) -> Value:
    """``map`` and ``filter`` call a function with the items of what they are given."""
    items = [g._replace(value=part(g.value, "[]")) for g in given[1:]]
    gives = apply(walk, node, given[0].value, items)
    return holding([gives] if name == "map" else [i.value for i in items], walk.fresh(node))


def is_callable_model(callee: Value) -> bool:
    """Say whether calling a value runs a module's ``forward``."""
    return callee.type.kind is Kind.MODEL or (callee.type.kind is Kind.PART and callee.inside_model)


def call_function(
    walk: Walk,
    node: ast.Call,
    callee: Value,
    function: Function,
    given: list[Given],
    kept: Iterable[Given] = (),
) -> Value:
    """Return what a known function gives, having recorded its markers and what it writes.

    Args:
        walk: The walk.
        node: The call.
        callee: What is called.
        function: The same, with the parameters that are open.
        given: The arguments of this call.
        kept: Those that a ``partial`` has had before.
    """
    if function.passes:
        _pass_on(walk, node, given)
    else:
        meet(walk, node, function, given)
    _differentiates(walk, node, function, given)
    given = [*kept, *given]
    _known_writer(walk, node, function, given)
    if isinstance(callee.entity, Function):
        function = callee.entity
    followed = follow(walk, function, given, node)
    if followed is not None:
        return followed
    age_what_may_change(walk, callee)
    note_writes(walk, node, function, given)
    return result(walk, node, function, given)


def _differentiates(walk: Walk, node: ast.Call, function: Function, given: list[Given]) -> None:
    """Record what a function differentiates, or repeats, too late or with changes in it."""
    name = function.qualified
    if name in kn.BACKWARD:
        backward(walk, node, [g.value for g in given[:1]])
    elif name in kn.REPEATING | kn.DIFFERENTIATING or (
        function.passes and name != "functools.partial"
    ):
        check_differentiated(walk, node, function, given)


def _pass_on(walk: Walk, node: ast.Call, given: list[Given]) -> None:
    """Hand the arguments behind the first on to it, as ``value_and_grad(f, mut(m), x)`` does."""
    entity = given[0].value.entity if given else None
    if isinstance(entity, Function) and not entity.passes:
        meet(walk, node, entity, given[1:])
    else:
        mark_all(walk, given[1:], "this call")


def _known_writer(walk: Walk, node: ast.Call, function: Function, given: list[Given]) -> None:
    """Record what a function of torch, or our own ``set_field``, is known to change."""
    bare, known = function.qualified.rpartition(".")[2], function.qualified in kn.OWN_WRITERS
    if not given or not (kn.of_torch(function.qualified) or known):
        return
    if bare == "swap_tensors":
        what = "`swap_tensors` exchanges the tensors behind all names that they have"
        for argument in given[:2]:
            if walk.opaque(node, argument.value, what, "set the fields: `m.w = value`"):
                return
    if bare in kn.GRADIENT_WRITERS:
        for argument in given:
            walk.needed(argument.value)
        return
    written = [g for g in given if g.keyword == "out"]
    if known:
        written.append(given[0])
    elif bare in kn.FUNCTION_WRITERS:
        written += [g for i, g in enumerate(given) if i in kn.FUNCTION_WRITERS[bare]]
    elif kn.in_place(bare) or _works_in_place(bare, given):
        written.append(given[0])
    for argument in written:
        write(walk, node, argument, bare)


def _works_in_place(bare: str, given: list[Given]) -> bool:
    """Say whether ``inplace=True`` is given, by name or by position."""
    position = kn.INPLACE_POSITIONS.get(bare)
    for i, argument in enumerate(given):
        if argument.keyword == "inplace" or (argument.keyword is None and i == position):
            node = argument.subject
            return isinstance(node, ast.Constant) and node.value is True
    return False


def write(walk: Walk, node: ast.Call, argument: Given, name: str) -> None:
    """Record that a known function changes an argument, or what that holds."""
    value = argument.value
    touched = value.origins if is_tensor(value) or value.inside_model else value.held
    for each in (value, *value.contents):
        walk.written(node, each)
    walk.change(node, argument.subject, touched, Verb.WRITER, name)
