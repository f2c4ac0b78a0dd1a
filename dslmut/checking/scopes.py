"""Which names a function binds: those are its own, the others come from outside."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from dslmut.checking.source import FunctionNode

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@functools.lru_cache(maxsize=512)
def bound_names(node: FunctionNode | ast.Module | ast.ClassDef) -> frozenset[str]:
    """Return the names that a scope binds itself: parameters, targets, definitions, imports."""
    names: set[str] = set()
    if isinstance(node, FunctionNode):
        names.update(a.arg for a in arguments_of(node))
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    for child in body:
        names.update(_bound_in(child))
    return frozenset(names) - declared_outside(node)


def arguments_of(node: FunctionNode) -> list[ast.arg]:
    """Return the parameters of a function, in the order in which they are written."""
    a = node.args
    star = [a.vararg] if a.vararg else []
    return [*a.posonlyargs, *a.args, *star, *a.kwonlyargs, *([a.kwarg] if a.kwarg else [])]


def rebound_inside(node: ast.AST) -> frozenset[str]:
    """Return the names of a scope that functions inside of it bind anew, by ``nonlocal``."""
    return frozenset(
        name for child in ast.walk(node) if isinstance(child, ast.Nonlocal) for name in child.names
    )


def declared_outside(node: ast.AST) -> frozenset[str]:
    """Return the names that a scope declares ``global`` or ``nonlocal``."""
    return frozenset(
        name
        for child in own_nodes(node)
        if isinstance(child, ast.Global | ast.Nonlocal)
        for name in child.names
    )


@functools.lru_cache(maxsize=512)
def is_generator(node: FunctionNode) -> bool:
    """Say whether a function is a generator: what it returns is not its result."""
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in own_nodes(node))


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without those of the functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, FunctionNode | ast.ClassDef):
            yield from own_nodes(child)


def _bound_in(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
            yield from _bound_in_all([*node.decorator_list, *_evaluated_outside(node)])
            return
        case ast.Lambda():
            yield from _bound_in_all(_evaluated_outside(node))
            return
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from ((a.asname or a.name.partition(".")[0]) for a in aliases)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
    if isinstance(node, _COMPREHENSIONS):
        # Its targets are its own, but a walrus inside it binds here.
        yield from (inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
        return
    yield from _bound_in_all(ast.iter_child_nodes(node))


def _bound_in_all(nodes: Iterator[ast.AST] | list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        yield from _bound_in(node)


def _evaluated_outside(node: FunctionNode | ast.ClassDef) -> list[ast.AST]:
    """Return the parts of a definition that the surrounding scope evaluates."""
    if isinstance(node, ast.ClassDef):
        return [*node.bases, *node.keywords]
    return [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
