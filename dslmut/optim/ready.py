"""Planned calls with all that they need, and their inputs at a step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from dslmut.optim import compiling
from dslmut.optim.fitting import fit_gradient
from dslmut.optim.layouts import Layouts
from dslmut.optim.numbers import Item, Slot
from dslmut.optim.pairs import as_reals
from dslmut.optim.plan import Call, Entry
from dslmut.optim.programs import Program
from dslmut.optim.stepwide import Wide

States = Mapping[Tensor, dict[str, Any]]


@dataclass(eq=False)
class Ready:
    """A planned call with all that it needs.

    Args:
        call: From the plan.
        program: What it computes.
        slot: Its scalars.
        wide: What it reads of the whole step.
        items: The parameters that it updates.
        layouts: Of its inputs, which its kernels are compiled for.
        keys: Of random numbers, for each parameter, if the program has some.
        kernels: By whether they report.
    """

    call: Call
    program: Program
    slot: Slot
    wide: tuple[Wide, ...]
    items: tuple[Item, ...]
    layouts: Layouts
    keys: tuple[Tensor, ...] = ()
    kernels: dict[bool, compiling.Kernel] = field(default_factory=dict)

    def inputs(self, states: States, gradients: Mapping[int, Tensor]) -> list[Tensor]:
        """Return the tensors that its kernels take; KeyError if a state is missing."""
        own = self.slot, self.wide, self.program, self.items
        return inputs_of(*own, states, gradients, self.keys)


@dataclass(eq=False)
class Draft:
    """What is to be planned for a step.

    Args:
        entries: The parameters.
        programs: Their programs, by their numbers.
        scalars: A scalar program for each slot, with a parameter whose numbers it is filled with.
        branches: The programs that branch, each with a parameter and the number of its inputs.
    """

    entries: list[Entry] = field(default_factory=list)
    programs: dict[int, Program] = field(default_factory=dict)
    scalars: list[tuple[tuple[Any, ...], Item]] = field(default_factory=list)
    branches: dict[Hashable, tuple[Program, Item, int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Steps:
    """A plan for one pattern of present gradients.

    Args:
        calls: In order.
        spares: Calls whose kernels are compiled along with them, and which are not made.
        wide: What the programs read of the whole step.
        slots: The vectors of scalars, each with a parameter whose numbers it is filled with.
        branches: The programs that branch, each with a parameter and the number of its inputs.
    """

    calls: tuple[Ready, ...]
    spares: tuple[Ready, ...]
    wide: tuple[Wide, ...]
    slots: tuple[tuple[Slot, Item], ...]
    branches: tuple[tuple[Program, Item, int], ...]


def inputs_of(
    slot: Slot,
    wide: Sequence[Wide],
    program: Program,
    items: Sequence[Item],
    states: States,
    gradients: Mapping[int, Tensor],
    keys: Sequence[Tensor] = (),
) -> list[Tensor]:
    """Return the tensors that a kernel of a program takes; KeyError if a state is missing."""
    inputs: list[Tensor] = list(slot.tensors)
    if wide:
        inputs += [w.tensor for w in wide]
    for number, item in enumerate(items):
        own = states[item.parameter]
        tensors = [item.parameter, gradients[item.number], *(own[s.name] for s in program.states)]
        inputs += map(as_reals, tensors) if program.paired else tensors
        inputs += keys[number : number + 1]
    return inputs


def gathered(
    steps: Steps, states: States, gradients: dict[int, Tensor]
) -> list[list[Tensor]] | None:
    """Return the inputs of all calls, or None if they are not those that the calls were made for."""
    found = []
    for call in steps.calls:
        try:
            inputs = call.inputs(states, gradients)
            if not call.layouts.hold(inputs):
                for item in call.items:
                    gradients[item.number] = fit_gradient(item, gradients[item.number])
                inputs = call.inputs(states, gradients)
                if not call.layouts.hold(inputs):
                    return None
        except (KeyError, TypeError):  # a state is missing, or no tensor
            return None
        found.append(inputs)
    return found
