"""E1107: constructs whose effect on a model cannot be followed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslmut.checking.facts import Facts, Opaque, Signature
from dslmut.checking.source import Source
from dslmut.diagnostics.codes.hidden import CannotBeFollowed
from dslmut.diagnostics.model import Diagnostic


def check_opaque(facts: Facts, signature: Signature, source: Source) -> Iterator[Diagnostic]:
    """E1107 for what was found in a function, and for its mutable defaults."""
    for event in facts.of(Opaque):
        yield CannotBeFollowed.at(source.span(event.node), event.what, fix=event.fix)
    arguments = signature.definition.node.args
    for default in (*arguments.defaults, *arguments.kw_defaults):
        if default is not None and _is_mutable(default):
            yield CannotBeFollowed.at(
                source.span(default),
                "this default is made once, and keeps what a call puts into it for all later ones",
                fix="write `= None`, and make it in the body",
            )


def _is_mutable(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("list", "dict", "set")
    return isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)
