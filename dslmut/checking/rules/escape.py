"""E1108: a ``Mut`` parameter that outlives the call which may change it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslmut.checking.entities import Kind
from dslmut.checking.facts import Change, Facts, Kept, Signature
from dslmut.checking.origins import Root
from dslmut.checking.source import Source
from dslmut.diagnostics.codes.hidden import OutlivesTheCall
from dslmut.diagnostics.model import Diagnostic, Label


def check_escapes(facts: Facts, signature: Signature, source: Source) -> Iterator[Diagnostic]:
    """E1108 for parameters that are stored, and for functions that change them later."""
    everything = list(facts.of(Kept))
    functions = {
        f"#{n.lineno}:{n.col_offset}": n
        for n in (ast.walk(signature.definition.node) if everything else ())
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    }
    for kept in everything:
        for origin in sorted(kept.things, key=str):
            if origin.kind is Kind.CALLABLE and origin.name in functions:
                yield from _function(kept, functions[origin.name], facts, signature, source)
            elif origin.root is Root.MUT and not kept.returned:
                yield OutlivesTheCall.at(
                    source.span(kept.node),
                    f"this keeps {origin}, a `Mut` parameter, in an object that outlives the call",
                    fix="give it to those who need it as an argument, when they need it",
                )


def _function(
    kept: Kept, function: ast.AST, facts: Facts, signature: Signature, source: Source
) -> Iterator[Diagnostic]:
    inside = {id(n) for n in ast.walk(function)}
    how = "returned" if kept.returned else "stored"
    found = False
    for change in facts.of(Change):
        blamed = sorted(str(o) for o in change.touched if o.root is Root.MUT)
        if id(change.node) in inside and blamed:
            found = True
            yield OutlivesTheCall.at(
                source.span(change.node),
                f"this changes {blamed[0]}, a `Mut` parameter, in a function that outlives the call",
                fix="make it an `@fn` that takes the object as a `Mut` parameter",
                labels=[Label(source.span(kept.node), f"the function is {how} here")],
            )
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    captured = sorted(names & signature.mut_names)
    if captured and not found and not kept.returned:
        yield OutlivesTheCall.at(
            source.span(kept.node),
            f"this keeps a function that reads `{captured[0]}`, a `Mut` parameter, and outlives the call",
            fix="let the function take the object as a parameter",
        )
