"""Statements that fork and join the paths of a function: branches, loops, handlers."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslmut.checking.entities import Class
from dslmut.checking.environments import RETURNED, Binding, Environment, Final, Loop, meet
from dslmut.checking.facts import Returned
from dslmut.checking.knowledge import NO_GRADIENTS
from dslmut.checking.lattice import NOTHING, Value, join, part
from dslmut.checking.resolve import last_name
from dslmut.checking.running import age_what_may_change
from dslmut.checking.scopes import carried_names
from dslmut.checking.targets import store
from dslmut.checking.walk import Walk

ROUNDS = 20
"""So often a loop is run with all that is known of what its values hold."""


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

    def head() -> None:
        age_what_may_change(walk, iterable)  # a generator runs on
        store(walk, node.target, item, None, "for")

    _loop(walk, node, head)


def while_(walk: Walk, node: ast.While) -> None:
    """``while test``."""
    endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
    _loop(walk, node, lambda: walk.evaluate(node.test), endless)


def _loop(
    walk: Walk,
    node: ast.For | ast.AsyncFor | ast.While,
    head: Callable[[], object],
    endless: bool = False,
) -> None:
    """Run a loop until another round adds nothing.

    The lattice is finite, but a value that holds others may take thousands of rounds to the end
    of it: after some of them what still changes is known without what it holds.
    """
    entry = walk.env
    # Functions inside may read any name, whenever they are called.
    carried = None if walk.scope in walk.source.nesting else carried_names(node)
    number = 0
    while True:
        loop, number = Loop(), number + 1
        walk.loops.append(loop)
        end = walk.branch(lambda: (head(), walk.block(node.body)), entry.fork())
        walk.loops.pop()
        before, entry = entry, meet([entry, end, *loop.continues]) or entry
        if number > ROUNDS:
            entry = entry.flattened(before)
        if entry == before or (carried is not None and _same(before, entry, carried)):
            break
    start = walk.env = entry
    done: Environment | None = start
    if endless:
        done = None
    elif node.orelse:
        done = walk.branch(lambda: walk.block(node.orelse), start.fork())
    walk.resume([done, *loop.breaks])


def _same(before: Environment, after: Environment, carried: frozenset[str]) -> bool:
    """Say whether another round of a loop would find nothing new: it reads what it has read."""
    return all(
        before.get(name) == binding
        for name, binding in after.items()
        if name in carried or name.startswith("<")
    )


def break_(walk: Walk, node: ast.Break) -> None:
    """``break``."""
    walk.leave(walk.loops[-1].breaks if walk.loops else None)


def continue_(walk: Walk, node: ast.Continue) -> None:
    """``continue``."""
    walk.leave(walk.loops[-1].continues if walk.loops else None)


def return_(walk: Walk, node: ast.Return) -> None:
    """``return value``."""
    value = walk.used(walk.evaluate(node.value))
    if walk.parent is None:  # what a function inside returns stays in here
        walk.keep(node, value, returned=True)
        walk.facts.record(Returned(node, value))
    walk.returns(value)
    walk.env[RETURNED] = Binding(value)
    walk.leave(walk.exits)


def raise_(walk: Walk, node: ast.Raise) -> None:
    """``raise error from cause``."""
    walk.evaluate(node.exc)
    walk.evaluate(node.cause)
    walk.leave()


def try_(walk: Walk, node: ast.Try | ast.TryStar) -> None:
    """``try``: whatever leaves it, by an error or otherwise, passes through its ``finally``."""
    if not node.finalbody:
        _handled(walk, node)
        return
    alive, final = walk.alive, Final(len(walk.loops))
    walk.finals.append(final)
    walk.catchers.append(final.raised)
    _handled(walk, node)
    walk.catchers.pop()
    walk.finals.pop()
    after = walk.env if walk.alive else None
    walk.alive = alive
    for into, environments in [([], final.raised), *final.left.values()]:
        _leave_through(walk, node.finalbody, into, meet(environments) or walk.env.fork())
    walk.resume([after and walk.branch(lambda: walk.block(node.finalbody), after)])


def _leave_through(
    walk: Walk, body: list[ast.stmt], into: list[Environment], start: Environment
) -> None:
    """Run a ``finally`` on a path that leaves; a result was computed before it."""
    end = walk.branch(lambda: walk.block(body), start)
    if end is None:
        return
    if RETURNED in end:
        walk.used(end[RETURNED].value)
    walk.depart(into, end)


def _handled(walk: Walk, node: ast.Try | ast.TryStar) -> None:
    """Run a ``try`` but for its ``finally``: a handler may be entered from any point of the body."""
    start = walk.env
    raised: list[Environment] = [start.fork()] if walk.alive else []
    walk.catchers.append(raised)
    end = walk.branch(lambda: walk.block(node.body), start.fork())
    walk.catchers.pop()
    if walk.catchers:  # what no handler takes goes on
        walk.catchers[-1].extend(e.fork() for e in raised)
    thrown = meet(raised) or start
    outcomes = [
        walk.branch(lambda h=handler: _handler(walk, h), thrown.fork()) for handler in node.handlers
    ]
    if end is not None and node.orelse:
        end = walk.branch(lambda: walk.block(node.orelse), end)
    walk.resume([*outcomes, end])


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
    before = walk.without_gradients
    walk.without_gradients = before or any(_records_nothing(i.context_expr) for i in node.items)
    if any(_suppresses(walk, item.context_expr) for item in node.items):
        raised: list[Environment] = []
        walk.catchers.append(raised)
        end = walk.branch(lambda: walk.block(node.body), walk.env)
        walk.catchers.pop()
        walk.resume([end, *raised])
    else:
        walk.block(node.body)
    walk.without_gradients = before


def _records_nothing(manager: ast.expr) -> bool:
    """Say whether nothing is recorded for differentiation inside of a `with`, or perhaps nothing."""
    called = manager.func if isinstance(manager, ast.Call) else manager
    return last_name(called) in {*NO_GRADIENTS, "set_grad_enabled"}


def _suppresses(walk: Walk, manager: ast.expr) -> bool:
    """Say whether a manager is known to end errors: its body may be left anywhere."""
    entity = walk.peek(manager.func).entity if isinstance(manager, ast.Call) else None
    return isinstance(entity, Class) and entity.name in ("suppress", "ExitStack")


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
