"""Zero constants: recognised by how a tensor was made, not by what it holds."""

from __future__ import annotations

from typing import Any

import torch

from dslmut.checking.tracing.refusals import no_zero, no_zero_number
from dslmut.diagnostics.raising import user_span

aten = torch.ops.aten

_ZERO_MAKING = {
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
}


_FULL = {aten.full.default: 1, aten.full_like.default: 1, aten.new_full.default: 2}


_ZERO_KEEPING = {
    aten._to_copy.default, aten.clone.default, aten.view.default, aten._unsafe_view.default,
    aten.reshape.default, aten.permute.default, aten.transpose.int, aten.t.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
    aten.expand.default, aten.contiguous.default, aten.alias.default, aten.detach.default,
    aten.flatten.using_ints, aten.broadcast_to.default, aten.view_as.default, aten.view.dtype,
}  # fmt: skip
"""Casts, reshapes, transposes and broadcasts, also a look at the bits as another dtype."""


STATE = "state_"
_GIVEN = {"param": "the parameter", "grad": "the gradient"}


def otherwise(node: Any) -> str | None:
    """Say what keeps a node from being a zero constant; None if it is one.

    Args:
        node: Of the graph that is being recorded.
    """
    while node.target in _ZERO_KEEPING:
        node = node.args[0]
    if node.target in _ZERO_MAKING or (node.target in _FULL and _is_zero(_fill_value(node))):
        return None
    if node.op == "placeholder":
        return f"it is {_GIVEN.get(node.name) or f'the state `{node.name.removeprefix(STATE)}`'} itself"
    return f"it was computed by `{_words(node)}`"


def _fill_value(node: Any) -> Any:
    position = _FULL[node.target]
    return node.args[position] if len(node.args) > position else node.kwargs.get("fill_value")


def _is_zero(value: Any) -> bool:
    """Say whether a number is zero; the negative zero is another number."""
    return isinstance(value, int | float | complex) and value == 0 and "-" not in str(value)


def _words(node: Any) -> str:
    """Name an operation as the body calls it, else as torch does inside."""
    called = node.meta.get("called", "").strip("_")
    return called or getattr(node.target, "__name__", str(node.target)).partition(".")[0]


def refused(name: str, reason: str, number: bool = False) -> Exception:
    """Return the error for a state with another start, perhaps a plain number (E-OPT-003)."""
    return (no_zero_number if number else no_zero)(name, reason).raised(user_span())
