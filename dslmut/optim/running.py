"""One step: numbers of the step on the host, then the planned calls on the parameters."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from dslmut.optim import compiling
from dslmut.optim.counting import Counts
from dslmut.optim.drawing import key_of
from dslmut.optim.fitting import fit_gradient, fit_states
from dslmut.optim.following import Schedules
from dslmut.optim.layouts import Layouts, layout
from dslmut.optim.numbers import Group, Item, Numbers, Slot
from dslmut.optim.options import Options, seed_of
from dslmut.optim.parameters import is_lazy
from dslmut.optim.plan import Call, Entry, Plan, plan
from dslmut.optim.programs import Program, program_of
from dslmut.optim.ready import Draft, Ready, States, Steps, gathered, inputs_of
from dslmut.optim.recording import Subject
from dslmut.optim.skipping import DeviceSlot, OpenStep
from dslmut.optim.stepwide import StepWide, fill

REMEMBERED = 32
"""So many patterns of present gradients are known at once; ever new ones are planned anew."""


class Runner:
    """Runs the steps of one optimizer.

    Args:
        groups: In order.
        items: The parameters, in order.
        options: Of the run.
        option: How updates are compiled.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        items: Sequence[Item],
        options: Options,
        option: bool | dict[str, Any],
    ) -> None:
        self.groups, self.items, self.options = groups, items, options
        self.numbers = Numbers(groups, options.curriculum, options.ctx)
        self.schedules = Schedules(self.numbers, items)
        self._wide = StepWide()
        self._by_chance = options.rounding == "stochastic"
        self.counts = Counts(self.numbers, options.skip_nonfinite, options.diagnostics_every)
        self.option = option
        self._programs: dict[Hashable, list[Program]] = {}
        self._steps: dict[Hashable, list[Steps]] = {}
        self._kernels: dict[tuple[tuple[str, Hashable, int], bool, bool], compiling.Kernel] = {}

    def inherit(self, before: Runner) -> None:
        """Take over what another runner has traced and compiled; keys of ``ctx`` keep their values."""
        self._programs.update(before._programs)
        self._kernels.update(before._kernels)
        self.counts.reports, self.counts.fresh = before.counts.reports, before.counts.fresh
        self.schedules.inherit(before.schedules)
        self.numbers.extra = dict(before.numbers.extra)

    def matches(self, param_groups: Sequence[dict[str, Any]]) -> bool:
        """Say whether the groups still hold the parameters that the runner was made for."""
        if len(param_groups) != len(self.groups):
            return False
        if not all(g is own.shown for g, own in zip(param_groups, self.groups)):
            return False
        held: list[Any] = [g.get("params") for g in param_groups]
        return (
            all(isinstance(params, list) for params in held)
            and sum(map(len, held)) == len(self.items)
            and all(p is item.parameter for p, item in zip(chain.from_iterable(held), self.items))
        )

    # -- programs ----------------------------------------------------------------------------

    def program(self, item: Item, inputs: Mapping[str, Any] | None = None) -> Program:
        """Return the update graph of a parameter, traced unless an equal one is known."""
        inputs = self.numbers.of(item.group, 1) if inputs is None else inputs
        group = self.groups[item.group]
        subject = Subject.of(item.parameter, item.name, item.number, item.group)
        kind = (id(group.definition), group.fixed(), layout(item.parameter))
        personal = (*kind, item.name, item.number, item.group)
        ctx = self.numbers.context(item, inputs)
        for known in (*self._programs.get(personal, ()), *self._programs.get(kind, ())):
            if known.holds(inputs, ctx):
                return known
        with exact([item]):
            values = group.hyperparameters()
            keys = self.numbers.keys
            made = program_of(group.definition, values, subject, inputs, keys, self._by_chance)
        self._programs.setdefault(personal if made.personal else kind, []).append(made)
        return made

    def make_states(self, item: Item, states: dict[str, Any]) -> None:
        """Give a parameter the states that its rule declares and it does not have yet."""
        fit_states(item, self.program(item), states)

    # -- the step ----------------------------------------------------------------------------

    def step(
        self,
        states: States,
        gradients: Sequence[Tensor | None],
        diagnostics: bool | None,
        ctx: Mapping[str, float] | None,
    ) -> None:
        """Update the parameters that have a gradient.

        Args:
            states: Of each parameter.
            gradients: Of each parameter, or None.
            diagnostics: Whether they are computed; None leaves it to ``diagnostics_every``.
            ctx: New values of the declared keys.
        """
        self.schedules.check()
        extra = self.numbers.with_keys(ctx)
        if not self.counts.begins(gradients):
            return
        before, self.numbers.extra = self.numbers.extra, extra
        present = [i for i, g in zip(self.items, gradients) if g is not None]
        given = {i: g for i, g in enumerate(gradients) if g is not None}
        reporting = self.counts.reports_now() if diagnostics is None else diagnostics
        flags: Mapping[str, Tensor] = {}
        with exact(present):
            try:  # all that may fail, before anything is changed
                self.schedules.show()
                steps, inputs = self._filled(present, states, given)
                kernels = [self._kernel(c, reporting, i) for c, i in zip(steps.calls, inputs)]
                for spare in steps.spares:
                    if reporting not in spare.kernels:
                        tensors = spare.inputs(states, given)
                        spare.kernels[reporting] = self._kernel(spare, reporting, tensors)
            except BaseException:
                self.numbers.extra = before
                with suppress(Exception):
                    self.schedules.show(last=True)
                raise
            if steps.wide:
                flags = fill(steps.wide, given.values())
            reports = self._run(steps, kernels, inputs, reporting)
        if not self.counts.defers:
            self.counts.take(present, states, reports)
            return
        told = before if ctx else None
        self.counts.open.append(OpenStep(flags["finite"], present, states, reports, told))
        if ctx:  # the next step needs to know its values
            self.counts.settle()

    def settle(self) -> None:
        """Wait for what the device decides, so that all counts are right."""
        if self.counts.open:
            self.counts.settle()
            self.schedules.show(last=True)
        self.schedules.take()

    def _run(
        self,
        steps: Steps,
        kernels: Sequence[compiling.Kernel],
        inputs: Sequence[Sequence[Tensor]],
        reporting: bool,
    ) -> list[Any] | None:
        """Update the parameters; return what the bodies report, if they are asked."""
        found = []
        for call, kernel, tensors in zip(steps.calls, kernels, inputs):
            reports = kernel(*tensors)
            if reporting and call.program.diagnostics:
                found.append((call.items, call.program.diagnostics, reports))
        return found if reporting else None

    def _filled(
        self, present: Sequence[Item], states: States, gradients: dict[int, Tensor]
    ) -> tuple[Steps, list[list[Tensor]]]:
        """Return the calls and their inputs, the scalars of this step among them."""
        known = self.numbers.reads_identity
        steps, inputs = self._prepared(present, states, gradients)
        if self.counts.open and not self.counts.are_certain(steps, states):
            self.counts.settle()
            return self._filled(present, states, gradients)
        self.counts.fill(steps, states)
        if self.numbers.reads_identity and not known:
            # A schedule asks for the first time which parameter it is for: each gets its own.
            return self._filled(present, states, gradients)
        return steps, inputs

    # -- planning ----------------------------------------------------------------------------

    def _prepared(
        self, present: Sequence[Item], states: States, gradients: dict[int, Tensor]
    ) -> tuple[Steps, list[list[Tensor]]]:
        """Return the calls for these parameters and their inputs; a pattern seen before is known."""
        is_open = bool(self.counts.open)
        kinds = [
            (
                i.group,
                states[i.parameter].get("updates", 0) + 1,
                self.counts.history(i) if is_open else (),
            )
            for i in present
        ]
        places, inputs = self._classes(kinds)
        key = (
            tuple(i.number for i in present),
            tuple(places),
            tuple((g.fixed(), g.shown["seed"]) for g in self.groups),
            self.numbers.reads_identity,
            self.counts.defers,
        )
        for known in self._steps.get(key, ()):
            if self._holds(known, inputs):
                tensors = gathered(known, states, gradients)
                if tensors is not None:
                    return known, tensors
        made = self._plan(present, places, inputs, states, gradients)
        self._remember(key, made)
        return made, [c.inputs(states, gradients) for c in made.calls]

    def _classes(
        self, kinds: Sequence[tuple[int, int, tuple[bool, ...]]]
    ) -> tuple[list[int], list[Mapping[str, Any]]]:
        """Return the different numbers that there are, and the place of those of each parameter.

        Groups with the same rule and the same numbers share them, and so their calls.

        Args:
            kinds: The group of each parameter, the number of its update, and its open steps.
        """
        known: dict[Hashable, int] = {}
        equal: dict[Hashable, int] = {}
        classes: list[Mapping[str, Any]] = []
        for kind in dict.fromkeys(kinds):
            number, updates, history = kind
            group, numbers = self.groups[number], self.numbers.of(number, updates)
            settings = (group.definition, group.fixed(), tuple(numbers.values()), history)
            known[kind] = equal.setdefault(settings, len(classes))
            if known[kind] == len(classes):
                classes.append(numbers)
        return [known[k] for k in kinds], classes

    def _holds(self, steps: Steps, inputs: Sequence[Mapping[str, Any]]) -> bool:
        """Say whether all bodies of a plan would take the same branches at this step."""
        return all(
            program.holds(inputs[place], self.numbers.context(item, inputs[place]))
            for program, item, place in steps.branches
        )

    def _remember(self, key: Hashable, steps: Steps) -> None:
        before = self._steps.pop(key, [])
        while len(self._steps) >= REMEMBERED:
            self._steps.pop(next(iter(self._steps)))
        self._steps[key] = [steps, *before[: REMEMBERED // 4]]

    def first_plan(self) -> Plan:
        """Return the plan of a first step in which every trained parameter has a gradient."""
        present = [i for i in self.items if i.parameter.requires_grad and not is_lazy(i.parameter)]
        places, classes = self._classes([(i.group, 1, ()) for i in present])
        return plan(self._drafted(present, places, classes).entries)

    def _drafted(
        self, present: Sequence[Item], places: Sequence[int], classes: Sequence[Mapping[str, Any]]
    ) -> Draft:
        """Return what is to be planned, by the numbers of this step."""
        draft, numbers = Draft(), dict[Hashable, int]()
        for item, place in zip(present, places):
            program = draft.programs[item.number] = self.program(item, classes[place])
            own = program.personal or (program.calls and self.numbers.reads_identity)
            number = item.number if own else None
            if program.branches:
                key = (program.branches, place, number)
                draft.branches.setdefault(key, (program, item, place))
            key = (place, program.scalars, number)
            if key not in numbers:
                numbers[key] = len(numbers)
                draft.scalars.append((program.scalars, item))
            kind = layout(item.parameter)
            draft.entries.append(
                Entry(item.number, program.text, kind, numbers[key], item.group, item.apart)
            )
        return draft

    def _plan(
        self,
        present: Sequence[Item],
        places: Sequence[int],
        classes: Sequence[Mapping[str, Any]],
        states: States,
        gradients: dict[int, Tensor],
    ) -> Steps:
        draft = self._drafted(present, places, classes)
        for item in present:
            fit_states(item, draft.programs[item.number], states[item.parameter])
            gradients[item.number] = fit_gradient(item, gradients[item.number])
        slots = tuple((self._slot(scalars, item), item) for scalars, item in draft.scalars)

        def ready(call: Call) -> Ready:
            members = tuple(self.items[n] for n in call.members)
            program, slot = draft.programs[call.members[0]], slots[call.slot][0]
            names = (*program.wide, "finite") if self.counts.defers else program.wide
            wide = tuple(self._wide.of(n, members[0].parameter) for n in names)
            keys = tuple(map(self._key, members)) if program.draws else ()
            inputs = inputs_of(slot, wide, program, members, states, gradients, keys)
            return Ready(call, program, slot, wide, members, Layouts(inputs), keys)

        found = plan(draft.entries, self._compiled_sizes())
        calls, spares = tuple(map(ready, found.calls)), tuple(map(ready, found.spares))
        read = tuple(dict.fromkeys(w for call in calls for w in call.wide))
        return Steps(calls, spares, read, slots, tuple(draft.branches.values()))

    def _compiled_sizes(self) -> Mapping[tuple[str, Hashable], Set[int]]:
        """Return for how many parameters there are kernels of a program and layout."""
        sizes: dict[tuple[str, Hashable], set[int]] = {}
        for (text, kind, count), _, defers in self._kernels:
            if defers == self.counts.defers:
                sizes.setdefault((text, kind), set()).add(count)
        return sizes

    def _slot(self, scalars: Sequence[Any], item: Item) -> Slot:
        return DeviceSlot(scalars, item.parameter.device) if self.counts.defers else Slot(scalars)

    def _key(self, item: Item) -> Tensor:
        """Return what the random numbers of a parameter are keyed by."""
        seed = seed_of(self.groups[item.group].shown["seed"])
        return key_of(seed, item.name, item.parameter.device)

    # -- kernels -----------------------------------------------------------------------------

    def _kernel(self, ready: Ready, reporting: bool, inputs: Sequence[Tensor]) -> compiling.Kernel:
        reporting = reporting and bool(ready.program.diagnostics)
        known = ready.kernels.get(reporting)
        if known is None:
            key = (ready.call.kernel, reporting, self.counts.defers)
            if key not in self._kernels:
                self._kernels[key] = self._compiled(ready, reporting, inputs)
            known = ready.kernels[reporting] = self._kernels[key]
        return known

    def _compiled(
        self, ready: Ready, reporting: bool, inputs: Sequence[Tensor]
    ) -> compiling.Kernel:
        """Compile, or say once why that is not possible and go on with plain operations."""
        program, count = ready.program, len(ready.items)
        try:
            return compiling.kernel(
                program, count, reporting, inputs, self.option, self.counts.defers
            )
        except Exception as error:  # whatever a compiler or its toolchain may raise
            if self.option is not True:
                raise
            reason = f"the compiler failed with {type(error).__name__}: {error}"
            rule = self.groups[ready.items[0].group].definition.__name__
            compiling.warn_uncompiled(rule, reason)
            self.option = False
            return compiling.kernel(program, count, reporting, inputs, False, self.counts.defers)


@contextmanager
def exact(items: Sequence[Item]) -> Iterator[None]:
    """Compute in the dtypes that the graph has, also where autocasting is on."""
    kinds = {i.parameter.device.type for i in items}
    on = [k for k in kinds if torch.amp.is_autocast_available(k) and torch.is_autocast_enabled(k)]
    with ExitStack() as stack:
        for kind in on:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield
