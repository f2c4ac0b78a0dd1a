"""How a run was bound, as its files say it, and what a resumed run has forgotten of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dslmut.optim.define import shown_value
from dslmut.optim.hyperparameters import BOUND_WITH
from dslmut.optim.numbers import Group, ParamGroup, is_schedule

if TYPE_CHECKING:
    from dslmut.optim.options import Options

_LOW = (torch.bfloat16, torch.float16)


def described(
    saved: dict[str, Any], groups: Sequence[dict[str, Any]], options: Options
) -> dict[str, Any]:
    """Write into a state dict how its groups were bound: code itself is not saved.

    Args:
        saved: The state dict.
        groups: As they are now.
        options: Of the run.
    """
    for found, group in zip(saved["param_groups"], groups):
        known = group.definition.hyperparameters if isinstance(group, ParamGroup) else {}
        may_be = [n for n, h in known.items() if h.scheduled]  # other functions are just code
        schedules = getattr(group, "schedules", ())
        found[BOUND_WITH] = {
            "schedules": [n for n in may_be if n in schedules or is_schedule(group.get(n))],
            "rounding": options.rounding,
            "skip_nonfinite": options.skip_nonfinite,
        }
    return saved


def forgotten(
    group: Group, sources: Sequence[Mapping[str, Any]], options: Options
) -> Iterator[str]:
    """Yield what the file's run had, and this one goes on without.

    Args:
        group: Which has taken over what the file gives.
        sources: The groups of the file that its parameters were in.
        options: Of this run.
    """
    before = [b for g in sources if isinstance(b := g.get(BOUND_WITH), Mapping)]
    schedules = [n for b in before for n in b.get("schedules", ())]
    shown, rule = group.shown, group.definition.__name__
    for name in dict.fromkeys(schedules):
        if name in group.definition.hyperparameters and name not in shown.schedules:
            yield (
                f"`{name}` of `{rule}` followed a schedule in the file's run, and is a number here, "
                f"which stays at {shown_value(shown[name])}; bind with the schedule to go on with it"
            )
    by_chance = any(b.get("rounding") == "stochastic" for b in before)
    is_low = any(p.dtype in _LOW for p in shown["params"])
    if by_chance and is_low and options.rounding != "stochastic":
        yield (
            "the file's run rounded by chance, and this one rounds to the nearest; "
            'write `bind(..., rounding="stochastic")` to go on with it'
        )
    if any(b.get("skip_nonfinite") for b in before) and not options.skip_nonfinite:
        yield (
            "the file's run left out steps with gradients that are not finite, and this one does not; "
            "write `bind(..., skip_nonfinite=True)` to go on with it"
        )
