"""E1110: a result that is said to share nothing with the arguments, and may do so."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslmut.checking.entities import Kind
from dslmut.checking.facts import Facts, Returned, Signature
from dslmut.checking.lattice import Value
from dslmut.checking.origins import Origin, Root
from dslmut.checking.rules.fixes import argument_node
from dslmut.checking.source import Source
from dslmut.diagnostics.codes.hidden import NotFresh
from dslmut.diagnostics.model import Diagnostic, Label


def check_fresh(facts: Facts, signature: Signature, source: Source) -> Iterator[Diagnostic]:
    """E1110 for ``Fresh`` on a parameter, and for each ``return`` of what is not fresh."""
    node = signature.definition.node
    for parameter in signature.parameters:
        argument = argument_node(node, parameter.name)
        if parameter.annotation.fresh and argument is not None and argument.annotation is not None:
            yield NotFresh.at(
                source.span(argument.annotation),
                f"`Fresh` says something of a result; `{parameter.name}` is a parameter",
                fix="take `Fresh[...]` away",
            )
    if not signature.returns_fresh or isinstance(node, ast.Lambda):
        return
    for returned in facts.of(Returned):
        shared = sorted(_shared(returned.value), key=str)
        if shared:
            labels = [Label(source.span(node.returns), "declared here")] if node.returns else []
            yield NotFresh.at(
                source.span(returned.node),
                f"this returns {shared[0]}, or something that holds it",
                fix="return a copy: `copy.deepcopy(...)`; or take `Fresh[...]` away",
                labels=labels,
            )


def _shared(value: Value) -> Iterator[Origin]:
    """Yield what somebody else has, too; a state may hold the model that it was made for."""
    reached = value.origins if value.type.kind is Kind.STATE else value.reachable
    for origin in reached:
        if origin.root is not Root.FRESH and origin.kind in _SHAREABLE:
            yield origin


_SHAREABLE = frozenset({Kind.MODEL, Kind.STATE, Kind.REFERENCE, Kind.TENSOR})
