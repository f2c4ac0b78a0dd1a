"""``OptState``: a rule bound to parameters, which is a ``torch.optim.Optimizer``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from dslmut.diagnostics.garbage import rare_collections
from dslmut.functions.gradients import Gradient
from dslmut.functions.records import in_order
from dslmut.optim import checkpoint, compiling, interchange
from dslmut.optim.bindable import Bindable, check_bindable
from dslmut.optim.define import Configured, Optimizer
from dslmut.optim.explaining import Explanation, explained
from dslmut.optim.forgotten import described
from dslmut.optim.hyperparameters import FOREIGN, RESERVED, fitted, unknown
from dslmut.optim.inspecting import Inspected
from dslmut.optim.matching import copied
from dslmut.optim.numbers import Group, Item, ParamGroup
from dslmut.optim.options import Options, check_call, check_own
from dslmut.optim.parameters import (
    bad_binding,
    check_names,
    check_parameters,
    is_lazy,
    opened,
    overlapping,
)
from dslmut.optim.reports import Sinks
from dslmut.optim.running import Runner
from dslmut.optim.settings import without_code

M = TypeVar("M", bound=nn.Module)


class OptState(Inspected, torch.optim.Optimizer, Generic[M]):
    """A rule bound to parameters: its states, its groups and its step.

    It *is* a ``torch.optim.Optimizer``: ``loss.backward(); opt.step()``, LR schedulers,
    ``GradScaler``, hooks and ``state_dict()`` work as with torch's own. ``update(mut(m),
    mut(opt), g)`` applies the record of ``value_and_grad``. The states exist from the start, in
    ``opt.state[p]`` under their declared names, beside ``updates``, the number of updates.

    Args:
        rule: The rule, or several of them in groups.
        target: A model, its parameters, named parameters, or torch-style groups.
        options: Of the run.

    Raises:
        OptimizerError: E-OPT-002 to E-OPT-006 and E-OPT-020 to E-OPT-028.
    """

    def __init__(self, rule: Bindable, target: Any, options: Options | None = None) -> None:
        check_bindable(rule)
        rules, self._options = rule.rules(), options or Options()
        self._rule = rules[0] if len(rules) == 1 else None  # of groups that do not say theirs
        found = rule.arranged(target)
        self._model_name, self._notes = found.model, found.notes
        self._named = any("param_names" in g for g in found.groups)
        self._runner: Runner | None = None
        self._sinks = Sinks()
        with rare_collections():  # the first time, it imports much of torch
            super().__init__(found.groups, _common(rules))
            self._prepare()

    # -- groups ------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as torch's optimizers do.

        Args:
            param_group: ``params``, hyperparameters that differ from the defaults, and under
                ``optimizer`` a configured rule, if it is another one.

        Raises:
            OptimizerError: E-OPT-002 for an unknown or unfitting hyperparameter, E-OPT-005 for
                parameters that cannot be optimized; nothing was added then.
        """
        self._settle()
        group = self._complete(opened(param_group), self.param_groups)
        own = set(group)
        super().add_param_group(group)
        for name in set(group) - own:  # torch fills in the defaults of another rule
            del group[name]
        if self._runner is None:  # the constructor prepares all groups at once
            return
        try:
            self._prepare()
        except BaseException:
            for p in self.param_groups.pop()["params"]:
                self.state.pop(p, None)
            raise

    def _complete(self, group: dict[str, Any], before: Sequence[dict[str, Any]]) -> ParamGroup:
        """Return a group with names, hyperparameters and count, all of them checked."""
        rule = self._rule_of(group)
        group = {n: v for n, v in group.items() if n != "optimizer"}
        definition, values = rule.definition, dict(rule.hyperparameters)
        for name, value in group.items():
            known = definition.hyperparameters.get(name)
            if known is not None:
                values[name] = fitted(definition, known, value)
            elif (
                name in FOREIGN and value is not None and value is not False
            ) or name not in RESERVED | FOREIGN:
                raise unknown(definition, name)
        step = max((g["step"] for g in before), default=0)
        defaults = {"step": step, "rule": definition.__name__, "seed": self._options.seed}
        if self._options.skip_nonfinite:
            defaults["skipped"] = max((g["skipped"] for g in before), default=0)
        complete = ParamGroup({**defaults, **group, **values}, definition)
        check_own(complete, definition.__name__)
        check_parameters(group["params"], before)
        self._name(complete, before)
        check_names([n for g in (*before, complete) for n in g.get("param_names", ())])
        return complete

    def _rule_of(self, group: dict[str, Any]) -> Configured:
        """Return the rule of a group that is new: its own, that of all, or that of a namesake."""
        rule = group.get("optimizer")
        if isinstance(rule, Configured):
            return rule
        if rule is None and self._rule is not None:
            name = self._rule.definition.__name__
            if str(group.get("rule", name)) == name:
                return self._rule
        if rule is not None:
            raise bad_binding(
                f"`optimizer` of a group is a configured rule, not a `{type(rule).__name__}`",
                'write `{"params": [...], "optimizer": adamw(lr=1e-3)}`',
            )
        for known in () if self._runner is None else self._runner.groups:
            if known.shown["rule"] == str(group.get("rule")):
                return _current(known.shown, scheduled=True)
        raise bad_binding(
            "this optimizer has several rules, and a new group does not say which it has"
            if "rule" not in group
            else f"a new group says that its rule is {group['rule']!r}, which no group here has",
            'write `{"params": [...], "optimizer": adamw(lr=1e-3)}`',
        )

    def _name(self, group: dict[str, Any], before: Sequence[dict[str, Any]]) -> None:
        """Give a further group names if the others have some: states are saved by name."""
        if self._named and "param_names" not in group:
            names = [f"group{len(before)}.{i}" for i in range(len(group["params"]))]
            group["param_names"] = names
        elif not self._named and "param_names" in group:
            raise bad_binding(
                "this group has names, and the parameters before it have none",
                "give all of them names, as `named_parameters()` does, or none",
            )

    def _prepare(self) -> None:
        """Trace every body, make the states, and plan the step."""
        if self._runner is not None:
            self._runner.settle()
            self._deliver()
            self._runner.schedules.check()
        for number, group in enumerate(self.param_groups):
            if not isinstance(group, ParamGroup):  # somebody put a dictionary of his own there
                own = self._complete(opened(group), self.param_groups[:number])
                self.param_groups[number] = own
            elif self._runner is not None:  # its parameters may have been replaced
                own = opened(group)
                check_parameters(own["params"], self.param_groups[:number])
                group.update(own)
        found = list(self._parameters())
        shared = overlapping([p for _, p, _ in found])
        items = [Item(i, number, p, name, i in shared) for i, (number, p, name) in enumerate(found)]
        groups = [Group(g) for g in self.param_groups]  # pyright: ignore[reportArgumentType]
        runner = Runner(groups, items, self._options, self._compile_option(items))
        if self._runner is not None:
            runner.inherit(self._runner)
        with torch.inference_mode(False):  # states must outlive such a block
            runner.schedules.show(last=True)
            for item in items:
                states = self.state[item.parameter]
                if item.parameter.requires_grad and not is_lazy(item.parameter):
                    runner.make_states(item, states)
        self._runner = runner

    def _parameters(self) -> Iterator[tuple[int, Tensor, str]]:
        """Yield group number, parameter and name of every parameter."""
        count = 0
        for number, group in enumerate(self.param_groups):
            names = group.get("param_names", ())
            for i, p in enumerate(group["params"]):
                yield number, p, names[i] if i < len(names) else f"{count}"
                count += 1

    def _compile_option(self, items: Sequence[Item]) -> bool | dict[str, Any]:
        option = self._options.compile
        if option is not True:
            return option
        for device in {i.parameter.device.type for i in items}:
            reason = compiling.missing_compiler(device)
            if reason is not None:
                compiling.warn_uncompiled(self._rule_names(), reason)
                return False
        return True

    # -- the step ----------------------------------------------------------------------------

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        closure: Callable[[], Any] | None = None,
        *,
        diagnostics: bool | None = None,
        ctx: Mapping[str, float] | None = None,
        gradients: Gradient[Any] | None = None,
    ) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: Computes the loss and the gradients anew; it is called once, first.
            diagnostics: Whether the bodies' diagnostics are computed; by default on the steps
                that ``diagnostics_every`` names.
            ctx: New values of the keys that ``bind(..., ctx={...})`` declared.
            gradients: The record to use instead of ``.grad``.

        Returns:
            What the closure returns.

        Raises:
            OptimizerError: E-OPT-006 and E-OPT-011 for ``ctx``, E-OPT-008 for a hyperparameter that is
                driven from two sides; nothing was changed then.
        """
        check_call(closure, diagnostics, gradients)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        _uncompiled_step(self, gradients, diagnostics, ctx)
        return loss

    def _step(
        self,
        gradients: Gradient[Any] | None,
        diagnostics: bool | None,
        ctx: Mapping[str, float] | None,
    ) -> None:
        runner = self._current_runner()
        if gradients is None:
            given = [p.grad for p in runner.parameters]
        else:
            given = in_order(gradients, runner.parameters)
        if self._sinks:
            self._sinks.wait(diagnostics is not None or self._options.diagnostics_every is not None)
        runner.step(self.state, given, diagnostics, ctx)
        if runner.counts.fresh:
            self._deliver()

    def _current_runner(self) -> Runner:
        """Return the runner, made anew if somebody replaced parameters in the groups."""
        assert self._runner is not None
        if not self._runner.matches(self.param_groups):
            self._prepare()
        return self._runner

    @property
    def skipped(self) -> int:
        """Return how many steps ``skip_nonfinite`` has left out, those before a resume included."""
        self._settle()
        return max(g.get("skipped", 0) for g in self.param_groups)

    def _settle(self) -> None:
        """Wait for what the device decides, so that all counts are right."""
        if self._runner is not None:
            self._runner.settle()
            self._deliver()

    def explain(self) -> Explanation:
        """Return a table of all parameters: group, rule, decay, states, bytes and graphs.

        It is there before the first step: print it, or let a notebook show it.
        """
        runner = self._current_runner()
        rules = [str(_current(g.shown, scheduled=True)) for g in runner.groups]
        return explained(runner, self._notes, rules, runner.kernels.option is not False)

    # -- checkpoints -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return states and hyperparameters for saving, without those of parameters that left.

        Returns:
            A dictionary in the layout of ``torch.optim``, with the parameters' names in it.
        """
        self._settle()
        everything = self.state
        held = {p for g in self.param_groups for p in g["params"]}
        self.state = defaultdict(dict, {p: s for p, s in everything.items() if p in held})
        try:
            found = without_code(super().state_dict(), self._rules())
        finally:
            self.state = everything
        return described(found, self.param_groups, self._options)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load states and hyperparameters, by name where both sides have names.

        Args:
            state_dict: From ``state_dict()`` of an optimizer with the same rule, or of the class of
                ``torch.optim`` that the rule corresponds to.

        Raises:
            OptimizerError: E-OPT-007; nothing was changed then.
        """
        state_dict = copied(state_dict)  # into which hooks may write
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = changed if changed is not None else state_dict
        self._settle()
        with torch.inference_mode(False):
            checkpoint.load(self.state, self._current_runner(), state_dict)
        seeds = {g["seed"] for g in self.param_groups}
        if len(seeds) == 1:  # so that groups that are added later have the run's, too
            self._options = replace(self._options, seed=seeds.pop())
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def torch_state_dict(self) -> dict[str, Any]:
        """Return a state dict for the class of ``torch.optim`` that the rule corresponds to.

        Unlike those of ``state_dict()``, its tensors are copies: torch's ``load_state_dict`` keeps
        the ones that it gets.

        Returns:
            What ``torch.optim.AdamW(...).load_state_dict`` takes, for the rule ``adamw``.

        Raises:
            OptimizerError: E-OPT-007 if the rule corresponds to no class of ``torch.optim``.
        """
        with torch.inference_mode(False):
            return interchange.to_torch(self._current_runner().groups, self.state_dict())

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        kept = super().__getstate__()
        options = self._options
        if self._runner is not None:
            options = replace(options, ctx=self._runner.numbers.extra)
        own = {n: self.__dict__[n] for n in ("_rule", "_model_name", "_named", "_notes")}
        return {**kept, **own, "_options": options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._runner, self._sinks = None, Sinks()
        super().__setstate__({**state, "defaults": dict(state.get("defaults", {}))})
        self.defaults.pop("differentiable", None)  # which torch adds for optimizers of its own
        if "_rule" in self.__dict__:
            self._prepare()

    def __repr__(self) -> str:
        count = sum(len(g["params"]) for g in self.param_groups)
        bound = f" of {self._model_name}" if self._model_name else ""
        rules = dict.fromkeys(str(_current(g)) for g in self.param_groups)  # pyright: ignore[reportArgumentType]
        return f"<{', '.join(rules)} for {count} parameters{bound}>"

    def _rules(self) -> list[Optimizer[...]]:
        return [g.definition for g in self._runner.groups] if self._runner is not None else []

    def _rule_names(self) -> str:
        return ", ".join(dict.fromkeys(g["rule"] for g in self.param_groups))


def _current(group: ParamGroup, scheduled: bool = False) -> Configured:
    """Return the rule of a group with the numbers that it has now, or with its schedules."""
    definition, schedules = group.definition, group.schedules if scheduled else {}
    values = {n: schedules.get(n, group.get(n)) for n in definition.hyperparameters}
    return Configured(definition, values)


def _common(rules: Sequence[Configured]) -> dict[str, Any]:
    """Return the hyperparameters that all rules have: a scheduler looks there for what it may drive."""
    return {
        n: v
        for n, v in rules[0].hyperparameters.items()
        if all(n in r.hyperparameters for r in rules)
    }


_step_of: Callable[..., None] = OptState._step
_disabled: Callable[..., None] = torch._disable_dynamo(_step_of)  # pyright: ignore[reportPrivateImportUsage]


def _uncompiled_step(opt: OptState[Any], *arguments: Any) -> None:
    """Step; the updates are compiled by themselves, so that a compiler around it stops here."""
    (_disabled if torch.compiler.is_compiling() else _step_of)(opt, *arguments)
