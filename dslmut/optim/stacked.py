"""Programs for several parameters of one kind: products of small matrices are made of stacks of them.

A product of small matrices takes hardly longer than its call, and one of a stack keeps all cores busy
without a wait after each matrix. All other operations are copied for each parameter, with numbers
of its own; the compiler puts them into common loops, which write into the stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from dslmut.optim.drawing import expanded
from dslmut.optim.programs import Program
from dslmut.optim.widening import scaled

aten = torch.ops.aten

LARGEST = 2**15
"""Matrices of more elements are multiplied one by one: each product keeps all cores busy, and finds in
the cache what the one before has left there."""

Places = dict[fx.Node, fx.Node]
"""Where the nodes of a program are in the graph of a kernel."""


def stacks(program: Program) -> bool:
    """Say whether a program has products that are made of stacks.

    It has none where its body changes temporaries in place: what is in a stack would stay as it was.
    """
    nodes = program.graph.nodes
    return any(map(_is_small_product, nodes)) and not any(map(_changes, nodes))


def copied(
    program: Program, graph: fx.Graph, members: Sequence[Sequence[fx.Node]]
) -> list[list[fx.Node]]:
    """Copy a program into the graph of a kernel, for some parameters.

    Args:
        program: For one parameter.
        graph: Of the kernel.
        members: The program's inputs, for each parameter.

    Returns:
        The program's outputs, for each parameter.
    """
    nodes = list(program.graph.nodes)
    inputs = [n for n in nodes if n.op == "placeholder"]
    places = [dict(zip(inputs, member)) for member in members]
    products = _Products(graph, places)
    stacking = len(members) > 1 and stacks(program)
    for node in nodes[len(inputs) : -1]:
        if stacking and _is_small_product(node):
            products.copy(node)
            continue
        for own in places:
            arithmetic = expanded(graph, node, own) or scaled(graph, node, own)
            own[node] = arithmetic or graph.node_copy(node, own.__getitem__)
    (results,) = nodes[-1].args
    return [[own[n] for n in results] for own in places]


class _Products:
    """The products of stacks in a kernel.

    Args:
        graph: Of the kernel.
        places: For each parameter.
    """

    def __init__(self, graph: fx.Graph, places: Sequence[Places]) -> None:
        self._graph, self._places = graph, places
        self._stacks: Places = {}

    def copy(self, node: fx.Node) -> None:
        """Copy a product of two matrices, for all parameters at once."""
        stack = self._call(aten.bmm.default, *map(self._stack, node.args))
        self._stacks[node] = stack
        for number, own in enumerate(self._places):
            own[node] = self._call(aten.select.int, stack, 0, number)

    def _stack(self, node: Any) -> fx.Node:
        """Return the stack of what a node gives for each parameter."""
        if node not in self._stacks:
            if _is_transpose(node):
                found = self._call(aten.transpose.int, self._stack(node.args[0]), 1, 2)
            else:
                found = self._call(aten.stack.default, [own[node] for own in self._places])
            self._stacks[node] = found
        return self._stacks[node]

    def _call(self, target: Any, *args: Any) -> fx.Node:
        return self._graph.call_function(target, args)


def _is_small_product(node: fx.Node) -> bool:
    if node.target is not aten.mm.default:
        return False
    values = [n.meta["val"] for n in (node, *node.all_input_nodes)]
    return all(v.layout is torch.strided and v.numel() <= LARGEST for v in values)


def _is_transpose(node: fx.Node) -> bool:
    if node.target is aten.transpose.int:
        return {d % 2 for d in node.args[1:]} == {0, 1}  # pyright: ignore[reportOperatorIssue]
    return node.target is aten.t.default


def _changes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable
