"""What a call gives back by the callee's own text: fresh things, and the arguments or parts of them.

A function is walked once, with its parameters as unknowns; at each call the arguments are put in
for them.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from dslmut.checking import entities as en
from dslmut.checking.arguments import matched
from dslmut.checking.entities import Class, Function, Kind, Parameter, Passing, Role, Text, Type
from dslmut.checking.facts import Write
from dslmut.checking.lattice import (
    NOTHING,
    PLAIN_VALUE,
    Given,
    Use,
    Value,
    graph_of,
    join,
    join_all,
    part,
    shallow,
    with_contents,
)
from dslmut.checking.memory import Memory
from dslmut.checking.origins import ANYWHERE, Origin, Root
from dslmut.checking.resolve import read_parameters
from dslmut.checking.running import result_of, walk_function
from dslmut.checking.scopes import arguments_of
from dslmut.checking.walk import Walk

DEPTH = 5
"""So many functions that call each other are read."""

VARIANTS = 4
"""A function without annotations is read anew for arguments of other types, so many times."""

ROUNDS = 8
"""A function that calls itself is read so often, until what it gives does not change any more."""


@dataclass(frozen=True)
class Summary:
    """What a function does with its parameters.

    Args:
        types: Of the parameters.
        gives: Its result, in terms of them.
        writes: What it writes of them.
    """

    types: tuple[Type, ...]
    gives: Value
    writes: Mapping[Origin, Write]


def given_back(
    walk: Walk, call: ast.AST, function: Function, given: list[Given], receiver: Value | None
) -> Value | None:
    """Return what a call gives by the text of the callee; None where that cannot be read."""
    if function.result_known and function.result.kind is Kind.PLAIN:
        return None
    arguments = bound(function, given, receiver)
    if arguments is None or not any(map(_matters, arguments.values())):
        return None
    found = summary_of(walk, function, arguments)
    if found is None:
        return None
    reach = functools.cache(lambda origin: _reached(walk, origin, arguments))
    value = _put_in(walk, call, function, found.gives, arguments, reach)
    return _as_declared(value, function)


def bound(
    function: Function, given: list[Given], receiver: Value | None = None
) -> dict[str, Value] | None:
    """Return the arguments of a call by the names of the parameters; None behind a star."""
    if any(g.star for g in given):
        return None
    parameters = list(function.parameters or ())
    arguments: dict[str, Value] = {}
    if receiver is not None and function.method and parameters:
        arguments[parameters.pop(0).name] = receiver
    for argument, parameter in matched(parameters, given):
        if parameter is not None:
            value = argument.value
            if parameter.passing in (Passing.STAR, Passing.DOUBLE_STAR):
                value = with_contents(arguments.get(parameter.name, Value(en.container())), value)
            arguments[parameter.name] = value
    return arguments


def _matters(value: Value) -> bool:
    """Say whether it makes a difference that a result is an argument, or computed from it."""
    return bool(graph_of([value])) or any(
        o.kind in en.MARKABLE or (o.root is not Root.FRESH and o.kind in _TELLING)
        for o in value.reachable
    )


def summary_of(walk: Walk, function: Function, arguments: Mapping[str, Value]) -> Summary | None:
    """Return what a function does; None where its text cannot be read, or is being read."""
    text = function.text() if function.text is not None else None
    if text is None:
        return None
    memory = walk.memory
    parameters = _parameters(text, function, arguments)
    variant = tuple(p.type for p in parameters)
    if isinstance(text.read, Summary) and text.read.types == variant:
        return text.read
    variants = memory.known.setdefault(text.node, {})
    if variant not in variants:
        if len(memory.reading) == DEPTH or len(variants) == VARIANTS:
            return None
        variants[variant] = reading = _Reading(Summary(variant, PLAIN_VALUE, {}))
        memory.reading.append(reading)
        variants[variant] = _settled(walk, text, parameters, reading)
        memory.reading.pop()
    found = variants[variant]
    if isinstance(found, _Reading):
        return found.so_far if memory.reading[-1:] == [found] else None
    assert found is None or isinstance(found, Summary)
    return found


class _Reading:
    """A function that is being read, and may call itself."""

    def __init__(self, so_far: Summary) -> None:
        self._so_far = so_far
        self.repeats = False

    @property
    def so_far(self) -> Summary:
        """Return what it is known to do when it calls itself: nothing, to begin with."""
        self.repeats = True
        return self._so_far

    def found(self, summary: Summary) -> bool:
        """Take what was read, and say whether reading again would find no more."""
        same = not self.repeats or _extent(summary) == _extent(self._so_far)
        self._so_far = summary
        return same


def _extent(summary: Summary) -> tuple[object, ...]:
    """Return what a function may give back and change, whatever containers that is in."""
    return summary.gives.reachable, graph_of([summary.gives]), summary.writes


def _settled(
    walk: Walk, text: Text, parameters: tuple[Parameter, ...], reading: _Reading
) -> Summary | None:
    """Read a function until what it does by calling itself is known; None if that takes long."""
    for _ in range(ROUNDS):
        summary = _read(walk, text, parameters)
        if reading.found(summary):
            return summary
    return None


def remember(memory: Memory, walk: Walk) -> Summary:
    """Keep what a walk over a function has found, for its callers."""
    found = _summary(walk)
    memory.known.setdefault(walk.function, {})[found.types] = found
    return found


_TELLING = frozenset({*en.MARKABLE, Kind.TENSOR, Kind.FIELD, Kind.PART})


def _parameters(
    text: Text, function: Function, arguments: Mapping[str, Value]
) -> tuple[Parameter, ...]:
    """Return the parameters; one without annotation has the type of its argument."""
    found = function.parameters or ()
    if len(found) != len(arguments_of(text.node)):  # without that of a class method's class
        declared = {p.name: p for p in found}
        everything = read_parameters(text.node, text.resolver)
        found = tuple(declared.get(p.name, p) for p in everything)
    return tuple(_told(p, arguments.get(p.name, NOTHING)) for p in found)


def _told(parameter: Parameter, argument: Value) -> Parameter:
    starred = parameter.passing in (Passing.STAR, Passing.DOUBLE_STAR)
    type_ = join_all(argument.contents).type if starred else argument.type
    if parameter.type.kind is not Kind.UNKNOWN or type_.kind not in _TELLING:
        return parameter
    return replace(parameter, annotation=replace(parameter.annotation, type=type_))


def _read(walk: Walk, text: Text, parameters: tuple[Parameter, ...]) -> Summary:
    inner = walk_function(
        text.source, text.node, text.resolver, walk.handlers, walk.memory, parameters=parameters
    )
    return _summary(inner)


def _summary(walk: Walk) -> Summary:
    return Summary(
        tuple(p.type for p in walk.parameters),
        result_of(walk, walk.function),
        {o: w for o, w in walk.writes.items() if o.root in (Root.PARAM, Root.MUT)},
    )


# -- putting the arguments in --------------------------------------------------------------------


def _put_in(
    walk: Walk,
    call: ast.AST,
    function: Function,
    value: Value,
    arguments: Mapping[str, Value],
    reach: Callable[[Origin], Value | None],
) -> Value:
    """Return a result of a function with the arguments in place of its parameters."""
    contents = tuple(
        shallow(_put_in(walk, call, function, v, arguments, reach)) for v in value.contents
    )
    fresh = walk.fresh(call, value.type.kind)
    # In an order of their own, so that what is joined comes out the same in each run.
    reached = [reach(o) for o in sorted(value.origins, key=lambda o: (o.name, o.path))]
    entity = value.entity if isinstance(value.entity, Class) else None
    made = any(o.root not in (Root.PARAM, Root.MUT) for o in value.origins) or not reached
    own = Value(
        value.type,
        frozenset({fresh}) if made and value.type.kind is not Kind.PLAIN else frozenset(),
        contents,
        value.positional,
        entity=entity,
        view=value.view,
        graph=frozenset(_graph_put_in(walk, call, function, value, arguments)),
    )
    given = [v._replace(graph=frozenset()) for v in reached if v is not None]
    if not given:
        return own
    joined = join_all(given)
    if made or contents:
        return join(own, joined)
    known = value.type.kind not in (Kind.UNKNOWN, Kind.PART)
    return joined._replace(
        type=value.type if known else joined.type,
        view=joined.view or value.view,
        graph=own.graph,
    )


def _graph_put_in(
    walk: Walk, call: ast.AST, function: Function, value: Value, arguments: Mapping[str, Value]
) -> Iterator[Use]:
    """Yield the parameters of the caller that a result is computed from."""
    if walk.without_gradients:
        return
    ways = frozenset[Origin]().union(*(u.origins for u in value.graph))
    yield from graph_of(arguments.get(w.name, NOTHING) for w in ways if w.kind not in en.MARKABLE)
    for use in value.graph:
        allowed = function.role is not Role.FN or all(o.root is Root.MUT for o in use.origins)
        place = walk.source.span(call) if use.changed is not None and allowed else None
        origins = {
            _stepped(o, way)
            for way in use.origins
            for o in arguments.get(way.name, NOTHING).origins
            if way.root in (Root.PARAM, Root.MUT) and way.kind in en.MARKABLE
        }
        if origins:
            for caller in walk.callers():
                caller.differentiates = True
            yield Use(frozenset(origins), place)


def _reached(walk: Walk, origin: Origin, arguments: Mapping[str, Value]) -> Value | None:
    """Return what a parameter, or a part of it, is for these arguments; None for other things."""
    if origin.root not in (Root.PARAM, Root.MUT):
        return None
    value = arguments.get(origin.name, NOTHING)._replace(reads=frozenset())
    if origin.path:
        value = value._replace(entity=None)
    for step in origin.path:
        if step in ("[]", ANYWHERE):
            value = part(value, step)
        else:
            value = walk.attribute(value, step)
    return value


def _as_declared(value: Value, function: Function) -> Value:
    """Return a result with the type that its function declares, which may say more."""
    declared = function.result
    if not function.result_known or declared.kind is Kind.UNKNOWN:
        return value
    if declared.kind is Kind.TENSOR:
        return value._replace(type=_tensor(value))
    return value._replace(type=declared)


def _tensor(value: Value) -> Type:
    if not value.inside_model:
        return en.TENSOR
    return value.type if value.type.kind is Kind.FIELD else en.FIELD


def effects(
    function: Function, found: Summary, arguments: Mapping[str, Value]
) -> Iterator[tuple[Origin, Write]]:
    """Yield the tensors of the arguments that a call writes.

    What an `@fn` writes without the right to is reported there, and nowhere else.
    """
    for written, write in found.writes.items():
        if function.role is Role.FN and written.root is not Root.MUT:
            continue
        value = arguments.get(written.name, NOTHING)
        # An optimizer's step changes the model that it holds.
        steps = value.type.kind is Kind.STATE
        for origin in value.reachable if steps else value.origins:
            yield _stepped(origin, written), write


def _stepped(origin: Origin, way: Origin) -> Origin:
    for step in way.path:
        origin = origin.deeper(step)
    return origin
