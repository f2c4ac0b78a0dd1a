"""One step: numbers of the step on the host, then the planned calls on the parameters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dslmut.diagnostics.codes.optimizers import BadContext, ScheduledElsewhere
from dslmut.diagnostics.raising import user_span
from dslmut.optim import compiling
from dslmut.optim.context import PROGRESS, Ctx
from dslmut.optim.numbers import Group, Item, Slot
from dslmut.optim.plan import Call, Entry, plan
from dslmut.optim.programs import Program, program_of
from dslmut.optim.scalars import Expression, Number, evaluate
from dslmut.optim.trace import Subject, Tracer

if TYPE_CHECKING:
    from dslmut.optim.binding import Options


@dataclass(frozen=True, eq=False)
class Steps:
    """A plan with everything that its calls need, for one pattern of present gradients.

    Args:
        calls: In order.
        slots: The vectors of scalars, each with a parameter whose numbers it is filled with.
        programs: Of each parameter that is updated.
    """

    calls: tuple[Call, ...]
    slots: tuple[tuple[Slot, Item], ...]
    programs: Mapping[int, Program]


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
        self._option = option
        self._extra = dict(options.ctx)
        self._keys = ("step", "updates", *self._extra, *(PROGRESS if options.curriculum else ()))
        self._programs: dict[Hashable, list[Program]] = {}
        self._steps: dict[Hashable, Steps] = {}
        self._kernels: dict[Hashable, compiling.Kernel] = {}
        self._reports: list[tuple[tuple[Item, ...], tuple[str, ...], Any]] = []
        self._written: dict[tuple[int, str], Any] = {}
        self._expressions: dict[Any, Any] = {}
        self._show_schedules()

    def inherit(self, before: Runner) -> None:
        """Take over what another runner has traced and compiled; keys of ``ctx`` keep their values."""
        self._programs.update(before._programs)
        self._kernels.update(before._kernels)
        self._expressions.update(before._expressions)
        self._extra.update(before._extra)

    def matches(self, param_groups: Sequence[dict[str, Any]]) -> bool:
        """Say whether the groups still hold the parameters that the runner was made for."""
        if len(param_groups) != len(self.groups):
            return False
        current = (p for g in param_groups for p in g["params"])
        count = sum(len(g["params"]) for g in param_groups)
        same_groups = all(g is own.shown for g, own in zip(param_groups, self.groups))
        return (
            same_groups
            and count == len(self.items)
            and all(p is item.parameter for p, item in zip(current, self.items))
        )

    # -- numbers of the step -----------------------------------------------------------------

    def inputs(self, group: int, updates: int) -> dict[str, Number]:
        """Return the numbers that the scalar programs of a group read at this step."""
        step = self.groups[group].shown["step"]
        numbers: dict[str, Number] = {"ctx.step": step, "ctx.updates": updates}
        for name, value in self._extra.items():
            numbers[f"ctx.{name}"] = value
        if self.options.curriculum is not None:
            for name, value in self.options.curriculum.at(step).items():
                numbers[f"ctx.{name}"] = value
        for name, value in self.groups[group].hyperparameters().items():
            if isinstance(value, tuple):
                for i, part in enumerate(value):
                    numbers[f"{name}.{i}"] = part
            elif isinstance(value, int | float):
                numbers[name] = value
        return numbers

    def context(self, item: Item, inputs: Mapping[str, Number]) -> Ctx:
        """Return a ``ctx`` of plain numbers, for schedules that are called at each step."""
        constants = {"name": item.name, "index": item.number, "group": item.group}
        return Ctx(lambda n: constants.get(n, inputs.get(f"ctx.{n}")), self._keys)

    # -- programs ----------------------------------------------------------------------------

    def program(self, item: Item, inputs: Mapping[str, Number] | None = None) -> Program:
        """Return the update graph of a parameter, traced unless an equal one is known."""
        inputs = self.inputs(item.group, 1) if inputs is None else inputs
        group = self.groups[item.group]
        values = group.hyperparameters()
        subject = Subject.of(item.parameter, item.name, item.number, item.group)
        fixed = tuple((n, v) for n, v in values.items() if not isinstance(v, float | tuple))
        kind = (
            id(group.definition),
            fixed,
            subject.shape,
            subject.stride,
            subject.dtype,
            subject.device,
        )
        personal = (*kind, item.number)
        for known in (*self._programs.get(personal, ()), *self._programs.get(kind, ())):
            if known.holds(inputs):
                return known
        made = program_of(group.definition, values, subject, inputs, self._keys)
        self._programs.setdefault(personal if made.personal else kind, []).append(made)
        return made

    def make_states(self, item: Item, states: dict[str, Any]) -> None:
        """Give a parameter the states that its rule declares and it does not have yet."""
        for state in self.program(item).states:
            if state.name not in states:
                states[state.name] = state.make(item.parameter.device)
        states.setdefault("updates", 0)

    # -- the step ----------------------------------------------------------------------------

    def step(
        self,
        states: Mapping[Tensor, dict[str, Any]],
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
        self._take(ctx)
        self._check_schedules()
        self._show_schedules()
        present = [i for i, g in zip(self.items, gradients) if g is not None]
        for item in present:
            if "updates" not in states[item.parameter]:
                self.make_states(item, states[item.parameter])
        ready = {i.number: _fitting(i, gradients[i.number]) for i in present}
        reporting = self._reports_now() if diagnostics is None else diagnostics
        steps = self._planned(present, states)
        for slot, item in steps.slots:
            inputs = self.inputs(item.group, states[item.parameter]["updates"] + 1)
            slot.fill(inputs, self.context(item, inputs))
        self._run(steps, states, ready, reporting)
        for item in present:
            states[item.parameter]["updates"] += 1
        for group in self.groups:
            group.shown["step"] += 1

    def _take(self, ctx: Mapping[str, float] | None) -> None:
        for name in ctx or {}:
            if name not in self._extra:
                raise BadContext.raised(
                    user_span(),
                    f"`{name}` is no declared key of `ctx`",
                    fix=f'declare it: `rule.bind(model, ctx={{"{name}": 0.0}})`',
                )
        for name, value in (ctx or {}).items():
            self._extra[name] = float(value)

    def _reports_now(self) -> bool:
        every = self.options.diagnostics_every
        return bool(every) and self.groups[0].shown["step"] % every == 0

    def _planned(self, present: Sequence[Item], states: Mapping[Tensor, dict[str, Any]]) -> Steps:
        """Return the calls for these parameters; a pattern that was seen before is known."""
        classes: dict[tuple[int, int], dict[str, Number]] = {}
        where = []
        for item in present:
            kind = (item.group, states[item.parameter]["updates"] + 1)
            if kind not in classes:
                classes[kind] = self.inputs(*kind)
            where.append(kind)
        order = {kind: number for number, kind in enumerate(classes)}
        fixed = tuple(
            tuple(v for v in g.hyperparameters().values() if not isinstance(v, float | tuple))
            for g in self.groups
        )
        outcomes = tuple(
            tuple(p.holds(inputs) for found in self._programs.values() for p in found)
            for inputs in classes.values()
        )
        layouts = tuple(_layout(i.parameter) for i in present)
        key = (
            tuple(i.number for i in present),
            tuple(order[k] for k in where),
            fixed,
            outcomes,
            layouts,
        )
        known = self._steps.get(key)
        if known is None:
            known = self._plan(present, [order[k] for k in where], list(classes.values()))
            self._steps[key] = known
        return known

    def _plan(
        self, present: Sequence[Item], where: Sequence[int], classes: Sequence[dict[str, Number]]
    ) -> Steps:
        slots: dict[Hashable, int] = {}
        vectors: list[tuple[Slot, Item]] = []
        programs: dict[int, Program] = {}
        entries = []
        for item, place in zip(present, where):
            program = self.program(item, classes[place])
            programs[item.number] = program
            key = (place, program.scalars, item.number if program.personal else None)
            if key not in slots:
                slots[key] = len(vectors)
                vectors.append((Slot(program.scalars), item))
            layout = _layout(item.parameter)
            entries.append(Entry(item.number, program.text, layout, slots[key]))
        return Steps(plan(entries), tuple(vectors), programs)

    def _run(
        self,
        steps: Steps,
        states: Mapping[Tensor, dict[str, Any]],
        gradients: Mapping[int, Tensor],
        reporting: bool,
    ) -> None:
        if reporting:
            self._reports = []
        for call in steps.calls:
            program = steps.programs[call.members[0]]
            inputs: list[Tensor] = list(steps.slots[call.slot][0].tensors)
            for number in call.members:
                parameter = self.items[number].parameter
                own = states[parameter]
                inputs += [parameter, gradients[number], *[own[s.name] for s in program.states]]
            reports = self._kernel(call, program, reporting, inputs)(*inputs)
            if reporting and program.diagnostics:
                members = tuple(self.items[n] for n in call.members)
                self._reports.append((members, program.diagnostics, reports))

    def _kernel(
        self, call: Call, program: Program, reporting: bool, inputs: Sequence[Tensor]
    ) -> Callable[..., Any]:
        reporting = reporting and bool(program.diagnostics)
        key = (call.kernel, reporting)
        known = self._kernels.get(key)
        if known is None:
            known = self._kernels[key] = self._compiled(
                len(call.members), program, reporting, inputs
            )
        return known

    def _compiled(
        self, count: int, program: Program, reporting: bool, inputs: Sequence[Tensor]
    ) -> compiling.Kernel:
        """Compile, or say once why that is not possible and go on with plain operations."""
        try:
            return compiling.kernel(program, count, reporting, inputs, self._option)
        except Exception as error:  # whatever a compiler or its toolchain may raise
            if self._option is not True:
                raise
            reason = f"the compiler failed with {type(error).__name__}: {error}"
            compiling.warn_uncompiled(self.groups[0].definition.__name__, reason)
            self._option = False
            return compiling.kernel(program, count, reporting, inputs, False)

    # -- schedules in groups -----------------------------------------------------------------

    def _check_schedules(self) -> None:
        """Refuse a number that somebody wrote over that of a schedule (E-OPT-008)."""
        for number, group in enumerate(self.groups):
            for name in group.schedules:
                shown = group.shown[name]
                if self._written.get((number, name), shown) != shown:
                    raise ScheduledElsewhere.raised(
                        user_span(),
                        f"`{name}` of group {number} follows a schedule, and {shown!r} was written into the group",
                        fix=f"give a number for `{name}` if a scheduler should drive it, or leave it to the schedule",
                    )

    def _show_schedules(self) -> None:
        """Write the numbers of this step's schedules into the groups, where people look."""
        for number, group in enumerate(self.groups):
            for name, schedule in group.schedules.items():
                item = next((i for i in self.items if i.group == number), None)
                if item is None or not callable(schedule):
                    continue
                inputs = self.inputs(number, group.shown["step"] + 1)
                value = self._scheduled(schedule, item, inputs)
                group.shown[name] = self._written[number, name] = value

    def _scheduled(self, schedule: Any, item: Item, inputs: Mapping[str, Number]) -> float:
        """Return the number of a schedule, by the expression that the bodies have of it too."""
        if schedule not in self._expressions:
            subject = Subject.of(item.parameter, item.name, item.number, item.group)
            tracer = Tracer(subject, inputs, self._keys)
            with tracer.running():
                found = tracer.schedule(schedule, tracer.context())
            personal = tracer.recording.reads_identity or isinstance(found, Tensor)
            expression = Expression("call", (schedule,)) if personal else found
            self._expressions[schedule] = getattr(expression, "expression", expression)
        return float(evaluate(self._expressions[schedule], inputs, self.context(item, inputs)))

    def adopt(self) -> None:
        """Take the numbers in the groups as they are, after a checkpoint was loaded."""
        self._written.clear()
        self._show_schedules()

    # -- diagnostics -------------------------------------------------------------------------

    def diagnostics(self) -> dict[str, dict[str, float]]:
        """Return name, parameter and number of the last reports; all are read at once."""
        rows = [
            (item.name, names, vector)
            for members, names, vectors in self._reports
            for item, vector in zip(members, vectors)
        ]
        if not rows:
            return {}
        numbers = torch.cat([v for _, _, v in rows]).tolist()
        found: dict[str, dict[str, float]] = {}
        for parameter, names, _ in rows:
            for name in names:
                found.setdefault(name, {})[parameter] = numbers.pop(0)
        order = {item.name: item.number for item in self.items}
        return {n: dict(sorted(v.items(), key=lambda x: order[x[0]])) for n, v in found.items()}


def _layout(parameter: Tensor) -> Hashable:
    return (parameter.shape, parameter.stride(), parameter.dtype, parameter.device)


def _fitting(item: Item, gradient: Tensor | None) -> Tensor:
    """Return a gradient in the layout that the kernels were made for."""
    parameter = item.parameter
    assert gradient is not None
    if gradient.layout is not torch.strided or gradient.shape != parameter.shape:
        from dslmut.diagnostics.codes.optimizers import BadBinding

        raise BadBinding.raised(
            user_span(),
            f"the gradient of `{item.name}` has shape {list(gradient.shape)} and layout {gradient.layout}, "
            f"the parameter shape {list(parameter.shape)}",
            fix="use dense gradients of the parameter's shape, as in `nn.Embedding(sparse=False)`",
        )
    if gradient.stride() == parameter.stride() and gradient.dtype is parameter.dtype:
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
