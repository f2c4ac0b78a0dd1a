"""Schedules in the groups: their numbers are shown where people look, and guarded against others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dslmut.diagnostics.codes.optimizers import ScheduledElsewhere
from dslmut.diagnostics.raising import user_span
from dslmut.optim.expressions import Expression, Number, evaluate
from dslmut.optim.hyperparameters import normalised
from dslmut.optim.numbers import Item, Numbers, is_schedule
from dslmut.optim.options import check_own
from dslmut.optim.recording import Subject
from dslmut.optim.scalars import Scalar
from dslmut.optim.trace import Tracer


class Schedules:
    """Those of one optimizer.

    Args:
        numbers: Of the run.
        items: The parameters.
    """

    def __init__(self, numbers: Numbers, items: Sequence[Item]) -> None:
        self._numbers = numbers
        self._firsts = {i.group: i for i in reversed(items)}
        self._written: dict[tuple[int, str], Any] = {}
        self._expressions: dict[int, tuple[Any, Expression | Number]] = {}

    def inherit(self, before: Schedules) -> None:
        """Take over what is known of schedules."""
        self._expressions.update(before._expressions)

    def check(self) -> None:
        """Refuse a number that somebody wrote over that of a schedule, or over a count.

        Raises:
            OptimizerError: E-OPT-008 for the former, E-OPT-006 for the latter.
        """
        for group in self._numbers.groups:
            check_own(group.shown, group.definition.__name__)
        for (group, name), written in self._written.items():
            shown = self._numbers.groups[group].shown.get(name)
            if shown is not written and shown != written and not is_schedule(shown):
                raise ScheduledElsewhere.raised(
                    user_span(),
                    f"`{name}` of group {group} follows a schedule, and {shown!r} was written into the group",
                    fix=f'write another schedule in its place, `param_groups[{group}]["{name}"] = '
                    f"{_constant(shown)}`, from `dslmut.optim.schedules`; or bind with a number if "
                    "a scheduler should drive it",
                )

    def show(self, last: bool = False) -> None:
        """Write the numbers of this step's schedules into the groups, or of the last step's if any."""
        for number, group in enumerate(self._numbers.groups):
            item = self._firsts.get(number)
            group.hyperparameters()  # takes schedules that were written into the group
            if item is None or not group.shown.schedules:
                continue
            step = group.shown["step"]
            before = 1 if last and step else 0
            inputs = self._numbers.of(number, step + 1 - before, -before)
            for name, schedule in group.shown.schedules.items():
                value = self._value(schedule, item, inputs)
                group.shown[name] = self._written[number, name] = value

    def take(self) -> None:
        """Take schedules that were written into the groups since the last step, if there are any."""
        for group in self._numbers.groups:
            known = group.definition.hyperparameters
            if any(h.scheduled and is_schedule(group.shown.get(n)) for n, h in known.items()):
                self.show(last=True)
                return

    def adopt(self) -> None:
        """Take the numbers in the groups as they are, after a checkpoint was loaded."""
        self._written.clear()
        self.show(last=True)

    def _value(self, schedule: Any, item: Item, inputs: Mapping[str, Number]) -> Any:
        if isinstance(schedule, tuple):
            return tuple(self._value(s, item, inputs) for s in schedule)
        if not callable(schedule):
            return schedule
        known = self._expressions.get(id(schedule))
        if known is None:  # the schedule is kept with it, so that its id stays its own
            known = schedule, _expression(schedule, item, inputs, self._numbers.keys)
            self._expressions[id(schedule)] = known
        return float(evaluate([known[1]], inputs, self._numbers.context(item, inputs))[0])


def _constant(value: Any) -> str:
    """Return the schedule that always gives a number, or a tuple of such, for people."""
    if isinstance(value, tuple | list):
        return (
            f"({', '.join(map(_constant, value))},)"
            if len(value) == 1
            else f"({', '.join(map(_constant, value))})"
        )
    value = normalised(value)
    return f"constant({value!r})" if isinstance(value, float) else "constant(...)"


def _expression(
    schedule: Callable[[Any], Any], item: Item, inputs: Mapping[str, Number], keys: tuple[str, ...]
) -> Expression | Number:
    """Return a schedule by the expression that the bodies have of it too."""
    tracer = Tracer(Subject.of(item.parameter, item.name, item.number, item.group), inputs, keys)
    with tracer.running():
        found = tracer.schedule(schedule, tracer.context())
    if tracer.recording.reads_identity:
        return Expression("call", (schedule,))
    return found.expression if isinstance(found, Scalar) else found
