"""Whether tensors are still laid out as kernels were compiled for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from torch import Tensor

try:
    from torch._C._dynamo.guards import TensorGuards
except ImportError:  # another torch
    TensorGuards = None


def layout(tensor: Tensor) -> Hashable:
    """Return all that a kernel is compiled for."""
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.is_neg())


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
