"""Complex parameters: what is computed element by element is computed of pairs of reals.

As with torch's optimizers, the body sees a complex tensor of shape ``[...]`` as a real one of shape
``[..., 2]``, in the same memory. That is right for a rule that treats every element by itself; a
norm of rows or a product of matrices would mix the parts of a number, and is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx

from dslmut.optim.drawing import DRAWS, ROUNDS

aten = torch.ops.aten


def as_reals(tensor: Tensor) -> Tensor:
    """Return a complex tensor as pairs of reals, in the same memory; a real one as it is."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def complex_layout(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype
) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype] | None:
    """Return shape, strides and dtype of the complex tensor that a tensor of pairs is stored as.

    Args:
        shape: Of the pairs: ``[..., 2]``.
        stride: Of the pairs.
        dtype: Of the reals.

    Returns:
        None if there is no such complex tensor.
    """
    kind = {torch.float32: torch.complex64, torch.float64: torch.complex128}.get(dtype)
    *outer, last = stride
    if kind is None or shape[-1] != 2 or last != 1 or any(s % 2 for s in outer):
        return None
    return shape[:-1], tuple(s // 2 for s in outer), kind


_UNIFORM = {
    aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten.new_zeros.default, aten.new_ones.default, aten.new_full.default,
    aten.zeros.default, aten.ones.default, aten.full.default,
}  # fmt: skip
"""Operations that give the same number everywhere."""

_SAME = {aten._to_copy.default, aten.alias.default, aten.detach.default, *DRAWS, ROUNDS}
"""Further operations that treat every element by itself."""


def mixing_operation(results: Iterable[fx.Node]) -> str | None:
    """Return an operation that mixes elements, of those that results are computed by.

    Args:
        results: Nodes of an update graph.

    Returns:
        Its name, or None if every element is computed by itself.
    """
    waiting, seen = list(results), set(results)
    while waiting:
        node = waiting.pop()
        if not _is_elementwise(node):
            return getattr(node.target, "__name__", str(node.target)).partition(".")[0]
        new = [n for n in node.all_input_nodes if n not in seen]
        seen.update(new)
        waiting += new
    return None


def _is_elementwise(node: fx.Node) -> bool:
    if node.op == "placeholder" or node.target in _UNIFORM or node.target in _SAME:
        return True
    tags: Any = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags or (_is_single(node) and _has_single_inputs(node))


def _has_single_inputs(node: fx.Node) -> bool:
    """Say whether an operation computes with numbers alone, such as those of a schedule."""
    return node.target is not operator.getitem and all(map(_is_single, node.all_input_nodes))


def _is_single(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return value is None or (isinstance(value, Tensor) and value.numel() == 1)
