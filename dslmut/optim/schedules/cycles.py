"""Schedules that rise and fall."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from dslmut.optim.context import Ctx
from dslmut.optim.scalars import operation
from dslmut.optim.schedules.base import (
    Schedule,
    check_length,
    check_numbers,
    check_steps,
    length,
    misfit,
)


@dataclass(frozen=True)
class cosine_restarts(Schedule):
    """Half a wave of the cosine again and again, as ``torch``'s ``CosineAnnealingWarmRestarts``.

    Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts" (2017).

    Args:
        start: At the first step of each cycle.
        end: What each cycle falls to; torch's ``eta_min``.
        steps: Of the first cycle; torch's ``T_0``.
        factor: How many times longer each cycle is than the one before; torch's ``T_mult``.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> [round(x, 3) for x in preview(cosine_restarts(1.0, steps=2), 5)]
        [1.0, 0.5, 1.0, 0.5, 1.0]
    """

    start: float
    end: float = 0.0
    _: KW_ONLY
    steps: int
    factor: int = 1

    def __post_init__(self) -> None:
        check_numbers(self, "start", "end")
        check_steps(self, "steps", "factor")

    def _number(self, ctx: Ctx) -> float:
        begin, steps = self._cycle(ctx.step)
        share = (ctx.step - begin) / steps
        return self.end + (self.start - self.end) * (1 + operation("cos", math.pi * share)) / 2

    def _cycle(self, step: Any) -> tuple[Any, Any]:
        """Return the first step and the number of steps of the cycle that a step is in."""
        if self.factor == 1:
            return step - step % self.steps, self.steps
        grown = 1 + step * (self.factor - 1) / self.steps
        number = operation("floor", operation("log", grown) / math.log(self.factor))
        # At the borders the logarithm may be off by one.
        number = number + operation("where", step >= self._begin(number + 1), 1.0, 0.0)
        number = number - operation("where", step < self._begin(number), 1.0, 0.0)
        return self._begin(number), self.steps * operation("pow", float(self.factor), number)

    def _begin(self, number: Any) -> Any:
        grown = operation("pow", float(self.factor), number)
        return self.steps * (grown - 1) / (self.factor - 1)


@dataclass(frozen=True)
class one_cycle(Schedule):
    """Up to a peak and down to almost nothing, as ``torch``'s ``OneCycleLR``.

    The momentum that belongs to it moves the other way: ``betas=(one_cycle(0.85, start=0.95,
    end=0.95), 0.999)``. Behind the end, where torch raises, it stays where it is.

    Source: Smith and Topin, "Super-Convergence: Very Fast Training of Neural Networks Using Large
    Learning Rates" (2018), in torch's form.

    Args:
        peak: The largest number; torch's ``max_lr``.
        start: At the first step; by default ``peak / 25``, torch's ``div_factor``.
        end: At the last step; by default ``start / 1e4``, torch's ``final_div_factor``.
        warm_up: The share of the steps up to the peak; torch's ``pct_start``.
        shape: Of the way up and down: ``"cosine"`` or ``"linear"``; torch's ``anneal_strategy``.
        three_phases: Whether it falls to ``start`` as fast as it rose, and to ``end`` afterwards.
        steps: How many; by default all that there are.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(one_cycle(1.0, start=0.5, end=0.0, warm_up=0.5, shape="linear", steps=6), 6)
        [0.5, 0.75, 1.0, 0.6666666666666667, 0.33333333333333337, 0.0]
    """

    peak: float
    _: KW_ONLY
    start: float | None = None
    end: float | None = None
    warm_up: float = 0.3
    shape: Literal["cosine", "linear"] = "cosine"
    three_phases: bool = False
    steps: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "peak", "warm_up")
        if self.start is None:
            object.__setattr__(self, "start", self.peak / 25)
        check_numbers(self, "start")
        if self.end is None:
            object.__setattr__(self, "end", self.start / 1e4)  # pyright: ignore[reportOptionalOperand]
        check_numbers(self, "end")
        check_length(self)
        if not 0 <= self.warm_up <= (0.5 if self.three_phases else 1):
            most = "0.5 with three phases" if self.three_phases else "1"
            raise misfit(
                self,
                f"`warm_up` is a share between 0 and {most}, not {self.warm_up}",
                "write `warm_up=0.3`",
            )
        if self.shape not in ("cosine", "linear"):
            raise misfit(
                self,
                f'`shape` is "cosine" or "linear", not {self.shape!r}',
                'write `shape="cosine"`',
            )

    def _number(self, ctx: Ctx) -> float:
        *phases, last = self._phases(length(self, self.steps, ctx))
        value = self._between(ctx.step, *last)
        for phase in reversed(phases):
            value = operation("where", ctx.step <= phase[1], self._between(ctx.step, *phase), value)
        return value

    def _phases(self, steps: int) -> list[tuple[float, float, float, float]]:
        """Return each phase: its first and last step, and the numbers that it goes from and to."""
        start, end, last = float(self.start or 0), float(self.end or 0), float(steps - 1)
        top = self.warm_up * steps - 1
        if not self.three_phases:
            return [(0.0, top, start, self.peak), (top, last, self.peak, end)]
        foot = 2 * self.warm_up * steps - 2
        return [
            (0.0, top, start, self.peak),
            (top, foot, self.peak, start),
            (foot, last, start, end),
        ]

    def _between(self, step: Any, first: float, last: float, source: float, target: float) -> Any:
        if last <= first:
            return target
        share = operation("minimum", (step - first) / (last - first), 1.0)
        if self.shape == "linear":
            return (target - source) * share + source
        return target + (source - target) / 2 * (operation("cos", math.pi * share) + 1)
