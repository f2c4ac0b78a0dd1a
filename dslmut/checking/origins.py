"""The lattice: what a value may be, hold and share, and how that is joined where paths meet."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dslmut.checking.entities import (
    FIELD,
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
from dslmut.diagnostics.model import Span

DEPTH = 4
"""Paths are cut here, so that loops that walk down a structure reach a fixed point."""


class Root(enum.Enum):
    """Where a value comes from."""

    FRESH = "made here"
    MUT = "a `Mut` parameter"
    PARAM = "a parameter without `Mut`"
    OUTER = "a variable from outside"


@dataclass(frozen=True, slots=True)
class Origin:
    """One thing that a value may be, or be a part of.

    Args:
        root: Which sort of thing.
        name: Its name; for a fresh one, the place that made it.
        kind: Of the root itself.
        path: The way from the root down to the value; ``[]`` for an item.
    """

    root: Root
    name: str
    kind: Kind
    path: tuple[str, ...] = ()

    def deeper(self, step: str) -> Origin:
        """Return the origin of a part."""
        return replace(self, path=(*self.path, step)) if len(self.path) < DEPTH else self

    @property
    def changeable(self) -> bool:
        """Say whether the function may change it."""
        return self.root in (Root.FRESH, Root.MUT)

    @property
    def type(self) -> Type:
        """Return what is known of the value by this origin alone."""
        if not self.path:
            return Type(self.kind)
        return PART if self.kind in MARKABLE else UNKNOWN

    def overlaps(self, other: Origin) -> bool:
        """Say whether a change of one may show in the other: one is the other, or a part of it."""
        shorter = min(len(self.path), len(other.path))
        same_root = (self.root, self.name) == (other.root, other.name)
        return same_root and self.path[:shorter] == other.path[:shorter]

    def __str__(self) -> str:
        if "[]" in self.path:
            return f"a part of `{self.name}`"
        return f"`{'.'.join((self.name, *self.path))}`"


@dataclass(frozen=True, slots=True)
class Read:
    """A field read whose storage a value still shares.

    Args:
        site: The ``id`` of the expression that read it.
        origins: Of the field.
        stale: Whether the model may have changed since.
    """

    site: int
    origins: frozenset[Origin]
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """What a name stands for when it is a method with its receiver."""

    receiver: Value
    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """All that the analysis knows of one value.

    Args:
        type: What sort of thing.
        origins: What it may be. None at all: nothing that anybody else could see.
        holds: What may be reached through it besides its own parts.
        elements: For a tuple, what stands at each position.
        item: For another container, what each of its items is; None where that is not known.
        reads: The field reads whose storage it shares.
        entity: The function, class or module that it is known to be.
        view: Whether it is another object on the same storage.
    """

    type: Type = UNKNOWN
    origins: frozenset[Origin] = frozenset()
    holds: frozenset[Origin] = frozenset()
    elements: tuple[Value, ...] | None = None
    item: Value | None = None
    reads: frozenset[Read] = frozenset()
    entity: Entity | Bound | None = None
    view: bool = False

    @property
    def reachable(self) -> frozenset[Origin]:
        """Return everything that may be reached through it."""
        return self.origins | held_by(self)

    @property
    def inside_model(self) -> bool:
        """Say whether it may be, or be a part of, a model, an optimizer state or a reference."""
        return any(o.kind in MARKABLE for o in self.origins)


NOTHING = Value()
PLAIN_VALUE = Value(PLAIN)


def join(a: Value, b: Value) -> Value:
    """Return what is known of a value that is one or the other."""
    if a == b:
        return a
    elements = None
    if a.elements is not None and b.elements is not None and len(a.elements) == len(b.elements):
        elements = tuple(map(join, a.elements, b.elements))
    return Value(
        type=join_types(a.type, b.type),
        origins=a.origins | b.origins,
        holds=held_by(a) | held_by(b),
        elements=elements,
        item=None if elements is not None else _join_items(a, b),
        reads=a.reads | b.reads,
        entity=a.entity if a.entity == b.entity else None,
        view=a.view or b.view,
    )


def _join_items(a: Value, b: Value) -> Value | None:
    if not held_by(a) and a.item is None:
        return items_of(b)
    if not held_by(b) and b.item is None:
        return items_of(a)
    one, other = items_of(a), items_of(b)
    return join(one, other) if one is not None and other is not None else None


def items_of(value: Value) -> Value | None:
    """Return what each item of a container is, where that is known."""
    if value.elements is not None:
        return join_all(value.elements)
    return value.item


def join_all(values: Iterable[Value]) -> Value:
    """Join any number of values; none at all is nothing."""
    iterator = iter(values)
    joined = next(iterator, NOTHING)
    for value in iterator:
        joined = join(joined, value)
    return joined


def held_by(value: Value) -> frozenset[Origin]:
    """Return all that a value holds, at its positions and in its items too."""
    held = value.holds
    for inner in (*(value.elements or ()), *((value.item,) if value.item else ())):
        held |= inner.origins | held_by(inner)
    return held


def part(value: Value, step: str, type: Type = UNKNOWN) -> Value:
    """Return what is reached from a value by one attribute or item.

    Args:
        value: The whole.
        step: The attribute's name, or ``[]``.
        type: What is known of the part from the class of the whole.
    """
    if step == "[]" and (item := items_of(value)) is not None:
        return item
    held = held_by(value)
    origins = frozenset(o.deeper(step) for o in value.origins) | held
    if type.kind is Kind.UNKNOWN:
        type = _type_of_part(value)
    if type.kind is Kind.TENSOR and value.inside_model and not held:
        type = FIELD
    return Value(type=type, origins=origins, holds=held)


def _type_of_part(whole: Value) -> Type:
    if whole.type.item is not None:
        return whole.type.item
    if whole.type.kind in MARKABLE or whole.type.kind is Kind.PART:
        return PART
    return whole.type if whole.type.kind in (Kind.TENSOR, Kind.FIELD) else UNKNOWN


NESTING = 4
"""Containers in containers are told apart this deep, so that a loop that nests them ends."""


def holding(values: Iterable[Value], origin: Origin, positions: bool = False) -> Value:
    """Return a container that holds values.

    Args:
        values: What it holds.
        origin: Of the container itself.
        positions: Whether each keeps its position, as in a tuple.
    """
    kept = tuple(values)
    item = join_all(kept) if kept else None
    type_ = container(item.type if item else None)
    origins = frozenset({origin})
    if any(_nesting(v) >= NESTING for v in kept):
        held = frozenset[Origin]().union(*(v.origins | held_by(v) for v in kept))
        return Value(type_, origins, held)
    return Value(
        type_, origins, elements=kept if positions else None, item=None if positions else item
    )


def _nesting(value: Value) -> int:
    inner = [*(value.elements or ()), *((value.item,) if value.item else ())]
    return 1 + max(map(_nesting, inner), default=0)


def fresh_tensor(origin: Origin) -> Value:
    """Return a tensor that was just allocated."""
    return Value(TENSOR, frozenset({origin}))


# -- environments --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Binding:
    """What a name holds at one point, and where each thing that it may be was bound to it."""

    value: Value
    sites: frozenset[tuple[Origin, Span]] = frozenset()

    def site_of(self, origin: Origin) -> tuple[Span, Origin] | None:
        """Return the first place that bound a thing of that root to the name, and the thing."""
        found = [(s, o) for o, s in self.sites if (o.root, o.name) == (origin.root, origin.name)]
        return min(found, key=lambda f: (f[0].start, str(f[1])), default=None)


class Environment(dict[str, Binding]):
    """What each local name holds at one point of a function."""

    def fork(self) -> Environment:
        """Return a copy, for one branch."""
        return Environment(self)

    def stale(self, changed: frozenset[Origin]) -> None:
        """Note that something was changed: values read from it before are of the past."""
        for name, binding in self.items():
            aged = age(binding.value, changed)
            if aged is not binding.value:
                self[name] = Binding(aged, binding.sites)


def age(value: Value, changed: frozenset[Origin]) -> Value:
    """Mark those field reads of a value stale that a change may show in."""
    elements = value.elements
    if elements is not None:
        elements = tuple(age(e, changed) for e in elements)
        if all(a is b for a, b in zip(elements, value.elements or ())):
            elements = value.elements
    reads = value.reads
    if any(_hit(r, changed) for r in reads):
        reads = frozenset(replace(r, stale=r.stale or _hit(r, changed)) for r in reads)
    if reads is value.reads and elements is value.elements:
        return value
    return replace(value, reads=reads, elements=elements)


def _hit(read: Read, changed: frozenset[Origin]) -> bool:
    return not read.stale and any(a.overlaps(b) for a in read.origins for b in changed)


def meet(environments: Iterable[Environment | None]) -> Environment | None:
    """Join the environments of paths that meet; None is a path that does not get there."""
    alive = [e for e in environments if e is not None]
    if not alive:
        return None
    joined = alive[0].fork()
    for environment in alive[1:]:
        for name, binding in environment.items():
            here = joined.get(name)
            joined[name] = binding if here is None else _join_bindings(here, binding)
    return joined


def _join_bindings(a: Binding, b: Binding) -> Binding:
    if a == b:
        return a
    return Binding(join(a.value, b.value), a.sites | b.sites)
