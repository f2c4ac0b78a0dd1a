"""What a trace knows and records: the parameter, its states, the graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from dslmut.optim.expressions import Expression
from dslmut.optim.pairs import as_reals


@dataclass(frozen=True)
class State:
    """A declared state of one parameter, as it is stored; it starts as zeros."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Return what it takes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def make(self, device: torch.device) -> Tensor:
        """Return the state as it starts."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device).zero_()


@dataclass(frozen=True)
class Subject:
    """What one parameter is to a trace.

    Args:
        name: Its full name.
        index: Its number in the optimizer.
        group: The number of its group.
        shape: Its sizes, as the body sees them.
        stride: Its strides.
        dtype: Its dtype.
        device: Where it is.
        paired: Whether it is complex, and seen as pairs of reals.
    """

    name: str
    index: int
    group: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    paired: bool = False

    @staticmethod
    def of(parameter: Tensor, name: str, index: int, group: int) -> Subject:
        """Describe a parameter."""
        seen, paired = as_reals(parameter), parameter.is_complex()
        shape, stride = tuple(seen.shape), tuple(seen.stride())
        return Subject(name, index, group, shape, stride, seen.dtype, seen.device, paired)


@dataclass
class Recording:
    """What a trace has recorded so far."""

    graph: fx.Graph = field(default_factory=fx.Graph)
    states: list[tuple[State, Tensor]] = field(default_factory=list)
    scalars: dict[Any, Tensor] = field(default_factory=dict)
    wide: dict[str, Tensor] = field(default_factory=dict)
    branches: dict[Expression, bool] = field(default_factory=dict)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    names: dict[Expression, str] = field(default_factory=dict)
    reads_identity: bool = False
    key: Tensor | None = None
    draws: int = 0
