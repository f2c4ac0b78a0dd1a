"""Which names a function binds: those are its own, the others come from outside."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from dslmut.checking.source import FunctionNode


@functools.lru_cache(maxsize=512)
def bound_names(node: FunctionNode | ast.Module | ast.ClassDef, walrus: bool) -> frozenset[str]:
    """Return the names that a scope binds itself: parameters, targets, definitions, imports.

    Args:
        node: The scope.
        walrus: Whether expressions may bind some, by ``:=``.
    """
    names: set[str] = set()
    elsewhere: set[str] = set()
    if isinstance(node, FunctionNode):
        names.update(a.arg for a in arguments_of(node))
    rest: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
    while rest:
        child = rest.pop()
        match child:
            case ast.Constant():
                continue
            case ast.Name(id=name, ctx=context):
                if not isinstance(context, ast.Load):
                    names.add(name)
                continue
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
                rest += [*child.decorator_list, *_evaluated_outside(child)]
                continue
            case ast.ClassDef(name=name):
                names.add(name)
                rest += [*child.decorator_list, *child.bases, *child.keywords]
                continue
            case ast.Lambda():
                rest += _evaluated_outside(child)
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                # Its targets are its own, but a walrus inside it binds here.
                inner = (n for n in ast.walk(child) if isinstance(n, ast.NamedExpr))
                names.update(n.target.id for n in inner)
                continue
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names.update(a.asname or a.name.partition(".")[0] for a in aliases)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                names.add(name)
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.Global(names=declared) | ast.Nonlocal(names=declared):
                elsewhere.update(declared)
        if walrus or not isinstance(child, ast.stmt):
            rest += ast.iter_child_nodes(child)
        else:
            rest += _binding_parts(child)
    return frozenset(names - elsewhere)


def _binding_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the parts of a statement in which names can be bound without ``:=``."""
    for name in statement._fields:
        part = None if name in _VALUES else getattr(statement, name)
        if isinstance(part, list):
            yield from (p for p in part if isinstance(p, ast.AST))
        elif isinstance(part, ast.AST):
            yield part


_VALUES = frozenset("value test iter exc cause msg annotation op subject".split())


@functools.lru_cache(maxsize=512)
def carried_names(loop: ast.For | ast.AsyncFor | ast.While) -> frozenset[str]:
    """Return the names that a round of a loop may read as the round before has left them."""
    carried: set[str] = set()
    bound = set() if isinstance(loop, ast.While) else {*_bound_by(loop.target)}
    test = [loop.test] if isinstance(loop, ast.While) else [loop.target]
    for part in (*test, *loop.body):
        carried |= _read_in(part) - bound
        if isinstance(part, ast.Assign):  # on the straight way: what follows reads the new value
            bound.update(n for target in part.targets for n in _bound_by(target))
    return frozenset(carried)


def _read_in(node: ast.AST) -> set[str]:
    """Return the names that are read in a node, or changed in place, as by ``+=`` and ``del``."""
    read = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)
    }
    augmented = (n.target for n in ast.walk(node) if isinstance(n, ast.AugAssign))
    return read | {t.id for t in augmented if isinstance(t, ast.Name)}


def _bound_by(target: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment binds for certain."""
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=inner) | ast.List(elts=inner):
            for each in inner:
                yield from _bound_by(each)
        case ast.Starred(value=inner):
            yield from _bound_by(inner)


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


@functools.lru_cache(maxsize=512)
def is_generator(node: FunctionNode) -> bool:
    """Say whether a function is a generator: what it returns is not its result."""
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in own_nodes(node))


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without those of the functions and classes inside it."""
    rest = list(ast.iter_child_nodes(node))[::-1]
    while rest:
        child = rest.pop()
        yield child
        if not isinstance(child, FunctionNode | ast.ClassDef):
            rest += list(ast.iter_child_nodes(child))[::-1]


def _evaluated_outside(node: FunctionNode) -> list[ast.expr]:
    """Return the parts of a function's definition that the surrounding scope evaluates."""
    return [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
