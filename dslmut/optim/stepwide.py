"""Inputs of a whole step: what is computed once from all gradients, on the device, before the updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

_LOW = (torch.float16, torch.bfloat16)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which a parameter of another dtype gets the inputs of a step."""
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def total_norm(gradients: Collection[Tensor]) -> Tensor:
    """Return the Euclidean norm of all gradients together, as torch's clipping computes it.

    Args:
        gradients: At least one, on any devices. Those of low precision are summed in float32.
    """
    norms = [torch.linalg.vector_norm(g, dtype=torch.float32) for g in gradients if g.dtype in _LOW]
    others = [g for g in gradients if g.dtype not in _LOW]
    if others:
        norms.append(get_total_norm(others))
    if len(norms) == 1:
        return norms[0]
    return torch.linalg.vector_norm(torch.stack([n.to(norms[-1]) for n in norms]))


def all_finite(gradients: Collection[Tensor]) -> Tensor:
    """Say, by a tensor without dimensions, whether no element is infinite or not-a-number."""
    filled = [g for g in gradients if g.numel() and g.layout is torch.strided]
    if not filled:  # what is sparse is refused by itself
        return torch.tensor(True)
    return get_total_norm(filled, math.inf).isfinite()


COMPUTED: Final[Mapping[str, Callable[[Collection[Tensor]], Tensor]]] = {
    "grad_norm": total_norm,
    "finite": all_finite,
}
"""How each input of a whole step is computed: what ``ctx`` has of it, and whether it counts."""


@dataclass(frozen=True, eq=False)
class Wide:
    """One of them, as parameters of one device and precision read it.

    Args:
        name: In ``ctx``.
        tensor: A number, in memory that the kernels read.
    """

    name: str
    tensor: Tensor


class StepWide:
    """The memory of all of them in one optimizer."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, torch.dtype, torch.device], Wide] = {}

    def of(self, name: str, parameter: Tensor) -> Wide:
        """Return the memory that the kernels of a parameter read."""
        dtype = torch.bool if name == "finite" else wide_dtype(parameter.dtype)
        device = parameter.device
        key = (name, dtype, device)
        if key not in self._known:
            with torch.inference_mode(False):  # it must outlive such a block
                self._known[key] = Wide(name, torch.zeros((), dtype=dtype, device=device))
        return self._known[key]


def fill(inputs: Iterable[Wide], gradients: Collection[Tensor]) -> Mapping[str, Tensor]:
    """Compute what the programs of this step read, each once; nothing waits for the device.

    Args:
        inputs: All that are read.
        gradients: Of the parameters that are updated, at least one.

    Returns:
        The values by name.
    """
    values: dict[str, Tensor] = {}
    for wide in inputs:
        if wide.name not in values:
            values[wide.name] = COMPUTED[wide.name](gradients)
        wide.tensor.copy_(values[wide.name], non_blocking=True)
    return values
