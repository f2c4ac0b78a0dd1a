"""What a call may give back: something fresh, an argument, or a part of one."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.arguments import meet
from dslmut.checking.builtin_calls import BUILTIN_CLASSES, call_builtin
from dslmut.checking.entities import Function, Kind, Role, Type
from dslmut.checking.facts import Note
from dslmut.checking.lattice import (
    NOTHING,
    PLAIN_VALUE,
    Given,
    Value,
    fresh_tensor,
    graph_of,
    holding,
    join_all,
    partial,
    with_contents,
)
from dslmut.checking.origins import Origin, Root
from dslmut.checking.summaries import given_back
from dslmut.checking.values import is_tensor
from dslmut.checking.walk import Walk


def result(
    walk: Walk,
    node: ast.Call,
    function: Function,
    given: list[Given],
    receiver: Value | None = None,
) -> Value:
    """Return what a known function may give back."""
    name = function.qualified
    if name.startswith(("builtins.", "itertools.")):
        return call_builtin(walk, node, name.rpartition(".")[2], given) or unknown_result(
            walk, node, [g.value for g in given]
        )
    if name in kn.COPIES or function.fresh:
        return _fresh(walk, node, function, given)
    if name in kn.SHALLOW and given:
        return given[0].value
    if kn.of_torch(name):
        return _torch(walk, node, name, given)
    if name == "functools.partial" and given:
        return partial(given[0].value, given[1:], walk.fresh(node, Kind.CALLABLE))
    if function.passes and not function.result_known:  # value_and_grad: the loss and a record
        loss = fresh_tensor(walk.fresh(node, Kind.TENSOR))
        return Value(en.container(), contents=(loss, Value(en.OBJECT)), positional=True)
    values = [g.value for g in given] + ([receiver] if receiver is not None else [])
    found = given_back(walk, node, function, given, receiver)
    if found is not None:
        return _read(walk, node, found)
    if function.result_known:
        return known_result(walk, node, function.result, values)
    return unknown_result(walk, node, values)


def _fresh(walk: Walk, node: ast.AST, function: Function, given: list[Given]) -> Value:
    """Return what shares nothing with the arguments; but a state holds its model."""
    copied = function.qualified in kn.COPIES and given
    type_ = given[0].value.type if copied else function.result
    # Of a part it is not known what it is; a copy of it may be a model.
    kind = Kind.MODEL if type_.kind is Kind.PART else type_.kind
    made = Value(type_, frozenset({walk.fresh(node, kind)}))
    if type_.kind is not Kind.STATE or copied:
        return made
    models = [g.value for g in given if g.value.type.kind is Kind.MODEL]
    return with_contents(made, *models) if models else made


def _read(walk: Walk, node: ast.Call, value: Value, depth: int = 3) -> Value:
    """Return what a call gives: perhaps a field, or a container with fields, made for the caller."""
    made = all(o.root is Root.FRESH for o in value.origins)
    if value.type.kind is not Kind.CONTAINER or not made or not depth:
        return walk.field_read(node, value)
    walk.facts.note(node, Note.CONTAINER)
    contents = tuple(_read(walk, node, v, depth - 1) for v in value.contents)
    return value._replace(contents=contents)


def computed(walk: Walk, node: ast.Attribute, getter: Function, owner: Value) -> Value:
    """Return what reading a property gives."""
    found = given_back(walk, node, getter, [], owner)
    if found is not None:
        return walk.field_read(node, found)
    if getter.result_known:
        return known_result(walk, node, getter.result, [owner])
    return unknown_result(walk, node, [owner])


def known_result(walk: Walk, node: ast.AST, type: Type, values: list[Value]) -> Value:
    """Return a result of a known type: fresh, or one of the arguments that may be of that type."""
    if type.kind is Kind.PLAIN:
        return PLAIN_VALUE
    fresh = walk.fresh(node, type.kind)
    same = [v for v in values if may_be(v.type, type)]
    origins = frozenset({fresh}).union(*(v.origins for v in same))
    contents = join_all(v for s in same for v in s.contents)
    if type.kind is Kind.CONTAINER:
        contents = join_all([contents, *(v for v in values if v not in same)])
    made = Value(type, origins, graph=graph_of(values) if type.kind is Kind.TENSOR else frozenset())
    return with_contents(made, contents) if contents.reachable else made


def may_be(given: Type, result: Type) -> bool:
    """Say whether a function may return an argument of one type as a result of another."""
    if {given.kind, result.kind} <= {Kind.TENSOR, Kind.FIELD}:
        return True
    if given.kind is Kind.UNKNOWN:
        return False
    if result.kind is Kind.UNKNOWN:
        return given.kind in en.MARKABLE
    return given.kind is result.kind and (given.cls is None or result.cls in (None, given.cls))


def unknown_result(walk: Walk, node: ast.AST, values: Iterable[Value]) -> Value:
    """Return what we don't know: fresh, or any argument that is known to be changeable."""
    values = list(values)
    origins: set[Origin] = {walk.fresh(node)}
    for value in values:
        if value.type.kind in en.MARKABLE or (value.type.kind is Kind.PART and value.inside_model):
            origins |= value.origins
    return Value(en.UNKNOWN, frozenset(origins), graph=graph_of(values))


def _torch(walk: Walk, node: ast.Call, name: str, given: list[Given]) -> Value:
    """Torch's functions allocate, but for those that give views or work in place."""
    bare = name.rpartition(".")[2]
    first = given[0].value if given else NOTHING
    if bare in kn.VIEWS or kn.in_place(bare):
        type_ = first.type if is_tensor(first) else en.TENSOR
        view = not kn.in_place(bare)
        return Value(type_, first.origins, reads=first.reads, view=view)
    if bare in kn.VIEW_LISTS:
        inner = Value(first.type, first.origins, reads=first.reads, view=True)
        return holding([inner], walk.fresh(node))
    if kn.gives_tensors(name):
        constant = bare in kn.CONSTANTS
        values = [] if constant else [g.value for g in given]
        return fresh_tensor(walk.fresh(node, Kind.TENSOR), *values, pair=bare in kn.PAIRS)
    return unknown_result(walk, node, [g.value for g in given])


def construct(walk: Walk, node: ast.Call, cls: en.Class, given: list[Given]) -> Value:
    """Make an object of a class: fresh, but it holds what it was given."""
    meet(walk, node, Function(cls.name, Role.BUILTIN), given)
    values = [g.value for g in given]
    if cls.name in BUILTIN_CLASSES and cls.kind is Kind.OBJECT:
        made = call_builtin(walk, node, cls.name, given)
        return made if made is not None else unknown_result(walk, node, values)
    if cls.kind is Kind.STATE:
        for value in values:  # an optimizer needs the parameters themselves
            walk.needed(value)
    copies = isinstance(cls.key, tuple) and cls.key[0] in kn.COLLATORS
    held = NOTHING if copies else join_all(values)
    made = Value(cls.type, frozenset({walk.fresh(node, cls.kind)}))
    return with_contents(made, held) if held.reachable else made
