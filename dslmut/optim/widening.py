"""Low-precision parameters and states: the update is computed in float32, and rounded once.

The body sees tensors of the declared dtypes. What it recorded is run again here, on inputs that
are cast to float32 first; new values are rounded when they are stored. So an update that is
smaller than the last digit of an intermediate value is not lost on the way, a square does not
underflow, and plain operations and compiled ones give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from dslmut.optim.drawing import DRAWS, ROUNDS

aten = torch.ops.aten

WIDE = {torch.bfloat16: torch.float32, torch.float16: torch.float32}
"""What each low precision is computed in."""

_ON_BITS = {aten.view.dtype, aten.nextafter.default}
"""Operations on how a number is represented, which another precision would change."""


def is_low(dtype: torch.dtype | None) -> bool:
    """Say whether a dtype is one that updates are not computed in."""
    return dtype in WIDE


def needs_widening(recorded: fx.Graph) -> bool:
    """Say whether a recorded graph has inputs of a low precision, and may compute in another.

    It may not where it changes the bits of a tensor in place, which are those of one precision.
    """
    low = any(n.op == "placeholder" and is_low(_dtype(n)) for n in recorded.nodes)
    return low and not any(_is_bit_view(t) for n in recorded.nodes for t in _written(n))


def widened(
    recorded: fx.Graph,
    outputs: Sequence[fx.Node],
    dtypes: Sequence[torch.dtype],
    fake: FakeTensorMode,
) -> tuple[fx.Graph, list[fx.Node]]:
    """Return a graph that computes in float32 what a recorded one computes in less, and its outputs.

    A cast to a low precision that the body writes is kept, and what is computed from such values
    alone stays in that precision. Operations on bits get the declared dtype.

    Args:
        recorded: From a trace; its nodes know their fake tensors.
        outputs: Those of its nodes that are results: new values, and behind them diagnostics.
        dtypes: What each new value is stored in.
        fake: The mode of the fake tensors.
    """
    count = len(dtypes)
    with torch.no_grad(), fake:
        run = _Widening(recorded, any(map(_chooses, _sources(outputs[:count]))))
        stored = [run.stored(n, d) for n, d in zip(outputs, dtypes)]
        return run.graph, [*stored, *(run.stored(n, _dtype(n)) for n in outputs[count:])]


class _Widening:
    """A run of a recorded graph in float32, which records another one.

    Args:
        recorded: From a trace.
        chosen: Whether the body computes in a low precision on purpose, constants included.
    """

    def __init__(self, recorded: fx.Graph, chosen: bool) -> None:
        self.graph = fx.Graph()
        self._places: dict[fx.Node, fx.Node] = {}
        self._chosen = chosen
        for node in recorded.nodes:
            self._places[node] = self._input(node) if node.op == "placeholder" else self._run(node)

    def stored(self, node: fx.Node, dtype: torch.dtype | None) -> fx.Node:
        """Return the place of a result, in the dtype that it is stored in."""
        return self._to(self._places[node], dtype)

    def _input(self, node: fx.Node) -> fx.Node:
        new = self.graph.placeholder(node.name)
        new.meta["val"] = node.meta["val"]
        return self._to(new, _wide(_dtype(new)))

    def _run(self, node: fx.Node) -> fx.Node:
        if self._is_wide(node):
            new = self._tried(node)
            if new is not None:
                return new
        return self._call(node, *self._arguments(node, lambda n: _dtype(n)))

    def _is_wide(self, node: fx.Node) -> bool:
        """Say whether an operation is to be computed in float32: it gets such, or is a constant."""
        if node.target in _ON_BITS:
            return False
        sources = node.all_input_nodes
        constant = not sources and not self._chosen
        return (
            constant
            or node.target in DRAWS
            or any(is_low(_dtype(n)) and not is_low(_dtype(self._places[n])) for n in sources)
        )

    def _tried(self, node: fx.Node) -> fx.Node | None:
        """Compute an operation in float32; None where it cannot be, or gives something else."""
        args, kwargs = self._arguments(node, lambda n: _wide(_dtype(self._places[n])))
        if kwargs.get("dtype") in WIDE and not _chooses(node) and node.target is not ROUNDS:
            kwargs = {**kwargs, "dtype": WIDE[kwargs["dtype"]]}
        try:
            new = self._call(node, args, kwargs)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return None
        if _stands_for(new.meta["val"], node.meta.get("val")):
            return new
        self.graph.erase_node(new)
        return None

    def _arguments(
        self, node: fx.Node, dtype: Callable[[fx.Node], torch.dtype | None]
    ) -> tuple[Any, Any]:
        """Return the places of an operation's arguments, cast but for those that it writes into."""
        written = _written(node)

        def place(n: fx.Node) -> fx.Node:
            new = self._places[n]
            return new if n in written else self._to(new, dtype(n))

        return fx.map_arg((node.args, dict(node.kwargs)), place)

    def _call(self, node: fx.Node, args: Any, kwargs: Any) -> fx.Node:
        """Compute an operation, and write it down under the name that it had."""
        values = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        result = node.target(*values[0], **values[1])  # pyright: ignore[reportCallIssue]
        new = self.graph.create_node("call_function", node.target, args, kwargs, node.name)
        new.meta |= {**node.meta, "val": result}
        return new

    def _to(self, node: fx.Node, dtype: torch.dtype | None) -> fx.Node:
        """Return a tensor in a dtype."""
        if dtype is None or _dtype(node) in (None, dtype):
            return node
        name = f"{node.name}_{str(dtype).removeprefix('torch.')}"
        cast, kind = aten._to_copy.default, dict[str, Any](dtype=dtype)
        new = self.graph.create_node("call_function", cast, (node,), kind, name)
        new.meta["val"] = node.meta["val"].to(dtype)
        return new


_SCALED = {aten.mul.Tensor, aten.div.Tensor}


def scaled(graph: fx.Graph, node: fx.Node, places: Mapping[fx.Node, fx.Node]) -> fx.Node | None:
    """Write a product of low precision with a number in float32, and round it; None for all else.

    That is what torch computes. A compiler would round the number to the low precision first, which
    is an error in all elements alike.

    Args:
        graph: Of the kernel.
        node: Of an update graph.
        places: Where the nodes before it are in the kernel's graph.
    """
    kind, operands = _dtype(node), node.all_input_nodes
    if node.target not in _SCALED or not is_low(kind) or all(is_low(_dtype(n)) for n in operands):
        return None

    def cast(n: fx.Node, dtype: torch.dtype) -> fx.Node:
        return graph.call_function(aten._to_copy.default, (n,), {"dtype": dtype})

    args = fx.map_arg(
        node.args, lambda n: cast(places[n], torch.float32) if is_low(_dtype(n)) else places[n]
    )
    found = cast(graph.call_function(node.target, args), kind)  # pyright: ignore
    found.meta = dict(node.meta)
    return found


# -- nodes ---------------------------------------------------------------------------------------


def _dtype(node: fx.Node) -> torch.dtype | None:
    """Return the dtype of what a node gives; None if that is no tensor."""
    value = node.meta.get("val")
    return value.dtype if isinstance(value, Tensor) else None


def _wide(dtype: torch.dtype | None) -> torch.dtype | None:
    return None if dtype is None else WIDE.get(dtype, dtype)


def _sources(results: Iterable[fx.Node]) -> set[fx.Node]:
    """Return the nodes that results are computed from, and themselves."""
    waiting, found = list(results), set(results)
    while waiting:
        new = [n for n in waiting.pop().all_input_nodes if n not in found]
        found.update(new)
        waiting += new
    return found


def _chooses(node: fx.Node) -> bool:
    """Say whether a node is a cast to a low precision that the body writes."""
    return node.target is aten._to_copy.default and node.kwargs.get("dtype") in WIDE


def _written(node: fx.Node) -> list[fx.Node]:
    """Return what an operation changes in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    named = [*zip(schema.arguments, node.args)]
    named += [(a, node.kwargs[a.name]) for a in schema.arguments if a.name in node.kwargs]
    found: list[fx.Node] = []
    for argument, value in named:
        if argument.alias_info is not None and argument.alias_info.is_write:
            fx.map_arg(value, lambda n: found.append(n) or n)
    return found


def _is_bit_view(node: fx.Node) -> bool:
    """Say whether a tensor is a view of another's bits, or of a part of such a view."""
    while node.op == "call_function" and node.all_input_nodes:
        if node.target is aten.view.dtype:
            return True
        if not getattr(node.target, "is_view", False):
            return False
        node = node.all_input_nodes[0]
    return False


def _stands_for(new: Any, old: Any) -> bool:
    """Say whether a result in float32 is of the kind that was recorded."""
    if isinstance(old, Tensor):
        return new.shape == old.shape and new.dtype in (old.dtype, WIDE.get(old.dtype))
    if isinstance(old, list | tuple):
        return all(map(_stands_for, new, old))
    return True
