"""What the source of an optimizer's body shows already, before anything is traced."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslmut.checking.entities import Word
from dslmut.checking.resolve import Resolver, entity_of
from dslmut.checking.scopes import own_nodes
from dslmut.checking.source import Definition, Source
from dslmut.diagnostics.codes.bodies import MetricInBody
from dslmut.diagnostics.codes.optimizers import BadResult, BadState, NotADefinition
from dslmut.diagnostics.model import Diagnostic, Edit, Fix, Label, Position, Span


def check_body(source: Source, definition: Definition, resolver: Resolver) -> Iterator[Diagnostic]:
    """E-OPT-001, E-OPT-003, E-OPT-004 and E-CONTRACT-011 where they can be read.

    Args:
        source: The text.
        definition: A function that is decorated with ``@optimizer``.
        resolver: Of the names in it.
    """
    node = definition.node
    if isinstance(node, ast.Lambda | ast.AsyncFunctionDef):
        return
    yield from _check_signature(source, node)
    calls = [n for n in own_nodes(node) if isinstance(n, ast.Call)]
    words = [(c, entity_of(c.func, resolver)) for c in calls]
    yield from (_metric(source, c) for c, word in words if word == Word("metric"))
    declared = [c for c, word in words if word == Word("defstate")]
    certain = [c for c in declared if c in _certain_calls(node)]
    yield from _check_names(source, certain)
    results = [c for c, word in words if word == Word("optimizer_update")]
    yield from _check_results(source, node, certain, results)


def _check_signature(source: Source, node: ast.FunctionDef) -> Iterator[Diagnostic]:
    everything = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    required = len(everything) - len(node.args.defaults)
    line = source.lines[node.lineno - 1]
    heading = Span(
        source.path, Position(node.lineno, node.col_offset), Position(node.lineno, len(line))
    )
    if required >= 3 and len(everything) > 3:
        extra, head = ", ".join(everything[3:]), ", ".join(everything[:3])
        yield NotADefinition.at(
            heading,
            f"the hyperparameters ({extra}) can be given by position",
            fix=f"write `*` before them: `({head}, *, {extra})`",
        )
    elif required < 3:
        yield NotADefinition.at(
            heading,
            "a rule takes a parameter, its gradient and `ctx`",
            fix="write `(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.01)`",
        )


def _metric(source: Source, call: ast.Call) -> Diagnostic:
    name = source.segment(call.func)
    new = name.replace("metric", "diagnostic")
    return MetricInBody.at(
        source.span(call),
        "`metric` is called in an optimizer's body",
        fix=Fix(f"write `{new}(...)`", (Edit(source.span(call.func), new),)),
    )


def _literal(call: ast.Call) -> str | None:
    """Return the name of a state that is written out."""
    match call.args:
        case [ast.Constant(value=str(name)), _]:
            return name
    return None


def _check_names(source: Source, declared: list[ast.Call]) -> Iterator[Diagnostic]:
    first: dict[str, ast.Call] = {}
    for call in declared:
        name = _literal(call)
        if name is None:
            continue
        if name in first:
            yield BadState.at(
                source.span(call),
                f"the state `{name}` is declared twice",
                fix="declare it once, and pass its value on",
                labels=[Label(source.span(first[name]), "first declared here")],
            )
        first.setdefault(name, call)


def _check_results(
    source: Source, node: ast.FunctionDef, declared: list[ast.Call], results: list[ast.Call]
) -> Iterator[Diagnostic]:
    """Check keywords against the states that have been declared on any path to a result."""
    names = {n: c for c in declared if (n := _literal(c)) is not None}
    helpers = any(isinstance(n, ast.FunctionDef) for n in own_nodes(node))
    for call in results:
        given = {k.arg for k in call.keywords}
        if None in given or len(call.args) > 1 or helpers:
            continue
        for name, declaration in names.items():
            if name not in given and declaration.lineno < call.lineno:
                yield BadResult.at(
                    source.span(call),
                    f"the state `{name}` is not returned",
                    fix=f"write `optimizer_update(..., {name}=...)` with its new value",
                    labels=[Label(source.span(declaration), "declared here")],
                )
    for returned in (n for n in own_nodes(node) if isinstance(n, ast.Return)):
        if returned.value is None or isinstance(returned.value, ast.Constant | ast.Tuple):
            yield BadResult.at(
                source.span(returned),
                f"`{node.name}` returns here without an `optimizer_update`",
                fix="write `return optimizer_update(new_param, state=new_state)`",
            )


_MAYBE = (
    ast.If, ast.For, ast.While, ast.Try, ast.With, ast.Match, ast.FunctionDef, ast.ClassDef,
    ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


def _certain_calls(node: ast.FunctionDef) -> list[ast.Call]:
    """Return the calls that are made whenever the body gets that far: in no branch, no loop."""
    found: list[ast.Call] = []
    waiting: list[ast.AST] = [*reversed(node.body)]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, _MAYBE):
            continue
        if isinstance(inner, ast.Call):
            found.append(inner)
        waiting += reversed(list(ast.iter_child_nodes(inner)))
    return found
