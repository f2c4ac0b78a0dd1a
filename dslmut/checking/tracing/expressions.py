"""What each expression of a body is for certain."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dslmut.checking import entities as en
from dslmut.checking.tracing import calls
from dslmut.checking.tracing.refusals import (
    ABSENT,
    BRANCH,
    GRAD,
    ITEM,
    changes,
    depends_on_values,
    needs_number,
)
from dslmut.checking.tracing.tables import (
    ABSENT_ATTRIBUTES,
    COUNTS,
    NUMBERS,
    VIEWS,
    ZERO_KEEPING,
)
from dslmut.checking.tracing.things import (
    NUMBER,
    UNKNOWN,
    Sort,
    Thing,
    computed,
    constant,
    join,
)

if TYPE_CHECKING:
    from dslmut.checking.tracing.body import Body


def evaluate(body: Body, node: ast.expr) -> Thing:
    """Return what an expression is for certain."""
    match node:
        case ast.Constant(value=value):
            return constant(value)
        case ast.Name(id=name):
            return _name(body, name)
        case ast.Attribute():
            return _attribute(body, node)
        case ast.Call():
            return calls.call(body, node)
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(body, node, body.evaluate(left), _NAMES[type(op)], body.evaluate(right))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            outcome = body.truth(operand)
            return NUMBER if outcome is None else constant(not outcome)
        case ast.UnaryOp(op=op, operand=operand):
            return _negated(body.evaluate(operand), op)
        case ast.BoolOp(values=values):
            return _logical(body, values)
        case ast.Compare():
            return _comparison(body, node)
        case ast.IfExp(test=test, body=then, orelse=otherwise):
            outcome = body.truth(test)
            ways = [w for w, o in ((then, False), (otherwise, True)) if outcome is not o]
            things = [body.evaluate(w) for w in ways]
            return things[0] if len(things) == 1 else join(*things)
        case ast.Subscript(value=owner, slice=index):
            return _subscript(body, node, body.evaluate(owner), index)
        case ast.Tuple(elts=elements) if not any(isinstance(e, ast.Starred) for e in elements):
            return Thing(Sort.TUPLE, parts=tuple(map(body.evaluate, elements)))
        case ast.NamedExpr(target=target, value=value):
            thing = body.evaluate(value)
            body.store(target, thing)
            return thing
        case ast.Lambda():
            return Thing(Sort.FUNCTION, node=node)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            return _comprehension(body, node)
    return _rest(body, node)


def _rest(body: Body, node: ast.expr) -> Thing:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            thing = body.evaluate(child)
            if isinstance(node, ast.FormattedValue) and child is node.value:
                text = ITEM if thing.is_tensor else needs_number("a text", thing.text)
                if thing.is_tensor or thing.is_scalar:
                    body.say(text, child)
    return UNKNOWN


def _name(body: Body, name: str) -> Thing:
    if name in body.path.names:
        return body.path.names[name]
    if name in body.own:
        return UNKNOWN
    entity = body.resolver.name(name)
    if isinstance(entity, en.Instance) and entity.type.kind is en.Kind.TENSOR:
        return Thing(Sort.TENSOR, outside=True)
    return UNKNOWN


def _attribute(body: Body, node: ast.Attribute) -> Thing:
    owner, name = body.evaluate(node.value), node.attr
    if owner.sort is Sort.CTX:
        return Thing(Sort.SCALAR, text=f"ctx.{name}") if name in COUNTS else UNKNOWN
    if not owner.is_tensor:
        return UNKNOWN
    if name == "grad":
        body.say(GRAD, node)
    elif name in ABSENT_ATTRIBUTES:
        body.say(ABSENT, node)
    elif name in NUMBERS:
        return NUMBER
    elif name in VIEWS:
        return view(owner, name)
    return UNKNOWN


def view(owner: Thing, name: str) -> Thing:
    """Return what an attribute, a method or a function gives that makes a view of a tensor."""
    made = owner.made if name in ZERO_KEEPING else f"it was computed by `{name}`"
    return Thing(Sort.TENSOR, given=owner.given, made=made, outside=owner.outside)


# -- operators -----------------------------------------------------------------------------------

_NAMES = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "lshift", ast.RShift: "rshift",
}  # fmt: skip


def _binary(body: Body, node: ast.BinOp, left: Thing, operation: str, right: Thing) -> Thing:
    for side, thing, other in ((node.left, left, right), (node.right, right, left)):
        if thing.outside:
            calls.refuse_outside(body, side)
        if thing.clock and (other.is_tensor or other.is_scalar):
            body.say(changes(body.source.segment(side)), side)
    result = arithmetic(left, right, operation)
    if result.is_scalar:
        return Thing(Sort.SCALAR, text=body.source.segment(node))
    return result


def arithmetic(left: Thing, right: Thing, operation: str) -> Thing:
    """Return what an operator gives."""
    if left.is_tensor or right.is_tensor:
        return computed(operation)
    sorts = {left.sort, right.sort}
    if sorts == {Sort.NUMBER}:
        return Thing(Sort.NUMBER, clock=left.clock or right.clock)
    return Thing(Sort.SCALAR) if sorts <= {Sort.NUMBER, Sort.SCALAR} else UNKNOWN


def _negated(thing: Thing, op: ast.unaryop) -> Thing:
    if thing.is_tensor:
        return computed("neg" if isinstance(op, ast.USub) else "bitwise_not")
    if thing.is_constant and isinstance(op, ast.USub) and isinstance(thing.value, int | float):
        return constant(-thing.value)
    return thing if thing.is_scalar else NUMBER if thing.sort is Sort.NUMBER else UNKNOWN


def _logical(body: Body, values: list[ast.expr]) -> Thing:
    """``and``, ``or``: the truth of all but the last operand is asked."""
    for value in values[:-1]:
        body.truth(value)
    body.narrow(values[-1])
    body.evaluate(values[-1])
    return UNKNOWN


def _comparison(body: Body, node: ast.Compare) -> Thing:
    operands = [node.left, *node.comparators]
    things = [body.evaluate(o) for o in operands]
    if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        return _identity(node, things)
    if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
        if things[-1].is_tensor:
            body.say(BRANCH, node)
        return NUMBER
    if not any(t.is_tensor for t in things):
        scalar = any(t.is_scalar for t in things)
        return Thing(Sort.SCALAR, text=body.source.segment(node)) if scalar else UNKNOWN
    if len(node.ops) > 1 and (things[0].is_tensor or things[1].is_tensor):
        body.say(BRANCH, node)  # `0 < t < 1` asks for the truth of its first half
    return Thing(Sort.TENSOR, made="it was computed by a comparison", boolean=True)


def _identity(node: ast.Compare, things: list[Thing]) -> Thing:
    """``x is None`` of what is a tensor or a number for certain is false."""
    if len(things) != 2 or not things[1].is_constant or things[1].value is not None:
        return UNKNOWN
    subject = things[0]
    if subject.is_constant:
        same = subject.value is None
    elif subject.sort in (Sort.TENSOR, Sort.TUPLE, Sort.CTX):
        same = False
    else:
        return UNKNOWN
    return constant(same is isinstance(node.ops[0], ast.Is))


def _subscript(body: Body, node: ast.Subscript, owner: Thing, index: ast.expr) -> Thing:
    inside = body.evaluate(index)
    if owner.sort is Sort.TUPLE and isinstance(inside.value, int):
        inner = owner.parts[inside.value : inside.value + 1 or None]
        return inner[0] if inner else UNKNOWN
    if owner.sort is Sort.CTX and isinstance(inside.value, str):
        return _attribute(body, ast.Attribute(node.value, inside.value, ast.Load()))
    if not owner.is_tensor:
        return UNKNOWN
    if inside.is_tensor and inside.boolean:
        body.say(depends_on_values("x[condition]"), node)
    if _is_basic(index):
        return view(owner, "getitem")
    return computed("getitem")


def _is_basic(index: ast.expr) -> bool:
    """Say whether indexing by this certainly gives a view."""
    match index:
        case ast.Tuple(elts=elements):
            return all(map(_is_basic, elements))
        case ast.Slice() | ast.Constant(value=int() | None):
            return not (isinstance(index, ast.Constant) and isinstance(index.value, bool))
        case ast.Constant(value=value):
            return value is ...
        case ast.UnaryOp(operand=operand):
            return _is_basic(operand)
    return False


def _comprehension(
    body: Body, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
) -> Thing:
    """Evaluate a comprehension once, perhaps in vain: states may be declared in it."""
    before = body.path.fork()

    def inside() -> None:
        for generator in node.generators:
            body.evaluate(generator.iter)
            targets = (n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name))
            body.path.forget(targets)
            shadowed.update(n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name))
            for test in generator.ifs:
                body.truth(test)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for part in parts:
            body.evaluate(part)

    shadowed: set[str] = set()
    own, body.own = body.own, body.own | _targets(node)
    end = body.fork(inside)
    body.own = own
    body.join([before, end])
    for name in shadowed & before.names.keys():
        body.path.names[name] = before.names[name]
    return UNKNOWN


def _targets(node: ast.AST) -> frozenset[str]:
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return frozenset(n.id for n in stored if isinstance(n.ctx, ast.Store))
