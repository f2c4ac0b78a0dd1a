"""Diagnostics of an update, metrics of a training step, and where they go."""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dslmut.diagnostics.codes.bodies import BadReport, MetricInBody
from dslmut.diagnostics.raising import user_span
from dslmut.optim.drawing import stored
from dslmut.optim.hyperparameters import normalised
from dslmut.optim.reports import Reported, Sink, Sinks, read
from dslmut.optim.scalars import Scalar
from dslmut.optim.trace import active
from dslmut.optim.widening import is_low


def diagnostic(name: str, value: Any) -> None:
    """Report a number from an optimizer's body.

    It is computed in the update itself, on the steps that ask for it (``opt.step(diagnostics=True)``
    or ``diagnostics_every=100``), and costs nothing on the others.

    Args:
        name: Under which ``opt.diagnostics`` shows it.
        value: A tensor with one element, or a number.

    Raises:
        OptimizerError: E-CONTRACT-011 outside of a body, E-OPT-027 for a name that is taken
            and for more than one number.
    """
    tracer = active()
    if tracer is None:
        raise _outside(f'metric("{name}", value)')
    if not isinstance(name, str):
        check_number("diagnostic", name, 0.0)
    full = tracer.own(name)
    if full in tracer.recording.diagnostics:
        raise BadReport.raised(
            user_span(), f"the diagnostic `{name}` is reported twice", fix="choose another name"
        )
    tracer.recording.diagnostics[full] = _number(tracer, name, value)


def _outside(call: str) -> Exception:
    return MetricInBody.raised(
        user_span(),
        "`diagnostic` is called outside of an optimizer's body",
        fix=f"in a training step or a loss, write `{call}`",
    )


def _number(tracer: Any, name: str, value: Any) -> Any:
    if isinstance(value, Scalar):
        value = tracer.tensor_of(value)
    elif not isinstance(value, Tensor):
        check_number("diagnostic", name, value)
        value = torch.tensor(float(value))
    check_number("diagnostic", name, value)
    return (value if value.ndim == 0 else value.reshape(())).to(torch.float32)


def check_number(what: str, name: Any, value: Any) -> None:
    """Refuse a name that is no string, and what is not one number (E-OPT-027)."""
    if not isinstance(name, str):
        problem, fix = f"a {what} is called {name!r}", f'give it a name: `{what}("loss", value)`'
    elif isinstance(value, Tensor):
        if value.numel() == 1 and not value.is_complex():
            return
        kind = "complex numbers of " if value.is_complex() else ""
        problem = f"the {what} `{name}` has {kind}shape {list(value.shape)}"
        fix = (
            "report one number: `.mean()`, `.max()` or `.norm()`, of a complex tensor its `.abs()`"
        )
    elif not isinstance(normalised(value), bool | float):
        problem = f"the {what} `{name}` is a number, and got a `{type(value).__name__}`"
        fix = "report a number, or a tensor with one element"
    else:
        return
    raise BadReport.raised(user_span(), problem, fix=fix)


def update_diagnostics(param: Tensor, grad: Tensor, new: Tensor) -> None:
    """Report the Euclidean norms of parameter, gradient and update, and update over parameter.

    The names are ``param_norm``, ``grad_norm``, ``update_norm`` and ``update_ratio``. The ratio
    of a parameter that is all zeros is not-a-number or infinite, as the division says.

    Of a parameter in ``bfloat16`` or ``float16`` also ``rounded_away`` is reported: of the elements
    that the update would change, the share that rounding leaves as they were, from 0 to 1. Where
    it is high the parameter does not train; ``bind(..., rounding="stochastic")`` helps.

    Args:
        param: The parameter before the update.
        grad: Its gradient.
        new: The parameter after the update.
    """
    tracer = active()
    if tracer is None:
        raise _outside('metric("norm", tensor.norm())')
    param_norm, update_norm = _norm(param), _norm(new - param)
    diagnostic("param_norm", param_norm)
    diagnostic("grad_norm", _norm(grad))
    diagnostic("update_norm", update_norm)
    diagnostic("update_ratio", update_norm / param_norm)
    if is_low(param.dtype):
        changed = new != param
        lost = changed & (stored(tracer, new) == param)
        diagnostic("rounded_away", lost.sum() / changed.sum().clamp(min=1))


def _norm(tensor: Tensor) -> Tensor:
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return torch.linalg.vector_norm(tensor, dtype=None if wide is tensor.dtype else wide)


# -- metrics -------------------------------------------------------------------------------------

_RECORDS: contextvars.ContextVar[tuple[Record, ...]] = contextvars.ContextVar("records", default=())


class Record(Mapping[str, list[float]]):
    """The metrics of a ``record()`` block: for each name its numbers in order.

    Numbers of tensors are read together, when somebody asks for them or sinks are due, so that
    reporting never waits.

    Args:
        sinks: Get the numbers of each step.
        every: After so many reports they do.
    """

    def __init__(self, sinks: Iterable[Sink] = (), every: int = 100) -> None:
        self._sinks, self._every = Sinks(sinks), every
        self._values: Reported[list[Any]] = Reported()
        self._waiting: list[tuple[int, str, int]] = []

    def add(self, name: str, value: Any, step: int | None = None) -> None:
        """Append a number."""
        values = self._values.setdefault(name, [])
        values.append(value.detach() if isinstance(value, Tensor) else float(value))
        if self._sinks:
            place = len(values) - 1
            self._waiting.append((place if step is None else step, name, place))
            if len(self._waiting) >= self._every:
                self.flush()

    def flush(self) -> None:
        """Give to the sinks what they have not got yet, a call for each step."""
        waiting, self._waiting = self._waiting, []
        self._settle()
        steps: dict[int, dict[str, dict[str, float]]] = {}
        for step, name, place in waiting:
            steps.setdefault(step, {})[name] = {"": self._values[name][place]}
        for step, numbers in steps.items():
            self._sinks.deliver(step, numbers)

    def _settle(self) -> None:
        """Read all tensors that have not been read."""
        places = [
            (values, i)
            for values in self._values.values()
            for i, value in enumerate(values)
            if isinstance(value, Tensor)
        ]
        for (values, i), number in zip(places, read([values[i] for values, i in places])):
            values[i] = number[0]

    def __getitem__(self, name: str) -> list[float]:
        self._settle()
        return list(self._values[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@contextmanager
def record(*sinks: Sink, every: int = 100) -> Iterator[Record]:
    """Collect what ``metric`` reports inside of the block, and hand it to sinks.

    Args:
        sinks: Functions ``(step, {name: {"": number}})``, in order; those that ``opt.attach``
            takes, and ``dslmut.optim.sinks`` has. They get what they have not got yet after
            *every* reports and at the end of the block, also where an error ends it.
        every: See there; each time is one wait for the device.

    Example:
        >>> with record() as seen:
        ...     metric("loss", 0.5)
        >>> seen["loss"]
        [0.5]
    """
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise BadReport.raised(
            user_span(),
            f"`every` of `record` is a number of reports, at least 1, not {every!r}",
            fix="write `record(sink, every=100)`",
        )
    new = Record(sinks, every)
    token = _RECORDS.set((*_RECORDS.get(), new))
    try:
        yield new
    finally:
        _RECORDS.reset(token)
        new.flush()


def metric(name: str, value: Any, *, step: int | None = None) -> None:
    """Report a number from a training step or a loss to the enclosing ``record()`` blocks.

    Args:
        name: Under which it is collected.
        value: A tensor with one element, or a number.
        step: Which step sinks are told that it belongs to; by default the count of reports of
            this name in the block, from 0.

    Raises:
        OptimizerError: E-CONTRACT-011 in an optimizer's body, E-OPT-027 for more than one number.
    """
    if active() is not None:
        raise MetricInBody.raised(
            user_span(),
            "`metric` is called in an optimizer's body",
            fix=f'write `diagnostic("{name}", value)`',
        )
    check_number("metric", name, value)
    if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
        raise BadReport.raised(
            user_span(),
            f"the step of the metric `{name}` is a whole number, not {step!r}",
            fix=f'write `metric("{name}", value, step=0)`, or leave it out',
        )
    for each in _RECORDS.get():
        each.add(name, value, step)
