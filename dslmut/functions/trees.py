"""Small pieces of syntax trees, and where they stand in the user's file."""

from __future__ import annotations

import ast
from typing import Any, TypeVar

RUNTIME = "__dslmut__"
"""The name of the run time in rewritten code."""

Node = TypeVar("Node", bound=ast.AST)


def bare_arguments(arguments: ast.arguments) -> ast.arguments:
    """Return parameters without annotations and defaults: the function object keeps those."""

    def bare(a: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(a.arg), a)

    return ast.arguments(
        posonlyargs=[bare(a) for a in arguments.posonlyargs],
        args=[bare(a) for a in arguments.args],
        vararg=bare(arguments.vararg) if arguments.vararg else None,
        kwonlyargs=[bare(a) for a in arguments.kwonlyargs],
        kw_defaults=[None for _ in arguments.kwonlyargs],
        kwarg=bare(arguments.kwarg) if arguments.kwarg else None,
        defaults=[],
    )


def runtime_call(name: str, *arguments: ast.expr) -> ast.Call:
    """Make a call of a function of the run time."""
    function = ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load())
    return ast.Call(function, list(arguments), [])


def parsed(text: str) -> ast.stmt:
    """Parse a statement that has no place yet."""
    statement = ast.parse(text).body[0]
    for node in ast.walk(statement):
        for attribute in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            node.__dict__.pop(attribute, None)
    return statement


def placed(node: Node, place: Any) -> Node:
    """Put a new node, and the new ones inside of it, where another stands."""
    inner: Any
    for inner in ast.walk(node):
        if "lineno" in inner._attributes and "lineno" not in inner.__dict__:
            ast.copy_location(inner, place)
            if isinstance(place, ast.FunctionDef | ast.AsyncFunctionDef):
                inner.end_lineno, inner.end_col_offset = place.lineno, place.col_offset + 3
    return node


def shallow(node: Node) -> Node:
    """Copy a node, but nothing that is inside of it."""
    new = type(node)(**{name: getattr(node, name, None) for name in node._fields})
    return ast.copy_location(new, node) if "lineno" in node._attributes else new


def no_type_parameters() -> dict[str, Any]:
    """Return the field that definitions have from Python 3.12 on."""
    return {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}
