"""What is known to keep an update from being compiled, as soon as its body has been traced."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from dslmut.diagnostics.model import Span
from dslmut.optim.zeros import STATE

PLAIN = {
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
}  # fmt: skip
"""The usual dtypes, with which nobody has to wait for an import of the compiler."""


def obstacle(graph: fx.Graph) -> str:
    """Say what the compiler is known not to take in an update graph; nothing if that is unknown."""
    for node in graph.nodes:
        for value in _tensors(node.meta.get("val")):
            if value.layout is not torch.strided:
                name = node.meta.get("called") or str(node.target)
                place = _place(node.meta.get("span"))
                return f"`{name}`{place} gives a tensor of layout {value.layout}, and the compiler takes dense ones alone"
            if node.op == "placeholder" and not _has_code(value):
                name = node.name.removeprefix(STATE)
                return f"`{name}` holds {value.dtype}, for which the compiler has no code"
    return ""


def _tensors(value: Any) -> Iterable[Tensor]:
    return (
        v for v in (value if isinstance(value, list | tuple) else (value,)) if isinstance(v, Tensor)
    )


def _place(span: Span | None) -> str:
    return f" ({Path(span.path).name}:{span.start.line})" if span is not None else ""


def _has_code(value: Tensor) -> bool:
    """Say whether the compiler can read and write a dtype in memory."""
    if value.dtype in PLAIN or value.device.type != "cpu":
        return True
    from torch._inductor.codegen.cpp_utils import DTYPE_TO_CPP

    return value.dtype in DTYPE_TO_CPP
