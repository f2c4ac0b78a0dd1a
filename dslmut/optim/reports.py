"""Numbers that are computed on devices, read together, and handed on to sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from dslmut.diagnostics.raising import warn_user
from dslmut.optim.numbers import Item

Numbers: TypeAlias = Mapping[str, Mapping[str, float]]
"""For each name the number of each parameter; a metric has one number, under the empty name."""

Sink: TypeAlias = Callable[[int, Numbers], object]
"""Takes the number of a step, from 0, and what was reported of it."""


def read(values: Sequence[Tensor]) -> list[list[float]]:
    """Return the numbers in tensors, with one wait for each device and dtype.

    Args:
        values: Tensors of any number of elements.
    """
    kinds: dict[Any, list[int]] = {}
    for place, value in enumerate(values):
        kinds.setdefault((value.device, value.dtype), []).append(place)
    found: list[list[float]] = [[] for _ in values]
    for places in kinds.values():
        numbers = iter(torch.cat([values[i].detach().reshape(-1) for i in places]).tolist())
        for i in places:
            found[i] = [float(next(numbers)) for _ in range(values[i].numel())]
    return found


Row: TypeAlias = tuple[Sequence[Item], Sequence[str], Iterable[Tensor]]
"""Parameters, the names of their diagnostics, and for each parameter a vector of these."""


class Reports:
    """The diagnostics of one step.

    Args:
        step: Its number.
        rows: What its kernels computed; nothing is waited for before somebody asks.
    """

    def __init__(self, step: int = 0, rows: Iterable[Row] = ()) -> None:
        self.step = step
        self._numbers: Numbers | None = None
        self._rows = [(item, names, v) for items, names, vs in rows for item, v in zip(items, vs)]

    def numbers(self) -> Numbers:
        """Return them by name and parameter, in the order of the parameters."""
        if self._numbers is None:
            found: dict[str, dict[str, float]] = {}
            rows = sorted(self._rows, key=lambda row: row[0].number)
            for (item, names, _), row in zip(rows, read([v for _, _, v in rows])):
                for name, number in zip(names, row):
                    found.setdefault(name, {})[item.name] = number
            self._numbers, self._rows = found, []
        return self._numbers


class Sinks:
    """Where reports go, in order.

    Args:
        sinks: Functions of a step and its numbers.
    """

    def __init__(self, sinks: Iterable[Sink] = ()) -> None:
        self._sinks = list(sinks)

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def attach(self, sink: Sink) -> None:
        """Add one at the end."""
        self._sinks.append(sink)

    def detach(self, sink: Sink) -> None:
        """Take one away.

        Raises:
            ValueError: If it is not there.
        """
        if sink not in self._sinks:
            raise ValueError(f"{sink!r} is not attached; {len(self._sinks)} others are")
        self._sinks.remove(sink)

    def deliver(self, step: int, numbers: Numbers) -> None:
        """Hand the numbers of a step to each; one that raises is taken away, with a warning.

        What was reported has been done already, so that a full disk must not look like a failed
        step, nor end a training run.
        """
        for sink in tuple(self._sinks):
            try:
                sink(step, numbers)
            except Exception as error:  # whatever a logger may raise
                self._sinks.remove(sink)
                warn_user(
                    f"dslmut: the sink {_name(sink)} raised {type(error).__name__}: {error}. It gets "
                    f"no further reports; step {step} itself was made as always",
                    RuntimeWarning,
                )


def _name(sink: Sink) -> str:
    return f"`{getattr(sink, '__name__', type(sink).__name__)}`"
