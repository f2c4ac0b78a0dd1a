"""The compiler's one entrance: from a program to a function that updates parameters in place."""

from __future__ import annotations

import functools
import inspect
import logging
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx

from dslmut.diagnostics.raising import warn_user
from dslmut.optim import instructions
from dslmut.optim.layouts import Layout, layout
from dslmut.optim.randomwords import WORDS, teach_compiler
from dslmut.optim.widening import is_low

Kernel = Callable[[list[Tensor]], Sequence[Tensor]]
"""Takes the inputs of an update graph in a list, which it may empty; writes in place.

Returns what the graph returns. The version counters of what it writes may stay where they are:
whoever calls it moves them.
"""

OPTIONS = {"size_asserts": False, "alignment_asserts": False}
"""Inductor's checks of layouts: the plan has made them, and they cost more than a small update.

They stay where an operation is somebody's own, which may give something else than it has said.
"""

PASSES = {"use_joint_graph_passes": False}
"""Leaves out the search for patterns such as attention, which on a CPU finds nothing in an update, and
takes half a second to get ready for it."""

ROUNDING = {"emulate_precision_casts": True}
"""Keeps the casts to a low precision that a graph has: each of them is meant."""


def kernel(
    module: fx.GraphModule,
    examples: Sequence[Layout],
    option: bool | dict[str, Any],
) -> Kernel:
    """Return the function that an update graph is compiled to.

    Args:
        module: The graph, which is the compiler's from now on.
        examples: Of its inputs, as they will be given.
        option: False for plain operations, True for the compiler's quick entrance, and a
            dictionary for ``torch.compile``.
    """
    if option is False:
        return _boxed(module)
    if any(node.target is WORDS for node in module.graph.nodes):
        teach_compiler()
    computed = [n.meta.get("val") for n in module.graph.nodes]
    kinds = [t.dtype for t in (*examples, *computed) if isinstance(t, Layout | Tensor)]
    rounding = ROUNDING if any(map(is_low, kinds)) else {}
    if isinstance(option, dict):
        return _boxed(_general(module, option, rounding))
    return _quick(module, examples, rounding if _is_foreign(module) else {**OPTIONS, **rounding})


def _is_foreign(module: fx.GraphModule) -> bool:
    """Say whether a graph has operations of somebody's own, whose results may not be as they say."""
    targets = [n.target for n in module.graph.nodes]
    spaces = {t.namespace for t in targets if isinstance(t, torch._ops.OpOverload)}
    return bool(spaces - {"aten", "prims", "dslmut"})


def works() -> bool:
    """Say whether the compiler can compile anything at all on this machine, such as a sum."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (x, x)),))
    try:
        kernel(fx.GraphModule(torch.nn.Module(), graph), [layout(torch.zeros(3))], True)
    except Exception:  # whatever it may raise
        return False
    return True


def _boxed(function: Callable[..., Any]) -> Kernel:
    return lambda inputs: function(*inputs)


def _general(
    module: fx.GraphModule, option: Mapping[str, Any], rounding: Mapping[str, Any]
) -> Callable[..., Any]:
    """Enter the compiler by ``torch.compile``, with options of the user's."""
    option = {"fullgraph": True, "dynamic": False, **option}
    if rounding and option.get("backend", "inductor") == "inductor" and "mode" not in option:
        option["options"] = {**rounding, **(option.get("options") or {})}
    return torch.compile(module, **option)


def _quick(
    module: fx.GraphModule, examples: Sequence[Layout], patches: Mapping[str, Any]
) -> Kernel:
    """Enter the compiler below Dynamo, which has nothing left to do for a graph."""
    entrance = getattr(torch._inductor, "standalone_compile", None)
    if entrance is None or "fake_mode" not in inspect.signature(entrance).parameters:
        return _boxed(_general(module, {}, patches))
    patches = {**patches, **(PASSES if on_cpu(examples) else {})}
    with quiet():
        believing = instructions.believed()
    try:
        return _entered(module, examples, {**patches, **believing})
    except Exception as error:
        if not believing or not instructions.may_be_unknown(error):
            raise
        instructions.doubt()
        return _entered(module, examples, patches)


def on_cpu(layouts: Iterable[Layout]) -> bool:
    """Say whether all inputs are on the CPU."""
    return all(own.device.type == "cpu" for own in layouts)


def _entered(
    module: fx.GraphModule, examples: Sequence[Layout], patches: Mapping[str, Any]
) -> Kernel:
    """Compile, and return the innermost function where that is safe.

    Around it there are layers that make gradients, aliases and guards right, which cost as much as
    a small update. The graph has none of that, if the inner one takes what it takes, and returns
    what it returns.
    """
    from torch._functorch import config as functorch
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    made: list[Any] = []

    def inner(graph: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        found = compile_fx_inner(graph, inputs, **options)
        made.append((_arity(graph), found))
        return found

    arity, mode = _arity(module), FakeTensorMode(shape_env=ShapeEnv())
    with mode:  # real ones might share memory, for which the outer layers would make up
        inputs: list[Any] = [example.blank() for example in examples]
    with torch.no_grad(), quiet(), functorch.patch(enable_autograd_cache=False):
        outer = torch._inductor.standalone_compile(
            module,
            inputs,
            dynamic_shapes="from_example_inputs",
            fake_mode=mode,
            options={"config_patches": dict(patches), "inner_compile": inner},
        )
    calls = [getattr(f, "current_callable", None) for a, f in made if a == arity]
    return calls[0] if len(made) == 1 and calls and calls[0] is not None else _boxed(outer)


def _arity(module: fx.GraphModule) -> tuple[int, int]:
    """Return how many inputs and outputs a graph has."""
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    (outputs,) = next(n for n in module.graph.nodes if n.op == "output").args
    return len(inputs), len(outputs)  # pyright: ignore[reportArgumentType]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the compiler's warnings to itself: of its own parts, and of caches that are off."""
    logger = logging.getLogger("torch._inductor.standalone_compile")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def warn_uncompiled(rule: str, reason: str) -> None:
    """Say that an optimizer computes with plain operations, and why."""
    message = f"dslmut: `{rule}` runs uncompiled, with the same numbers: {reason}"
    warn_user(f"{message}\n`compile=False` asks for that, without a warning", RuntimeWarning)


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
