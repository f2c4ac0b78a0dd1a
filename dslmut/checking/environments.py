"""What the names of a function hold at one point of it, and how that is joined where paths meet."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dslmut.checking.lattice import Read, Use, Value, flat, join
from dslmut.checking.origins import Origin, Root
from dslmut.diagnostics.model import Span


class Binding(NamedTuple):
    """What a name holds at one point, and where each thing that it may be was bound to it."""

    value: Value
    sites: frozenset[tuple[Origin, Span]] = frozenset()

    @classmethod
    def at(cls, span: Span, value: Value) -> Binding:
        """Bind a value at a place."""
        return cls(value, _first((o, span) for o in value.reachable))

    def joined(self, value: Value, sites: Iterable[tuple[Origin, Span]]) -> Binding:
        """Return a binding of another value, which has come here from further places."""
        return Binding(value, _first([*self.sites, *sites]))

    def site_of(self, origin: Origin) -> tuple[Span, Origin] | None:
        """Return the first place that bound a thing of that root to the name, and the thing."""
        same = (origin.root, origin.name)
        return next(((s, o) for o, s in self.sites if (o.root, o.name) == same), None)


def _first(sites: Iterable[tuple[Origin, Span]]) -> frozenset[tuple[Origin, Span]]:
    """Keep the first place for each root."""
    sites = sites if isinstance(sites, list) else list(sites)
    if len(sites) < 2:
        return frozenset(sites)
    first: dict[tuple[Root, str], tuple[Origin, Span]] = {}
    for site in sorted(sites, key=_place):
        first.setdefault((site[0].root, site[0].name), site)
    return frozenset(first.values())


def _place(site: tuple[Origin, Span]) -> tuple[object, ...]:
    origin, span = site
    return (span.start.line, span.start.column, origin.name, origin.path)


class Environment(dict[str, Binding]):
    """What each local name holds at one point of a function."""

    def fork(self) -> Environment:
        """Return a copy, for one branch."""
        return Environment(self)

    def update_values(self, update: Callable[[Value], Value]) -> None:
        """Put what *update* makes of each value in its place."""
        for name, binding in self.items():
            value = update(binding.value)
            if value is not binding.value:
                self[name] = Binding(value, binding.sites)

    def flattened(self, before: Environment) -> Environment:
        """Return it with what each changed value holds as a part of the value itself."""
        return Environment(
            (n, b if before.get(n) == b else b._replace(value=flat(b.value)))
            for n, b in self.items()
        )

    def empty(self, holder: ast.expr) -> None:
        """Note that the container under a name holds nothing any more."""
        binding = self.get(holder.id) if isinstance(holder, ast.Name) else None
        if isinstance(holder, ast.Name) and binding is not None and binding.value.contents:
            value = binding.value._replace(contents=(), positional=False, graph=frozenset())
            self[holder.id] = Binding(value, binding.sites)


def outdate(value: Value, changed: frozenset[Origin], place: Span) -> Value:
    """Mark those parameters that a value was computed from which are changed at a place."""
    graph = value.graph
    if not graph and not value.contents:
        return value
    if any(_outdated(u, changed) for u in graph):
        graph = frozenset(u._replace(changed=place) if _outdated(u, changed) else u for u in graph)
    contents = tuple(outdate(v, changed, place) for v in value.contents)
    if graph is value.graph and all(a is b for a, b in zip(contents, value.contents)):
        return value
    return value._replace(graph=graph, contents=contents)


def _outdated(use: Use, changed: frozenset[Origin]) -> bool:
    return use.changed is None and any(a.overlaps(b) for a in use.origins for b in changed)


def age(value: Value, changed: Iterable[Origin], forward: bool = False) -> Value:
    """Mark those field reads of a value, and of what it holds, stale that a change may show in.

    Args:
        value: The value.
        changed: What may have changed.
        forward: Whether a forward pass did it, which moves few fields.
    """
    if not value.reads and not value.contents:
        return value
    changed = frozenset(changed)
    contents = tuple(age(v, changed, forward) for v in value.contents)
    reads = value.reads
    hit = {r for r in reads if _hit(r, changed) and (r.moves or not forward)}
    if hit:
        reads = frozenset(r._replace(stale=True) if r in hit else r for r in reads)
    if reads is value.reads and all(a is b for a, b in zip(contents, value.contents)):
        return value
    return value._replace(reads=reads, contents=contents)


def _hit(read: Read, changed: frozenset[Origin]) -> bool:
    # Whichever part it was: parameters may be tied, so that another name has the same storage.
    return not read.stale and any(
        (a.root, a.name) == (b.root, b.name) for a in read.origins for b in changed
    )


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
    return a.joined(join(a.value, b.value), b.sites)


@dataclass
class Loop:
    """The paths that leave a loop's body early."""

    breaks: list[Environment] = field(default_factory=list)
    continues: list[Environment] = field(default_factory=list)


@dataclass
class Final:
    """The paths that pass through a ``finally`` on their way out.

    Attributes:
        loops: How many loops stand around the ``try``.
        raised: By an error.
        left: By ``return``, ``break`` and ``continue``, each with where it goes.
    """

    loops: int
    raised: list[Environment] = field(default_factory=list)
    left: dict[int, tuple[list[Environment], list[Environment]]] = field(default_factory=dict)

    def on_the_way(self, into: list[Environment]) -> list[Environment]:
        """Return the paths that leave for one place."""
        return self.left.setdefault(id(into), (into, []))[1]


RETURNED = "<returned>"
"""What an environment holds the result under that waits while a ``finally`` runs."""
