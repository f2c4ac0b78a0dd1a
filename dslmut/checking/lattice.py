"""The lattice: what a value may be, hold and share, and how two of them are joined."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dslmut.checking.entities import (
    CALLABLE,
    FIELD,
    ITEMS,
    MARKABLE,
    PART,
    PLAIN,
    TENSOR,
    UNKNOWN,
    Entity,
    Kind,
    Type,
    container,
    join_types,
)
from dslmut.checking.origins import Origin, Root, few
from dslmut.diagnostics.model import Span


class Read(NamedTuple):
    """A field read whose storage a value still shares.

    Args:
        site: The ``id`` of the expression that read it.
        origins: Of the field.
        stale: Whether the model may have changed since.
        moves: Whether a forward pass changes the field.
    """

    site: int
    origins: frozenset[Origin]
    stale: bool = False
    moves: bool = False


class Use(NamedTuple):
    """Parameters that a tensor was computed from, as differentiation goes back to them.

    Args:
        origins: Of the parameters, or of the model.
        changed: Where one of them was changed since.
    """

    origins: frozenset[Origin]
    changed: Span | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """What a name stands for when it is a method with its receiver."""

    receiver: Value
    name: str


class Given(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class Partial:
    """What a name stands for after ``functools.partial(f, a)``.

    Args:
        given: The arguments that it keeps; their values are the contents of the value.
    """

    given: tuple[Given, ...]


class Value(NamedTuple):
    """All that the analysis knows of one value.

    Args:
        type: What sort of thing.
        origins: What it may be. None at all: nothing that anybody else could see.
        contents: What it holds besides its own parts: each position of a tuple, or all items of
            another container or object joined into one.
        positional: Whether the contents are positions.
        reads: The field reads whose storage it shares.
        entity: The function, class or module that it is known to be.
        view: Whether it is another object on the same storage.
        graph: The parameters that differentiating it goes back to.
    """

    type: Type = UNKNOWN
    origins: frozenset[Origin] = frozenset()
    contents: tuple[Value, ...] = ()
    positional: bool = False
    reads: frozenset[Read] = frozenset()
    entity: Entity | Bound | Partial | None = None
    view: bool = False
    graph: frozenset[Use] = frozenset()

    @property
    def held(self) -> frozenset[Origin]:
        """Return everything that may be reached through its contents."""
        return frozenset[Origin]().union(*(v.reachable for v in self.contents))

    @property
    def reachable(self) -> frozenset[Origin]:
        """Return everything that may be reached through it."""
        return self.origins | self.held

    @property
    def inside_model(self) -> bool:
        """Say whether it may be, or be a part of, a model, an optimizer state or a reference."""
        return any(o.kind in MARKABLE for o in self.origins)

    @property
    def in_storage(self) -> bool:
        """Say whether it may be a tensor that shares storage with a model's field."""
        return self.type.kind in (Kind.FIELD, Kind.PART)


NOTHING = Value()
PLAIN_VALUE = Value(PLAIN)


def join(a: Value, b: Value) -> Value:
    """Return what is known of a value that is one or the other."""
    if a == b:
        return a
    positional = a.positional and b.positional and len(a.contents) == len(b.contents)
    if positional:
        contents = tuple(map(join, a.contents, b.contents))
    else:
        contents = _pooled((*a.contents, *b.contents))
    return Value(
        type=join_types(a.type, b.type),
        origins=few(a.origins | b.origins),
        contents=contents,
        positional=positional,
        reads=_by_site(a.reads | b.reads),
        entity=a.entity if a.entity == b.entity else None,
        view=a.view or b.view,
        graph=a.graph | b.graph,
    )


def _by_site(reads: frozenset[Read]) -> frozenset[Read]:
    """Join what one expression has read at different times."""
    joined: dict[tuple[int, bool, bool], frozenset[Origin]] = {}
    for read in reads:
        key = (read.site, read.stale, read.moves)
        joined[key] = few(joined.get(key, frozenset()) | read.origins)
    if len(joined) == len(reads):
        return reads
    return frozenset(Read(key[0], origins, *key[1:]) for key, origins in joined.items())


def join_all(values: Iterable[Value]) -> Value:
    """Join any number of values; none at all is nothing."""
    iterator = iter(values)
    joined = next(iterator, NOTHING)
    for value in iterator:
        joined = join(joined, value)
    return joined


def _pooled(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Give up positions: what stands at any of them may be any item."""
    return (join_all(values),) if values else ()


def part(value: Value, step: str, type: Type = UNKNOWN) -> Value:
    """Return what is reached from a value by one attribute or item.

    Args:
        value: The whole.
        step: The attribute's name, or ``[]``.
        type: What is known of the part from the class of the whole.
    """
    if type.kind is Kind.UNKNOWN:
        type = _type_of_part(value, step)
    if type.kind is Kind.TENSOR and value.inside_model:
        type = FIELD
    own = Value(type, frozenset(o.deeper(step) for o in value.origins), graph=value.graph)
    if not value.contents or type.kind is Kind.FIELD:
        return own
    items = join_all(value.contents)
    # A container that was made here has no items but those that it holds.
    fresh = all(o.root is Root.FRESH for o in value.origins)
    if fresh and step == "[]":
        return items
    # What a model holds is a part of it, whatever it was before.
    joined = join(own, items)
    return joined._replace(type=type) if type.kind is Kind.PART else joined


def _type_of_part(whole: Value, step: str) -> Type:
    if whole.type.item is not None:
        return whole.type.item
    if step == "[]" and whole.type.cls is not None and whole.type.cls.name in ITEMS:
        return ITEMS[whole.type.cls.name]
    if whole.type.kind in MARKABLE or whole.type.kind is Kind.PART:
        return PART
    return whole.type if whole.type.kind in (Kind.TENSOR, Kind.FIELD) else UNKNOWN


NESTING = 8
"""Containers in containers are told apart this deep, so that a loop that nests them ends."""

POSITIONS = 100
"""And so many values in one: a loop may also double what it nests."""


def holding(values: Iterable[Value], origin: Origin, positional: bool = False) -> Value:
    """Return a container that holds values.

    Args:
        values: What it holds.
        origin: Of the container itself.
        positional: Whether each keeps its position, as in a tuple.
    """
    kept = tuple(map(shallow, values))
    contents = kept if positional else _pooled(kept)
    return Value(container(), frozenset({origin}), contents, positional)


def with_contents(value: Value, *added: Value) -> Value:
    """Return a value that holds further ones."""
    contents = _pooled((*value.contents, *map(shallow, added)))
    return value._replace(contents=contents, positional=False)


def shallow(value: Value) -> Value:
    """Return a value as it is put into a container, without what lies too deep in it."""
    if _depth(value) < NESTING and _count(value) <= POSITIONS:
        return value
    return Value(
        UNKNOWN, value.reachable, reads=frozenset(reads_in(value)), graph=graph_of([value])
    )


def flat(value: Value) -> Value:
    """Return a value that does not tell any more what lies in it from itself."""
    return value._replace(
        origins=few(value.reachable),
        contents=(),
        positional=False,
        reads=_by_site(frozenset(reads_in(value))),
        graph=graph_of([value]),
    )


def reads_in(value: Value) -> Iterator[Read]:
    """Yield the field reads of a value and of everything that it holds."""
    yield from value.reads
    for inner in value.contents:
        yield from reads_in(inner)


def _depth(value: Value) -> int:
    return 1 + max(map(_depth, value.contents), default=0)


def _count(value: Value) -> int:
    return 1 + sum(map(_count, value.contents))


def bound_method(receiver: Value, name: str) -> Value:
    """Return a method with its receiver, as in ``f = m.train``."""
    receiver = shallow(receiver)
    return Value(CALLABLE, contents=(receiver,), entity=Bound(receiver, name))


def partial(function: Value, given: Iterable[Given], origin: Origin) -> Value:
    """Return a function that has some of its arguments already."""
    kept = tuple(given)
    contents = tuple(map(shallow, (function, *(g.value for g in kept))))
    return Value(CALLABLE, frozenset({origin}), contents, True, entity=Partial(kept))


def fresh_tensor(origin: Origin, *computed_from: Value, pair: bool = False) -> Value:
    """Return a tensor that was just allocated.

    Args:
        origin: Of it.
        computed_from: What it can be differentiated by.
        pair: Whether it may be two: values, and places, by which nothing is differentiated.
    """
    tensor = Value(TENSOR, frozenset({origin}), graph=graph_of(computed_from))
    if not pair or not tensor.graph:
        return tensor
    places = tensor._replace(graph=frozenset())
    return tensor._replace(contents=(tensor, places), positional=True)


def graph_of(values: Iterable[Value]) -> frozenset[Use]:
    """Return the parameters that any of the values, or of what they hold, was computed from."""
    found: set[Use] = set()
    for value in values:
        found |= value.graph
        if value.contents:
            found |= graph_of(value.contents)
    return frozenset(found)
