"""Steps that the device leaves out: the host goes on, and learns later which of them counted.

Until then a count is one of a few numbers. The host evaluates the scalar program for each of them,
and the device picks the row that holds, by the flags of the steps; so nobody waits, and the numbers
are those of a host that knew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dslmut.optim.numbers import Item, Slot, double
from dslmut.optim.ready import States

AHEAD = 4
"""So many steps may be open at once; before a further one the host waits for the first of them."""


def decides_on_host(gradients: Collection[Tensor]) -> bool:
    """Say whether the host can look at the gradients before the step: where any is in its memory."""
    return not gradients or any(g.device.type == "cpu" for g in gradients)


@dataclass(eq=False)
class OpenStep:
    """A step of which the host does not know yet whether it counts.

    Args:
        finite: The flag, on the device.
        present: The parameters that it updated if it counts.
        states: Of all parameters.
        reports: Its diagnostics, or None if it computed none.
        extra: The further keys of ``ctx`` as they were before, if the step was told new ones.
    """

    finite: Tensor
    present: Sequence[Item]
    states: States
    reports: Any
    extra: dict[str, float] | None

    def __post_init__(self) -> None:
        self.numbers = frozenset(item.number for item in self.present)
        self._copied: Any = None
        self._host = self.finite
        if self.finite.device.type != "cpu":
            self._host = torch.empty((), dtype=torch.bool, pin_memory=True)
            self._host.copy_(self.finite, non_blocking=True)
            self._copied = torch.accelerator.current_stream(self.finite.device).record_event()

    def known(self) -> bool:
        """Say whether the flag can be read without waiting."""
        return self._copied is None or self._copied.query()

    def counts(self) -> bool:
        """Read the flag; wait for it if need be."""
        if self._copied is not None:
            self._copied.synchronize()
        return bool(self._host)


Moments = Sequence[tuple[int, int]]
"""By how much the counts of steps, and of updates of one parameter, may be ahead of what is known."""


def history(steps: Sequence[OpenStep], item: Item) -> tuple[bool, ...]:
    """Return in which of the open steps a parameter was present."""
    return tuple(item.number in step.numbers for step in steps)


def moments(present: Sequence[bool]) -> Moments:
    """Return what may have come of open steps.

    Args:
        present: In which of them the parameter was.
    """
    own = sum(present)
    others = len(present) - own
    return [(a + b, b) for a in range(others + 1) for b in range(own + 1)]


def moment(steps: Sequence[OpenStep], present: Sequence[bool], device: torch.device) -> Tensor:
    """Return, on the device, which of the ``moments`` holds."""
    found = torch.zeros((), dtype=torch.int64, device=device)
    for step, own in zip(steps, present):
        weight = 1 if own else sum(present) + 1
        found = found + step.finite.to(device, non_blocking=True) * weight
    return found


class DeviceSlot(Slot):
    """A vector of scalars in the memory of a device.

    Args:
        expressions: The scalar program.
        device: Whose kernels read it.
    """

    def __init__(self, expressions: Sequence[Any], device: torch.device) -> None:
        super().__init__(expressions)
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self.vector = torch.zeros(len(expressions), dtype=dtype, device=device)

    def choose(self, rows: Sequence[Sequence[float]], place: Tensor | None) -> None:
        """Write one of several rows of scalars.

        Args:
            rows: For each moment that may be.
            place: Which of them it is, on the device; None for the first.
        """
        table = torch.tensor([[double(x) for x in row] for row in rows], dtype=self.vector.dtype)
        if self.vector.device.type == "cuda":
            table = table.pin_memory()
        table = table.to(self.vector.device, non_blocking=True)
        self.vector.copy_(table[0] if place is None else table.index_select(0, place.reshape(1))[0])
