"""``ctx``: the numbers of a step that schedules and bodies read, and the curriculum behind them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from torch import Tensor

from dslmut.diagnostics.codes.optimizers import BadContext, BadHyperparameter, BadOption
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.optim.scalars import operation

COUNTS = ("step", "updates")
PROGRESS = ("total_steps", "progress", "stages", "stage", "stage_step", "stage_progress")
FIXED = ("total_steps", "stages")
"""The keys that a curriculum gives once and for all, so that they are no numbers of a step."""

CONSTANTS = ("name", "index", "group")
WIDE = ("grad_norm",)
"""The keys whose values are tensors, computed from all gradients of a step."""
DRAWS = ("rand_like", "randn_like")
WHOLE = frozenset({*COUNTS, "stage", "stage_step"})
"""The keys whose numbers are whole."""


class Ctx:
    """What a body and a schedule know of the step.

    Attributes:
        step: Number of this step, from 0.
        updates: Number of this update of this parameter, from 1: ``1 - beta ** ctx.updates``.
        total_steps: Of the curriculum; a constant while a body is traced.
        progress: ``step / total_steps``; 1 behind the end.
        stages: Of the curriculum; a constant while a body is traced.
        stage: Number of the curriculum's stage, from 0.
        stage_step: Number of the step within its stage, from 0.
        stage_progress: ``stage_step`` over the steps of the stage; 1 behind the end.
        name: Of the parameter; a constant while a body is traced.
        index: Of the parameter in its optimizer.
        group: Number of the parameter's group.
        grad_norm: The Euclidean norm of all gradients of this step, over all groups, as they came
            to the step; a tensor without dimensions, for bodies alone. It is computed where a
            body reads it.

    Each is also an item: ``ctx["progress"]``. ``bind(model, ctx={...})`` declares further ones.

    Args:
        read: Returns the value of a key, or None where there is no such key.
        keys: That are numbers.
        draw: Gives the random numbers of a body; None outside of one.
    """

    def __init__(
        self,
        read: Callable[[str], Any],
        keys: Iterable[str],
        draw: Callable[[str, Any], Tensor] | None = None,
    ) -> None:
        self._read, self._keys, self._draw = read, tuple(keys), draw

    def rand_like(self, t: Tensor, /) -> Tensor:
        """Return random numbers, uniform in [0, 1); in a body only.

        They depend on the seed of the run, on ``ctx.step``, on the parameter's name and on how
        many draws the body has made before, and on nothing else: replicas and resumed runs draw
        the same ones. Compiled and plain operations give the same bits.

        Args:
            t: A tensor of floating-point numbers, whose shape and dtype they get.

        Raises:
            MissingError: E-OPT-006 in a schedule, or if *t* is no such tensor.

        Example:
            >>> @optimizer
            ... def dropped(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
            ...     kept = torch.where(ctx.rand_like(grad) < 0.9, grad / 0.9, 0.0)
            ...     return optimizer_update(param - lr * kept)
        """
        return self._drawn("rand_like", t)

    def randn_like(self, t: Tensor, /) -> Tensor:
        """Return normal random numbers of mean 0 and variance 1; in a body only.

        What they depend on is said at ``rand_like``. Compiled and plain operations may differ in
        the last digit, since logarithm and cosine do.

        Args:
            t: A tensor of floating-point numbers, whose shape and dtype they get.

        Raises:
            MissingError: E-OPT-006 in a schedule, or if *t* is no such tensor.
        """
        return self._drawn("randn_like", t)

    def _drawn(self, name: str, t: Tensor) -> Tensor:
        if self._draw is None:
            raise draws_in_a_schedule(name)
        return self._draw(name, t)

    if TYPE_CHECKING:
        # Numbers in a schedule that is called, scalars in a trace: `torch.where(ctx.step < 9, a, b)`.
        step: Any
        updates: Any
        total_steps: int
        progress: Any
        stages: tuple[Stage, ...]
        stage: Any
        stage_step: Any
        stage_progress: Any
        name: str
        index: int
        group: int
        grad_norm: Tensor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Any:
        found = self._read(name)
        if found is None:
            raise _unknown(name, self._keys)
        return found

    def _refuse(self, *_: Any) -> NoReturn:
        raise BadHyperparameter.raised(
            user_span(),
            "`ctx` is computed with, and it is no number",
            fix="a schedule gets `ctx`: take `ctx.step`, `ctx.updates` or `ctx.progress` of it",
            why="`ctx` holds the numbers of a step, and is none itself",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __float__ = _refuse
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __mod__ = __floordiv__ = __int__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __contains__(self, name: object) -> bool:
        return name in self._keys or name in (*CONSTANTS, *WIDE)


def draws_in_a_schedule(name: str) -> DslmutError:
    """Return the error for a schedule that draws random numbers (E-OPT-006)."""
    return BadContext.raised(
        user_span(),
        f"a schedule asks for `ctx.{name}`: it gives one number for all elements, and draws none",
        fix=f"call `ctx.{name}(t)` in the body of the rule, with a tensor of it",
        why="random numbers are computed on the device, and schedules before it",
    )


def part_of(ctx: Ctx, begin: int, end: int | None = None) -> Ctx:
    """Return ``ctx`` as a schedule sees it that has only a part of the steps.

    Args:
        ctx: Of all steps.
        begin: The number of the part's first step.
        end: The number of the step behind it; by default it goes on to the end of all.
    """
    end = ctx.total_steps if end is None and "total_steps" in ctx else end
    return at_step(ctx, ctx.step - begin, None if end is None else max(end - begin, 1))


def at_step(ctx: Ctx, step: Any, total: int | None = None) -> Ctx:
    """Return ``ctx`` with another number of the step, and perhaps of the steps in all."""
    total = ctx.total_steps if total is None and "total_steps" in ctx else total
    own = {"step": step}
    if total is not None:
        own |= {"total_steps": total, "progress": operation("minimum", step / total, 1.0)}
    return Ctx(lambda name: own[name] if name in own else ctx._read(name), {*ctx._keys, *own})


_CURRICULA = (
    "Curriculum(steps=10_000)",
    'Curriculum([Stage("warm up", 500), Stage("train", 9_500)])',
)


def not_in_schedules(name: str) -> DslmutError:
    """E-OPT-006 for a schedule that reads what only the device knows."""
    return BadContext.raised(
        user_span(),
        f"a schedule reads `ctx.{name}`, which is a tensor that this step computes on the device",
        fix=f"read it in a body or a transform; or give the schedule a number of your own: "
        f'`rule.bind(model, ctx={{"my_{name}": 0.0}})`',
        why="schedules give plain numbers, which are known before the device has computed anything",
    )


def _unknown(name: str, keys: tuple[str, ...]) -> DslmutError:
    if name in WIDE:
        return not_in_schedules(name)
    if name in PROGRESS:
        return BadContext.raised(
            user_span(),
            f"`ctx.{name}` is counted from a curriculum, and this optimizer has none",
            fix=f"bind it with one: `rule.bind(model, curriculum={_CURRICULA[name.startswith('stage')]})`",
        )
    near = difflib.get_close_matches(name, [*COUNTS, *PROGRESS, *CONSTANTS, *WIDE, *keys], n=1)
    return BadContext.raised(
        user_span(),
        f"`ctx` has no `{name}`",
        fix=f"write `ctx.{near[0]}`"
        if near
        else f'declare it: `rule.bind(model, ctx={{"{name}": 0.0}})`',
    )


Hyper: TypeAlias = float | Callable[[Ctx], Tensor | float]
"""A hyperparameter: a number, or a schedule, which is a function of ``ctx``."""


@dataclass(frozen=True)
class Stage:
    """A part of a curriculum.

    Args:
        name: For people.
        steps: How many steps it takes, at least 1.
    """

    name: str
    steps: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise BadOption.raised(
                user_span(),
                f"the name of a stage is a string, not {self.name!r}",
                fix=f'write `Stage("{self.steps if isinstance(self.steps, str) else self.name}", '
                f"{self.name if isinstance(self.name, int) and self.name > 0 else 1000})`",
                why="a stage has a name and a number of steps, in this order",
            )
        if type(self.steps) is not int or self.steps < 1:
            raise BadOption.raised(
                user_span(),
                f"the stage `{self.name}` has {self.steps!r} steps",
                fix=f'give it at least one: `Stage("{self.name}", 1000)`',
            )


@dataclass(frozen=True)
class Curriculum:
    """What the progress of a run is counted from.

    Args:
        stages: In order, or their number of steps as ``steps``.
        steps: The number of steps of a curriculum with one stage.

    Example:
        >>> Curriculum(steps=100).steps
        100
        >>> Curriculum([Stage("short", 10), Stage("full", 90)]).steps
        100
    """

    stages: tuple[Stage, ...]

    def __init__(self, stages: Iterable[Stage] | None = None, *, steps: int | None = None) -> None:
        if isinstance(stages, int):
            raise BadOption.raised(
                user_span(),
                "a curriculum consists of stages, and its number of steps is given by name",
                fix=f"write `Curriculum(steps={stages!r})`",
            )
        if stages is not None and steps is not None:
            raise BadOption.raised(
                user_span(),
                "a curriculum has either stages or a number of steps",
                fix="leave `steps` out: it is the sum of those of the stages",
            )
        if stages is None:
            stages = () if steps is None else (Stage("all", steps),)
        listed = isinstance(stages, Iterable) and getattr(stages, "ndim", 1) > 0
        object.__setattr__(self, "stages", tuple(stages) if listed else (stages,))
        if not all(isinstance(s, Stage) for s in self.stages):
            raise BadOption.raised(
                user_span(),
                "a curriculum consists of stages",
                fix='write `Curriculum([Stage("short", 1000), Stage("full", 9000)])`',
            )
        if not self.stages:
            raise BadOption.raised(
                user_span(), "a curriculum has no steps", fix="write `Curriculum(steps=10_000)`"
            )

    @property
    def steps(self) -> int:
        """Return the number of steps in all."""
        return sum(s.steps for s in self.stages)

    def at(self, step: int) -> Mapping[str, Any]:
        """Return what ``ctx`` says of the progress at a step; behind the end the last stage goes on."""
        before = 0
        for number, stage in enumerate(self.stages):
            last = number == len(self.stages) - 1
            if step < before + stage.steps or last:
                inside = step - before
                return {
                    "total_steps": self.steps,
                    "progress": min(step / self.steps, 1.0),
                    "stages": self.stages,
                    "stage": number,
                    "stage_step": inside,
                    "stage_progress": min(inside / stage.steps, 1.0),
                }
            before += stage.steps
        raise AssertionError("a curriculum has at least one stage")
