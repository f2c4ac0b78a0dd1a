"""Checkpoints of ``torch.optim``: how a rule's states and settings correspond to those of a class there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dslmut.optim import lineage
from dslmut.optim.hyperparameters import OWN, RESERVED
from dslmut.optim.matching import count, foreign, warn

if TYPE_CHECKING:
    from dslmut.optim.define import Optimizer
    from dslmut.optim.numbers import Group

_IMPLEMENTATION = frozenset("foreach fused capturable differentiable".split())
"""Settings that choose how torch computes, and not what."""

Convert = Callable[[Tensor, Mapping[str, Any]], Tensor]
"""From a state and its group in torch's file to the state on the other side."""


def _same(value: Tensor, group: Mapping[str, Any]) -> Tensor:
    return value


@dataclass(frozen=True)
class TorchState:
    """A state of a class of ``torch.optim`` that corresponds to one of ours.

    Args:
        name: Torch's.
        read: From torch's value, and its group, to ours.
        write: From our value, and torch's group, to torch's.
        optional: Whether torch leaves it out where its settings make no use of it.
    """

    name: str
    read: Convert = _same
    write: Convert = _same
    optional: bool = False


@dataclass(frozen=True, eq=False)
class TorchFormat:
    """The class of ``torch.optim`` whose checkpoints a rule reads and writes.

    Given to ``@optimizer(torch=...)``. States and hyperparameters that are not named here have the
    same name on both sides. A state of a parameter that was never updated is not written, and
    starts on either side as it starts there; so only a different meaning needs a conversion.

    Args:
        optimizer: The class; one of your own is fine.
        states: Our states that have another name, or hold something else.
        hyperparameters: Our hyperparameters that have another name: ours, and torch's.
        settings: What the class is constructed with so that it computes what the rule does. Its
            other settings have their defaults; a file in which they differ is refused.
        step: Its state that counts the updates of a parameter; None if it has none.

    Example:
        >>> velocity = TorchState("momentum_buffer", optional=True)
        >>> sgd_format = TorchFormat(torch.optim.SGD, states={"velocity": velocity}, step=None)
    """

    optimizer: Callable[..., torch.optim.Optimizer]
    states: Mapping[str, TorchState] = field(default_factory=dict)
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    step: str | None = "step"

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """Return the settings of the class, by torch's names."""
        return self.optimizer([nn.Parameter(torch.zeros(1, 1))], **self.settings).defaults

    @property
    def name(self) -> str:
        """Return what people call the class."""
        module = self.optimizer.__module__
        known = "torch.optim" if module.startswith("torch.optim.") else module
        return f"{known}.{self.optimizer.__name__}"


# -- from torch ----------------------------------------------------------------------------------


def from_torch(own: Sequence[Group], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state dict of ours for one of ``torch.optim``, with torch's tensors where they fit.

    Args:
        own: The groups that it is loaded into.
        saved: Torch's state dict.

    Raises:
        OptimizerError: E-OPT-007 if the rules have no counterpart there, or the file is of
            another class or of other settings than that.
    """
    definition, form = _format_of(
        own,
        "the file was saved from an optimizer of another library",
        lambda: _instead(own, saved),
    )
    passing = _passing(own, form)
    for group in saved["param_groups"]:
        problem = _misfit(definition, form, group, passing)
        if problem:
            raise foreign(problem, _instead(own, saved))
    kept = _kept(definition, form, own)
    groups, states = [], {}
    for group in saved["param_groups"]:
        known = {**form.defaults, **group}
        found = {
            n: _state_from(n, saved["state"][n], form, known)
            for n in group["params"]
            if n in saved["state"]
        }
        states |= found
        step = max((s["updates"] for s in found.values()), default=0)
        converted = _group_from(definition, form, group, passing)
        groups.append({**kept, **converted, "step": step, "rule": definition.__name__})
    if form.step is None and any(g.shown.schedules for g in own):
        warn(f"`{form.name}` does not count its steps, so that schedules start anew")
    return {"state": states, "param_groups": groups}


def _kept(definition: Optimizer[...], form: TorchFormat, own: Sequence[Group]) -> dict[str, Any]:
    """Return the hyperparameters that torch does not have, and that are the same in all groups."""
    names = [n for n in definition.hyperparameters if _theirs(n, form) not in form.defaults]
    first = own[0].shown
    return {n: first[n] for n in names if all(g.shown[n] == first[n] for g in own)}


def _theirs(name: str, form: TorchFormat) -> str:
    return form.hyperparameters.get(name, name)


def _group_from(
    definition: Optimizer[...], form: TorchFormat, group: Mapping[str, Any], passing: Set[str]
) -> dict[str, Any]:
    ours = {_theirs(n, form): n for n in definition.hyperparameters}
    kept: dict[str, Any] = {}
    if ours.keys() & group.keys():  # what an older file lacks was at its default when it was saved
        kept = {ours[n]: v for n, v in form.defaults.items() if n in ours}
    kept |= {n: v for n, v in group.items() if n in passing}
    return kept | {ours[n]: v for n, v in group.items() if n in ours}


def _passing(own: Sequence[Group], form: TorchFormat) -> Set[str]:
    """Return the keys of a group that are taken over as they are: of schedulers, or somebody's own."""
    return RESERVED.union(*(g.shown for g in own)) - form.defaults.keys()


def _misfit(
    definition: Optimizer[...], form: TorchFormat, group: Mapping[str, Any], passing: Set[str]
) -> str | None:
    """Return what a group of torch's has that the rule does not compute."""
    ours = {_theirs(n, form) for n in definition.hyperparameters}
    for name, value in group.items():
        if name in ours or name in passing:
            continue
        if name not in form.defaults:
            return (
                f"the file was saved from another optimizer than `{form.name}`, "
                f"to which `{definition.__name__}` corresponds: that has no `{name}`"
            )
        if name not in _IMPLEMENTATION and value != form.defaults[name]:
            return (
                f"the file was saved with `{name}={value!r}`, and `{definition.__name__}` "
                f"computes what `{form.name}` does with `{name}={form.defaults[name]!r}`"
            )
    return None


def _instead(own: Sequence[Group], saved: Mapping[str, Any]) -> str:
    """Return which ready rule computes what the file's optimizer did, if there is one."""
    import dslmut.optim as optim
    from dslmut.optim.define import Optimizer

    ready = [r for r in (getattr(optim, n) for n in optim.__all__) if isinstance(r, Optimizer)]
    groups, found = saved["param_groups"], []
    for rule in ready:
        form = rule.torch
        if form is None:
            continue
        passing = _passing(own, form) - {n for g in own for n in g.definition.hyperparameters}
        if not any(_misfit(rule, form, g, passing) for g in groups):
            others = max(len(form.defaults.keys() ^ (g.keys() - passing)) for g in groups)
            found.append((others, len(rule.hyperparameters), rule.__name__))
    if not found:
        return "load it into an optimizer with the rule that it was saved from"
    present = " and ".join(dict.fromkeys(f"`{lineage.core(g.definition)}`" for g in own))
    return f"take `{min(found)[-1]}` in the place of {present}: it computes what the file's optimizer did"


def _state_from(
    number: Hashable, state: Mapping[str, Any], form: TorchFormat, group: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the states of one parameter; what torch has before the first update starts anew here."""
    given = {n: v for n, v in state.items() if v is not None and n != form.step}
    updates = bool(given) if form.step is None else state.get(form.step, 0)
    updates = count(updates, f"updates of parameter {number}")
    if not updates:
        return {"updates": 0}
    found: dict[str, Any] = {s: None for s, t in form.states.items() if t.optional}
    ours = {t.name: (s, t.read) for s, t in form.states.items()}
    for name, value in given.items():
        own, read = ours.get(name, (name, _same))
        found[own] = read(value, group)
    return {**found, "updates": updates}


# -- to torch ------------------------------------------------------------------------------------


def to_torch(own: Sequence[Group], packed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state dict of ``torch.optim`` for one of ours; all tensors are copies.

    Args:
        own: The groups.
        packed: Ours.

    Raises:
        OptimizerError: E-OPT-007 if the rules have no counterpart there.
    """
    definition, form = _format_of(
        own,
        "there is no class of `torch.optim` for this",
        lambda: (
            "save `opt.state_dict()`, or say in the definition what corresponds to it: "
            "`@optimizer(torch=TorchFormat(...))`"
        ),
    )
    others = tuple(p.prefix for p in getattr(definition, "parts", ()) if p.label)
    groups, states = [], {}
    for group in packed["param_groups"]:
        converted = _group_to(definition, form, group)
        groups.append(converted)
        for number in group["params"]:
            state = packed["state"].get(number, {})
            state = {n: v for n, v in state.items() if not n.startswith(others)}  # of transforms
            found = _state_to(state, form, converted) if state.get("updates") else {}
            if found:
                states[number] = found
    return {"state": states, "param_groups": groups}


def _group_to(
    definition: Optimizer[...], form: TorchFormat, group: Mapping[str, Any]
) -> dict[str, Any]:
    known = definition.hyperparameters
    values = {n: v for n, v in group.items() if n not in OWN and n not in known}
    for name, hyperparameter in known.items():
        theirs = _theirs(name, form)
        if name not in group:  # code, which no file holds
            continue
        if theirs in form.defaults:
            values[theirs] = group[name]
        elif group[name] != hyperparameter.default:
            warn(f"`{form.name}` has no `{name}`, which is {group[name]!r} here")
    return {**form.defaults, **values}


def _state_to(
    state: Mapping[str, Any], form: TorchFormat, group: Mapping[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if form.step is not None:  # where torch's own optimizers keep it, in their dtype
        found[form.step] = torch.tensor(state["updates"], dtype=torch.float32, device="cpu")
    for name, value in state.items():
        if name != "updates":
            theirs = form.states.get(name, TorchState(name))
            found[theirs.name] = theirs.write(value.clone(), group)
    return found


def _format_of(
    own: Sequence[Group], problem: str, fix: Callable[[], str]
) -> tuple[Optimizer[...], TorchFormat]:
    """Return the one rule of all groups, and its format."""
    definition, *others = {id(g.definition): g.definition for g in own}.values()
    if others:
        listed = " and ".join(f"`{d.__name__}`" for d in (definition, *others))
        raise foreign(f"{problem}: the groups have several rules, {listed}", fix())
    if definition.torch is None:
        name = definition.__name__
        raise foreign(f"{problem}, and `{name}` corresponds to no class of `torch.optim`", fix())
    return definition, definition.torch


__all__ = ["TorchFormat", "TorchState"]
