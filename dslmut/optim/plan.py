"""The plan of a step as plain data: which parameters are updated together, by which kernel.

A call costs as much as a small update, and compiling a kernel a second, however little it does. So
small parameters of different kinds are updated by one kernel, as the twelve of a layer in a
transformer, and it is called for each layer. Nothing is compiled after the first step: where
gradients are missing, scratch memory stands in for the parameters that a kernel updates as well.

Another strategy is another pair of functions: from entries to kernels, and on to calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Kind = tuple[str, Hashable]
"""The text of a program, and the layout that it is compiled for."""

KernelKey = tuple[Kind, ...]
"""What a kernel updates: one parameter of each of these kinds."""

MOST = 16
"""So many parameters a kernel updates at the most. Compiling takes as long for each, up to 48 at least
(0.16 s for AdamW, 0.25 s for Adan), so this bounds how much is scratch memory where some are missing."""

GRAPH = 12
"""A further kernel takes as long to compile as so many parameters more in one: 2 s, most of it for
reading C++ headers."""


@dataclass(frozen=True)
class Family:
    """Parameters that may share kernels.

    Args:
        name: Anything that no other family has.
        most: So many of them a kernel updates at the most.
        weight: How much longer compiling one takes than compiling an elementwise update.
    """

    name: Hashable
    most: int = MOST
    weight: int = 1


@dataclass(frozen=True)
class Entry:
    """A parameter that may be updated.

    Args:
        number: Of the parameter.
        kind: What a kernel for it is compiled from.
        family: Which others it may share kernels with.
    """

    number: int
    kind: Kind
    family: Family


@dataclass(frozen=True)
class Call:
    """One call of a compiled kernel.

    Args:
        kernel: What it updates.
        members: The parameters' numbers; None where scratch memory stands in.
    """

    kernel: KernelKey
    members: tuple[int | None, ...]


@dataclass(frozen=True)
class Plan:
    """The calls of a step, in order."""

    calls: tuple[Call, ...] = field(default=())

    @property
    def kernels(self) -> frozenset[KernelKey]:
        """Return the kernels that it calls."""
        return frozenset(call.kernel for call in self.calls)


# -- from entries and kernels to calls -----------------------------------------------------------


def plan(entries: Iterable[Entry], kernels: Mapping[KernelKey, int]) -> Plan:
    """Put parameters into calls of kernels that there are.

    Args:
        entries: The parameters to update, in order.
        kernels: Of which some have room for each of them, and how often each is called when all
            parameters are updated.
    """
    left = Counter(kernels)
    calls: list[Call] = []
    for family, waiting in _by_family(entries).items():
        usable = {k: Counter(k) for k in kernels if len(k) <= family.most}
        while any(waiting.values()):
            kernel = max(usable, key=lambda k: _merit(usable[k], waiting, left[k]))
            left[kernel] -= 1
            members = [waiting[kind].pop(0) if waiting.get(kind) else None for kind in kernel]
            calls.append(Call(kernel, tuple(members)))
    return Plan(tuple(calls))


def _by_family(entries: Iterable[Entry]) -> dict[Family, dict[Kind, list[int]]]:
    found: dict[Family, dict[Kind, list[int]]] = {}
    for entry in entries:
        found.setdefault(entry.family, {}).setdefault(entry.kind, []).append(entry.number)
    return found


def _merit(
    room: Mapping[Kind, int], waiting: Mapping[Kind, Sequence[int]], left: int
) -> tuple[int, int, int]:
    """Return how well a kernel suits what waits: without scratch memory first, then many at once.

    As long as kernels are called as often as they were meant to be, the last ones are filled, too.
    """
    filled = sum(min(count, len(waiting.get(kind, ()))) for kind, count in room.items())
    unused = sum(room.values()) - filled
    full = filled > 0 and not unused
    return full + (full and left > 0), filled, -unused


# -- from entries to kernels ---------------------------------------------------------------------


def kernels_for(entries: Iterable[Entry], known: Collection[KernelKey] = ()) -> Counter[KernelKey]:
    """Return the kernels for parameters that are new, and how often each is to be called.

    Args:
        entries: The parameters.
        known: The kernels that there are; they do for as many parameters as fill them.
    """
    found: Counter[KernelKey] = Counter()
    for family, waiting in _by_family(entries).items():
        counts = Counter({kind: len(numbers) for kind, numbers in waiting.items()})
        for kernel in sorted(known, key=len, reverse=True):
            room = Counter(kernel)
            if len(kernel) <= family.most:
                times = min(counts[kind] // count for kind, count in room.items())
                counts -= Counter({kind: times * count for kind, count in room.items()})
                found[kernel] += times
        for kernel, times in _composed(counts, family):
            found[kernel] += times
    return +found


def _composed(counts: Counter[Kind], family: Family) -> Iterable[tuple[KernelKey, int]]:
    """Yield kernels that update all parameters, each of them always filled, and their numbers of calls.

    A model repeats itself: a kernel has as many parameters of a kind as go into each of a number
    of calls, and what is left over is divided anew.
    """
    while counts := +counts:
        calls = min(_numbers_of_calls(counts, family), key=lambda n: _cost(counts, family, n))
        kinds = [kind for kind, count in counts.items() for _ in range(count // calls)]
        yield from ((kernel, calls) for kernel in _pieces(kinds, family.most))
        counts = Counter({kind: count % calls for kind, count in counts.items()})


def _numbers_of_calls(counts: Mapping[Kind, int], family: Family) -> Iterable[int]:
    return {max(n // share, 1) for n in counts.values() for share in range(1, family.most + 1)}


def _cost(counts: Mapping[Kind, int], family: Family, calls: int) -> int:
    """Return what compiling takes, and calling, if each kernel is called so many times."""
    together = sum(n // calls for n in counts.values())
    left = sum(n % calls for n in counts.values())
    pieces, others = -(-together // family.most), -(-left // family.most)
    return family.weight * (together + left) + GRAPH * (pieces + others) + calls * pieces + others


def _pieces(kinds: Sequence[Kind], most: int) -> Iterable[KernelKey]:
    """Yield parts of equal length, but for one parameter."""
    count = -(-len(kinds) // most)
    for i in range(count):
        yield tuple(kinds[len(kinds) * i // count : len(kinds) * (i + 1) // count])
