"""The plan of a step as plain data: which parameters are updated together, by which kernel.

Another strategy is another function from entries to calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

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
        apart: Whether it is updated in a call of its own.
    """

    number: int
    program: str
    layout: Hashable
    slot: int
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


def plan(entries: Iterable[Entry], chunk: int = CHUNK) -> tuple[Call, ...]:
    """Put parameters with equal programs, layouts and scalars into calls.

    Args:
        entries: The parameters, in order.
        chunk: How many a call updates at the most.
    """
    together: dict[tuple[str, Hashable, int, int | None], list[int]] = {}
    for entry in entries:
        alone = entry.number if entry.apart else None
        kind = (entry.program, entry.layout, entry.slot, alone)
        together.setdefault(kind, []).append(entry.number)
    calls = []
    for (program, layout, slot, _), numbers in together.items():
        for start in range(0, len(numbers), chunk):
            members = tuple(numbers[start : start + chunk])
            calls.append(Call((program, layout, len(members)), members, slot))
    return tuple(calls)
