"""From a rule to its update graph: traced, checked, and put into a canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from dslmut.diagnostics.codes.bodies import ChangingTrace, NumberFromTensor
from dslmut.diagnostics.codes.optimizers import BadBinding
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import raised_span
from dslmut.functions.locate import heading
from dslmut.optim.drawing import KEY, stored
from dslmut.optim.expressions import Expression, Number, calls, evaluate
from dslmut.optim.flat import is_flat
from dslmut.optim.obstacles import obstacle
from dslmut.optim.pairs import mixing_operation
from dslmut.optim.recording import State, Subject
from dslmut.optim.refusing import is_refusal, refused
from dslmut.optim.states import results
from dslmut.optim.trace import Tracer
from dslmut.optim.watching import unchanged_generators
from dslmut.optim.widening import needs_widening, widened

if TYPE_CHECKING:
    from dslmut.optim.context import Ctx
    from dslmut.optim.define import Optimizer


@dataclass(frozen=True, eq=False)
class Program:
    """What a rule computes for parameters of one kind.

    Args:
        graph: The tensor program. Its inputs are the parameter, the gradient, the states, what it
            reads of the whole step, and the scalars; its outputs the new parameter, the new states
            and the diagnostics.
        states: In declaration order.
        wide: What it reads of the whole step.
        scalars: The scalar program: an expression for each scalar input.
        branches: The scalar conditions that the body branched on, and how they came out.
        diagnostics: Their names.
        personal: Whether the body looked at the parameter's name, index or group.
        calls: Whether a schedule is called for its numbers or branches.
        paired: Whether it takes the parameter and what belongs to it as pairs of reals.
        draws: Whether it has random numbers, and so the parameter's key as its last input but
            for the scalars.
        flat: Whether it sees the parameter as a row of numbers, whatever its shape is.
        rule: The rule's name.
        obstacle: What keeps it from being compiled, if that is known.
        text: The same for programs whose tensor programs compute the same.
        names: What the body calls its scalars.
    """

    graph: fx.Graph
    states: tuple[State, ...]
    wide: tuple[str, ...]
    scalars: tuple[Any, ...]
    branches: tuple[tuple[Expression, bool], ...]
    diagnostics: tuple[str, ...]
    personal: bool
    calls: bool
    paired: bool
    draws: bool
    flat: bool
    rule: str
    obstacle: str
    text: str
    names: Mapping[Expression, str]

    def holds(self, inputs: Mapping[str, Number], ctx: Ctx) -> bool:
        """Say whether the body would take the same branches with these numbers."""
        if not self.branches:
            return True
        conditions, outcomes = zip(*self.branches)
        try:
            found = evaluate(conditions, inputs, ctx)
        except KeyError:  # a number here where a schedule was, or the other way round
            return False
        return all(bool(x) is outcome for x, outcome in zip(found, outcomes))


def program_of(
    definition: Optimizer[...],
    hyperparameters: Mapping[str, Any],
    subject: Subject,
    inputs: Mapping[str, Number],
    keys: tuple[str, ...],
    by_chance: bool = False,
) -> Program:
    """Trace a rule for one parameter, twice, so that a rule that changes is found.

    Args:
        definition: The rule.
        hyperparameters: Its values; schedules are functions.
        subject: The parameter.
        inputs: The present numbers of ``ctx`` and the hyperparameters.
        keys: The keys of ``ctx`` that are numbers.
        by_chance: Whether a parameter of a low precision is rounded by chance.

    Raises:
        OptimizerError: E-OPT-003, E-OPT-004, E-OPT-006, E-OPT-020 to E-OPT-028, E-CONTRACT-011.
    """
    with unchanged_generators(definition):
        first, second = (
            _traced(definition, hyperparameters, Tracer(subject, inputs, keys, by_chance))
            for _ in range(2)
        )
    if _parts(first) != _parts(second):
        raise ChangingTrace.raised(
            heading(definition.source),  # pyright: ignore[reportArgumentType]
            f"`{definition.__name__}` computed something else when it was traced again: {_difference(first, second)}",
            fix="let it depend on `ctx`, on hyperparameters, and on the parameter's shape and name alone",
        )
    return first


def _traced(
    definition: Optimizer[...], hyperparameters: Mapping[str, Any], tracer: Tracer
) -> Program:
    subject = tracer.subject
    param = tracer.placeholder("param", subject.shape, subject.stride, subject.dtype)
    grad = tracer.placeholder("grad", subject.shape, subject.stride, subject.dtype)
    known = definition.hyperparameters
    given = {n: tracer.hyperparameter(n, v, known[n].scheduled) for n, v in hyperparameters.items()}
    try:
        with tracer.running():
            update = definition.rule(param, grad, tracer.context(), **given)
            new, states = results(tracer, update, definition.rule)
            outputs = _stored(tracer, [new, *states])
            if subject.paired:
                _check_elementwise(definition, subject, outputs[0][: 1 + len(states)])
        return _finished(definition.__name__, tracer, *outputs)
    except DslmutError:
        raise
    except (DynamicOutputShapeException, DataDependentOutputException) as error:
        raise NumberFromTensor.raised(
            raised_span(error) or heading(definition.source),  # pyright: ignore[reportArgumentType]
            f"`{definition.__name__}` computes a tensor whose shape depends on values: {error}",
            fix="keep the shape, and choose by `torch.where(condition, a, b)`",
        ) from error
    except Exception as error:
        if is_refusal(error):
            raise refused(definition, subject, error) from error
        error.add_note(
            f"dslmut: while tracing `{definition.__name__}` for the parameter `{subject.name}` "
            f"of shape {list(subject.shape)}"
        )
        raise


def _stored(tracer: Tracer, values: list[Tensor]) -> tuple[list[fx.Node], list[torch.dtype]]:
    """Return the outputs, first the new values, and the dtypes that these are stored in."""
    recording = tracer.recording
    dtypes = [tracer.subject.dtype, *(value.dtype for _, value in recording.states)]
    if tracer.by_chance:
        values[0] = stored(tracer, values[0])
    if not needs_widening(recording.graph):
        values = [v if v.dtype is d else v.to(d) for v, d in zip(values, dtypes)]
    return [tracer.node_of(v) for v in [*values, *recording.diagnostics.values()]], dtypes


def _check_elementwise(
    definition: Optimizer[...], subject: Subject, results_: list[fx.Node]
) -> None:
    """Refuse a rule that mixes elements for a complex parameter (E-OPT-005)."""
    mixing = mixing_operation(results_)
    if mixing is not None:
        raise BadBinding.raised(
            heading(definition.source),  # pyright: ignore[reportArgumentType]
            f"`{subject.name}` is complex, and `{definition.__name__}` mixes its elements by `{mixing}`",
            fix="give it to a rule that treats each element by itself, as `adamw` and `momentum_sgd` do",
            why="a complex tensor is updated as pairs of reals, `torch.view_as_real(p)`, "
            "whose norms and products are not those of complex numbers",
        )


def _finished(
    rule: str, tracer: Tracer, outputs: list[fx.Node], dtypes: list[torch.dtype]
) -> Program:
    recording = tracer.recording
    declared = tuple(s for s, _ in recording.states)
    recorded = recording.graph
    if needs_widening(recorded):
        recorded, outputs = widened(recorded, outputs, dtypes, tracer.fake)
    graph = _canonical(recorded, outputs)
    draws = any(n.op == "placeholder" and n.name == KEY for n in graph.nodes)
    problem = obstacle(graph)
    flat = not draws and not problem and is_flat(graph, tracer.subject, declared)
    nodes = [n.format_node() or str(n.args) for n in graph.nodes]
    kept = [(s.name, s.dtype, not s.shape) for s in declared] if flat else declared
    text = "\n".join([*nodes, *map(str, kept), *recording.diagnostics])
    return Program(
        graph,
        declared,
        tuple(recording.wide),
        tuple(recording.scalars),
        tuple(recording.branches.items()),
        tuple(recording.diagnostics),
        recording.reads_identity,
        calls([*recording.scalars, *recording.branches]),
        tracer.subject.paired,
        draws,
        flat,
        rule,
        problem,
        text,
        recording.names,
    )


_LAST = {"random": 1, "wide": 2, "scalar": 3}
"""Inputs that stand behind the parameter, the gradient and the states."""


def _canonical(recorded: fx.Graph, outputs: list[fx.Node]) -> fx.Graph:
    """Return the graph with its inputs first, in a fixed order, and without dead nodes."""
    graph, places = fx.Graph(), {}
    inputs = [n for n in recorded.nodes if n.op == "placeholder"]
    for node in sorted(inputs, key=lambda n: _LAST.get(n.name.partition("_")[0], 0)):
        places[node] = graph.placeholder(node.name)
        places[node].meta = dict(node.meta)
    for node in recorded.nodes:
        if node.op != "placeholder":
            places[node] = graph.node_copy(node, lambda n: places[n])
    graph.output(tuple(places[n] for n in outputs))
    graph.eliminate_dead_code()
    return graph


def _parts(program: Program) -> list[Any]:
    """Return what two traces of a rule have in common."""
    return [*program.text.splitlines(), *program.scalars, *program.branches]


def _difference(a: Program, b: Program) -> str:
    for x, y in zip(_parts(a), _parts(b)):
        if x != y:
            return f"`{str(x).strip()}` and then `{str(y).strip()}`"
    return "one has more operations than the other"
