"""Questions about a syntax tree that several parts of the house ask."""

from __future__ import annotations

import ast


def is_super(node: ast.expr) -> bool:
    """Say whether an expression is a call of ``super``."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )


def root_name(node: ast.expr) -> str | None:
    """Return the name that an expression starts from."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
