"""Calls: which argument meets which parameter, what is changed by them, and what comes back."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.entities import Function, Kind, Parameter, Passing, Role, Type
from dslmut.checking.facts import Argument, Misplaced, Place, Verb
from dslmut.checking.methods import call_method
from dslmut.checking.origins import (
    NOTHING,
    Bound,
    Origin,
    Value,
    fresh_tensor,
    held_by,
    holding,
    join_all,
    part,
)
from dslmut.checking.walk import Walk, is_tensor

PLAIN = Value(en.PLAIN)


@dataclass(frozen=True)
class Given:
    """One argument of a call.

    Args:
        node: Its expression, the marker included.
        subject: The expression without the marker.
        value: What it may be.
        marked: Whether it is ``mut(...)``.
        keyword: Its name, for a keyword argument.
        star: Whether it stands for any number of arguments.
    """

    node: ast.expr
    subject: ast.expr
    value: Value
    marked: bool = False
    keyword: str | None = None
    star: bool = False


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


# -- markers -------------------------------------------------------------------------------------


def is_marker(walk: Walk, node: ast.expr) -> bool:
    """Say whether an expression is a call of ``mut``, under whatever name."""
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Name(id=name):
            entity = walk.lookup(name).entity
        case ast.Attribute(value=ast.Name(id=owner), attr=attr):
            module = walk.lookup(owner).entity
            if not isinstance(module, en.Module):
                return False
            entity = walk.resolver.member(module, attr)
        case _:
            return False
    return entity == en.Word("mut")


def unmarked(walk: Walk, node: ast.expr) -> tuple[bool, ast.expr]:
    """Take the marker off an argument or receiver, and say whether there was one."""
    if not is_marker(walk, node):
        return False, node
    assert isinstance(node, ast.Call)
    walk.facts.markers.add(id(node))
    if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
        walk.facts.record(Misplaced(node, Place.ARITY))
        return False, node.args[0] if node.args else ast.copy_location(ast.Constant(None), node)
    inner = node.args[0]
    if not isinstance(inner, ast.Name):
        walk.facts.record(Misplaced(node, Place.EXPRESSION))
        return True, unmarked(walk, inner)[1]
    return True, inner


def _stray_marker(walk: Walk, node: ast.Call) -> Value:
    walk.facts.record(Misplaced(node, Place.NOT_AN_ARGUMENT))
    return join_all(walk.evaluate(a) for a in node.args)


# -- arguments -----------------------------------------------------------------------------------


def arguments(walk: Walk, node: ast.Call) -> list[Given]:
    """Evaluate the arguments of a call, in order."""
    given = [_argument(walk, a, None) for a in node.args]
    return given + [_argument(walk, k.value, k.arg, star=k.arg is None) for k in node.keywords]


def _argument(walk: Walk, node: ast.expr, keyword: str | None, star: bool = False) -> Given:
    if isinstance(node, ast.Starred):
        return Given(node, node.value, walk.evaluate(node), star=True)
    marked, subject = unmarked(walk, node)
    value = walk.handle(subject) if marked else walk.evaluate(subject)
    return Given(node, subject, value, marked, keyword, star)


def matched(
    parameters: Iterable[Parameter], given: Iterable[Given]
) -> Iterator[tuple[Given, Parameter | None]]:
    """Pair the arguments of a call with the parameters of a function.

    What stands behind a star has no known parameter.
    """
    parameters = tuple(parameters)
    positional = [p for p in parameters if p.passing in (Passing.POSITIONAL, Passing.EITHER)]
    rest = next((p for p in parameters if p.passing is Passing.STAR), None)
    named = {p.name: p for p in parameters if p.passing in (Passing.EITHER, Passing.KEYWORD)}
    others = next((p for p in parameters if p.passing is Passing.DOUBLE_STAR), None)
    position: int | None = 0
    for argument in given:
        if argument.keyword is not None:
            yield argument, named.get(argument.keyword, others)
        elif argument.star or position is None:
            position = None
            yield argument, None
        else:
            yield argument, positional[position] if position < len(positional) else rest
            position += 1


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


def meet_parameters(walk: Walk, function: Function, given: list[Given]) -> None:
    """Compare each argument's marker with its parameter."""
    parameters = function.parameters
    for argument, parameter in matched(parameters or (), given):
        expected = parameter is not None and parameter.mut
        if argument.marked and accepts_mark(walk, function, expected, parameters is None):
            mark(walk, argument, function.name)
        elif argument.marked or (expected and not is_none(argument)):
            walk.facts.record(
                Argument(
                    argument.node,
                    argument.marked,
                    function,
                    parameter,
                    function.name,
                    argument.value,
                )
            )


def accepts_mark(walk: Walk, function: Function, expected: bool, unknown: bool) -> bool:
    """Say whether a marked argument means something to a function."""
    if expected:
        return True
    if function.role is Role.PLAIN:
        # A plain function may change anything; but only @fn hands it the object, not the token.
        return walk.restricted
    return function.role is Role.FN and unknown


def is_none(argument: Given) -> bool:
    """Say whether an argument is left out by ``None``."""
    return isinstance(argument.subject, ast.Constant) and argument.subject.value is None


def mark(walk: Walk, argument: Given, target: str) -> None:
    """Record that a marked argument is changed by the call."""
    walk.change(argument.node, argument.subject, argument.value.origins, Verb.ARGUMENT, target)


def mark_unknown(walk: Walk, given: Iterable[Given]) -> None:
    """Record the markers of a call of we don't know what."""
    for argument in given:
        if argument.marked:
            mark(walk, argument, "this call")


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


# -- what a call gives ---------------------------------------------------------------------------


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


_BUILTIN_CLASSES = frozenset(
    "list tuple set frozenset dict reversed zip enumerate map filter int float bool str bytes "
    "complex range slice type object super".split()
)


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
        return PLAIN
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
            return holding([holding([PLAIN, *items[:1]], fresh, positions=True)], fresh)
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
        return PLAIN
    return unknown_result(walk, node, given)
