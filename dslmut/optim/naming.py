"""What a body calls its values: read off its local names while it is traced, for people alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dslmut.optim.scalars import Scalar

if TYPE_CHECKING:
    from dslmut.optim.trace import Tracer

TRACING = "_traced"
"""The function that calls a body."""

_HERE = str(Path(__file__).parent)
_BODIES = str(Path(__file__).parent / "rules")
_TORCH = str(Path(torch.__file__).parent)


def note(tracer: Tracer, frame: FrameType | None) -> None:
    """Give the tensors and scalars among a body's local names these names, each its first.

    Args:
        tracer: Whose body is running.
        frame: Of what the body calls. The body's own names go before those of its helpers.
    """
    for body in reversed(list(_bodies(frame))):
        for name, value in body.f_locals.items():
            if isinstance(value, Scalar):
                tracer.recording.names.setdefault(value.expression, name)
            elif isinstance(value, Tensor) and tracer.knows(value):
                tracer.node_of(value).meta.setdefault("variable", name)


def _bodies(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of a body and its helpers, the innermost first."""
    while frame is not None and frame.f_code.co_name != TRACING:
        if _is_body(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _is_body(path: str) -> bool:
    return path.startswith(_BODIES) or not path.startswith((_HERE, _TORCH, "<frozen"))
