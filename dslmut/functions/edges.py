"""What stands before and after the body of a rewritten function: markers and values are checked.

Debuggers, tracers and breakpoints see lines of the user's alone: what always runs is on the line
where the function starts to run, and what raises an error is on its ``def``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslmut.functions.plan import CALL, RUNTIME, SPEC, Plan
from dslmut.functions.trees import parsed, placed

_REFUSING = frozenset({"missing", "spurious", "refused"})


def entering(plan: Plan, line: int) -> Iterator[ast.stmt]:
    """Yield what takes the objects out of their tokens, and checks the arguments.

    Args:
        plan: Of the function.
        line: Where it starts to run.
    """
    node = plan.definition.node
    place = ast.Pass(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    for text in _prologue(plan):
        statement = parsed(text)
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") in _REFUSING:
                placed(inner, node)
        yield placed(statement, place)


def _prologue(plan: Plan) -> Iterator[str]:
    # No code, but free variables: the same number in all functions, which may replace each other.
    yield f"if 0: {RUNTIME}, {SPEC}"
    names = {p.name: p for p in plan.signature.parameters}
    for name in (n for n, p in names.items() if p.mut):
        yield (
            f"{name} = {name}._o if {RUNTIME}.type({name}) is {RUNTIME}.Token "
            f"else {RUNTIME}.missing({SPEC}, {name!r}, {name})"
        )
    others = [n for n, p in names.items() if not p.mut and "*" not in p.passing.value]
    if others:
        test = " or ".join(f"{RUNTIME}.type({n}) is {RUNTIME}.Token" for n in others)
        given = ", ".join(f"{n}={n}" for n in others)
        yield f"if {test}: {RUNTIME}.spurious({SPEC}, {given})"
    if plan.checked or plan.returns:
        arguments = ", ".join([SPEC, *plan.checked])
        yield f"{CALL} = {RUNTIME}.enter({arguments}) or {RUNTIME}.refused({arguments})"


def ending(plan: Plan) -> Iterator[ast.stmt]:
    """Yield what checks the result of a function that runs off its end, where None may be wrong."""
    node = plan.definition.node
    if isinstance(node, ast.Lambda) or not plan.returns or _allows_none(node.returns):
        return
    last = node.body[-1]
    if not isinstance(last, ast.Return | ast.Raise):
        place = ast.copy_location(ast.Pass(), last)
        place.end_lineno, place.end_col_offset = last.lineno, last.col_offset
        yield placed(parsed(f"return {RUNTIME}.leave({SPEC}, {CALL}, None)"), place)


def _allows_none(annotation: ast.expr | None) -> bool:
    """Say whether an annotation shows that None fits it."""
    match annotation:
        case None | ast.Constant(value=None) | ast.Name(id="Any" | "object"):
            return True
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _allows_none(left) or _allows_none(right)
        case ast.Constant(value=str(text)):
            return re.search(r"\bNone\b|Optional|^Any$|^object$", text) is not None
    return "Optional" in ast.unparse(annotation)
