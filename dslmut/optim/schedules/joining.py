"""Schedules that are put together of others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, Literal

from dslmut.optim.context import Ctx, Hyper, at_step, part_of
from dslmut.optim.scalars import operation
from dslmut.optim.schedules.base import (
    Schedule,
    check_length,
    check_numbers,
    check_piece,
    check_steps,
    choose,
    length,
    misfit,
    nearest,
    place,
    value_of,
)


def joined(pieces: Iterable[Hyper], borders: Iterable[int], ctx: Ctx) -> Any:
    """Return what the piece that a step lies in gives; each counts from its own first step.

    Args:
        pieces: In order.
        borders: The first step of each piece but the first.
        ctx: The step.
    """
    given, begins = list(pieces), [0, *borders]
    ends = [*begins[1:], None]

    def later(number: int) -> Any:
        def own() -> Any:
            return value_of(given[number], part_of(ctx, begins[number], ends[number]))

        if number == len(given) - 1:
            return own()
        return choose(ctx.step < ends[number], own, lambda: later(number + 1))

    return later(0)


@dataclass(frozen=True, init=False, repr=False)
class join(Schedule):
    """Several schedules one after the other, as ``torch``'s ``SequentialLR``.

    Each counts its steps from where it begins. One without a number of steps of its own goes over
    all that it has: up to the next one, or to the end.

    Args:
        pieces: Schedules, your own ones too, or numbers.
        at: The numbers of the steps at which the second piece begins, the third, and so on, each
            perhaps as a share of all steps; torch's ``milestones``.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(join(linear(0.0, 1.0), 0.5, at=2), 4)
        [0.0, 0.5, 0.5, 0.5]
    """

    pieces: tuple[Hyper, ...]
    at: tuple[float, ...]

    def __init__(self, *pieces: Hyper, at: float | Iterable[float]) -> None:
        borders = tuple(at) if isinstance(at, Iterable) else (at,)
        object.__setattr__(self, "pieces", tuple(check_piece(self, p) for p in pieces))
        object.__setattr__(self, "at", borders)
        if len(borders) != len(pieces) - 1:
            raise misfit(
                self,
                f"{len(pieces)} pieces have {max(len(pieces) - 1, 0)} borders, and `at` has {len(borders)}",
                "give the first step of each piece but the first",
            )
        for border in borders:
            object.__setattr__(self, "at", border)
            check_steps(self, "at", share=True)
        object.__setattr__(self, "at", borders)
        self._check_order([b for b in borders if isinstance(b, int)])

    def _number(self, ctx: Ctx) -> float:
        whole = ctx.total_steps if "total_steps" in ctx else None
        borders = [place(self, "at", b, whole) for b in self.at]
        self._check_order(borders)
        return joined(self.pieces, borders, ctx)

    def _check_order(self, borders: list[int]) -> None:
        if any(a >= b for a, b in pairwise(borders)):
            raise misfit(self, f"`at` rises, and is {self.at}", "write `at=[100, 900]`")

    def __repr__(self) -> str:
        at = self.at[0] if len(self.at) == 1 else list(self.at)
        return f"join({', '.join(map(repr, self.pieces))}, at={at})"


@dataclass(frozen=True)
class warm_up(Schedule):
    """A straight line up to where a schedule begins, and that schedule from there on.

    Args:
        then: A number or a schedule, which counts its steps from the end of the warm-up.
        steps: How many the warm-up has, or which share of all.
        start: At the first step. At 0 the first update changes nothing but the states.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(warm_up(polynomial(1.0, steps=4), steps=2), 6)
        [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    """

    then: Hyper
    _: KW_ONLY
    steps: float
    start: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "then", check_piece(self, self.then))
        check_numbers(self, "start")
        check_steps(self, "steps", share=True)

    def _number(self, ctx: Ctx) -> float:
        steps = place(self, "steps", self.steps, ctx.total_steps if "total_steps" in ctx else None)
        rest = part_of(ctx, steps)
        target = value_of(self.then, at_step(rest, 0))
        return choose(
            ctx.step < steps,
            lambda: self.start + (target - self.start) * (ctx.step / steps),
            lambda: value_of(self.then, rest),
        )


@dataclass(frozen=True)
class stable_then_decay(Schedule):
    """A number that stays, and falls at the end: warm-up, stable, decay ("WSD") with ``warm_up``.

    Source: Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models with Scalable
    Training Strategies" (2024); the shape ``"sqrt"`` is that of Hägele et al., "Scaling Laws and
    Compute-Optimal Training Beyond Fixed Training Durations" (2024).

    Args:
        value: The number.
        end: What it falls to.
        decay: In how many of the last steps, or in which share of all.
        shape: Of the fall: ``"linear"``, ``"cosine"``, or ``"sqrt"``, which is
            ``1 - sqrt(share)``.
        steps: How many there are in all; by default those of the curriculum.

    Raises:
        OptimizerError: E-OPT-009.

    Example:
        >>> preview(stable_then_decay(1.0, decay=2, steps=4), 6)
        [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]
    """

    value: float
    end: float = 0.0
    _: KW_ONLY
    decay: float = 0.2
    shape: Literal["linear", "cosine", "sqrt"] = "linear"
    steps: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "value", "end")
        check_steps(self, "decay", share=True)
        check_length(self)
        if self.shape not in _FALLS:
            raise misfit(
                self,
                f"`shape` is one of {', '.join(_FALLS)}, not {self.shape!r}",
                'write `shape="linear"`',
            )
        if self.steps is not None:
            place(self, "decay", self.decay, self.steps)

    def _number(self, ctx: Ctx) -> float:
        steps = length(self, self.steps, ctx)
        decay = place(self, "decay", self.decay, steps)
        share = operation("maximum", (ctx.step - (steps - decay)) / decay, 0.0)
        fallen = _FALLS[self.shape](operation("minimum", share, 1.0))
        return self.end + (self.value - self.end) * fallen


_FALLS: dict[str, Any] = {
    "linear": lambda share: 1 - share,
    "cosine": lambda share: (1 + operation("cos", math.pi * share)) / 2,
    "sqrt": lambda share: 1 - operation("sqrt", share),
}


@dataclass(frozen=True, repr=False)
class by_stage(Schedule):
    """A schedule for each stage of the curriculum, by the names of the stages.

    Each counts its steps from where its stage begins, and goes over the steps of its stage unless
    it has a number of its own.

    Args:
        pieces: For each stage a schedule, your own ones too, or a number.

    Raises:
        OptimizerError: E-OPT-009, also where the curriculum has other stages.

    Example:
        >>> run = Curriculum([Stage("warm up", 2), Stage("train", 2)])
        >>> preview(by_stage({"warm up": linear(0.0, 1.0), "train": 1.0}), curriculum=run)
        [0.0, 0.5, 1.0, 1.0]
    """

    pieces: tuple[tuple[str, Hyper], ...]

    def __init__(self, pieces: Mapping[str, Hyper]) -> None:
        if not isinstance(pieces, Mapping) or not pieces:
            raise misfit(
                self,
                "it takes a schedule for each stage",
                'write `by_stage({"warm up": linear(0.0, 1e-3), "train": cosine(1e-3)})`',
            )
        kept = tuple((str(n), check_piece(self, p)) for n, p in pieces.items())
        object.__setattr__(self, "pieces", kept)

    def _number(self, ctx: Ctx) -> float:
        if "stages" not in ctx:
            raise misfit(
                self,
                "there is no curriculum whose stages it could follow",
                'bind with one: `curriculum=Curriculum([Stage("warm up", 100), Stage("train", 900)])`',
            )
        own, names = dict(self.pieces), [s.name for s in ctx.stages]
        for name in [*(n for n in own if n not in names), *(n for n in names if n not in own)]:
            raise misfit(
                self,
                f"its stages are {', '.join(own)}, those of the curriculum {', '.join(names)}",
                nearest(name, names if name in own else list(own)),
            )
        borders = [sum(s.steps for s in ctx.stages[:i]) for i in range(1, len(names))]
        return joined([own[n] for n in names], borders, ctx)

    def __repr__(self) -> str:
        return f"by_stage({dict(self.pieces)!r})"
