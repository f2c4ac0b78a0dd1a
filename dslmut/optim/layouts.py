"""Whether tensors are still laid out as kernels were compiled for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

try:
    from torch._C._dynamo.guards import TensorGuards
except ImportError:  # another torch
    TensorGuards = None


class Layout(NamedTuple):
    """All of a tensor that a kernel is compiled for."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    negative: bool = False

    def row(self) -> Layout:
        """Return that of its elements in a row."""
        return self._replace(shape=(math.prod(self.shape),), stride=(1,))

    def blank(self) -> Tensor:
        """Return a tensor that is laid out like this, with any values."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


def layout(tensor: Tensor) -> Layout:
    """Return how a tensor is laid out."""
    return Layout(tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.is_neg())


class Layouts:
    """The layouts of some tensors.

    A compiled kernel reads memory as it was told, so that each call looks at all of its inputs
    first. The compiler's own guards do that in C++, in a fifth of the time that Python takes.

    Args:
        tensors: As they are now.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._layouts, self._guards = [layout(t) for t in tensors], None
        if TensorGuards is not None:
            sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
            self._guards = TensorGuards(
                *tensors,
                dynamic_dims_sizes=sizes,  # pyright: ignore[reportArgumentType]
                dynamic_dims_strides=strides,  # pyright: ignore[reportArgumentType]
            )

    def hold(self, tensors: Sequence[Tensor]) -> bool:
        """Say whether these tensors have the same layouts."""
        if self._guards is not None and self._guards.check(*tensors):
            return True  # they say no of a tensor that is given twice, too
        return [layout(t) for t in tensors] == self._layouts
