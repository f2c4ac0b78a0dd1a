"""The numbers of a step: what the scalar programs read, and where the kernels find the results."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dslmut.optim.scalars import Number, compiled

if TYPE_CHECKING:
    from dslmut.optim.define import Optimizer


@dataclass(frozen=True, eq=False)
class Item:
    """One parameter of an optimizer.

    Args:
        number: Of the parameter.
        group: Of its group.
        parameter: The tensor itself.
        name: Its full name.
    """

    number: int
    group: int
    parameter: Tensor
    name: str


@dataclass(frozen=True, eq=False)
class Group:
    """A group of parameters: its rule, torch's own dictionary, and the schedules in it."""

    definition: Optimizer[...]
    shown: dict[str, Any]
    schedules: Mapping[str, Any]

    def hyperparameters(self) -> dict[str, Any]:
        """Return what the rule is called with."""
        values = {n: self.shown[n] for n in self.definition.hyperparameters}
        return {**{n: _float(v) for n, v in values.items()}, **self.schedules}


def _float(value: Any) -> Any:
    """Return a number that a user or a scheduler wrote into a group as it is kept."""
    if isinstance(value, bool) or not isinstance(value, int | Tensor | list):
        return value
    if isinstance(value, list):
        return tuple(value)
    return value.item() if isinstance(value, Tensor) else value


class Slot:
    """A vector of scalars, in memory that the kernels read and the host writes.

    Args:
        expressions: The scalar program.
    """

    def __init__(self, expressions: Sequence[Any]) -> None:
        self._run = compiled(expressions)
        self._format = f"{len(expressions)}d"
        self._memory = bytearray(8 * max(len(expressions), 1))
        vector = torch.frombuffer(self._memory, dtype=torch.float64)
        self.tensors = vector.unbind()[: len(expressions)]

    def fill(self, inputs: Mapping[str, Number], ctx: Any) -> None:
        """Evaluate the scalars for this step."""
        struct.pack_into(self._format, self._memory, 0, *self._run(inputs, ctx))
