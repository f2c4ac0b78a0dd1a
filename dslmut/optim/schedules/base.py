"""What the ready schedules have in common: their arguments, their length, and parts of a run."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch

from dslmut.diagnostics.codes.optimizers import BadSchedule
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.hyperparameters import normalised, takes_ctx
from dslmut.optim.signatures import form, misfit_of

_TORCHS = {
    "T_max": "steps", "T_0": "steps", "total_iters": "steps", "total_steps": "steps",
    "T_mult": "factor", "gamma": "factor", "start_factor": "start", "end_factor": "end",
    "eta_min": "end", "step_size": "every", "milestones": "at", "max_lr": "peak",
    "pct_start": "warm_up", "anneal_strategy": "shape", "three_phase": "three_phases",
}  # fmt: skip
"""What torch's schedulers call the arguments."""


class _Told(type):
    """Says of arguments that a schedule does not take what is wrong with them (E-OPT-009)."""

    if not TYPE_CHECKING:

        @property
        def __signature__(cls) -> inspect.Signature:
            own = inspect.signature(cls.__init__)
            return own.replace(parameters=list(own.parameters.values())[1:])

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                reason = misfit_of(cls, args, kwargs)
                if reason is None:
                    raise
            known = inspect.signature(cls).parameters
            here = [f"`{n}` is `{_TORCHS[n]}` here: " for n in kwargs if _TORCHS.get(n) in known]
            raise BadSchedule.raised(
                user_span(),
                f"`{cls.__name__}`: {reason}",
                fix=f"{''.join(here[:1])}write `{form(cls)}`",
            )


@dataclass(frozen=True)
class Schedule(metaclass=_Told):
    """A ready schedule: a function of ``ctx`` that can be compared, printed and pickled.

    While a body is traced it builds scalars; for a ``ctx`` of plain numbers it gives the same
    numbers at once.
    """

    def __call__(self, ctx: Ctx) -> float:
        """Return the number of a step.

        Args:
            ctx: The step.
        """
        return self._number(ctx)

    def _number(self, ctx: Ctx) -> float:
        raise NotImplementedError


# -- arguments -----------------------------------------------------------------------------------


def check_numbers(schedule: Schedule, *names: str) -> None:
    """Keep arguments as floats, and refuse those that are no finite numbers (E-OPT-009)."""
    for name in names:
        value = normalised(getattr(schedule, name))
        if not isinstance(value, float) or not math.isfinite(value):
            raise misfit(schedule, f"`{name}` is a number, not {value!r}", f"write `{name}=0.1`")
        object.__setattr__(schedule, name, value)


def check_steps(schedule: Schedule, *names: str, share: bool = False) -> None:
    """Refuse arguments that are no number of steps, at least 1 (E-OPT-009).

    Args:
        schedule: Which has them.
        names: Of the arguments.
        share: Whether a share of these steps, between 0 and 1, will do too.
    """
    for name in names:
        value = getattr(schedule, name)
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if whole or (share and is_share(value)):
            continue
        also = ", or a share of all between 0 and 1" if share else ""
        raise misfit(
            schedule,
            f"`{name}` is a number of steps, at least 1{also}, not {value!r}",
            f"write `{name}=1000`, for instance",
        )


def check_length(schedule: Any) -> None:
    """Refuse ``steps`` that are no number of steps; None is all that there are (E-OPT-009)."""
    if schedule.steps is not None:
        check_steps(schedule, "steps")


def check_piece(schedule: Schedule, piece: Any) -> Any:
    """Return a number or a schedule as it is kept (E-OPT-009 for anything else)."""
    kept = normalised(piece)
    if isinstance(kept, float) or (callable(kept) and takes_ctx(kept)):
        return kept
    raise misfit(
        schedule,
        f"it is put together of numbers and schedules, and got {piece!r}",
        "a schedule of your own is a function of `ctx`",
    )


def is_share(value: Any) -> bool:
    """Say whether a value is a share of a whole."""
    return isinstance(value, Real) and not isinstance(value, int) and 0 < float(value) < 1


def nearest(name: str, known: Iterable[str]) -> str:
    """Say what to write for a name that is not known."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"write `{near[0]}` for `{name}`" if near else f"give or take away `{name}`"


def misfit(schedule: Schedule, message: str, fix: str) -> DslmutError:
    """Return E-OPT-009."""
    return BadSchedule.raised(user_span(), f"`{type(schedule).__name__}`: {message}", fix=fix)


# -- lengths -------------------------------------------------------------------------------------


def length(schedule: Schedule, steps: int | None, ctx: Ctx) -> int:
    """Return over how many steps a schedule goes: its own, or all that there are.

    Raises:
        OptimizerError: E-OPT-009 if it has none of its own, and there is no curriculum.
    """
    if steps is not None:
        return steps
    if "total_steps" not in ctx:
        raise misfit(
            schedule,
            "it has no number of steps, and there is no curriculum to take it from",
            "write `steps=10_000`, or bind with `curriculum=10_000`",
        )
    return ctx.total_steps


def place(schedule: Schedule, name: str, value: float, whole: int | None) -> int:
    """Return a number of steps that may be given as a share of all.

    Args:
        schedule: Which has the argument.
        name: Of the argument.
        value: The argument.
        whole: How many steps there are; None if that is not known.

    Raises:
        OptimizerError: E-OPT-009 if there are not so many steps.
    """
    if is_share(value):
        if whole is None:
            raise misfit(
                schedule,
                f"`{name}` is a share of all steps, and there is no curriculum to take them from",
                f"write `{name}=1000`, or bind with `curriculum=10_000`",
            )
        return max(round(value * whole), 1)
    if whole is not None and value > whole:
        raise misfit(
            schedule,
            f"`{name}` is {value} steps, and there are {whole} in all",
            f"give it at most {whole}, or a share of them: `{name}=0.1`",
        )
    return int(value)


# -- pieces --------------------------------------------------------------------------------------


def value_of(piece: Hyper, ctx: Ctx) -> Any:
    """Return what a number or a schedule gives."""
    return piece(ctx) if callable(piece) else piece


def choose(condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Return what one of two functions gives; a trace needs both, and a plain number only one."""
    if isinstance(condition, bool):
        return yes() if condition else no()
    return torch.where(condition, yes(), no())
