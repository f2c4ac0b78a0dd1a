"""Schedules: functions of ``ctx`` that give the number of a hyperparameter."""

from __future__ import annotations

from dslmut.diagnostics.codes.optimizers import BadHyperparameter
from dslmut.diagnostics.raising import user_span
from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.scalars import Unread
from dslmut.optim.trace import active


def schedule_value(value: Hyper, ctx: Ctx) -> float:
    """Return the number that a hyperparameter has at this step.

    Args:
        value: A number, or a schedule: a function of ``ctx``. A schedule that needs concrete
            numbers (``min``, ``math.cos``, ``if ctx.step < 100``) is called at each step instead
            of being traced; its numbers are the same.
        ctx: The context of the body.

    Returns:
        What the schedule returns, or the value unchanged if it is no function. While a body is
        traced that is no ``float`` but something that is computed with like one.

    Raises:
        OptimizerError: E-OPT-002 if ``ctx`` stands first.
    """
    if isinstance(value, Ctx):
        raise BadHyperparameter.raised(
            user_span(),
            "`schedule_value` gets `ctx` where the hyperparameter belongs",
            fix="turn them round: `schedule_value(lr, ctx)`",
            why="the hyperparameter comes first, and `ctx` behind it",
        )
    if not callable(value):
        return value
    if isinstance(value, Unread):
        value = value.function
    tracer = active()
    return value(ctx) if tracer is None else tracer.schedule(value, ctx)  # pyright: ignore[reportReturnType]
