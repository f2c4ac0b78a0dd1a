"""The update graph of several parameters: their programs side by side, and the writes at the end."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import torch
from torch import fx

from dslmut.optim.programs import Program
from dslmut.optim.stacked import copied

aten = torch.ops.aten

Write = tuple[fx.Node, fx.Node, "fx.Node | None"]
"""Where something is written, what, and the flag that decides whether, if there is one."""


def update_graph(
    programs: Sequence[Program], reporting: bool, guarded: bool = False, writing: bool = True
) -> fx.GraphModule:
    """Return programs for several parameters as one, which writes their results where they belong.

    Its inputs are first the tensors of each parameter (it, its gradient, its states), then for each
    parameter what ``aside`` names. It returns, for each parameter that has some, its diagnostics
    as one vector, if they are asked for.

    Args:
        programs: For each parameter.
        reporting: Whether the diagnostics are computed too.
        guarded: Whether a flag decides if anything changes.
        writing: Whether anything is written; otherwise it only looks.
    """
    graph = fx.Graph()
    tensors = [
        [graph.placeholder(f"tensor_{number}_{i}") for i in range(2 + len(program.states))]
        for number, program in enumerate(programs)
    ]
    given = [
        {name: graph.placeholder(f"{name}_{number}") for name in aside(program, guarded)}
        for number, program in enumerate(programs)
    ]
    inputs = [
        [*own, *_inputs(graph, program, more)]
        for own, program, more in zip(tensors, programs, given)
    ]
    results: list[Write] = []
    reports: list[fx.Node] = []
    for program, own, more, outputs in zip(
        programs, tensors, given, _copied(graph, programs, inputs)
    ):
        targets = [own[0], *own[2:]]
        results += [(t, v, more.get("finite")) for t, v in zip(targets, outputs)]
        if reporting and program.diagnostics:
            reports.append(graph.call_function(aten.stack.default, (outputs[len(targets) :],)))
    for target, value, finite in _writes(graph, results) if writing else ():
        if finite is not None:
            value = graph.call_function(aten.where.self, (finite, value, target))
        graph.call_function(aten.copy_.default, (target, value))
    graph.output(tuple(reports))
    graph.eliminate_dead_code()
    return fx.GraphModule(torch.nn.Module(), graph)


def aside(program: Program, guarded: bool) -> tuple[str, ...]:
    """Return what a parameter's update reads besides its own tensors.

    Args:
        program: Of the parameter.
        guarded: Whether a flag decides if anything changes.

    Returns:
        ``key`` of its random numbers, the names of what is computed once of a whole step,
        ``finite``, and ``scalars``, one vector of them.
    """
    flag = ("finite",) if guarded else ()
    scalars = ("scalars",) if program.scalars else ()
    return (*(("key",) if program.draws else ()), *program.wide, *flag, *scalars)


def _inputs(graph: fx.Graph, program: Program, given: Mapping[str, fx.Node]) -> list[fx.Node]:
    """Return what stands behind the tensors among the inputs of a program."""
    found = [node for name, node in given.items() if name not in ("finite", "scalars")]
    if "scalars" in given:
        vector = graph.call_function(aten.unbind.int, (given["scalars"],))
        found += [
            graph.call_function(operator.getitem, (vector, i)) for i in range(len(program.scalars))
        ]
    return found


def _copied(
    graph: fx.Graph, programs: Sequence[Program], inputs: Sequence[Sequence[fx.Node]]
) -> list[list[fx.Node]]:
    """Copy programs, equal ones together; return the outputs of each."""
    found: dict[int, list[fx.Node]] = {}
    for program in dict.fromkeys(programs):
        numbers = [n for n, other in enumerate(programs) if other is program]
        found |= zip(numbers, copied(program, graph, [inputs[n] for n in numbers]))
    return [found[n] for n in range(len(programs))]


def _writes(graph: fx.Graph, results: Sequence[Write]) -> list[Write]:
    """Return writes that are made so that none changes what another still reads.

    A value that may come down to an input, as a view, a clone or a product with one (a state that
    takes the old parameter), is copied first, in a form that the compiler keeps: it drops what
    changes nothing, and reads the input when that has been written already (upstream 198131).
    """
    changing = [(t, v, f) for t, v, f in results if t is not v]
    written = {t for t, _, _ in changing}
    return [(t, _kept(graph, v) if _sources(v) & written else v, f) for t, v, f in changing]


def _sources(value: fx.Node) -> set[fx.Node]:
    """Return the inputs that a value may be, or may be a part of, without any arithmetic on them.

    Whatever has one tensor that is no constant may be reduced to that; of several it computes
    something new, unless it only chooses among them.
    """
    found: set[fx.Node] = set()
    waiting, seen = [value], {value}
    while waiting:
        node = waiting.pop()
        if node.op == "placeholder":
            found.add(node)
            continue
        operands = [n for n in node.all_input_nodes if not _is_constant(n)]
        if len(operands) == 1 or _chooses(node):
            waiting += [n for n in operands if n not in seen]
            seen.update(operands)
    return found


def _is_constant(node: fx.Node) -> bool:
    """Say whether a node has no input among what it is computed from."""
    waiting, seen = [node], {node}
    while waiting:
        current = waiting.pop()
        if current.op == "placeholder":
            return False
        waiting += [n for n in current.all_input_nodes if n not in seen]
        seen.update(current.all_input_nodes)
    return True


_CHOOSING = (
    "where",
    "cat",
    "stack",
    "scatter",
    "index_put",
    "copy",
    "masked",
    "gather",
    "tensor_split",
)


def _chooses(node: fx.Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return any(word in name for word in _CHOOSING)


def _kept(graph: fx.Graph, value: fx.Node) -> fx.Node:
    return graph.call_function(torch.ops.dslmut.snapshot.default, (value,))
