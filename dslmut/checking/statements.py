"""What each statement does to the names of a function."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable

from dslmut.checking import definitions
from dslmut.checking import entities as en
from dslmut.checking.facts import SIGNS, Rebinding, Verb
from dslmut.checking.lattice import NOTHING, Value, graph_of, part, with_contents
from dslmut.checking.paths import (
    break_,
    continue_,
    for_,
    if_,
    match_,
    raise_,
    return_,
    try_,
    while_,
    with_,
)
from dslmut.checking.running import default_values
from dslmut.checking.targets import change_item, set_attribute, store
from dslmut.checking.values import is_tensor
from dslmut.checking.walk import Walk

# -- assignments ---------------------------------------------------------------------------------


def assign(walk: Walk, node: ast.Assign) -> None:
    """``a = b = value``."""
    walk.wait(node, walk.evaluate(node.value))
    for target in node.targets:
        value = walk.waited(node)
        if not isinstance(target, ast.Name):  # it takes the value now, after those before it
            walk.used(value)
        store(walk, target, value, node.value)
    walk.done(node)


def annotated_assign(walk: Walk, node: ast.AnnAssign) -> None:
    """``a: T = value``."""
    if node.value is not None:
        store(walk, node.target, walk.evaluate(node.value), node.value)


def augmented_assign(walk: Walk, node: ast.AugAssign) -> None:
    """``a += value``: on a tensor this changes the tensor itself."""
    target = node.target
    if isinstance(target, ast.Name):
        _augment_name(walk, node, target)
        return
    owner = walk.handle(target.value)
    loaded = walk.evaluate(target)
    walk.wait(target, walk.field_read(target, loaded._replace(reads=frozenset())))
    value = walk.evaluate(node.value)
    walk.used(walk.done(target))
    if isinstance(target, ast.Attribute) and target.attr == "data" and loaded.in_storage:
        # p.data -= lr * p.grad: the same memory
        _augment_tensor(
            walk, node, loaded._replace(type=loaded.type if loaded.type.trained else en.FIELD)
        )
    elif isinstance(target, ast.Attribute):
        set_attribute(walk, target, Value(value.type), None)
    elif is_tensor(owner) or owner.inside_model:
        store(walk, target, value, None)
    else:  # a container's item: a tensor is changed itself
        _augment_tensor(walk, node, loaded)
        store(walk, target, Value(value.type), None)


def _augment_tensor(walk: Walk, node: ast.AugAssign, tensor: Value) -> None:
    """Change a tensor in place: the one that a name or a container has."""
    walk.written(node, tensor)
    if not is_tensor(tensor) and not tensor.in_storage:
        return
    walk.needed(tensor)
    walk.stale(tensor.origins)
    if is_tensor(tensor):  # a part may be a number, which is no change
        walk.change(node, node.target, tensor.origins, Verb.AUGMENT, SIGNS[type(node.op)])


def _augment_name(walk: Walk, node: ast.AugAssign, target: ast.Name) -> None:
    old = walk.lookup(target.id)
    value = walk.evaluate(node.value)
    _augment_tensor(walk, node, old)
    graph = old.graph | graph_of([value])
    if is_tensor(old):
        walk.set_graph(target.id, graph)
    else:
        if old.type.kind in en.MARKABLE:  # which may work in place
            own = [o for o in old.origins if not o.changeable]
            walk.change(node, target, own, Verb.AUGMENT, SIGNS[type(node.op)])
        # A number, or an object that may return itself; a list comes to hold further items.
        added = with_contents(old, part(value, "[]")) if value.reachable else old
        walk.bind(target.id, added._replace(graph=graph), node, f"{SIGNS[type(node.op)]}=")


def delete(walk: Walk, node: ast.Delete) -> None:
    """``del a, b.c, d[0]``."""
    for target in node.targets:
        match target:
            case ast.Name(id=name):
                walk.bind(name, NOTHING, target, "del")
                walk.env.pop(name, None)
            case ast.Subscript():
                change_item(walk, target, walk.handle(target.value), Verb.DELETE)
                walk.evaluate(target.slice)
                if ast.unparse(target.slice) == ":":
                    walk.env.empty(target.value)
            case ast.Attribute():
                owner = walk.evaluate(target.value)
                what = f"`del` takes `{target.attr}` away, which everybody else still counts on"
                if walk.opaque(target, owner, what, "set the field to zeros instead"):
                    continue
                touched = [o for o in owner.origins if o.kind in en.MARKABLE]
                walk.change(target, target.value, touched, Verb.DELETE, target.attr)


# -- definitions ---------------------------------------------------------------------------------


def function(walk: Walk, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """``def``: the body is walked at the end, with whatever its names may hold by then."""
    for decorator in node.decorator_list:
        walk.evaluate(decorator)
    walk.defaults[id(node)] = default_values(walk, node)
    entity = definitions.function_from(node, walk.source, walk.resolver)
    itself = frozenset({walk.fresh(node, en.Kind.CALLABLE)})
    walk.bind(node.name, Value(en.CALLABLE, itself, entity=entity), node, "def")
    walk.nested.append(node)


def class_(walk: Walk, node: ast.ClassDef) -> None:
    """``class``: its body runs at once, in a scope of its own."""
    for expression in [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]:
        walk.evaluate(expression)
    entity = definitions.class_from(node, walk.source, walk.resolver)
    walk.bind(node.name, Value(en.CALLABLE, entity=entity), node, "class")
    walk.nested.append(node)


def import_(walk: Walk, node: ast.Import | ast.ImportFrom) -> None:
    """``import``."""
    for alias in node.names:
        if alias.name == "*":
            continue
        name = alias.asname or alias.name.partition(".")[0]
        if isinstance(node, ast.ImportFrom):
            entity = walk.resolver.imported(node.module or "", alias.name, node.level)
        else:
            entity = walk.resolver.imported(alias.name if alias.asname else name, None, 0)
        walk.bind(name, Value(en.OBJECT, entity=entity), node, "import ... as")


def type_alias(walk: Walk, node: ast.TypeAlias) -> None:  # pyright: ignore
    """``type A = ...``, from Python 3.12 on."""
    walk.bind(node.name.id, Value(en.OBJECT), node, "type")


def global_(walk: Walk, node: ast.Global) -> None:
    """``global``: Python refuses it for a parameter, but only when it compiles the function."""
    for name in node.names:
        if walk.signature is not None and name in walk.signature.mut_names:
            walk.facts.record(Rebinding(node, name, "global"))


def expression(walk: Walk, node: ast.Expr) -> None:
    """An expression alone on its line."""
    walk.evaluate(node.value)


def assert_(walk: Walk, node: ast.Assert) -> None:
    """``assert``."""
    walk.evaluate(node.test)
    walk.evaluate(node.msg)


def nothing(walk: Walk, node: ast.stmt) -> None:
    """``pass``, and what else does nothing here."""


STATEMENTS: dict[type[ast.AST], Callable[..., None]] = {
    ast.Assign: assign,
    ast.AnnAssign: annotated_assign,
    ast.AugAssign: augmented_assign,
    ast.Delete: delete,
    ast.If: if_,
    ast.For: for_,
    ast.AsyncFor: for_,
    ast.While: while_,
    ast.Break: break_,
    ast.Continue: continue_,
    ast.Return: return_,
    ast.Raise: raise_,
    ast.Try: try_,
    ast.TryStar: try_,
    ast.With: with_,
    ast.AsyncWith: with_,
    ast.Match: match_,
    ast.FunctionDef: function,
    ast.AsyncFunctionDef: function,
    ast.ClassDef: class_,
    ast.Import: import_,
    ast.ImportFrom: import_,
    ast.Global: global_,
    ast.Nonlocal: nothing,
    ast.Expr: expression,
    ast.Assert: assert_,
    ast.Pass: nothing,
}
if sys.version_info >= (3, 12):
    STATEMENTS[ast.TypeAlias] = type_alias
