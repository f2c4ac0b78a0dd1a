"""Loading a state dict: matched by name, checked completely, then written into storage of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dslmut.diagnostics.codes.optimizers import ForeignCheckpoint
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span, warn_user

if TYPE_CHECKING:
    from dslmut.optim.numbers import Item
    from dslmut.optim.running import Runner


def load(
    groups: Sequence[dict[str, Any]],
    states: Any,
    runner: Runner,
    saved: Mapping[str, Any],
) -> None:
    """Load what ``state_dict()`` gave.

    Args:
        groups: Of the optimizer, which get the saved hyperparameters and counts.
        states: Of the optimizer.
        runner: Which knows the states that each parameter has.
        saved: The state dict.

    Raises:
        OptimizerError: E-OPT-007; nothing was changed then.
    """
    saved_groups = saved["param_groups"]
    numbers = _numbers(groups, saved_groups)
    loaded = {
        item.parameter: _states(item, runner, saved["state"].get(numbers[item.number], {}))
        for item in runner.items
    }
    settings = _settings(groups, saved_groups)
    for parameter, values in loaded.items():
        states[parameter] = values
    for group, values in zip(groups, settings):
        group.update(values)
    runner.adopt()


def _numbers(groups: Sequence[dict[str, Any]], saved: Sequence[dict[str, Any]]) -> list[Any]:
    """Return, for each parameter in order, the number that its state has in the file."""
    names = [n for g in groups for n in g.get("param_names", ())]
    count = sum(len(g["params"]) for g in groups)
    old_numbers = [n for g in saved for n in g["params"]]
    old_names = [n for g in saved for n in g.get("param_names", ())]
    if len(names) == count and len(old_names) == len(old_numbers):
        known = dict(zip(old_names, old_numbers))
        lost = [n for n in old_names if n not in set(names)]
        if lost:
            raise _foreign(
                f"the file has states of `{lost[0]}`, which this optimizer does not have",
                "load it into an optimizer of the model that it was saved from",
            )
        missing = [n for n in names if n not in known]
        if missing:
            warn_user(
                f"dslmut: the file has no states of {', '.join(missing)}; they start at zeros",
                UserWarning,
            )
        return [known.get(n) for n in names]
    if len(old_numbers) != count or [len(g["params"]) for g in groups] != [
        len(g["params"]) for g in saved
    ]:
        raise _foreign(
            f"the file has {[len(g['params']) for g in saved]} parameters in its groups, "
            f"this optimizer {[len(g['params']) for g in groups]}, and there are no names to go by",
            "bind both to a model or to `named_parameters()`",
        )
    return old_numbers


def _states(item: Item, runner: Runner, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of one parameter, in storage of their own."""
    declared = {s.name: s for s in runner.program(item).states}
    unknown = [n for n in saved if n not in declared and n != "updates"]
    if unknown:
        listed = ", ".join(f"`{n}`" for n in declared) or "none"
        raise _foreign(
            f"the file has a state `{unknown[0]}` of `{item.name}`; this rule declares {listed}",
            "load it into an optimizer with the rule that it was saved from",
        )
    device, values = item.parameter.device, {}
    for name, state in declared.items():
        value = saved.get(name)
        if value is None:
            values[name] = state.make(device)
            continue
        if not isinstance(value, Tensor) or tuple(value.shape) != state.shape:
            shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise _foreign(
                f"the state `{name}` of `{item.name}` has shape {shape} in the file and {list(state.shape)} here",
                "load it into a model of the same sizes",
            )
        values[name] = torch.empty_strided(
            state.shape, state.stride, dtype=state.dtype, device=device
        ).copy_(value)
    if declared and saved and len([n for n in declared if n in saved]) < len(declared):
        missing = ", ".join(f"`{n}`" for n in declared if n not in saved)
        warn_user(
            f"dslmut: the file lacks {missing} of `{item.name}`; they start at zeros", UserWarning
        )
    values["updates"] = int(saved.get("updates", 0))
    return values


def _settings(
    groups: Sequence[dict[str, Any]], saved: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return what each group takes over: hyperparameters, counts, and what schedulers keep."""
    if len(groups) != len(saved):
        return [{"step": max(int(g.get("step", 0)) for g in saved)} for _ in groups]
    kept = ("params", "param_names")
    return [{k: deepcopy(v) for k, v in g.items() if k not in kept} for g in saved]


def _foreign(message: str, fix: str) -> DslmutError:
    return ForeignCheckpoint.raised(user_span(), message, fix=fix)
