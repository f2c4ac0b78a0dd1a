"""What a group takes over from a file: hyperparameters, counts, and what schedulers keep."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dslmut.diagnostics.exceptions import DslmutError
from dslmut.optim.hyperparameters import FOREIGN, OWN, RESERVED, Declaring, fitted
from dslmut.optim.matching import SavedGroups, count, foreign, warn
from dslmut.optim.numbers import is_schedule
from dslmut.optim.options import is_seed

if TYPE_CHECKING:
    from dslmut.optim.numbers import Group

_NO_SETTINGS = OWN | {"params", "param_names"}


def settings(
    group: Group, sources: Sequence[Mapping[str, Any]], saved: SavedGroups
) -> dict[str, Any]:
    """Return what a group takes over.

    Args:
        group: As it is now.
        sources: The groups of the file that its parameters were in; where they differ, the
            group keeps what it has.
        saved: All groups of the file.

    Raises:
        OptimizerError: E-OPT-007 for a hyperparameter that the rule does not have, E-OPT-002 for
            a value that does not fit.
    """
    known, schedules = group.definition.hyperparameters, group.shown.schedules
    counted = [g for g in sources if "step" in g] or saved
    counts = [n for n in ("step", "skipped") if n in group.shown]
    values: dict[str, Any] = {
        n: max((count(g.get(n, 0), f"steps, `{n}`, of a group") for g in counted), default=0)
        for n in counts
    }
    agreed, differing = _agreed(sources)
    for name, value in agreed.items():
        if name in known and name in schedules:
            continue
        if name in known:
            values[name] = fitted(group.definition, known[name], value)
        elif name == "seed":
            values[name] = _seed(value)
        elif name in (RESERVED | set(group.shown)) - _NO_SETTINGS:
            values[name] = deepcopy(value)  # a scheduler's key, or somebody's own
        elif name not in RESERVED | FOREIGN:
            raise _unknown(group, name, agreed)
    kept = [n for n in known if n in differing and n not in schedules]
    given = [n for n in known if not is_schedule(group.shown.get(n))]  # code is not saved
    lacking = [n for n in given if n not in agreed and n not in differing]
    if kept:
        warn(
            "the parameters of a group were in other groups, which differ in "
            f"{', '.join(kept)}; the present values stay"
        )
    elif lacking and sources:
        warn(f"the file lacks {', '.join(lacking)}; the present values stay")
    elif lacking and group.shown["params"]:
        warn("the file has none of the parameters of a group; it keeps its hyperparameters")
    return values


def without_code(saved: dict[str, Any], rules: Iterable[Declaring]) -> dict[str, Any]:
    """Take the functions among the hyperparameters out of a state dict: code is not saved.

    Args:
        saved: The state dict; its groups are changed.
        rules: Of the groups.
    """
    known = {name for rule in rules for name in rule.hyperparameters}
    for group in saved["param_groups"]:
        for name in [n for n, v in group.items() if n in known and is_schedule(v)]:
            del group[name]
    return saved


def _seed(value: Any) -> int:
    if not is_seed(value):
        raise foreign(
            f"the seed of a group is {value!r} in the file", "load what `opt.state_dict()` gave"
        )
    return value


def _agreed(sources: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], set[str]]:
    """Return what all groups have in common, and the keys in which they differ."""
    agreed, differing = {}, set()
    for name in dict.fromkeys(n for g in sources for n in g):
        found = [_plain(g[name]) for g in sources if name in g]
        if all(_alike(f, found[0]) for f in found):
            agreed[name] = found[0]
        else:
            differing.add(name)
    return agreed, differing


def _alike(a: Any, b: Any) -> bool:
    try:
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return a is b or torch.equal(a, b)
        return a is b or bool(a == b or (a != a and b != b))  # not-a-number is refused later
    except (RuntimeError, TypeError, ValueError):  # arrays, and whatever else people keep there
        return False


def _plain(value: Any) -> Any:
    """Return a number for a tensor that is one, and a tuple for a list, so that they compare."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.item()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _unknown(group: Group, name: str, saved: Mapping[str, Any]) -> DslmutError:
    rule, known = group.definition.__name__, group.definition.hyperparameters
    near = difflib.get_close_matches(name, [n for n in known if n not in saved], n=1, cutoff=0.3)
    fix = "load it into an optimizer with the rule that it was saved from"
    if near:
        fix = (
            f"if `{near[0]}` is its new name, change it in the file before it is loaded: "
            f'`g["{near[0]}"] = g.pop("{name}")` for each `g` in `file["param_groups"]`'
        )
    return foreign(f"the file has a hyperparameter `{name}`, which `{rule}` does not have", fix)
