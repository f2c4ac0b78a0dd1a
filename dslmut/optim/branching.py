"""What a rule might declare besides what it declares now: its other branches, looked through."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

from dslmut.optim.expressions import Expression, Number
from dslmut.optim.recording import Recording, Subject
from dslmut.optim.trace import Tracer

if TYPE_CHECKING:
    from dslmut.optim.define import Optimizer

MOST = 256
"""So many ways through a body are looked at."""


def declarable(
    definition: Optimizer[...],
    hyperparameters: Mapping[str, Any],
    subject: Subject,
    inputs: Mapping[str, Number],
    keys: tuple[str, ...],
) -> set[str]:
    """Return the names of the states that a rule declares on any way through its body.

    A state stays where a run has left the branch that declares it, and is in its files. So this is
    asked for states that are not declared now: it traces the body for each outcome of its
    branches, and with each of its hyperparameters that are true or false.

    Args:
        definition: The rule.
        hyperparameters: Its values.
        subject: The parameter.
        inputs: The numbers of this step.
        keys: The keys of ``ctx`` that are numbers.
    """
    flags = [n for n, v in hyperparameters.items() if isinstance(v, bool)]
    found: set[str] = set()
    left = MOST
    for values in product((False, True), repeat=len(flags)):
        given = {**hyperparameters, **dict(zip(flags, values))}
        ways: list[dict[Expression, bool]] = [{}]
        while ways and left:
            left -= 1
            way = ways.pop()
            recording = _followed(definition, given, Tracer(subject, inputs, keys, outcomes=way))
            found |= {state.name for state, _ in recording.states}
            for condition, outcome in recording.branches.items():
                if condition not in way:  # the other way, once all before it has come out like this
                    ways.append({**way, condition: not outcome})
                    way = {**way, condition: outcome}
    return found


def _followed(
    definition: Optimizer[...], hyperparameters: Mapping[str, Any], tracer: Tracer
) -> Recording:
    """Run a body as far as it goes: on a way that is never taken it may raise anything."""
    subject, known = tracer.subject, definition.hyperparameters
    param, grad = (
        tracer.placeholder(name, subject.shape, subject.stride, subject.dtype)
        for name in ("param", "grad")
    )
    given = {n: tracer.hyperparameter(n, v, known[n].scheduled) for n, v in hyperparameters.items()}
    with suppress(Exception), tracer.running():
        definition.rule(param, grad, tracer.context(), **given)
    return tracer.recording
