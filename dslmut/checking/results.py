"""What a call may give back: something fresh, an argument, or a part of one."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.arguments import Given
from dslmut.checking.entities import Function, Kind, Role, Type
from dslmut.checking.facts import Argument
from dslmut.checking.origins import (
    NOTHING,
    PLAIN_VALUE,
    Origin,
    Value,
    fresh_tensor,
    held_by,
    holding,
    join_all,
    part,
)
from dslmut.checking.walk import Walk, is_tensor


def result(
    walk: Walk, node: ast.Call, function: Function, given: list[Given], receiver: Value | None
) -> Value:
    """Return what a known function may give back."""
    name = function.qualified
    bare = name.rpartition(".")[2]
    if name.startswith("builtins."):
        return _builtin(walk, node, bare, given)
    if name in kn.COPIES or function.fresh:
        type_ = given[0].value.type if given and name in kn.COPIES else function.result
        return Value(type_, frozenset({walk.fresh(node, type_.kind)}))
    if name in kn.SHALLOW and given:
        return given[0].value
    if kn.module_of_torch(name):
        return _torch(walk, node, bare, given)
    if function.passes and function.role is Role.BUILTIN:
        return Value(elements=(fresh_tensor(walk.fresh(node)), Value(en.OBJECT)))
    values = [g.value for g in given] + ([receiver] if receiver is not None else [])
    if function.result_known:
        return known_result(walk, node, function.result, values)
    return unknown_result(walk, node, given, receiver)


def known_result(walk: Walk, node: ast.AST, type: Type, values: list[Value]) -> Value:
    """Return a result of a known type: fresh, or one of the arguments that may be of that type."""
    if type.kind is Kind.PLAIN:
        return PLAIN_VALUE
    origins: set[Origin] = {walk.fresh(node, type.kind)}
    holds: set[Origin] = set()
    for value in values:
        if may_be(value.type, type):
            origins |= value.origins
            holds |= value.holds
        elif type.kind is Kind.CONTAINER:
            holds |= value.reachable
    return Value(type, frozenset(origins), frozenset(holds))


def may_be(given: Type, result: Type) -> bool:
    """Say whether a function may return an argument of one type as a result of another."""
    kinds = {given.kind, result.kind}
    if kinds <= {Kind.TENSOR, Kind.FIELD}:
        return True
    if given.kind is Kind.UNKNOWN:
        return False
    if result.kind is Kind.UNKNOWN:
        return given.kind in en.MARKABLE
    return given.kind is result.kind and (given.cls is None or result.cls in (None, given.cls))


def unknown_result(
    walk: Walk, node: ast.AST, given: Iterable[Given], receiver: Value | None = None
) -> Value:
    """Return what we don't know: fresh, or any argument that is known to be changeable."""
    values = [g.value for g in given] + ([receiver] if receiver is not None else [])
    origins = {walk.fresh(node)}
    for value in values:
        if value.type.kind in en.MARKABLE or (value.type.kind is Kind.PART and value.inside_model):
            origins |= value.origins
    return Value(en.UNKNOWN, frozenset(origins))


def _torch(walk: Walk, node: ast.Call, bare: str, given: list[Given]) -> Value:
    first = given[0].value if given else NOTHING
    if bare in kn.VIEWS or kn.in_place(bare):
        return Value(
            en.TENSOR if not is_tensor(first) else first.type,
            first.origins,
            reads=first.reads,
            view=not kn.in_place(bare),
        )
    if bare in kn.VIEW_LISTS:
        return Value(en.container(first.type), frozenset({walk.fresh(node)}), first.origins)
    return fresh_tensor(walk.fresh(node, Kind.TENSOR))


def _builtin(walk: Walk, node: ast.Call, name: str, given: list[Given]) -> Value:
    """Python's own functions."""
    for argument in given:
        if argument.marked:
            maker = Function(name, Role.BUILTIN)
            walk.facts.record(Argument(argument.node, True, maker, None, name, argument.value))
    values = [g.value for g in given]
    items = [part(v, "[]") for v in values]
    fresh = walk.fresh(node)
    match name:
        case "zip":
            return holding([holding(items, fresh, positions=True)], fresh)
        case "enumerate":
            return holding([holding([PLAIN_VALUE, *items[:1]], fresh, positions=True)], fresh)
        case "next" | "min" | "max":
            return join_all(items if name == "next" or len(items) == 1 else values)
        case (
            "map"
            | "filter"
            | "list"
            | "tuple"
            | "set"
            | "frozenset"
            | "sorted"
            | "reversed"
            | "iter"
        ):
            source = items[1:] if name in ("map", "filter") else items
            if values and name in ("list", "tuple", "iter") and values[0].elements is not None:
                return holding(values[0].elements, fresh, positions=name == "tuple")
            return holding(source, fresh)
        case "dict":
            return holding(items + [v for v in values if v.type.kind is Kind.MODEL], fresh)
        case "getattr" if len(given) > 1 and isinstance(given[1].subject, ast.Constant):
            return walk.attribute(values[0], str(given[1].subject.value))
        case "vars" | "getattr" | "sum":
            return part(values[0], "[]") if values and name != "sum" else fresh_tensor(fresh)
        case "super":
            return walk.super_()
    if name in kn.NUMBERS:
        return PLAIN_VALUE
    return unknown_result(walk, node, given)


_BUILTIN_CLASSES = frozenset(
    "list tuple set frozenset dict reversed zip enumerate map filter int float bool str bytes "
    "complex range slice type object super".split()
)


def construct(walk: Walk, node: ast.Call, cls: en.Class, given: list[Given]) -> Value:
    """Make an object of a class: fresh, but it holds what it was given."""
    if cls.name in _BUILTIN_CLASSES and cls.kind is Kind.OBJECT:
        return _builtin(walk, node, cls.name, given)
    for argument in given:
        if argument.marked:
            maker = Function(cls.name, Role.BUILTIN)
            walk.facts.record(Argument(argument.node, True, maker, None, cls.name, argument.value))
    held = held_by(holding([g.value for g in given], walk.fresh(node)))
    return Value(cls.type, frozenset({walk.fresh(node, cls.kind)}), held)
