"""Schedules that go from one number to another, or fall on and on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from dslmut.optim.context import Ctx
from dslmut.optim.scalars import operation
from dslmut.optim.schedules.base import (
    Schedule,
    check_length,
    check_numbers,
    check_steps,
    choose,
    length,
    misfit,
)


def done(step: Any, steps: int) -> Any:
    """Return which share of the steps is behind; 1 from the end on."""
    return operation("minimum", step / steps, 1.0)


@dataclass(frozen=True)
class constant(Schedule):
    """A number that stays, after ``steps`` of a smaller one, as ``torch``'s ``ConstantLR``.

    Args:
        value: The number.
        factor: What it is multiplied by at first.
        steps: For how many steps; by default for none.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(constant(0.5, factor=0.5, steps=2), 4)
        [0.25, 0.25, 0.5, 0.5]
    """

    value: float
    _: KW_ONLY
    factor: float = 1.0
    steps: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "value", "factor")
        check_length(self)

    def _number(self, ctx: Ctx) -> float:
        if self.steps is None:
            return self.value
        return choose(ctx.step < self.steps, lambda: self.value * self.factor, lambda: self.value)


@dataclass(frozen=True)
class linear(Schedule):
    """A straight line from one number to another, where it stays, as ``torch``'s ``LinearLR``.

    Args:
        start: At the first step; torch says it as ``start_factor`` times the learning rate.
        end: From step number ``steps`` on; torch's ``end_factor``.
        steps: Over how many steps; by default over all that there are.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(linear(0.0, 1.0, steps=4), 6)
        [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """

    start: float
    end: float
    _: KW_ONLY
    steps: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "start", "end")
        check_length(self)

    def _number(self, ctx: Ctx) -> float:
        share = done(ctx.step, length(self, self.steps, ctx))
        return self.start + (self.end - self.start) * share


@dataclass(frozen=True)
class cosine(Schedule):
    """Half a wave of the cosine, as ``torch``'s ``CosineAnnealingLR``.

    Over all the steps that there are, it stays at ``end`` behind them. With ``steps`` it rises again
    behind the end, as torch's does; to stay there, write
    ``join(cosine(1e-3, steps=900), 0.0, at=900)``.

    Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts" (2017),
    equation 5, without restarts.

    Args:
        start: At the first step.
        end: At step number ``steps``; torch's ``eta_min``.
        steps: Over how many steps; by default over all that there are.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> [round(x, 3) for x in preview(cosine(1.0, steps=4), 5)]
        [1.0, 0.854, 0.5, 0.146, 0.0]
    """

    start: float
    end: float = 0.0
    _: KW_ONLY
    steps: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "start", "end")
        check_length(self)

    def _number(self, ctx: Ctx) -> float:
        steps = length(self, self.steps, ctx)
        share = ctx.step / steps if self.steps is not None else done(ctx.step, steps)
        return self.end + (self.start - self.end) * (1 + operation("cos", math.pi * share)) / 2


@dataclass(frozen=True)
class polynomial(Schedule):
    """A power of the share of steps that is left, as ``torch``'s ``PolynomialLR``.

    Args:
        start: At the first step.
        end: From step number ``steps`` on; torch goes to 0.
        power: 1 is a straight line, 2 a parabola that ends flat.
        steps: Over how many steps; by default over all that there are.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(polynomial(1.0, power=2, steps=4), 6)
        [1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]
    """

    start: float
    end: float = 0.0
    _: KW_ONLY
    power: float = 1.0
    steps: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "start", "end", "power")
        check_length(self)
        if self.power <= 0:
            raise misfit(self, f"`power` is above 0, not {self.power}", "write `power=2.0`")

    def _number(self, ctx: Ctx) -> float:
        left = 1 - done(ctx.step, length(self, self.steps, ctx))
        return self.end + (self.start - self.end) * operation("pow", left, self.power)


@dataclass(frozen=True)
class exponential(Schedule):
    """A factor at each step, as ``torch``'s ``ExponentialLR``.

    Args:
        start: At the first step.
        factor: By which it is multiplied from one step to the next; torch's ``gamma``.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(exponential(1.0, factor=0.5), 4)
        [1.0, 0.5, 0.25, 0.125]
    """

    start: float
    _: KW_ONLY
    factor: float

    def __post_init__(self) -> None:
        check_numbers(self, "start", "factor")

    def _number(self, ctx: Ctx) -> float:
        return self.start * operation("pow", self.factor, ctx.step)


@dataclass(frozen=True)
class staircase(Schedule):
    """A factor once every so many steps, as ``torch``'s ``StepLR``.

    Args:
        start: At the first step.
        every: So many steps lie between two factors; torch's ``step_size``.
        factor: By which it is multiplied; torch's ``gamma``.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(staircase(1.0, every=2, factor=0.5), 5)
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    start: float
    _: KW_ONLY
    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        check_numbers(self, "start", "factor")
        check_steps(self, "every")

    def _number(self, ctx: Ctx) -> float:
        return self.start * operation("pow", self.factor, ctx.step // self.every)


@dataclass(frozen=True)
class piecewise(Schedule):
    """A factor at certain steps, as ``torch``'s ``MultiStepLR``.

    For numbers of your own instead of factors, write ``join(0.1, 0.02, 0.01, at=[30, 80])``.

    Args:
        start: At the first step.
        at: The numbers of the steps from which on it is multiplied once more; torch's
            ``milestones``.
        factor: By which it is multiplied; torch's ``gamma``.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(piecewise(1.0, at=[1, 3], factor=0.5), 5)
        [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    start: float
    _: KW_ONLY
    at: Iterable[int]
    factor: float = 0.1

    def __post_init__(self) -> None:
        check_numbers(self, "start", "factor")
        given: Any = self.at
        at = tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(type(a) is int and a >= 0 for a in at):
            raise misfit(self, f"`at` are numbers of steps, not {given!r}", "write `at=[30, 80]`")
        object.__setattr__(self, "at", tuple(sorted(at)))

    def _number(self, ctx: Ctx) -> float:
        passed = sum(operation("where", ctx.step >= a, 1, 0) for a in self.at)
        return self.start * operation("pow", self.factor, passed)


@dataclass(frozen=True)
class inverse_sqrt(Schedule):
    """The inverse of the square root: half as much after four times as many steps.

    ``warm_up(inverse_sqrt(1e-3, steps=4000), steps=4000)`` is the schedule of the Transformer.

    Source: Vaswani et al., "Attention Is All You Need" (2017), equation 3, after its warm-up.

    Args:
        start: At the first step.
        steps: The scale: after three times as many steps it is half of ``start``.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(inverse_sqrt(1.0, steps=1), 4)[::3]
        [1.0, 0.5]
    """

    start: float
    _: KW_ONLY
    steps: int

    def __post_init__(self) -> None:
        check_numbers(self, "start")
        check_steps(self, "steps")

    def _number(self, ctx: Ctx) -> float:
        return self.start * operation("sqrt", self.steps / (self.steps + ctx.step))
