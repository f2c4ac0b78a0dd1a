"""One step: numbers of the step on the host, then the planned calls on the parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from operator import is_
from typing import Any

from torch import Tensor

from dslmut.optim.autocasting import exact
from dslmut.optim.counting import Counts
from dslmut.optim.drawing import key_of
from dslmut.optim.fitting import fit_states
from dslmut.optim.following import Schedules
from dslmut.optim.kernels import Kernels, entry
from dslmut.optim.layouts import layout
from dslmut.optim.numbers import Group, Inputs, Item, Numbers, Slot
from dslmut.optim.options import Options, seed_of
from dslmut.optim.parameters import is_lazy
from dslmut.optim.plan import Call, Kind, Plan, kernels_for, plan
from dslmut.optim.programs import Program, program_of
from dslmut.optim.ready import Member, Ready, States, Steps
from dslmut.optim.recording import Subject
from dslmut.optim.skipping import DeviceSlot, OpenStep
from dslmut.optim.stepwide import StepWide, fill
from dslmut.optim.updating import aside

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
        self.kernels = Kernels(option)
        self.parameters = [item.parameter for item in items]
        self._programs: dict[Hashable, list[Program]] = {}
        self._steps: dict[Hashable, list[Steps]] = {}
        self._scalars: dict[Hashable, int] = {}
        self._scalars_of: dict[Program, int] = {}
        self._slots: dict[Hashable, list[Slot]] = {}
        self._tried: set[Any] = set()
        self._held: tuple[list[Tensor], list[Any], States] = [], [], []

    def inherit(self, before: Runner) -> None:
        """Take over what another runner has traced and compiled; keys of ``ctx`` keep their values."""
        self._programs.update(before._programs)
        self._scalars, self._scalars_of = before._scalars, before._scalars_of
        self.kernels.inherit(before.kernels)
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
            and all(map(is_, chain.from_iterable(held), self.parameters))
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
        with exact():
            values = group.hyperparameters()
            keys = self.numbers.keys
            made = program_of(group.definition, values, subject, inputs, keys, self._by_chance)
        self._programs.setdefault(personal if made.personal else kind, []).append(made)
        self._scalars_of[made] = self._scalars.setdefault(made.scalars, len(self._scalars))
        self.kernels.notice(made)
        return made

    def make_states(self, item: Item, states: dict[str, Any]) -> None:
        """Give a parameter the states that its rule declares and it does not have yet."""
        fit_states(item, self.program(item), states)

    # -- the step ----------------------------------------------------------------------------

    def step(
        self,
        states: Mapping[Tensor, dict[str, Any]],
        gradients: list[Tensor | None],
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
        owned, gradients = self._owned(states), [*gradients]
        reporting = self.counts.reports_now() if diagnostics is None else diagnostics
        flags: Mapping[str, Tensor] = {}
        with exact():
            try:  # all that may fail, before anything is changed
                self.schedules.show()
                steps, tensors = self._filled(owned, gradients)
                self._compile(steps, reporting)
                inputs = [call.inputs(tensors) for call in steps.calls]
            except BaseException:
                self.numbers.extra = before
                with suppress(Exception):
                    self.schedules.show(last=True)
                raise
            if steps.wide:
                flags = fill(steps.wide, [gradients[n] for n in steps.numbers])  # pyright: ignore
            with self._careful(steps, tensors, reporting):
                reports = _run(steps, inputs, reporting)
            steps.mark(tensors)
        if not self.counts.defers:
            self.counts.take(steps.present, owned, reports)
            return
        told = before if ctx else None
        self.counts.open.append(OpenStep(flags["finite"], steps.present, owned, reports, told))
        if ctx:  # the next step needs to know its values
            self.counts.settle()

    def settle(self) -> None:
        """Wait for what the device decides, so that all counts are right."""
        if self.counts.open:
            self.counts.settle()
            self.schedules.show(last=True)
        self.schedules.take()

    def _owned(self, states: Mapping[Tensor, dict[str, Any]]) -> States:
        """Return the states by the number of their parameter, without hashing tensors each time."""
        parameters, values, owned = self._held
        same = len(states) == len(parameters) and all(map(is_, states, parameters))
        if not same or not all(map(is_, states.values(), values)):
            owned = [states[p] for p in self.parameters]
            self._held = list(states), list(states.values()), owned
        return owned

    def _filled(self, states: States, gradients: list[Tensor | None]) -> tuple[Steps, list[Tensor]]:
        """Return the calls and their tensors; the scalars of this step are in their places."""
        known = self.numbers.reads_identity
        steps, tensors, places, classes = self._prepared(states, gradients)
        if self.counts.open and not self.counts.are_certain(steps, states):
            self.counts.settle()
            return self._filled(states, gradients)
        if steps.classes != places:
            self._assign(steps, places)
        self.counts.fill(steps.slots, classes, states)
        if self.numbers.reads_identity and not known:
            # A schedule asks for the first time which parameter it is for: each gets its own.
            return self._filled(states, gradients)
        return steps, tensors

    # -- planning ----------------------------------------------------------------------------

    def _prepared(
        self, states: States, gradients: list[Tensor | None]
    ) -> tuple[Steps, list[Tensor], list[int], list[Inputs]]:
        """Return the calls, their tensors, and the numbers; a pattern seen before is known."""
        pattern = tuple([g is None for g in gradients])
        fixed = tuple([(g.fixed(), g.shown["seed"]) for g in self.groups])
        key = (pattern, fixed, self.numbers.reads_identity, self.counts.defers)
        known = self._steps.get(key, ())
        present = known[0].present if known else [i for i in self.items if not pattern[i.number]]
        places, classes = self._classes(present, states)
        for steps in known:
            if self._holds(steps, places, classes):
                tensors = steps.fitting(states, gradients)
                if tensors is not None:
                    return steps, tensors, places, classes
        steps = self._plan(present, states, gradients)
        self._remember(key, steps)
        tensors = steps.fitting(states, gradients)
        assert tensors is not None, "a plan fits the tensors that it is made for"
        return steps, tensors, places, classes

    def _classes(self, present: Sequence[Item], states: States) -> tuple[list[int], list[Inputs]]:
        """Return the class of each parameter's numbers, and those of each class.

        Groups with the same rule and the same numbers share them.
        """
        groups = [i.group for i in present]
        updates = [states[i.number].get("updates", 0) + 1 for i in present]
        histories = [self.counts.history(i) for i in present] if self.counts.open else ()
        kinds: list[Any] = groups
        if histories or len(set(updates)) > 1:
            kinds = list(zip(groups, updates, histories or repeat(())))
        known: dict[Any, int] = {}
        equal: dict[Hashable, int] = {}
        classes: list[Inputs] = []
        for kind, i in dict(zip(kinds, range(len(kinds)))).items():
            group, numbers = self.groups[groups[i]], self.numbers.of(groups[i], updates[i])
            history = histories[i] if histories else ()
            settings = (group.definition, group.fixed(), tuple(numbers.values()), history)
            known[kind] = equal.setdefault(settings, len(classes))
            if known[kind] == len(classes):
                classes.append(numbers)
        return [known[k] for k in kinds], classes

    def _holds(self, steps: Steps, places: Sequence[int], classes: Sequence[Inputs]) -> bool:
        """Say whether all bodies of a plan would take the same branches at this step."""
        for alike in steps.branching:
            for i in {(places[i], steps.own[i]): i for i in alike}.values():
                inputs = classes[places[i]]
                ctx = self.numbers.context(steps.present[i], inputs)
                if not steps.programs[i].holds(inputs, ctx):
                    return False
        return True

    def _own(self, item: Item, program: Program) -> int | None:
        """Return the number of a parameter if its scalars are its own."""
        own = program.personal or (program.calls and self.numbers.reads_identity)
        return item.number if own else None

    def _remember(self, key: Hashable, steps: Steps) -> None:
        before = self._steps.pop(key, [])
        while len(self._steps) >= REMEMBERED:
            self._steps.pop(next(iter(self._steps)))
        self._steps[key] = [steps, *before[: REMEMBERED // 4]]

    def first_plan(self) -> tuple[Plan, dict[int, Program]]:
        """Return the plan of a first step in which every trained parameter has a gradient."""
        states: States = [{}] * len(self.items)
        trained = self._trained()
        programs = self._programs_of(trained, states)
        entries = [entry(i, programs[i.number]) for i in trained]
        return plan(entries, kernels_for(entries)), programs

    def _trained(self, gradients: Sequence[Tensor | None] = ()) -> list[Item]:
        """Return the parameters that may be updated, those with a gradient in any case."""
        given = {n for n, g in enumerate(gradients) if g is not None}
        return [
            i
            for i in self.items
            if i.number in given or (i.parameter.requires_grad and not is_lazy(i.parameter))
        ]

    def _programs_of(self, items: Sequence[Item], states: States) -> dict[int, Program]:
        places, classes = self._classes(items, states)
        return {i.number: self.program(i, classes[place]) for i, place in zip(items, places)}

    def _plan(
        self, present: Sequence[Item], states: States, gradients: list[Tensor | None]
    ) -> Steps:
        trained = self._trained(gradients)
        programs = self._programs_of(trained, states)
        for item in present:
            fit_states(item, programs[item.number], states[item.number])
        entries = {i.number: entry(i, programs[i.number]) for i in trained}
        self.kernels.admit((entries[i.number], i, programs[i.number]) for i in trained)
        found = self.kernels.plan(entries[i.number] for i in present)
        calls: list[Ready] = []
        for call in found.calls:
            members = [self._member(call, place, programs) for place in range(len(call.members))]
            calls.append(Ready(call, tuple(members), calls[-1].last if calls else 0))
        bodies = [programs[i.number] for i in present]
        names = {(n, i.parameter) for i, p in zip(present, bodies) for n in self._wide_of(p)}
        wide = dict.fromkeys(self._wide.of(*n) for n in names)
        own = [self._own(i, p) for i, p in zip(present, bodies)]
        return Steps(tuple(present), tuple(calls), tuple(wide), tuple(bodies), tuple(own))

    def _wide_of(self, program: Program) -> tuple[str, ...]:
        return (*program.wide, "finite") if self.counts.defers else program.wide

    def _member(self, call: Call, place: int, programs: Mapping[int, Program]) -> Member:
        number, kind = call.members[place], call.kernel[place]
        if number is not None:
            return Member(self.items[number], programs[number])
        model = None
        if not self.kernels.program(kind).flat:  # zeros might be refused by linear algebra
            kinds = zip(call.members, call.kernel)
            model = next(i for i, (n, k) in enumerate(kinds) if n is not None and k == kind)
        return self.kernels.stand_in(kind, model)

    # -- numbers -----------------------------------------------------------------------------

    def _assign(self, steps: Steps, places: Sequence[int]) -> None:
        """Give each parameter the vector of scalars of its class."""
        vectors: dict[int, Tensor] = {}
        slots: dict[Hashable, Slot] = {}
        taken: Counter[Hashable] = Counter()
        steps.slots, steps.classes = [], list(places)
        for item, program, own, place in zip(steps.present, steps.programs, steps.own, places):
            kind = (self._scalars_of[program], item.parameter.device, self.counts.defers)
            key = (kind, place, own)
            if key not in slots:
                slots[key] = self._slot(kind, taken[kind], item, program)
                taken[kind] += 1
                steps.slots.append((slots[key], item, place))
            vectors[item.number] = slots[key].vector
        for call in steps.calls:
            members = zip(call.call.kernel, call.members)
            call.aside = [t for kind, m in members for t in self._aside(kind, m, vectors)]

    def _slot(self, kind: Hashable, number: int, item: Item, program: Program) -> Slot:
        pool, device = self._slots.setdefault(kind, []), item.parameter.device
        if number == len(pool):
            host = device.type == "cpu" and not self.counts.defers
            slot = Slot(program.scalars) if host else DeviceSlot(program.scalars, device)
            pool.append(slot)
        return pool[number]

    def _aside(self, kind: Kind, member: Member, vectors: Mapping[int, Tensor]) -> list[Tensor]:
        """Return what an update reads besides its own tensors, in the order of ``aside``."""
        item = member.item
        if item is None:
            return self.kernels.aside(kind, self.counts.defers)
        names = aside(member.program, self.counts.defers)
        found = {"key": self._key(item)} if "key" in names else {}
        found["scalars"] = vectors[item.number]
        return [found[n] if n in found else self._wide.of(n, item.parameter).tensor for n in names]

    def _key(self, item: Item) -> Tensor:
        """Return what the random numbers of a parameter are keyed by."""
        seed = seed_of(self.groups[item.group].shown["seed"])
        return key_of(seed, item.name, item.parameter.device)

    # -- kernels -----------------------------------------------------------------------------

    def _compile(self, steps: Steps, reporting: bool) -> None:
        """Give each call its kernel; what is not compiled yet is, and all that may be called later."""
        missing = [c for c in steps.calls if reporting not in c.kernels]
        if not missing:
            return
        guarded = self.counts.defers
        versions = {False, self.options.diagnostics_every is not None}
        for version in versions if self.kernels.option is not False else (reporting,):
            self.kernels.compile(version, guarded)
        for call in missing:
            call.kernels[reporting] = self.kernels.get(call.call.kernel, reporting, guarded)

    @contextmanager
    def _careful(self, steps: Steps, tensors: list[Tensor], reporting: bool) -> Iterator[None]:
        """Let nothing be half done where kernels may fail when they are called for the first time.

        ``torch.compile`` compiles no earlier, and a plain operation may lack code for a dtype.
        """
        lazy = self.kernels.option is not True and len(steps.calls) > 1
        called = {c.kernels[reporting] for c in steps.calls} if lazy else set[Any]()
        if called <= self._tried:
            yield
            return
        with steps.whole(tensors):
            yield
        self._tried |= called


def _run(steps: Steps, inputs: Sequence[list[Tensor]], reporting: bool) -> list[Any] | None:
    """Update the parameters; return what the bodies report, if they are asked."""
    rows: list[Any] = []
    for call, own in zip(steps.calls, inputs):
        found = call.kernels[reporting](own)
        if reporting:
            rows += call.rows(found)
    return rows if reporting else None
