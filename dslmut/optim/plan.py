"""The plan of a step as plain data: which parameters are updated together, by which kernel.

Another strategy is another function from entries to calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

CHUNK = 4
"""So many parameters of one kind are updated in one call: a call costs as much as a small update."""


@dataclass(frozen=True)
class Entry:
    """A parameter that is to be updated.

    Args:
        number: Of the parameter.
        program: The same for parameters with the same update graph.
        layout: Its shape, strides, dtype and device, which a kernel is made for.
        slot: The vector of scalars that it reads.
        group: The number of its group.
        apart: Whether it is updated in a call of its own.
    """

    number: int
    program: str
    layout: Hashable
    slot: int
    group: int = 0
    apart: bool = False


@dataclass(frozen=True)
class Call:
    """One call of a compiled kernel.

    Args:
        kernel: What it is compiled from: program, layout, and how many parameters it updates.
        members: The parameters' numbers.
        slot: Their vector of scalars.
    """

    kernel: tuple[str, Hashable, int]
    members: tuple[int, ...]
    slot: int


@dataclass(frozen=True)
class Plan:
    """The calls of a step.

    Args:
        calls: In order.
        spares: Calls for single parameters, whose kernels are compiled along. Groups with equal
            numbers share calls; when a scheduler drives them apart, nothing is compiled then.
    """

    calls: tuple[Call, ...]
    spares: tuple[Call, ...]


def plan(
    entries: Iterable[Entry],
    compiled: Mapping[tuple[str, Hashable], Set[int]] = MappingProxyType({}),
    chunk: int = CHUNK,
) -> Plan:
    """Put parameters with equal programs, layouts and scalars into calls.

    Args:
        entries: The parameters, in order.
        compiled: For how many parameters there are kernels of a program and layout already.
        chunk: How many a call updates at the most.
    """
    together: dict[tuple[str, Hashable, int, int | None], list[Entry]] = {}
    for entry in entries:
        alone = entry.number if entry.apart else None
        kind = (entry.program, entry.layout, entry.slot, alone)
        together.setdefault(kind, []).append(entry)
    calls: list[Call] = []
    spares: dict[tuple[str, Hashable, int], Call] = {}
    for (program, layout, slot, _), members in together.items():
        numbers = [entry.number for entry in members]
        for size in _sizes(len(numbers), compiled.get((program, layout), frozenset()), chunk):
            calls.append(Call((program, layout, size), tuple(numbers[:size]), slot))
            numbers = numbers[size:]
        if len({entry.group for entry in members}) > 1:
            single = (program, layout, 1)
            spares[single] = Call(single, (members[0].number,), slot)
    for call in calls:
        spares.pop(call.kernel, None)
    return Plan(tuple(calls), tuple(spares.values()))


def _sizes(count: int, compiled: Set[int], chunk: int) -> list[int]:
    """Split a number of parameters into calls, of compiled sizes if there are some that do."""
    full = [chunk] * (count // chunk) + [count % chunk] * bool(count % chunk)
    sizes: list[int] = []
    while compiled and set(full) - compiled and count:
        size = max((s for s in compiled if s <= count), default=count)
        sizes.append(size)
        count -= size
    return sizes or full
