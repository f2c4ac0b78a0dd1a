"""Loading a state dict: matched by name, checked completely, then written into storage of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dslmut.diagnostics.codes.optimizers import ForeignCheckpoint
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span, warn_user
from dslmut.optim.fitting import fit_state
from dslmut.optim.hyperparameters import FOREIGN, RESERVED, fitted
from dslmut.optim.parameters import is_lazy

if TYPE_CHECKING:
    from dslmut.optim.numbers import Group, Item
    from dslmut.optim.running import Runner


def load(states: Any, runner: Runner, saved: Any) -> None:
    """Load what ``state_dict()`` gave.

    Args:
        states: Of the optimizer.
        runner: Which knows the states that each parameter has, and its groups.
        saved: The state dict.

    Raises:
        OptimizerError: E-OPT-007, and E-OPT-002 for a hyperparameter that does not fit; nothing
            was changed then.
    """
    groups = _groups(saved, dict.fromkeys(g.definition.__name__ for g in runner.groups))
    numbers = _numbers(runner, groups)
    settings = [
        _settings(group, _source(runner, number, numbers, groups), groups)
        for number, group in enumerate(runner.groups)
    ]
    before = [dict(group.shown) for group in runner.groups]
    for group, values in zip(runner.groups, settings):
        group.shown.update(values)
    try:  # which states a rule declares may depend on its hyperparameters
        loaded = {
            item.parameter: _states(item, runner, saved["state"].get(numbers[item.number], {}))
            for item in runner.items
        }
        runner.schedules.adopt()
    except BaseException:
        for group, values in zip(runner.groups, before):
            group.shown.clear()
            group.shown.update(values)
        with suppress(Exception):
            runner.schedules.adopt()
        raise
    states.update(loaded)


def _groups(saved: Any, rules: Collection[str]) -> Sequence[Mapping[str, Any]]:
    if not isinstance(saved, Mapping) or not {"state", "param_groups"} <= set(saved):
        raise _foreign(
            "this is no state dict of an optimizer: it has no `state` and `param_groups`",
            "load what `opt.state_dict()` gave",
        )
    for group in saved["param_groups"]:
        if group.get("rule") not in rules:
            origin = f"`{group['rule']}`" if "rule" in group else "an optimizer of another library"
            raise _foreign(
                f"the file was saved from {origin}, and this is `{', '.join(rules)}`",
                "load it into an optimizer with the rule that it was saved from",
            )
    return saved["param_groups"]


def _numbers(runner: Runner, saved: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return, for each parameter in order, the number that its state has in the file."""
    shown = [g.shown for g in runner.groups]
    names = [n for g in shown for n in g.get("param_names", ())]
    old_numbers = [n for g in saved for n in g["params"]]
    old_names = [n for g in saved for n in g.get("param_names", ())]
    named = len(names) == len(runner.items) and len(old_names) == len(old_numbers)
    if named and len(set(old_names)) == len(old_names):
        known = dict(zip(old_names, old_numbers))
        lost = [n for n in old_names if n not in set(names)]
        if lost:
            raise _foreign(
                f"the file has states of `{lost[0]}`, which this optimizer does not have",
                "load it into an optimizer of the model that it was saved from",
            )
        missing = [n for n in names if n not in known]
        if missing:
            _warn(f"the file has no states of {', '.join(missing)}; they start at zeros")
        return [known.get(n) for n in names]
    sizes, old_sizes = [len(g["params"]) for g in shown], [len(g["params"]) for g in saved]
    if sizes != old_sizes:
        raise _foreign(
            f"the file has {old_sizes} parameters in its groups, this optimizer {sizes}, "
            "and there are no names to go by",
            "bind both to a model, or give pairs of name and parameter, also in groups: "
            '`{"params": list(model.named_parameters())}`',
        )
    return old_numbers


# -- states --------------------------------------------------------------------------------------


def _states(item: Item, runner: Runner, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of one parameter, in storage of their own.

    Args:
        item: The parameter.
        runner: Which knows what its rule declares.
        saved: Its states in the file, perhaps of another branch of the rule.
    """
    if is_lazy(item.parameter):
        if saved:
            raise _foreign(
                f"the file has states of `{item.name}`, which does not exist yet",
                "run the model once, so that its lazy parameters are made, and load then",
            )
        return {}
    if not saved and not item.parameter.requires_grad:
        return {}
    program = runner.program(item)
    declared = {s.name: s for s in program.states}
    unknown = [n for n in saved if n not in declared and n != "updates"]
    if unknown and not program.branches:
        listed = ", ".join(f"`{n}`" for n in declared) or "none"
        raise _foreign(
            f"the file has a state `{unknown[0]}` of `{item.name}`; this rule declares {listed}",
            "load it into an optimizer with the rule that it was saved from",
        )
    for name, value in saved.items():
        if isinstance(value, Tensor) and value.is_complex():
            raise _foreign(
                f"the state `{name}` of `{item.name}` is complex in the file",
                "load it into an optimizer with the rule that it was saved from",
            )
    values: dict[str, Any] = {
        name: fit_state(item, state, saved.get(name), own=True) for name, state in declared.items()
    }
    values |= {n: deepcopy(saved[n]) for n in unknown}  # of a branch that is not taken now
    missing = [n for n in declared if n not in saved]
    if missing and saved:
        listed = ", ".join(f"`{n}`" for n in missing)
        _warn(f"the file lacks {listed} of `{item.name}`; they start at zeros")
    return {**values, "updates": int(saved.get("updates", 0))}


# -- hyperparameters -----------------------------------------------------------------------------


def _source(
    runner: Runner, number: int, numbers: Sequence[Any], saved: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return the saved group that a group's parameters were in; None if they were in several."""
    own = {numbers[i.number] for i in runner.items if i.group == number} - {None}
    found = [g for g in saved if own & set(g["params"])]
    return found[0] if len(found) == 1 else None


def _settings(
    group: Group, saved: Mapping[str, Any] | None, groups: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what a group takes over: hyperparameters, counts, and what schedulers keep."""
    rule = group.definition.__name__
    if saved is None:
        _warn("the file has other groups; this one keeps its hyperparameters")
        return {"step": max((int(g.get("step", 0)) for g in groups), default=0)}
    known = group.definition.hyperparameters
    values: dict[str, Any] = {"step": int(saved.get("step", 0))}
    for name, value in saved.items():
        if name in known and name in group.shown.schedules:
            continue
        if name in known:
            values[name] = fitted(group.definition, known[name], value)
        elif name in RESERVED and name not in ("params", "param_names", "step", "rule"):
            values[name] = deepcopy(value)
        elif name in group.shown and name not in RESERVED:
            values[name] = deepcopy(value)  # somebody's own key
        elif name not in RESERVED | FOREIGN:
            raise _foreign(
                f"the file has a hyperparameter `{name}`, which `{rule}` does not have",
                "load it into an optimizer with the rule that it was saved from",
            )
    missing = [n for n in known if n not in saved]
    if missing:
        _warn(f"the file lacks {', '.join(missing)}; the present values stay")
    return values


def _warn(message: str) -> None:
    warn_user(f"dslmut: {message}", UserWarning)


def _foreign(message: str, fix: str) -> DslmutError:
    return ForeignCheckpoint.raised(user_span(), message, fix=fix)
