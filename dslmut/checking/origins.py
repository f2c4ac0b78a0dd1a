"""Origins: where a value may come from, which says who may change it."""

from __future__ import annotations

import enum
from typing import NamedTuple

from dslmut.checking.entities import MARKABLE, PART, UNKNOWN, Kind, Type

DEPTH = 4
"""Paths are cut here, so that loops that walk down a structure reach a fixed point."""

WAYS = 8
"""With more ways than these from a root to a value, it is just any part of that root."""

ANYWHERE = "*"
"""The path of any part at all; what leads on from there is the same."""


class Root(enum.Enum):
    """Where a value comes from."""

    FRESH = "made here"
    MUT = "a `Mut` parameter"
    PARAM = "a parameter without `Mut`"
    OUTER = "a variable from outside"

    __hash__ = object.__hash__  # that of Enum is written in Python


class Origin(NamedTuple):
    """One thing that a value may be, or be a part of.

    Args:
        root: Which sort of thing.
        name: Its name; for a fresh one, the place that made it.
        kind: Of the root itself.
        path: The way from the root down to the value; ``[]`` for an item, or ``*`` alone.
    """

    root: Root
    name: str
    kind: Kind
    path: tuple[str, ...] = ()

    def deeper(self, step: str) -> Origin:
        """Return the origin of a part."""
        if len(self.path) == DEPTH or self.path == (ANYWHERE,):
            return self
        return Origin(self.root, self.name, self.kind, (*self.path, step))

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
        if (self.root, self.name) != (other.root, other.name):
            return False
        return all(a == b or {a, b} & _SOME for a, b in zip(self.path, other.path))

    def __str__(self) -> str:
        if _SOME & {*self.path}:
            return f"a part of `{self.name}`"
        return f"`{'.'.join((self.name, *self.path))}`"


_SOME = frozenset({"[]", ANYWHERE})


def few(origins: frozenset[Origin]) -> frozenset[Origin]:
    """Return origins of which no root has too many ways, so that joining them comes to an end."""
    if len(origins) <= WAYS and not any(o.path == (ANYWHERE,) for o in origins):
        return origins
    parts: dict[tuple[Root, str], list[Origin]] = {}
    for origin in origins:
        if origin.path:
            parts.setdefault((origin.root, origin.name), []).append(origin)
    kept = {o for o in origins if not o.path}
    for ways in parts.values():
        anywhere = ways[0]._replace(path=(ANYWHERE,))
        kept.update({anywhere} if len(ways) > WAYS or anywhere in ways else ways)
    return frozenset(kept)
