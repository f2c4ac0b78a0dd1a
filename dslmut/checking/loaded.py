"""Where the text of a function or class that is loaded stands."""

from __future__ import annotations

import ast
import linecache
import sys
import types

from dslmut.checking.source import FunctionNode, Source, parse


def source_of(path: str, names: dict[str, object]) -> Source | None:
    """Return a file as it is loaded, or None where there is none or it is no Python.

    Args:
        path: Of the file, or the name of a notebook cell.
        names: Of the module, which may know how to get its text.
    """
    lines = linecache.getlines(path, names)
    try:
        return parse(path, "".join(lines)) if lines else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def find_function(found: types.FunctionType) -> tuple[FunctionNode, Source] | None:
    """Return the text of a function, unless there is none or another one stands there now."""
    code = found.__code__
    source = source_of(code.co_filename, found.__globals__)
    if source is None:
        return None
    for definition in source.definitions:
        if (definition.first_line, definition.name) == (code.co_firstlineno, code.co_name):
            return definition.node, source
    return None


def find_class(cls: type) -> tuple[ast.ClassDef, Source] | None:
    """Return the text of a class, or None where it cannot be found."""
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None)
    first = next((f for f in vars(cls).values() if isinstance(f, types.FunctionType)), None)
    if first is not None:
        path = first.__code__.co_filename
    source = source_of(path, getattr(module, "__dict__", {})) if path is not None else None
    if source is None:
        return None
    nodes = _classes(source.tree, cls.__qualname__)
    if len(nodes) > 1:
        line = first.__code__.co_firstlineno if first is not None else 0
        nodes = [n for n in nodes if n.lineno <= line <= (n.end_lineno or 0)]
    return (nodes[-1], source) if nodes else None


def _classes(tree: ast.AST, qualname: str) -> list[ast.ClassDef]:
    """Return the classes of that name, by the way that leads to them."""
    nodes: list[ast.AST] = [tree]
    for part in qualname.split("."):
        if part == "<locals>":
            continue
        nodes = [child for node in nodes for child in _scopes_in(node) if child.name == part]
    return [n for n in nodes if isinstance(n, ast.ClassDef)]


def _scopes_in(node: ast.AST) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    found = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(child)
        else:
            found.extend(_scopes_in(child))
    return found
