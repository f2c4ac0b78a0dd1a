"""What the source of a transform shows already, before it stands in a chain."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from dslmut.checking.resolve import Resolver
from dslmut.checking.rules.optimizers import falls, given, heading
from dslmut.checking.scopes import is_generator
from dslmut.checking.source import Definition, Source
from dslmut.checking.tracing.body import Body
from dslmut.checking.tracing.things import Path, Sort
from dslmut.diagnostics.codes.optimizers import BadResult, NotADefinition
from dslmut.diagnostics.model import Diagnostic

LEADING: Final = {
    "gradient_transform": ("param", "grad", "ctx"),
    "update_transform": ("param", "grad", "new", "ctx"),
}
"""What the functions are called with that the decorators take, before their hyperparameters."""

_RETURN = "write `return value`, or `return transformed(value, state=new_state)`"


def check_transform(
    source: Source, definition: Definition, resolver: Resolver, word: str
) -> Iterator[Diagnostic]:
    """E-OPT-001, E-OPT-003, E-OPT-004, E-OPT-02x and E-CONTRACT-011 where they can be read.

    Args:
        source: The text.
        definition: A function that is decorated with ``@gradient_transform`` or ``@update_transform``.
        resolver: Of the names in it.
        word: The decorator.
    """
    node, leading = definition.node, LEADING[word]
    if isinstance(node, ast.Lambda | ast.AsyncFunctionDef):
        return
    positional = (*node.args.posonlyargs, *node.args.args)
    if len(positional) - len(node.args.defaults) < len(leading):
        yield NotADefinition.at(
            heading(source, node),
            f"this transform is called with {', '.join(leading)}",
            fix=f"write `def {node.name}({', '.join(leading)}, strength: Hyper = 0.5)`",
        )
    if is_generator(node):
        return
    found: list[Diagnostic] = []
    body = Body(source, resolver, node, Path(given(node, leading)), found)
    body.run(node.body)
    found += _check_returns(body, node)
    yield from {(d.code, d.span): d for d in found}.values()


def _check_returns(body: Body, node: ast.FunctionDef) -> Iterator[Diagnostic]:
    """E-OPT-004 for every path: what it returns, and whether it returns anything."""
    for statement, thing in body.returned:
        yield from thing.problems
        if statement.value is None or thing.sort in (
            Sort.SCALAR,
            Sort.NUMBER,
            Sort.TUPLE,
            Sort.CTX,
        ):
            message = f"`{node.name}` returns no tensor here"
            yield BadResult.at(body.source.span(statement), message, fix=_RETURN)
    if body.alive and falls(node.body):
        message = f"`{node.name}` may end without a result"
        yield BadResult.at(heading(body.source, node), message, fix=_RETURN)
