"""The compiler's one entrance: from a program to a function that updates parameters in place."""

from __future__ import annotations

import functools
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx

from dslmut.diagnostics.raising import warn_user
from dslmut.optim.drawing import expanded
from dslmut.optim.programs import Program
from dslmut.optim.randomwords import teach_compiler
from dslmut.optim.widening import is_low

aten = torch.ops.aten

Kernel = Callable[..., Any]
"""Takes the scalars, what is read of the whole step, and for each parameter it, its gradient and its
states; writes in place.

Returns for each parameter its diagnostics as one vector, if they were asked for.
"""

OPTIONS = {"size_asserts": False, "alignment_asserts": False}
"""Inductor's checks of its inputs: the plan has made them, and they cost more than a small update."""

ROUNDING = {"emulate_precision_casts": True}
"""Keeps the casts to a low precision that a graph has: each of them is meant."""


def update_graph(
    program: Program, count: int, reporting: bool, guarded: bool = False
) -> fx.GraphModule:
    """Return the program for several parameters, which writes its results where they belong.

    Args:
        program: For one parameter.
        count: How many parameters are updated at once.
        reporting: Whether the diagnostics are computed too.
        guarded: Whether a flag decides if anything changes.
    """
    graph = fx.Graph()
    scalars = [graph.placeholder(f"scalar_{i}") for i in range(len(program.scalars))]
    wide = [graph.placeholder(f"wide_{name}") for name in program.wide]
    finite = graph.placeholder("wide_finite") if guarded else None
    results: list[tuple[fx.Node, fx.Node]] = []
    reports: list[fx.Node] = []
    count_of_states = len(program.states)
    own = 2 + count_of_states + program.draws
    for number in range(count):
        inputs = [graph.placeholder(f"input_{number}_{i}") for i in range(own)]
        outputs = _copied(program, graph, [*inputs, *wide, *scalars])
        targets = [inputs[0], *inputs[2 : 2 + count_of_states]]
        results += list(zip(targets, outputs))
        if reporting and program.diagnostics:
            reports.append(graph.call_function(aten.stack.default, (outputs[len(targets) :],)))
    for target, value in _writes(graph, results):
        if finite is not None:
            value = graph.call_function(aten.where.self, (finite, value, target))
        graph.call_function(aten.copy_.default, (target, value))
    graph.output(tuple(reports))
    graph.eliminate_dead_code()
    return fx.GraphModule(torch.nn.Module(), graph)


def _copied(program: Program, graph: fx.Graph, inputs: list[fx.Node]) -> list[fx.Node]:
    """Copy a program's nodes; return those of its outputs."""
    places: dict[fx.Node, fx.Node] = {}
    sources = iter(inputs)
    for node in program.graph.nodes:
        if node.op == "placeholder":
            places[node] = next(sources)
        elif node.op == "output":
            return [places[n] for n in node.args[0]]  # pyright: ignore[reportGeneralTypeIssues]
        else:
            arithmetic = expanded(graph, node, places)
            places[node] = arithmetic or graph.node_copy(node, lambda n: places[n])
    raise AssertionError("a graph ends in its output")


def _writes(
    graph: fx.Graph, results: list[tuple[fx.Node, fx.Node]]
) -> list[tuple[fx.Node, fx.Node]]:
    """Return targets and values, made so that none changes what another still reads.

    A value that may come down to an input, as a view, a clone or a product with one (a state that
    takes the old parameter), is copied first, in a form that the compiler keeps: it drops what
    changes nothing, and reads the input when that has been written already (upstream 198131).
    """
    written = {t for t, v in results if t is not v}
    return [(t, _kept(graph, v) if _sources(v) & written else v) for t, v in results if t is not v]


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


# -- compiling -----------------------------------------------------------------------------------


def kernel(
    program: Program,
    count: int,
    reporting: bool,
    examples: Sequence[Tensor],
    option: bool | dict[str, Any],
    guarded: bool = False,
) -> Kernel:
    """Return the function that updates *count* parameters at once.

    Args:
        program: For one parameter.
        count: How many.
        reporting: Whether the diagnostics are computed too.
        examples: Inputs as they will be given.
        option: False for plain operations, True for the compiler's quick entrance, and a
            dictionary for ``torch.compile``.
        guarded: Whether a flag, the last input of the whole step, decides if anything changes.
    """
    module = update_graph(program, count, reporting, guarded)
    if option is False:
        return module
    if program.draws:
        teach_compiler()
    rounding = ROUNDING if any(is_low(e.dtype) for e in examples) else {}
    if isinstance(option, dict):
        return _general(module, option, rounding)
    return _quick(module, examples, rounding)


def _general(
    module: fx.GraphModule, option: Mapping[str, Any], rounding: Mapping[str, Any]
) -> Kernel:
    """Enter the compiler by ``torch.compile``, with options of the user's."""
    option = {"fullgraph": True, "dynamic": False, **option}
    if rounding and option.get("backend", "inductor") == "inductor" and "mode" not in option:
        option["options"] = {**rounding, **(option.get("options") or {})}
    return torch.compile(module, **option)


def _quick(
    module: fx.GraphModule, examples: Sequence[Tensor], rounding: Mapping[str, Any]
) -> Kernel:
    """Enter the compiler below Dynamo, which has nothing left to do for a graph.

    No guards, so that a call costs a third; the plan checks layouts instead.
    """
    entrance = getattr(torch._inductor, "standalone_compile", None)
    if entrance is None:
        return _general(module, {}, rounding)
    with torch.no_grad(), _quiet():
        detached = [e.detach() for e in examples]
        options = {"config_patches": {**OPTIONS, **rounding}}
        return entrance(module, detached, dynamic_shapes="from_example_inputs", options=options)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the compiler from warning that nothing can be saved where its caches are off."""
    logger = logging.getLogger("torch._inductor.standalone_compile")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(before)


def warn_uncompiled(rule: str, reason: str) -> None:
    """Say that an optimizer computes with plain operations, and why."""
    warn_user(f"dslmut: `{rule}` runs uncompiled, with the same numbers: {reason}", RuntimeWarning)


@functools.cache
def missing_compiler(device: str) -> str | None:
    """Say what the compiler lacks on this machine for a kind of device, or None."""
    if device != "cpu":
        return None
    import torch._inductor.config as config

    names = config.cpp.cxx if isinstance(config.cpp.cxx, list | tuple) else (config.cpp.cxx,)
    if any(n and shutil.which(n) for n in names):
        return None
    return "there is no C++ compiler (such as g++ or clang++) on the path"
