"""Helpers of a body, read with the arguments that they get."""

from __future__ import annotations

import ast
from functools import reduce
from typing import TYPE_CHECKING

from dslmut.checking.entities import Text
from dslmut.checking.resolve import Resolver
from dslmut.checking.scopes import bound_names, is_generator
from dslmut.checking.source import FunctionNode, Source
from dslmut.checking.tracing.things import UNKNOWN, Path, Thing, constant, join, meet

if TYPE_CHECKING:
    from dslmut.checking.tracing.body import Body

DEEPEST = 6
"""So many helpers are followed one from the other."""

MOST = 200
"""So many calls are followed in all from one body."""


def follow(body: Body, call: ast.Call, things: list[Thing], node: FunctionNode) -> Thing:
    """Return what a function gives that is defined in the body itself."""
    names = {n: t for n, t in body.path.names.items() if n not in bound_names(node, True)}
    return _followed(body, call, things, node, body.source, body.resolver, names)


def follow_text(body: Body, call: ast.Call, things: list[Thing], text: Text) -> Thing:
    """Return what a function gives whose text is known."""
    return _followed(body, call, things, text.node, text.source, text.resolver, {})


def _followed(
    body: Body,
    call: ast.Call,
    things: list[Thing],
    node: FunctionNode,
    source: Source,
    resolver: Resolver,
    names: dict[str, Thing],
) -> Thing:
    """Run through a helper; what it declares is declared by the body, what it does wrong as well."""
    unreadable = isinstance(node, ast.AsyncFunctionDef) or is_generator(node)
    body.root.followed += 1
    endless = node in body.around or len(body.around) > DEEPEST or body.root.followed > MOST
    if unreadable or _is_decorated(node) or endless:
        body.path.open = True
        return UNKNOWN
    from dslmut.checking.tracing.body import Body

    path = Path({**names, **_bound(body, call, things, node)}, body.path.states, body.path.open)
    elsewhere = source.path != body.source.path
    inner = Body(
        source, resolver, node, path.fork(), body.found, body.around, body.quiet or elsewhere
    )
    inner.root = body.root
    if isinstance(node, ast.Lambda):
        result = inner.evaluate(node.body)
        ends: list[Path | None] = [inner.path]
    else:
        inner.run(node.body)
        results = [t for _, t in inner.returned]
        results += [constant(None)] if inner.alive else []
        result = reduce(join, results) if results else UNKNOWN
        ends = [*inner.exits, inner.path if inner.alive else None]
    met = meet(ends)
    if met is None:  # it only raises
        body.alive = False
        return UNKNOWN
    body.path.states, body.path.open = met.states, met.open
    return result


def _is_decorated(node: FunctionNode) -> bool:
    return not isinstance(node, ast.Lambda) and bool(node.decorator_list)


def _bound(body: Body, call: ast.Call, things: list[Thing], node: FunctionNode) -> dict[str, Thing]:
    """Return the parameters of a call with what they get; unknown ones are left out."""
    stars = any(isinstance(a, ast.Starred) for a in call.args)
    if stars or any(k.arg is None for k in call.keywords):
        return {}
    a = node.args
    positional = [x.arg for x in (*a.posonlyargs, *a.args)]
    found = {
        name: constant(default.value)
        for name, default in (
            *zip(positional[len(positional) - len(a.defaults) :], a.defaults),
            *zip([x.arg for x in a.kwonlyargs], a.kw_defaults),
        )
        if isinstance(default, ast.Constant)
    }
    found |= dict(zip(positional, things))
    known = {*positional, *(x.arg for x in a.kwonlyargs)}
    quiet, body.quiet = body.quiet, True  # its arguments have been evaluated once
    for keyword in call.keywords:
        if keyword.arg in known:
            found[keyword.arg] = body.evaluate(keyword.value)
    body.quiet = quiet
    return {n: t for n, t in found.items() if t != UNKNOWN}
