"""Programs that see a parameter as a row of numbers, whatever its shape is.

Equal lengths then share a kernel, (3072, 768) with (768, 3072), and different ones a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._prims_common import is_non_overlapping_and_dense_or_false

from dslmut.optim.recording import State, Subject

aten = torch.ops.aten

_ALIKE = {
    aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten._to_copy.default, aten.alias.default, aten.detach.default, aten.clone.default,
}  # fmt: skip
"""Operations that give each element by itself, though they are not tagged so."""

_WHOLE = {
    aten.sum.default, aten.mean.default, aten.amax.default, aten.amin.default, aten.max.default,
    aten.min.default, aten.linalg_vector_norm.default, aten.norm.Scalar,
}  # fmt: skip
"""Operations that reduce all elements to one number, if they are not told dimensions."""


def is_flat(graph: fx.Graph, subject: Subject, states: Sequence[State]) -> bool:
    """Say whether a program computes the same from the elements in a row.

    Args:
        graph: Of the program.
        subject: The parameter.
        states: That it declares; each is laid out as the parameter is, or a single number.
    """
    own = (subject.shape, subject.stride)
    example = torch.empty_strided(*own, device="meta")
    return (
        len(subject.shape) > 0
        and not subject.paired
        and is_non_overlapping_and_dense_or_false(example)
        and all((s.shape, s.stride) == own or not s.shape for s in states)
        and all(map(_is_flat, graph.nodes))
    )


def _is_flat(node: fx.Node) -> bool:
    if node.op in ("placeholder", "output"):
        return True
    if _dimensions(node) == 0 and all(_dimensions(n) == 0 for n in node.all_input_nodes):
        return True
    if any(isinstance(a, list | tuple) for a in (*node.args, *node.kwargs.values())):
        return False  # a shape or dimensions
    if node.target in _WHOLE:
        return _dimensions(node) == 0
    tags: Any = getattr(node.target, "tags", ())
    return node.target in _ALIKE or torch.Tag.pointwise in tags


def _dimensions(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    return value.ndim if isinstance(value, Tensor) else None
