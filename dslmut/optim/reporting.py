"""Diagnostics of an update, metrics of a training step, and where they go."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dslmut.diagnostics.codes.bodies import MetricInBody
from dslmut.diagnostics.codes.optimizers import BadState
from dslmut.diagnostics.raising import user_span
from dslmut.optim.scalars import Scalar
from dslmut.optim.trace import active


def diagnostic(name: str, value: Any) -> None:
    """Report a number from an optimizer's body.

    It is computed in the update itself, on the steps that ask for it (``opt.step(diagnostics=True)``
    or ``diagnostics_every=100``), and costs nothing on the others.

    Args:
        name: Under which ``opt.diagnostics`` shows it.
        value: A tensor with one element, or a number.

    Raises:
        OptimizerError: E-CONTRACT-011 outside of a body, E-OPT-003 for a name that is taken.
    """
    tracer = active()
    if tracer is None:
        raise MetricInBody.raised(
            user_span(),
            "`diagnostic` is called outside of an optimizer's body",
            fix=f'in a training step or a loss, write `metric("{name}", value)`',
        )
    full = tracer.own(name)
    if full in tracer.recording.diagnostics:
        raise BadState.raised(
            user_span(), f"the diagnostic `{name}` is reported twice", fix="choose another name"
        )
    tracer.recording.diagnostics[full] = _number(tracer, name, value)


def _number(tracer: Any, name: str, value: Any) -> Any:
    if isinstance(value, Scalar):
        value = tracer.tensor_of(value)
    elif not isinstance(value, Tensor):
        value = torch.tensor(float(value))
    if value.numel() != 1:
        raise BadState.raised(
            user_span(),
            f"the diagnostic `{name}` has shape {list(value.shape)}",
            fix="report one number: `.mean()`, `.max()` or `.norm()`",
        )
    return (value if value.ndim == 0 else value.reshape(())).to(torch.float32)


def update_diagnostics(param: Tensor, grad: Tensor, new: Tensor) -> None:
    """Report the Euclidean norms of parameter, gradient and update, and update over parameter.

    The names are ``param_norm``, ``grad_norm``, ``update_norm`` and ``update_ratio``. The ratio
    of a parameter that is all zeros is not-a-number or infinite, as the division says.

    Args:
        param: The parameter before the update.
        grad: Its gradient.
        new: The parameter after the update.
    """
    param_norm, update_norm = _norm(param), _norm(new - param)
    diagnostic("param_norm", param_norm)
    diagnostic("grad_norm", _norm(grad))
    diagnostic("update_norm", update_norm)
    diagnostic("update_ratio", update_norm / param_norm)


def _norm(tensor: Tensor) -> Tensor:
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return torch.linalg.vector_norm(tensor, dtype=None if wide is tensor.dtype else wide)


# -- metrics -------------------------------------------------------------------------------------

_RECORDS: contextvars.ContextVar[tuple[Record, ...]] = contextvars.ContextVar("records", default=())


class Record(Mapping[str, list[float]]):
    """The metrics of a ``record()`` block: for each name its numbers in order.

    Numbers of tensors are read when somebody asks for them, so that reporting never waits.
    """

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}

    def add(self, name: str, value: Any) -> None:
        """Append a number."""
        self._values.setdefault(name, []).append(
            value.detach() if isinstance(value, Tensor) else float(value)
        )

    def __getitem__(self, name: str) -> list[float]:
        return [float(v) for v in self._values[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@contextmanager
def record() -> Iterator[Record]:
    """Collect what ``metric`` reports inside of the block.

    Example:
        >>> with record() as seen:
        ...     metric("loss", 0.5)
        >>> seen["loss"]
        [0.5]
    """
    new = Record()
    token = _RECORDS.set((*_RECORDS.get(), new))
    try:
        yield new
    finally:
        _RECORDS.reset(token)


def metric(name: str, value: Any) -> None:
    """Report a number from a training step or a loss to the enclosing ``record()`` blocks.

    Args:
        name: Under which it is collected.
        value: A tensor with one element, or a number.

    Raises:
        OptimizerError: E-CONTRACT-011 in an optimizer's body.
    """
    if active() is not None:
        raise MetricInBody.raised(
            user_span(),
            "`metric` is called in an optimizer's body",
            fix=f'write `diagnostic("{name}", value)`',
        )
    for each in _RECORDS.get():
        each.add(name, value)
