"""What each statement does to the names of a function."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable

from dslmut.checking import definitions
from dslmut.checking import entities as en
from dslmut.checking.entities import Kind
from dslmut.checking.facts import Rebinding, Verb
from dslmut.checking.origins import (
    NOTHING,
    Binding,
    Environment,
    Value,
    join,
    join_all,
    meet,
    part,
)
from dslmut.checking.walk import Loop, Walk, is_tensor

# -- assignments ---------------------------------------------------------------------------------


def assign(walk: Walk, node: ast.Assign) -> None:
    """``a = b = value``."""
    value = walk.evaluate(node.value)
    for target in node.targets:
        store(walk, target, value, node.value)


def annotated_assign(walk: Walk, node: ast.AnnAssign) -> None:
    """``a: T = value``."""
    if node.value is not None:
        store(walk, node.target, walk.evaluate(node.value), node.value)


def augmented_assign(walk: Walk, node: ast.AugAssign) -> None:
    """``a += value``: on a tensor this changes the tensor itself."""
    target = node.target
    if isinstance(target, ast.Name):
        old = walk.lookup(target.id)
        walk.evaluate(node.value)
        if old.type.kind in (Kind.FIELD, Kind.PART):
            walk.facts.in_place.add(id(node))
        if is_tensor(old):
            walk.handle(target)
            walk.change(node, target, old.origins, Verb.AUGMENT, _operator(node))
            return
        # A number, or an object that may return itself.
        walk.bind(target.id, old, node, f"{_operator(node)}=")
        return
    value = walk.evaluate(node.value)
    if isinstance(target, ast.Attribute):
        walk.set_attribute(target, Value(value.type), None)
    else:
        store(walk, target, value, None)


def _operator(node: ast.AugAssign) -> str:
    signs = {
        ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
        ast.Pow: "**", ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
        ast.LShift: "<<", ast.RShift: ">>",
    }  # fmt: skip
    return signs[type(node.op)]


def store(
    walk: Walk, target: ast.expr, value: Value, source: ast.expr | None, form: str = "="
) -> None:
    """Give a target a value.

    Args:
        walk: The walk.
        target: A name, attribute, item, tuple or starred target.
        value: What it gets.
        source: The expression of the value, where it stands for this target alone.
        form: How the statement binds, for a message.
    """
    match target:
        case ast.Name(id=name):
            walk.bind(name, value, target, form)
        case ast.Attribute():
            walk.set_attribute(target, value, source)
        case ast.Subscript():
            store_item(walk, target, value)
        case ast.Starred(value=inner):
            store(walk, inner, value, None, form)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            unpack(walk, targets, value, source, form)


def unpack(
    walk: Walk, targets: list[ast.expr], value: Value, source: ast.expr | None, form: str
) -> None:
    """Give several targets what a value holds, in order.

    The values wait in the environment, since storing one may change what the next was read from.
    """
    positions = _positions(targets, value)
    waiting = f"<values for {id(targets)}>"
    walk.env[waiting] = Binding(Value(elements=tuple(positions)))
    sources = source.elts if isinstance(source, ast.Tuple | ast.List) else []
    paired = len(sources) == len(targets) and not any(
        isinstance(x, ast.Starred) for x in [*sources, *targets]
    )
    for number, target in enumerate(targets):
        pending = walk.env[waiting].value.elements or ()
        store(walk, target, walk.used(pending[number]), sources[number] if paired else None, form)
    walk.env.pop(waiting, None)


def _positions(targets: list[ast.expr], value: Value) -> list[Value]:
    """Say what each target gets, exactly where the value is a tuple of known length."""
    elements = value.elements
    star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    if elements is None or (star is None and len(elements) != len(targets)):
        return [part(value, "[]") for _ in targets]
    if star is None:
        return list(elements)
    after = len(targets) - star - 1
    if len(elements) < star + after:
        return [part(value, "[]") for _ in targets]
    middle = join_all(elements[star : len(elements) - after])
    caught = Value(en.container(middle.type), holds=middle.reachable)
    return [*elements[:star], caught, *elements[len(elements) - after :]]


def store_item(walk: Walk, target: ast.Subscript, value: Value) -> None:
    """``a[i] = value``: a change of a tensor; a container comes to hold the value."""
    owner = walk.handle(target.value)
    walk.handle(target.slice) if isinstance(target.slice, ast.Name) else walk.evaluate(target.slice)
    change_item(walk, target, owner, Verb.ITEM)
    walk.note_alias(target, value)
    if not is_tensor(owner):
        walk.hold(target.value, value, target)


def change_item(walk: Walk, target: ast.Subscript, owner: Value, verb: Verb) -> None:
    """Record a change of an item, where the owner belongs to a model or is a tensor."""
    kind = owner.type.kind
    if kind in (Kind.FIELD, Kind.PART):
        walk.facts.in_place.add(id(target))
    if kind in (Kind.TENSOR, Kind.FIELD, Kind.PART, Kind.MODEL, Kind.STATE):
        walk.change(target, target.value, owner.origins, verb, "[...]")
    elif kind in (Kind.UNKNOWN, Kind.CONTAINER):
        # opt.param_groups[0]["lr"] = 0.1: a container inside of a model or an optimizer state.
        inside = [o for o in owner.origins if o.path and o.kind in en.MARKABLE]
        walk.change(target, target.value, inside, verb, "[...]")


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
            case ast.Attribute():
                owner = walk.evaluate(target.value)
                touched = [o for o in owner.origins if o.kind in en.MARKABLE]
                walk.change(target, target.value, touched, Verb.DELETE, target.attr)


# -- paths ---------------------------------------------------------------------------------------


def if_(walk: Walk, node: ast.If) -> None:
    """``if``."""
    walk.evaluate(node.test)
    start = walk.env
    walk.resume(
        [
            walk.branch(lambda: walk.block(node.body), start.fork()),
            walk.branch(lambda: walk.block(node.orelse), start.fork()),
        ]
    )


def for_(walk: Walk, node: ast.For | ast.AsyncFor) -> None:
    """``for target in iterable``."""
    iterable = walk.evaluate(node.iter)
    item = part(iterable, "[]")
    _loop(walk, lambda: store(walk, node.target, item, None, "for"), node.body, node.orelse)


def while_(walk: Walk, node: ast.While) -> None:
    """``while test``."""
    endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
    _loop(walk, lambda: walk.evaluate(node.test), node.body, node.orelse, endless)


def _loop(
    walk: Walk,
    head: Callable[[], object],
    body: list[ast.stmt],
    orelse: list[ast.stmt],
    endless: bool = False,
) -> None:
    """Run a loop until another round adds nothing; the lattice is finite, so that it ends."""
    entry = walk.env
    while True:
        loop = Loop()
        walk.loops.append(loop)
        end = walk.branch(lambda: (head(), walk.block(body)), entry.fork())
        walk.loops.pop()
        again = meet([entry, end, *loop.continues])
        if again == entry:
            break
        entry = again if again is not None else entry
    start = walk.env = entry
    done: Environment | None = start
    if endless:
        done = None
    elif orelse:
        done = walk.branch(lambda: walk.block(orelse), start.fork())
    walk.resume([done, *loop.breaks])


def break_(walk: Walk, node: ast.Break) -> None:
    """``break``."""
    walk.leave(walk.loops[-1].breaks if walk.loops else None)


def continue_(walk: Walk, node: ast.Continue) -> None:
    """``continue``."""
    walk.leave(walk.loops[-1].continues if walk.loops else None)


def return_(walk: Walk, node: ast.Return) -> None:
    """``return value``."""
    walk.evaluate(node.value)
    walk.leave()


def raise_(walk: Walk, node: ast.Raise) -> None:
    """``raise error from cause``."""
    walk.evaluate(node.exc)
    walk.evaluate(node.cause)
    walk.leave()


def try_(walk: Walk, node: ast.Try | ast.TryStar) -> None:
    """``try``: a handler may be entered from any point of the body."""
    start = walk.env
    raised: list[Environment] = [start.fork()] if walk.alive else []
    walk.catchers.append(raised)
    end = walk.branch(lambda: walk.block(node.body), start.fork())
    walk.catchers.pop()
    thrown = meet(raised) or start
    outcomes = [
        walk.branch(lambda h=handler: _handler(walk, h), thrown.fork()) for handler in node.handlers
    ]
    if end is not None and node.orelse:
        end = walk.branch(lambda: walk.block(node.orelse), end)
    outcomes.append(end)
    if node.finalbody:
        # It runs on paths that go on, and on those that leave, which end after it.
        met = meet(outcomes)
        walk.branch(lambda: walk.block(node.finalbody), (meet([thrown, met]) or thrown).fork())
        outcomes = [met and walk.branch(lambda: walk.block(node.finalbody), met.fork())]
    walk.resume(outcomes)


def _handler(walk: Walk, handler: ast.ExceptHandler) -> None:
    walk.evaluate(handler.type)
    if handler.name:
        walk.bind(handler.name, NOTHING, handler, "except ... as")
    walk.block(handler.body)


def with_(walk: Walk, node: ast.With | ast.AsyncWith) -> None:
    """``with manager as target``: what a manager gives may be what it was made from."""
    for item in node.items:
        manager = walk.evaluate(item.context_expr)
        if item.optional_vars is not None:
            given = join(Value(manager.type, manager.origins), part(manager, "[]"))
            store(walk, item.optional_vars, given, None, "with ... as")
    walk.block(node.body)


def match_(walk: Walk, node: ast.Match) -> None:
    """``match subject``."""
    subject = walk.evaluate(node.subject)
    start = walk.env
    ends = [
        walk.branch(lambda c=case: _case(walk, c, subject), start.fork()) for case in node.cases
    ]
    exhaustive = any(
        isinstance(c.pattern, ast.MatchAs) and c.pattern.pattern is None and c.guard is None
        for c in node.cases
    )
    walk.resume(ends if exhaustive else [*ends, start])


def _case(walk: Walk, case: ast.match_case, subject: Value) -> None:
    _capture(walk, case.pattern, subject)
    walk.evaluate(case.guard)
    walk.block(case.body)


def _capture(walk: Walk, pattern: ast.pattern, subject: Value) -> None:
    inner = part(subject, "[]")
    match pattern:
        case ast.MatchAs(pattern=nested, name=name):
            if nested is not None:
                _capture(walk, nested, subject)
            if name is not None:
                walk.bind(name, subject, pattern, "a pattern of match")
        case ast.MatchStar(name=str(name)):
            walk.bind(name, inner, pattern, "a pattern of match")
        case ast.MatchMapping(patterns=nested, rest=rest):
            for child in nested:
                _capture(walk, child, inner)
            if rest is not None:
                walk.bind(rest, inner, pattern, "a pattern of match")
        case ast.MatchSequence(patterns=nested):
            for child in nested:
                _capture(walk, child, inner)
        case ast.MatchClass(patterns=nested, kwd_attrs=names, kwd_patterns=named):
            for child in nested:
                _capture(walk, child, inner)
            for name, child in zip(names, named):
                _capture(walk, child, walk.attribute(subject, name))
        case ast.MatchOr(patterns=nested):
            for child in nested:
                _capture(walk, child, subject)
        case ast.MatchValue(value=value):
            walk.evaluate(value)


# -- definitions ---------------------------------------------------------------------------------


def function(walk: Walk, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """``def``: the body is walked at the end, with whatever its names may hold by then."""
    for expression in [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]:
        walk.evaluate(expression)
    entity = definitions.function_from(node, walk.source, walk.resolver)
    walk.bind(node.name, Value(en.CALLABLE, entity=entity), node, "def")
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
    STATEMENTS[ast.TypeAlias] = nothing
