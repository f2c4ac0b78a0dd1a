"""From a rule to its update graph: traced, checked, and put into a canonical form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from dslmut.diagnostics.codes.optimizers import ChangingTrace
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.functions.locate import heading
from dslmut.optim.scalars import Expression, Number, evaluate
from dslmut.optim.states import results
from dslmut.optim.trace import State, Subject, Tracer

if TYPE_CHECKING:
    from dslmut.optim.define import Optimizer

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Program:
    """What a rule computes for parameters of one kind.

    Args:
        graph: The tensor program. Its inputs are the parameter, the gradient, the states and the
            scalars; its outputs the new parameter, the new states and the diagnostics.
        states: In declaration order.
        scalars: The scalar program: an expression for each scalar input.
        branches: The scalar conditions that the body branched on, and how they came out.
        diagnostics: Their names.
        personal: Whether the body looked at the parameter's name, index or group.
        text: The same for programs that compute the same.
    """

    graph: fx.Graph
    states: tuple[State, ...]
    scalars: tuple[Any, ...]
    branches: tuple[tuple[Expression, bool], ...]
    diagnostics: tuple[str, ...]
    personal: bool
    text: str

    def holds(self, inputs: Mapping[str, Number]) -> bool:
        """Say whether the body would take the same branches with these numbers."""
        return all(bool(evaluate(e, inputs)) is outcome for e, outcome in self.branches)


def program_of(
    definition: Optimizer[...],
    hyperparameters: Mapping[str, Any],
    subject: Subject,
    inputs: Mapping[str, Number],
    keys: tuple[str, ...],
) -> Program:
    """Trace a rule for one parameter, twice, so that a rule that changes is found.

    Args:
        definition: The rule.
        hyperparameters: Its values; schedules are functions.
        subject: The parameter.
        inputs: The present numbers of ``ctx`` and the hyperparameters.
        keys: The keys of ``ctx`` that are numbers.

    Raises:
        OptimizerError: E-OPT-003, E-OPT-004, E-OPT-006, E-OPT-020 to E-OPT-026, E-CONTRACT-011.
    """
    first, second = (_traced(definition, hyperparameters, subject, inputs, keys) for _ in range(2))
    if first.text != second.text:
        raise ChangingTrace.raised(
            heading(definition.rule),
            f"`{definition.__name__}` computed something else when it was traced again: {_difference(first, second)}",
            fix="let it depend on `ctx`, on hyperparameters, and on the parameter's shape and name alone",
        )
    return first


def _traced(
    definition: Optimizer[...],
    hyperparameters: Mapping[str, Any],
    subject: Subject,
    inputs: Mapping[str, Number],
    keys: tuple[str, ...],
) -> Program:
    tracer = Tracer(subject, inputs, keys)
    param = tracer.placeholder("param", subject.shape, subject.stride, subject.dtype)
    grad = tracer.placeholder("grad", subject.shape, subject.stride, subject.dtype)
    given = {n: tracer.hyperparameter(n, v) for n, v in hyperparameters.items()}
    try:
        with tracer.running():
            update = definition.rule(param, grad, tracer.context(), **given)
            new, states = results(tracer, update, definition.rule)
            return _finished(tracer, new, states)
    except DslmutError:
        raise
    except Exception as error:
        error.add_note(
            f"dslmut: while tracing `{definition.__name__}` for the parameter `{subject.name}` "
            f"of shape {list(subject.shape)}"
        )
        raise


def _finished(tracer: Tracer, new: Tensor, states: Sequence[Any]) -> Program:
    recording = tracer.recording
    old = [torch.empty(0, dtype=tracer.subject.dtype), *(v for _, v in recording.states)]
    values = [_rounded(v, o.dtype) for v, o in zip([new, *states], old)]
    outputs = [tracer.node_of(v) for v in [*values, *recording.diagnostics.values()]]
    declared = tuple(s for s, _ in recording.states)
    graph = _canonical(recording.graph, outputs, declared, len(recording.scalars))
    scalars = tuple(recording.scalars)
    parts = [*graph.nodes, *declared, *scalars, *recording.branches.items(), *recording.diagnostics]
    text = "\n".join(
        n.format_node() or str(n.args) if isinstance(n, fx.Node) else str(n) for n in parts
    )
    return Program(
        graph,
        declared,
        scalars,
        tuple(recording.branches.items()),
        tuple(recording.diagnostics),
        recording.reads_identity,
        text,
    )


def _rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Round a result once to the precision of what it replaces."""
    return value if value.dtype is dtype else value.to(dtype)


def _canonical(
    recorded: fx.Graph, outputs: list[fx.Node], states: tuple[State, ...], scalars: int
) -> fx.Graph:
    """Return the graph with its inputs first, in a fixed order, and without dead nodes."""
    graph, places = fx.Graph(), {}
    inputs = {n.name: n for n in recorded.nodes if n.op == "placeholder"}
    in_order = list(inputs.values())
    order = [n for n in in_order if not n.name.startswith("scalar_")]
    order += [n for n in in_order if n.name.startswith("scalar_")]
    for node in order:
        places[node] = graph.placeholder(node.name)
    for node in recorded.nodes:
        if node.op != "placeholder":
            places[node] = graph.node_copy(node, lambda n: places[n])
    graph.output(tuple(places[n] for n in outputs))
    graph.eliminate_dead_code(is_impure_node=_writes)
    return graph


def _writes(node: fx.Node) -> bool:
    """Say whether a node has an effect: inputs and outputs stay, and so do in-place operations."""
    if node.op in ("placeholder", "output"):
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _difference(a: Program, b: Program) -> str:
    for x, y in zip(a.text.splitlines(), b.text.splitlines()):
        if x != y:
            return f"`{x.strip()}` and then `{y.strip()}`"
    return "one has more operations than the other"


def readable(program: Program) -> str:
    """Write an update graph for people: a line per operation, inputs and states by their names."""
    names = {f"scalar_{i}": str(e) for i, e in enumerate(program.scalars)}
    lines = [
        f"state {s.name}: {list(s.shape)} {str(s.dtype).removeprefix('torch.')}"
        for s in program.states
    ]
    count = 1 + len(program.states)
    for node in program.graph.nodes:
        if node.op == "call_function":
            arguments = ", ".join(_readable(a, names) for a in node.args)
            keywords = "".join(f", {k}={v}" for k, v in node.kwargs.items() if k == "dtype")
            operation = getattr(node.target, "__name__", str(node.target)).partition(".")[0]
            lines.append(f"{node.name} = {operation}({arguments}{keywords})")
        elif node.op == "output":
            results_ = node.args[0]
            targets = ["param", *(s.name for s in program.states), *program.diagnostics]
            for i, (target, value) in enumerate(zip(targets, results_)):  # pyright: ignore
                arrow = "->" if i < count else "reports"
                lines.append(f"{_readable(value, names)} {arrow} {target}")
    return "\n".join(lines)


def _readable(value: Any, names: Mapping[str, str]) -> str:
    if isinstance(value, fx.Node):
        return names.get(value.name, value.name.removeprefix("state_"))
    return str(value)
