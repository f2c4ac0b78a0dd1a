"""What counts: the steps of an optimizer, the updates of its parameters, and the steps left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from dslmut.optim.context import Ctx
from dslmut.optim.expressions import Number
from dslmut.optim.numbers import Inputs, Item, Numbers, Slot
from dslmut.optim.ready import States, Steps
from dslmut.optim.reports import Reports
from dslmut.optim.skipping import (
    AHEAD,
    DeviceSlot,
    OpenStep,
    decides_on_host,
    history,
    moment,
    moments,
)
from dslmut.optim.stepwide import all_finite


class Counts:
    """The counts of one optimizer, and its latest steps as long as nobody knows whether they count.

    Args:
        numbers: Of the run.
        skips: Whether steps with a non-finite gradient are left out.
        every: On each such step diagnostics are computed, if there is a number.

    Attributes:
        open: The steps of which only the device knows whether they count, in order.
        defers: Whether the present step is one of those.
        reports: The diagnostics of the last step that computed some.
        fresh: Those that no sink has got yet.
    """

    def __init__(self, numbers: Numbers, skips: bool, every: int | None) -> None:
        self._numbers, self._groups = numbers, numbers.groups
        self._skips, self._every = skips, every
        self.open: list[OpenStep] = []
        self.defers = False
        self.reports, self.fresh = Reports(), list[Reports]()

    def begins(self, gradients: Sequence[Tensor | None]) -> bool:
        """Say whether a step is taken; where the device decides that, it begins in any case."""
        if not self._skips:
            return True
        present = [g for g in gradients if g is not None]
        self.defers = not decides_on_host(present)
        self.settle(AHEAD - 1 if self.defers else 0)
        if self.defers or all_finite(present):
            return True
        self._leave_out()
        return False

    def reports_now(self) -> bool:
        """Say whether diagnostics are computed at this step."""
        if self._every is None:
            return False
        step = self._groups[0].shown["step"]
        found = {(step + ahead) % self._every == 0 for ahead in range(len(self.open) + 1)}
        if len(found) > 1:
            self.settle()
            return self.reports_now()
        return found.pop()

    # -- after a step ------------------------------------------------------------------------

    def take(self, present: Sequence[Item], states: States, reports: Any) -> None:
        """Count a step.

        Args:
            present: The parameters that it has updated.
            states: Of all parameters.
            reports: Its diagnostics, or None if it computed none.
        """
        if reports is not None:
            self.reports = Reports(self._groups[0].shown["step"], reports)
            self.fresh.append(self.reports)
        for item in present:
            states[item.number]["updates"] += 1
        for group in self._groups:
            group.shown["step"] += 1

    def _leave_out(self) -> None:
        for group in self._groups:
            group.shown["skipped"] += 1

    def settle(self, keep: int = 0) -> None:
        """Take what has come of open steps.

        Args:
            keep: So many of the latest may stay open; for the others it waits.
        """
        while self.open and (len(self.open) > keep or self.open[0].known()):
            step = self.open.pop(0)
            if step.counts():
                self.take(step.present, step.states, step.reports)
            else:
                if step.extra is not None:
                    self._numbers.extra = step.extra
                self._leave_out()

    # -- before a step -----------------------------------------------------------------------

    def history(self, item: Item) -> tuple[bool, ...]:
        """Return in which of the open steps a parameter was present."""
        return history(self.open, item) if self.open else ()

    def _possible(self, item: Item, states: States) -> Iterator[tuple[dict[str, Number], Ctx]]:
        """Yield the numbers that a parameter may have at this step."""
        updates = states[item.number].get("updates", 0) + 1
        for ahead, own in moments(self.history(item)):
            numbers = self._numbers.of(item.group, updates + own, ahead)
            yield numbers, self._numbers.context(item, numbers)

    def are_certain(self, steps: Steps, states: States) -> bool:
        """Say whether the bodies take the same branches, whatever has come of the open steps."""
        return all(
            steps.programs[i].holds(numbers, ctx)
            for alike in steps.branching
            for i in alike
            for numbers, ctx in self._possible(steps.present[i], states)
        )

    def fill(
        self, slots: Iterable[tuple[Slot, Item, int]], classes: Sequence[Inputs], states: States
    ) -> None:
        """Write the scalars of a step.

        Args:
            slots: Each with a parameter whose numbers it is filled with, and the class of these.
            classes: The numbers of each class, if no step is open.
            states: Of each parameter.
        """
        for slot, item, place in slots:
            if not isinstance(slot, DeviceSlot):
                slot.fill(classes[place], self._numbers.context(item, classes[place]))
                continue
            rows = [slot.values(*possible) for possible in self._possible(item, states)]
            chosen = None
            if self.open:
                chosen = moment(self.open, self.history(item), item.parameter.device)
            slot.choose(rows, chosen)
