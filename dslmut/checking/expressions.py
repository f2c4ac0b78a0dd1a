"""What each expression may be, and what evaluating it does."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslmut.checking import definitions
from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.calls import call
from dslmut.checking.entities import Kind
from dslmut.checking.environments import meet
from dslmut.checking.lattice import (
    NOTHING,
    PLAIN_VALUE,
    Value,
    bound_method,
    fresh_tensor,
    graph_of,
    holding,
    join_all,
    part,
)
from dslmut.checking.results import computed
from dslmut.checking.running import default_values
from dslmut.checking.targets import store
from dslmut.checking.values import (
    constant_parts,
    cut_off,
    is_known_method,
    is_tensor,
    tensor_attribute,
)
from dslmut.checking.walk import Walk


def name(walk: Walk, node: ast.Name) -> Value:
    """A name, read as a value."""
    return walk.used(walk.lookup(node.id))


def attribute(walk: Walk, node: ast.Attribute) -> Value:
    """``owner.name``."""
    if node.attr in kn.SCRATCH:
        walk.handle(node.value)
        return Value(en.TENSOR)
    neutral = node.attr in kn.TENSOR_NUMBERS - kn.VALUE_METHODS
    owner = walk.peek(node.value) if neutral else walk.evaluate(node.value)
    if node.attr in kn.INSIDES:
        what = f"`{node.attr}` leads past everything that sees a change"
        walk.opaque(
            node, owner, what, "set fields: `m.w = value`; read them by `named_parameters()`"
        )
    if is_tensor(owner):
        return tensor_attribute(owner, node.attr)
    method = owner.type.cls.members.method(node.attr) if owner.type.cls is not None else None
    if method is not None and method.getter:
        return computed(walk, node, method, owner)
    value = walk.attribute(owner, node.attr)
    if node.attr == "data" and value.entity is None:  # of a tensor, as far as is known
        value = constant_parts(value)
    if value.entity is None and (method is not None or is_known_method(owner, node.attr)):
        return bound_method(owner, node.attr)
    if owner.reads:
        value = value._replace(reads=value.reads | owner.reads)
    return walk.field_read(node, value)


def subscript(walk: Walk, node: ast.Subscript) -> Value:
    """``owner[index]``."""
    owner = walk.evaluate(node.value)
    walk.wait(node, owner)
    index = (walk.evaluate if is_tensor(owner) else walk.handle)(node.slice)
    owner = walk.used(walk.done(node))
    if is_tensor(owner) and _gathers(node.slice, index):
        # A copy; but with one number in the index tensor a view, so that the read is remembered.
        return fresh_tensor(walk.fresh(node, Kind.TENSOR), owner)._replace(reads=owner.reads)
    match node.slice:
        case ast.Constant(value=int(i)) if owner.positional:
            if -len(owner.contents) <= i < len(owner.contents):
                return owner.contents[i]
        case _ if is_tensor(owner):
            return owner._replace(view=True)
        case ast.Slice() if owner.type.kind is Kind.CONTAINER:
            return holding([part(owner, "[]")], walk.fresh(node))
    found = cut_off(part(owner, "[]"))  # of several losses, nobody knows which
    return walk.field_read(node, found._replace(reads=owner.reads))


def _gathers(node: ast.expr, index: Value) -> bool:
    """Say whether an index picks items by a list or a tensor of them, as a mask does."""
    if isinstance(node, ast.List):
        return True
    values = index.contents if isinstance(node, ast.Tuple) else (index,)
    return any(is_tensor(v) for v in values)


def binary(walk: Walk, node: ast.BinOp) -> Value:
    """``a + b``: arithmetic allocates; containers hold what both held."""
    return operated(walk, node, *walk.operands([node.left, node.right]))


def operated(walk: Walk, node: ast.AST, *operands: Value) -> Value:
    """Return the result of an operator."""
    if any(is_tensor(o) or (o.type.kind is Kind.PART and o.inside_model) for o in operands):
        return fresh_tensor(walk.fresh(node, Kind.TENSOR), *operands)
    if all(o.type.kind is Kind.PLAIN for o in operands):
        return PLAIN_VALUE
    kinds = {o.type.kind for o in operands}
    if Kind.CONTAINER in kinds:
        return holding([part(o, "[]") for o in operands], walk.fresh(node))
    return Value(en.UNKNOWN, frozenset({walk.fresh(node)}), graph=graph_of(operands))


def unary(walk: Walk, node: ast.UnaryOp) -> Value:
    """``-a``, ``not a``."""
    operand = walk.evaluate(node.operand)
    return PLAIN_VALUE if isinstance(node.op, ast.Not) else operated(walk, node, operand)


def boolean(walk: Walk, node: ast.BoolOp) -> Value:
    """``a or b``: any of the operands; the later ones may not be evaluated."""
    values = [walk.evaluate(node.values[0])]
    for operand in node.values[1:]:
        before = walk.env.fork()
        values.append(walk.evaluate(operand))
        walk.env = meet([before, walk.env]) or before
    return join_all(values)


def conditional(walk: Walk, node: ast.IfExp) -> Value:
    """``a if test else b``."""
    walk.evaluate(node.test)
    start, results = walk.env, []
    ends = [
        walk.branch(lambda e=e: results.append(walk.evaluate(e)), start.fork())
        for e in (node.body, node.orelse)
    ]
    walk.resume(ends)
    return join_all(results)


def compare(walk: Walk, node: ast.Compare) -> Value:
    """``a < b``: numbers and bools, and for tensors a fresh tensor; ``is`` needs the objects."""
    operands = [node.left, *node.comparators]
    identity = any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
    about_none = any(isinstance(o, ast.Constant) and o.value is None for o in operands)
    read = walk.handle if identity and not about_none else walk.evaluate
    values = walk.operands(operands, read)
    return PLAIN_VALUE if identity else operated(walk, node, *values)._replace(graph=frozenset())


def walrus(walk: Walk, node: ast.NamedExpr) -> Value:
    """``(a := value)``."""
    value = walk.evaluate(node.value)
    store(walk, node.target, value, node.value, ":=")
    return value


def tuple_(walk: Walk, node: ast.Tuple) -> Value:
    """``(a, b)``: each keeps its position, unless there is a star."""
    values = walk.in_order(node.elts)
    starred = any(isinstance(e, ast.Starred) for e in node.elts)
    return holding(values, walk.fresh(node), positional=not starred)


def list_(walk: Walk, node: ast.List | ast.Set) -> Value:
    """``[a, b]``."""
    return holding(walk.in_order(node.elts), walk.fresh(node))


def dict_(walk: Walk, node: ast.Dict) -> Value:
    """``{key: value}``."""
    for key in node.keys:
        if key is not None:
            walk.handle(key)
    values = [
        value if key is not None else part(value, "[]")
        for key, value in zip(node.keys, walk.in_order(node.values))
    ]
    return holding(values, walk.fresh(node))


def starred(walk: Walk, node: ast.Starred) -> Value:
    """``*a`` in a list or a call."""
    value = walk.evaluate(node.value)
    return part(value, "[]")


def comprehension(
    walk: Walk, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
) -> Value:
    """``[e for a in b if c]``: the targets are names of its own."""
    with walk.own_names(comprehension_names(node)):
        for generator in node.generators:
            iterable = walk.evaluate(generator.iter)
            item = part(iterable, "[]")
            store(walk, generator.target, item, None, "for")
            for condition in generator.ifs:
                walk.evaluate(condition)
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        if isinstance(node, ast.DictComp):
            walk.handle(node.key)
        # Twice, since the next round may change what this one read.
        walk.wait(node, walk.evaluate(element))
        walk.evaluate(element)
        result = walk.done(node)
    return holding([result], walk.fresh(node))


def comprehension_names(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
) -> frozenset[str]:
    """Return the names that a comprehension binds for itself."""
    return frozenset(
        inner.id
        for generator in node.generators
        for inner in ast.walk(generator.target)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    )


def lambda_(walk: Walk, node: ast.Lambda) -> Value:
    """``lambda``: the body is walked at the end, as that of a nested function."""
    walk.defaults[id(node)] = default_values(walk, node)
    walk.nested.append(node)
    entity = definitions.function_of_lambda(node, walk.source, walk.resolver)
    return Value(en.CALLABLE, frozenset({walk.fresh(node, Kind.CALLABLE)}), entity=entity)


def suspended(walk: Walk, node: ast.Yield | ast.YieldFrom) -> Value:
    """``yield``: what comes back is somebody else's."""
    value = walk.used(walk.evaluate(node.value))
    walk.yields(part(value, "[]") if isinstance(node, ast.YieldFrom) else value)
    return NOTHING


def awaited(walk: Walk, node: ast.Await) -> Value:
    """``await``: a call of a coroutine stands for its result already."""
    return walk.evaluate(node.value)


def formatted(walk: Walk, node: ast.JoinedStr) -> Value:
    """``f"{a}"``."""
    for child in node.values:
        walk.evaluate(child)
    return PLAIN_VALUE


def formatted_value(walk: Walk, node: ast.FormattedValue) -> Value:
    """The braces of an f-string."""
    walk.evaluate(node.value)
    walk.evaluate(node.format_spec)
    return PLAIN_VALUE


def slice_(walk: Walk, node: ast.Slice) -> Value:
    """``a:b:c`` in a subscript."""
    for bound in (node.lower, node.upper, node.step):
        walk.evaluate(bound)
    return PLAIN_VALUE


def constant(walk: Walk, node: ast.Constant) -> Value:
    """A number, a string, None."""
    return PLAIN_VALUE


EXPRESSIONS: dict[type[ast.AST], Callable[..., Value]] = {
    ast.Name: name,
    ast.Attribute: attribute,
    ast.Subscript: subscript,
    ast.BinOp: binary,
    ast.UnaryOp: unary,
    ast.BoolOp: boolean,
    ast.IfExp: conditional,
    ast.Compare: compare,
    ast.NamedExpr: walrus,
    ast.Tuple: tuple_,
    ast.List: list_,
    ast.Set: list_,
    ast.Dict: dict_,
    ast.Starred: starred,
    ast.ListComp: comprehension,
    ast.SetComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.DictComp: comprehension,
    ast.Lambda: lambda_,
    ast.Await: awaited,
    ast.Yield: suspended,
    ast.YieldFrom: suspended,
    ast.JoinedStr: formatted,
    ast.FormattedValue: formatted_value,
    ast.Slice: slice_,
    ast.Constant: constant,
    ast.Call: call,
}
