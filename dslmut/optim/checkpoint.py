"""Loading a state dict: matched by name, checked completely, then written into storage of its own."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslmut.diagnostics.exceptions import DslmutError
from dslmut.optim import interchange
from dslmut.optim.branching import declarable
from dslmut.optim.fitting import check_state, fit_state
from dslmut.optim.forgotten import forgotten
from dslmut.optim.layouts import layout
from dslmut.optim.lineage import begun, difference, is_related, left_out
from dslmut.optim.matching import SavedGroups, count, foreign, groups_in, listed, matched, warn
from dslmut.optim.parameters import is_lazy
from dslmut.optim.recording import State, Subject
from dslmut.optim.settings import settings

if TYPE_CHECKING:
    from dslmut.optim.numbers import Group, Item
    from dslmut.optim.running import Runner


def load(states: Any, runner: Runner, saved: Any) -> None:
    """Load what ``state_dict()`` gave, or an optimizer of torch that the rule corresponds to.

    Everything is checked first; then each parameter's states are replaced one after the other,
    so that no more memory is needed than those of one parameter besides the old ones and the file.

    Args:
        states: Of the optimizer.
        runner: Which knows the states that each parameter has, and its groups.
        saved: The state dict.

    Raises:
        OptimizerError: E-OPT-007, and E-OPT-002 for a hyperparameter that does not fit; nothing
            was changed then.
    """
    groups = groups_in(saved)
    if not any("rule" in g for g in groups):
        saved = interchange.from_torch(runner.groups, saved)
        groups = saved["param_groups"]
    _check_rules(runner, groups)
    numbers = matched(runner, groups)
    rules = _saved_rules(runner, numbers, groups)
    sources = [_sources(runner, n, numbers, groups) for n in range(len(runner.groups))]
    changes = [settings(g, before, groups) for g, before in zip(runner.groups, sources)]
    before, extra = [dict(group.shown) for group in runner.groups], runner.numbers.extra
    for group, values in zip(runner.groups, changes):
        group.shown.update(values)
    try:  # which states a rule declares may depend on its hyperparameters
        possible = _Declarable(runner)
        loadings = [
            _checked(item, runner, saved["state"].get(numbers[item.number], {}), possible, rule)
            for item, rule in zip(runner.items, rules)
        ]
        runner.numbers.adopt(groups)
        runner.schedules.adopt()
        _warn(runner, rules, loadings)  # which may be an error, too
        said = [m for g, s in zip(runner.groups, sources) for m in forgotten(g, s, runner.options)]
        for message in dict.fromkeys(said):
            warn(message)
    except BaseException:
        for group, values in zip(runner.groups, before):
            group.shown.clear()
            group.shown.update(values)
        runner.numbers.extra = extra
        with suppress(Exception):
            runner.schedules.adopt()
        raise
    for loading in loadings:
        states[loading.item.parameter] = loading.states()


# -- rules ---------------------------------------------------------------------------------------


def _check_rules(runner: Runner, groups: SavedGroups) -> None:
    """Refuse a file of other rules altogether."""
    definitions = [g.definition for g in runner.groups]
    saved = [str(g["rule"]) for g in groups if "rule" in g]
    if not any(is_related(d, rule) for d in definitions for rule in saved):
        raise foreign(
            f"the file was saved from {_named(saved)}, "
            f"and this is {_named([d.__name__ for d in definitions])}",
            f"load it into an optimizer with the rule that it was saved from, {_named(saved)}",
        )


def _saved_rules(
    runner: Runner, numbers: Sequence[Hashable | None], groups: SavedGroups
) -> list[str]:
    """Return the rule that each parameter was under; refuse another one than here.

    Transforms may stand around it now, or may have stood around it then.
    """
    rules = {n: str(g["rule"]) for g in groups if "rule" in g for n in g["params"]}
    found = []
    for item in runner.items:
        definition = runner.groups[item.group].definition
        saved = rules.get(numbers[item.number], definition.__name__)
        if not is_related(definition, saved):
            raise foreign(
                f"the states of `{item.name}` were saved from `{saved}`, "
                f"and here it stands in a group of `{definition.__name__}`",
                f"put it into a group of `{saved}`, or take its states out of the file: "
                'they start at zeros then (`del file["state"][number]`)',
            )
        found.append(saved)
    return found


def _named(rules: Sequence[str]) -> str:
    return ", ".join(f"`{r}`" for r in dict.fromkeys(rules)) or "an optimizer without groups"


# -- states --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Loading:
    """What one parameter gets from a file, checked and not yet copied.

    Args:
        item: The parameter.
        declared: Its states.
        saved: Its states in the file, those of branches that are not taken now among them.
        updates: Their count; None for a parameter that has no states now.
        lacking: Those that the file does not have.
    """

    item: Item
    declared: Sequence[State]
    saved: Mapping[str, Any]
    updates: int | None
    lacking: tuple[str, ...] = ()

    def states(self) -> dict[str, Any]:
        """Return the states, in storage of their own."""
        if self.updates is None:
            return {}
        values: dict[str, Any] = {
            s.name: fit_state(self.item, s, self.saved.get(s.name), own=True) for s in self.declared
        }
        others = {
            n: deepcopy(v) for n, v in self.saved.items() if n not in values and v is not None
        }
        return {**values, **others, "updates": self.updates}


def _checked(
    item: Item, runner: Runner, saved: Mapping[str, Any], possible: _Declarable, rule: str
) -> _Loading:
    """Check the states of one parameter.

    Args:
        item: The parameter.
        runner: Which knows what its rule declares.
        saved: Its states in the file, perhaps of another branch of the rule.
        possible: Knows what the rule declares on other branches.
        rule: That the states were saved from; those of transforms that are gone are left out.
    """
    if is_lazy(item.parameter):
        if saved:
            raise foreign(
                f"the file has states of `{item.name}`, which does not exist yet",
                "make the parameter first: run the model once, or `model.to_empty(device=...)`",
            )
        return _Loading(item, (), {}, None)
    if not saved and not item.parameter.requires_grad:
        return _Loading(item, (), {}, None)
    program = runner.program(item)
    declared = [s.name for s in program.states]
    unknown = [n for n in saved if n not in declared and n != "updates"]
    strange = [n for n in unknown if n not in possible.names(item, program.personal)]
    own = runner.groups[item.group].definition.__name__
    gone, new = left_out(own, rule), begun(own, rule)
    for name in strange:
        if not name.startswith(gone):
            raise _undeclared(item, name, declared, saved)
    for state in program.states:
        if saved.get(state.name) is not None:
            check_state(item, state, saved[state.name])
    updates = count(saved.get("updates", 0), f"updates of `{item.name}`")
    missing = [n for n in declared if n not in saved and not n.startswith(new)]
    lacking = tuple(missing) if updates else ()
    kept = {n: v for n, v in saved.items() if n not in strange}
    return _Loading(item, program.states, kept, updates, lacking)


def _warn(runner: Runner, rules: Sequence[str], loadings: Sequence[_Loading]) -> None:
    """Say once what the file lacks, and which transforms are gone or new."""
    names = [runner.groups[item.group].definition.__name__ for item in runner.items]
    for own, saved in dict.fromkeys(zip(names, rules)):
        if own != saved:
            warn(difference(own, saved))
    for lacking in dict.fromkeys(i.lacking for i in loadings if i.lacking):
        owners = listed([i.item.name for i in loadings if i.lacking == lacking])
        warn(f"the file lacks {listed(lacking)} of {owners}; they start at zeros")


class _Declarable:
    """What the rules of an optimizer may declare on other branches, looked up once for each kind."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._known: dict[Hashable, set[str]] = {}

    def names(self, item: Item, personal: bool) -> set[str]:
        """Return the names of states; a rule that looks at names may have others for each."""
        key = (item.group, layout(item.parameter), item.number if personal else None)
        if key not in self._known:
            group, numbers = self._runner.groups[item.group], self._runner.numbers
            subject = Subject.of(item.parameter, item.name, item.number, item.group)
            values, inputs = group.hyperparameters(), numbers.of(item.group, 1)
            found = declarable(group.definition, values, subject, inputs, numbers.keys)
            self._known[key] = found
        return self._known[key]


def _undeclared(
    item: Item, name: str, declared: Sequence[str], saved: Mapping[str, Any]
) -> DslmutError:
    """E-OPT-007 for a state that the rule does not have; it may have been renamed."""
    listed = ", ".join(f"`{n}`" for n in declared) or "none"
    lacking = [n for n in declared if n not in saved]
    fix = "load it into an optimizer with the rule that it was saved from"
    if lacking:
        near = difflib.get_close_matches(name, lacking, n=1, cutoff=0.0)[0]
        fix = (
            f"if `{near}` is its new name, change it in the file before it is loaded: "
            f'`s["{near}"] = s.pop("{name}")` for each `s` in `file["state"].values()`'
        )
    message = f"the file has a state `{name}` of `{item.name}`; this rule declares {listed}"
    return foreign(message, fix)


# -- groups --------------------------------------------------------------------------------------


def _sources(
    runner: Runner, number: int, numbers: Sequence[Any], saved: SavedGroups
) -> list[Mapping[str, Any]]:
    """Return the saved groups that the parameters of a group were in, as far as the rule has them."""
    own = {numbers[i.number] for i in runner.items if i.group == number} - {None}
    return [_fitting(runner.groups[number], g) for g in saved if own & set(g["params"])]


def _fitting(group: Group, saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a group of a file with the transforms that there are now."""
    known, name = group.definition.hyperparameters, group.definition.__name__
    rule = str(saved.get("rule", name))
    gone, new = left_out(name, rule), begun(name, rule)
    present = {n: group.shown[n] for n in known if n.startswith(new)}
    return present | {n: v for n, v in saved.items() if n in known or not n.startswith(gone)}
