"""Calls: which argument meets which parameter, what is changed by them, and what comes back."""

from __future__ import annotations

import ast

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.arguments import (
    Given,
    arguments,
    is_marker,
    mark_unknown,
    meet_parameters,
    unmarked,
)
from dslmut.checking.entities import Function, Kind
from dslmut.checking.facts import Misplaced, Place, Verb
from dslmut.checking.methods import call_method
from dslmut.checking.origins import (
    Bound,
    Value,
    fresh_tensor,
    join_all,
)
from dslmut.checking.results import construct, result, unknown_result
from dslmut.checking.walk import Walk, is_tensor


def call(walk: Walk, node: ast.Call) -> Value:
    """Return what a call may give, and record what it changes."""
    if is_marker(walk, node):
        return _stray_marker(walk, node)
    func = node.func
    if isinstance(func, ast.Attribute):
        marked, subject = unmarked(walk, func.value)
        receiver = walk.handle(subject)
        if not isinstance(receiver.entity, en.Module | en.Class):
            given = arguments(walk, node)
            return call_method(
                walk, node, func, Given(func.value, subject, receiver, marked), given
            )
        callee = walk.attribute(receiver, func.attr)
    else:
        callee = walk.handle(func)
    return apply(walk, node, callee, arguments(walk, node))


def _stray_marker(walk: Walk, node: ast.Call) -> Value:
    walk.facts.record(Misplaced(node, Place.NOT_AN_ARGUMENT))
    return join_all(walk.evaluate(a) for a in node.args)


# -- what a call does ----------------------------------------------------------------------------


def apply(walk: Walk, node: ast.Call, callee: Value, given: list[Given]) -> Value:
    """Return what calling *callee* gives."""
    entity = callee.entity
    if isinstance(entity, Bound):
        receiver = Given(node.func, node.func, entity.receiver)
        func = ast.copy_location(ast.Attribute(node.func, entity.name, ast.Load()), node.func)
        return call_method(walk, node, func, receiver, given)
    if isinstance(entity, Function):
        return call_function(walk, node, entity, given)
    if isinstance(entity, en.Class):
        return construct(walk, node, entity, given)
    mark_unknown(walk, given)
    if is_callable_model(callee):
        return fresh_tensor(walk.fresh(node, Kind.TENSOR))
    return unknown_result(walk, node, given)


def is_callable_model(callee: Value) -> bool:
    """Say whether calling a value runs a module's ``forward``."""
    return callee.type.kind is Kind.MODEL or (callee.type.kind is Kind.PART and callee.inside_model)


def call_function(
    walk: Walk,
    node: ast.Call,
    function: Function,
    given: list[Given],
    receiver: Value | None = None,
) -> Value:
    """Return what a known function gives, having checked its markers."""
    if function.passes:
        pass_on(walk, given)
    else:
        meet_parameters(walk, function, given)
    torch_writer(walk, node, function, given)
    return result(walk, node, function, given, receiver)


def pass_on(walk: Walk, given: list[Given]) -> None:
    """Hand the arguments behind the first on to it, as ``value_and_grad(f, mut(m), x)`` does."""
    if not given:
        return
    entity = given[0].value.entity
    if isinstance(entity, Function) and not entity.passes:
        meet_parameters(walk, entity, given[1:])
    else:
        mark_unknown(walk, given[1:])


def torch_writer(walk: Walk, node: ast.Call, function: Function, given: list[Given]) -> None:
    """Record what a function of torch is known to change."""
    if not kn.module_of_torch(function.qualified):
        return
    bare = function.qualified.rpartition(".")[2]
    for argument in given:
        if argument.keyword == "out" or (_inplace(given) and argument is given[0]):
            write(walk, node, argument, bare)
    if bare in kn.GRADIENT_WRITERS or not given:
        return
    if kn.in_place(bare):
        write(walk, node, given[0], bare)
    elif bare in kn.FUNCTION_WRITERS:
        write(walk, node, given[-1], bare)


def _inplace(given: list[Given]) -> bool:
    return any(
        g.keyword == "inplace" and isinstance(g.subject, ast.Constant) and g.subject.value is True
        for g in given
    )


def write(walk: Walk, node: ast.Call, argument: Given, name: str) -> None:
    """Record that a known function changes an argument, or what that holds."""
    value = argument.value
    touched = value.origins if is_tensor(value) or value.inside_model else value.holds
    walk.facts.in_place.add(id(node)) if value.type.kind in (Kind.FIELD, Kind.PART) else None
    walk.change(node, argument.subject, touched, Verb.WRITER, name)
