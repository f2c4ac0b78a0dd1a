"""Planned calls with all that they need, and their inputs at a step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import Any

from torch import Tensor
from torch.autograd.graph import increment_version

from dslmut.optim import compiling
from dslmut.optim.fitting import fit_gradient
from dslmut.optim.layouts import Layouts
from dslmut.optim.numbers import Item, Slot
from dslmut.optim.pairs import as_reals
from dslmut.optim.plan import Call
from dslmut.optim.programs import Program
from dslmut.optim.stepwide import Wide

States = Sequence[dict[str, Any]]
"""The states of each parameter, by its number."""


@dataclass(frozen=True, eq=False)
class Member:
    """A parameter in a call, or scratch memory in its place.

    Args:
        item: The parameter; None for scratch memory.
        program: What is computed.
        tensors: The scratch memory.
        model: The number of the present parameter in this call that scratch memory takes values
            of, where zeros would not do.
    """

    item: Item | None
    program: Program
    tensors: tuple[Tensor, ...] = ()
    model: int | None = None


@dataclass(eq=False)
class Ready:
    """A planned call with all that it needs.

    Args:
        call: From the plan.
        members: The parameters that it updates.
        first: The place of its first tensor among all of the step.
        aside: What it reads besides the tensors of each parameter.
        kernels: By whether they report.
    """

    call: Call
    members: tuple[Member, ...]
    first: int
    aside: list[Tensor] = field(default_factory=list)
    kernels: dict[bool, compiling.Kernel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        present = [m for m in self.members if m.item is not None]
        self.last = self.first + sum(2 + len(m.program.states) for m in present)
        self.plain = len(present) == len(self.members) and not any(
            m.program.paired for m in present
        )
        self.reports = any(m.program.diagnostics for m in self.members)

    def inputs(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return what its kernels take.

        Args:
            tensors: All of the step.
        """
        if self.plain:
            return tensors[self.first : self.last] + self.aside
        return [t for own in self._shares(tensors) for t in own] + self.aside

    def _shares(self, tensors: list[Tensor]) -> list[Sequence[Tensor]]:
        """Return the tensors of each member, as its program sees them."""
        place, found = self.first, list[Sequence[Tensor]]()
        for member in self.members:
            own: Sequence[Tensor] = member.tensors
            if member.item is not None:
                end = place + 2 + len(member.program.states)
                own, place = tensors[place:end], end
                own = [*map(as_reals, own)] if member.program.paired else own
            found.append(own)
        for member, own in zip(self.members, found):
            if member.model is not None:
                for scratch, value in zip(own, found[member.model]):
                    scratch.copy_(value)
        return found

    def rows(self, vectors: Iterable[Tensor]) -> Iterable[tuple[list[Item], tuple[str, ...], Any]]:
        """Yield what its kernel reported of each parameter."""
        reporting = [m for m in self.members if m.program.diagnostics]
        for member, vector in zip(reporting, vectors):
            if member.item is not None:
                yield [member.item], member.program.diagnostics, [vector]


@dataclass(eq=False)
class Steps:
    """A plan for one pattern of present gradients.

    Args:
        present: The parameters that have one.
        calls: In order.
        wide: What the programs read of the whole step.
        programs: Of each present parameter.
        own: Its number, if its scalars are its own, for each of them.

    Attributes:
        numbers: Of the present parameters.
        branching: The places of those whose programs branch, those that branch alike together.
        classes: The class of the numbers of each, for which the slots were made.
        slots: The vectors of scalars, each with a parameter whose numbers it is filled with, and
            its class.
    """

    present: tuple[Item, ...]
    calls: tuple[Ready, ...]
    wide: tuple[Wide, ...]
    programs: tuple[Program, ...]
    own: tuple[int | None, ...]
    classes: list[int] = field(default_factory=list)
    slots: list[tuple[Slot, Item, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbers = [item.number for item in self.present]
        alike: dict[Hashable, list[int]] = {}
        for place, program in enumerate(self.programs):
            if program.branches:
                alike.setdefault(program.branches, []).append(place)
        self.branching = list(alike.values())
        members = [(m.item, m.program) for c in self.calls for m in c.members]
        named = ((i, [s.name for s in p.states]) for i, p in members if i is not None)
        self._readers = [(i, i.number, _getter(names)) for i, names in named]
        counts = [len(p.states) for i, p in members if i is not None]
        firsts = list(accumulate((2 + n for n in counts), initial=0))
        written = [f for f, n in zip(firsts, counts) for f in (f, *range(f + 2, f + 2 + n))]
        self._written = _getter(written)
        self._layouts: Layouts | None = None

    def fitting(self, states: States, gradients: list[Tensor | None]) -> list[Tensor] | None:
        """Return the tensors of all calls, or None if they are not those that the plan is for.

        Args:
            states: Of each parameter.
            gradients: Of each parameter; one that is laid out otherwise is replaced.

        Raises:
            OptimizerError: E-OPT-005 for a gradient that does not fit its parameter.
        """
        try:
            tensors = self._tensors(states, gradients)
            if self._layouts is not None and self._layouts.hold(tensors):
                return tensors
        except (KeyError, TypeError):  # a state is missing, or no tensor
            return None
        for item in self.present:
            gradients[item.number] = fit_gradient(item, gradients[item.number])  # pyright: ignore
        tensors = self._tensors(states, gradients)
        if self._layouts is None:
            self._layouts = Layouts(tensors)
        return tensors if self._layouts.hold(tensors) else None

    def _tensors(self, states: States, gradients: Sequence[Tensor | None]) -> list[Any]:
        found: list[Any] = []
        for item, number, read in self._readers:
            found += (item.parameter, gradients[number], *read(states[number]))
        return found

    @contextmanager
    def whole(self, tensors: list[Tensor]) -> Iterator[None]:
        """Change everything in this block, or nothing if it raises."""
        before = [(t, t.detach().clone()) for t in self._written(tensors)]
        try:
            yield
        except BaseException:
            for tensor, old in before:
                tensor.copy_(old)
            raise

    def mark(self, tensors: list[Tensor]) -> None:
        """Move the version counters of what was written, so that autograd sees it."""
        increment_version(self._written(tensors))


def _getter(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads several items at once."""
    if not keys:
        return lambda _: ()
    if len(keys) == 1:
        (key,) = keys
        return lambda container: (container[key],)
    return itemgetter(*keys)
