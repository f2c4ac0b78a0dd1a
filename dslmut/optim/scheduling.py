"""Schedules: functions of ``ctx`` that give the number of a hyperparameter."""

from __future__ import annotations

from typing import Any

from dslmut.optim.context import Ctx
from dslmut.optim.trace import active


def schedule_value(value: Any, ctx: Ctx) -> Any:
    """Return the number that a hyperparameter has at this step.

    Args:
        value: A number, or a schedule: a function of ``ctx``. A schedule that needs concrete
            numbers (``min``, ``math.cos``, ``if ctx.step < 100``) is called at each step instead
            of being traced; its numbers are the same.
        ctx: The context of the body.

    Returns:
        What the schedule returns, or the value unchanged if it is no function.
    """
    if not callable(value):
        return value
    tracer = active()
    return value(ctx) if tracer is None else tracer.schedule(value, ctx)
