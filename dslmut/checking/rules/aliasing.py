"""E1105: one object that reaches a function twice, once to be changed."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from itertools import combinations

from dslmut.checking.entities import MARKABLE
from dslmut.checking.facts import Call, Facts, Passed
from dslmut.checking.origins import Origin, Root
from dslmut.checking.source import Source
from dslmut.diagnostics.codes.hidden import GivenTwice
from dslmut.diagnostics.model import Diagnostic, Label


def check_aliasing(facts: Facts, source: Source) -> Iterator[Diagnostic]:
    """E1105 for every call."""
    for call in facts.of(Call):
        given = [*call.passed, *([call.receiver] if call.receiver is not None else [])]
        for a, b in combinations(given, 2):
            changed, other = (a, b) if _may_change(a) else (b, a)
            if _may_change(changed) and _same(changed, other, source.tree):
                yield _twice(call, changed, other, source)


def _may_change(passed: Passed) -> bool:
    return passed.marked or (passed.parameter is not None and passed.parameter.mut)


def _same(a: Passed, b: Passed, tree: ast.AST) -> bool:
    """Say whether one is the other or a part of it, as far as that is certain on some path."""
    if not {a.value.type.kind, b.value.type.kind} <= MARKABLE:
        return False
    return any(
        o.overlaps(p) and "[]" not in (*o.path, *p.path) and not _makes_several(o, tree)
        for o in a.value.origins
        for p in b.value.origins
    )


def _makes_several(origin: Origin, tree: ast.AST) -> bool:
    """Say whether what was made at one place may be several objects: it stands in a loop."""
    return origin.root is Root.FRESH and origin.name in _repeated(tree)


@functools.lru_cache(maxsize=4)
def _repeated(tree: ast.AST) -> frozenset[str]:
    loops = ast.For | ast.AsyncFor | ast.While | ast.ListComp | ast.SetComp | ast.DictComp
    return frozenset(
        f"#{inner.lineno}:{inner.col_offset}"
        for node in ast.walk(tree)
        if isinstance(node, loops | ast.GeneratorExp)
        for inner in ast.walk(node)
        if isinstance(inner, ast.expr)
    )


def _twice(call: Call, changed: Passed, other: Passed, source: Source) -> Diagnostic:
    text = source.segment(other.node)
    return GivenTwice.at(
        source.span(changed.node),
        f"`{call.callee.name}` may change this, and gets the same object, or a part of it, as `{text}`",
        fix=f"give it another object: `copy.deepcopy({text})`, or take the parameter away",
        labels=[Label(source.span(other.node), "given here too")],
    )
