"""What the source of an optimizer's body shows already, before anything is traced."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslmut.checking.entities import Word
from dslmut.checking.resolve import Resolver, entity_of, last_name
from dslmut.checking.scopes import is_generator, own_nodes
from dslmut.checking.source import Definition, Source
from dslmut.checking.tracing.body import Body
from dslmut.checking.tracing.things import Path, Sort, Thing
from dslmut.diagnostics.codes.bodies import MetricInBody
from dslmut.diagnostics.codes.optimizers import BadResult, BadState, NotADefinition
from dslmut.diagnostics.model import Diagnostic, Position, Span


def check_body(source: Source, definition: Definition, resolver: Resolver) -> Iterator[Diagnostic]:
    """E-OPT-001, E-OPT-003, E-OPT-004, E-OPT-02x and E-CONTRACT-011 where they can be read.

    Args:
        source: The text.
        definition: A function that is decorated with ``@optimizer``.
        resolver: Of the names in it.
    """
    node = definition.node
    if isinstance(node, ast.Lambda | ast.AsyncFunctionDef):
        return
    yield from _check_signature(source, node)
    if is_generator(node):
        return
    found: list[Diagnostic] = []
    body = Body(source, resolver, node, Path(given(node, ("param", "grad", "ctx"))), found)
    body.run(node.body)
    found += _check_returns(body, node)
    yield from {(d.code, d.span): d for d in found}.values()


_LEADING = {
    "param": Thing(Sort.TENSOR, given="the parameter"),
    "grad": Thing(Sort.TENSOR, given="the gradient"),
    "new": Thing(Sort.TENSOR, given="the new parameter"),
    "ctx": Thing(Sort.CTX),
}


def given(node: ast.FunctionDef, leading: tuple[str, ...]) -> dict[str, Thing]:
    """Return what a rule's or a transform's parameters stand for in its body.

    Args:
        node: Its definition.
        leading: What it is called with before its hyperparameters.
    """
    positional = (*node.args.posonlyargs, *node.args.args)
    found = {a.arg: _LEADING[name] for a, name in zip(positional, leading)}
    defaults = [None] * (len(positional) - len(node.args.defaults)) + node.args.defaults
    more = list(zip(positional, defaults))[len(leading) :]
    for arg, default in (*more, *zip(node.args.kwonlyargs, node.args.kw_defaults)):
        optional = isinstance(default, ast.Constant) and not isinstance(default.value, int | float)
        thing = None if optional else _hyperparameter(arg.arg, arg.annotation)
        if thing is not None:
            found[arg.arg] = thing
    return found


def _hyperparameter(name: str, annotation: ast.expr | None) -> Thing | None:
    """Return a hyperparameter that is a number of the scalar program, or several."""
    match annotation:
        case ast.Name() | ast.Attribute() if last_name(annotation) in ("float", "Hyper"):
            return Thing(Sort.SCALAR, text=name)
        case ast.Subscript(value=word, slice=ast.Tuple(elts=[inner, *_])) if (
            last_name(word) == "Annotated"
        ):
            return _hyperparameter(name, inner)
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=elements)):
            parts = [_hyperparameter(f"{name}.{i}", e) for i, e in enumerate(elements)]
            known = tuple(p for p in parts if p is not None)
            return Thing(Sort.TUPLE, parts=known) if len(known) == len(parts) else None
    return None


def _check_signature(source: Source, node: ast.FunctionDef) -> Iterator[Diagnostic]:
    everything = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    required = len(everything) - len(node.args.defaults)
    place = heading(source, node)
    if required >= 3 and len(everything) > 3:
        extra, head = ", ".join(everything[3:]), ", ".join(everything[:3])
        yield NotADefinition.at(
            place,
            f"the hyperparameters ({extra}) can be given by position",
            fix=f"write `*` before them: `({head}, *, {extra})`",
        )
    elif required < 3:
        yield NotADefinition.at(
            place,
            "a rule takes a parameter, its gradient and `ctx`",
            fix="write `(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.01)`",
        )


def heading(source: Source, node: ast.FunctionDef) -> Span:
    """Return the line of a ``def``."""
    end = len(source.lines[node.lineno - 1])
    return Span(source.path, Position(node.lineno, node.col_offset), Position(node.lineno, end))


_KINDS = {Sort.TENSOR, Sort.SCALAR, Sort.NUMBER, Sort.TUPLE, Sort.CTX}
_RETURN = "write `return optimizer_update(new_param, state=new_state)`"


def _check_returns(body: Body, node: ast.FunctionDef) -> Iterator[Diagnostic]:
    """E-OPT-004 for every path: what it returns, and whether it returns anything."""
    for statement, thing in body.returned:
        yield from thing.problems
        if statement.value is None or thing.sort in _KINDS:
            message = f"`{node.name}` returns here without an `optimizer_update`"
            yield BadResult.at(body.source.span(statement), message, fix=_RETURN)
    if body.alive and falls(node.body):
        message = f"`{node.name}` may end without an `optimizer_update`"
        yield BadResult.at(heading(body.source, node), message, fix=_RETURN)


def falls(block: list[ast.stmt]) -> bool:
    """Say whether some way through a block goes on behind it, and not into a call that may only raise."""
    match block[-1]:
        case ast.If(body=body, orelse=orelse):
            return not orelse or falls(body) or falls(orelse)
        case ast.With(body=body):
            return falls(body)
        case ast.Match(cases=cases):
            return all(not _takes_all(c) for c in cases) or any(falls(c.body) for c in cases)
        case ast.Return() | ast.Raise() | ast.Expr(value=ast.Call()) | ast.Try() | ast.TryStar():
            return False
    return True


def _takes_all(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and not (case.pattern.pattern or case.guard)


# -- outside of bodies ---------------------------------------------------------------------------


def check_outside(source: Source, scope: ast.AST, resolver: Resolver) -> Iterator[Diagnostic]:
    """E-CONTRACT-011 and E-OPT-003 for words of a body in code that certainly is none.

    Args:
        source: The text.
        scope: A module, or a function that changes a model: a training step.
        resolver: Of the names in it.
    """
    for node in own_nodes(scope):
        word = entity_of(node.func, resolver) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or not isinstance(word, Word):
            continue
        if word.name in ("diagnostic", "update_diagnostics"):
            message = f"`{word.name}` is called outside of an optimizer's body"
            fix = "in a training step or a loss, write `metric(name, value)`"
            yield MetricInBody.at(source.span(node), message, fix=fix)
        elif word.name == "defstate":
            message = "`defstate` is called outside of an optimizer's body"
            fix = "call it in a function that is decorated with `@optimizer`, or in a helper of one"
            yield BadState.at(source.span(node), message, fix=fix)
