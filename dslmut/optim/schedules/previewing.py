"""The numbers of a schedule, to look at before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence

from dslmut.diagnostics.codes.optimizers import BadSchedule
from dslmut.diagnostics.raising import user_span
from dslmut.optim.context import COUNTS, PROGRESS, Ctx, Curriculum, Hyper, Stage
from dslmut.optim.expressions import called
from dslmut.optim.hyperparameters import normalised, takes_ctx
from dslmut.optim.options import curriculum_of


def preview(
    schedule: Hyper,
    steps: int | None = None,
    *,
    curriculum: Curriculum | Sequence[Stage] | int | None = None,
) -> list[float]:
    """Return the numbers that a hyperparameter has in the first steps of a run.

    Args:
        schedule: A schedule, your own one too, or a number.
        steps: How many; by default those of the curriculum.
        curriculum: What progress is counted from, as in ``bind``.

    Returns:
        One number for each step, from step 0 on; ``matplotlib`` plots such a list as it is.

    Raises:
        OptimizerError: E-OPT-006 for something that needs a curriculum, E-OPT-011 for one that does not fit, E-OPT-009 if it is not
            said how many steps are wanted.

    Example:
        >>> preview(lambda ctx: 0.5 / ctx.updates, 2)
        [0.5, 0.25]
    """
    run = curriculum_of(curriculum)
    if steps is None and run is None:
        raise BadSchedule.raised(
            user_span(),
            "`preview` does not know how many steps it shall show",
            fix="write `preview(schedule, 1000)`, or give it a curriculum",
        )
    if steps is not None and (not isinstance(steps, int) or isinstance(steps, bool) or steps < 0):
        raise BadSchedule.raised(
            user_span(),
            f"`steps` of `preview` is a number of steps, not {steps!r}",
            fix="write `preview(schedule, 1000)`",
        )
    kept = normalised(schedule)
    if not isinstance(kept, float) and not (callable(kept) and takes_ctx(kept)):
        raise BadSchedule.raised(
            user_span(),
            f"`preview` shows a schedule or a number, not {schedule!r}",
            fix="a schedule of your own is a function of `ctx`",
        )
    count = run.steps if run is not None and steps is None else steps or 0
    return [called(kept, _at(k, run)) if callable(kept) else kept for k in range(count)]


def _at(step: int, run: Curriculum | None) -> Ctx:
    numbers = {"step": step, "updates": step + 1, "name": "", "index": 0, "group": 0}
    numbers |= {} if run is None else run.at(step)
    return Ctx(numbers.get, (*COUNTS, *(PROGRESS if run else ())))
