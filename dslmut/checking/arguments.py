"""The arguments of a call: their markers, and the parameters that they meet."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dslmut.checking import entities as en
from dslmut.checking.entities import Function, Parameter, Passing, Role
from dslmut.checking.environments import age
from dslmut.checking.facts import Call, Misplaced, Note, Opaque, Passed, Place, Verb
from dslmut.checking.lattice import Given, part
from dslmut.checking.walk import Walk


def is_marker(walk: Walk, node: ast.expr) -> bool:
    """Say whether an expression is a call of ``mut``, under whatever name."""
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Name(id=name):
            entity = walk.lookup(name).entity
        case ast.Attribute(value=ast.Name(id=owner), attr=attr):
            module = walk.lookup(owner).entity
            if not isinstance(module, en.Module):
                return False
            entity = walk.resolver.member(module, attr)
        case _:
            return False
    return entity == en.Word("mut")


def unmarked(walk: Walk, node: ast.expr) -> tuple[bool, ast.expr]:
    """Take the marker off an argument or receiver, and say whether there was one."""
    if not is_marker(walk, node):
        return False, node
    assert isinstance(node, ast.Call)
    walk.facts.note(node, Note.MARKER)
    if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
        walk.facts.record(Misplaced(node, Place.ARITY))
        return True, node.args[0] if node.args else ast.copy_location(ast.Constant(None), node)
    inner = node.args[0]
    if not isinstance(inner, ast.Name):
        walk.facts.record(Misplaced(node, Place.EXPRESSION))
        return True, unmarked(walk, inner)[1]
    return True, inner


def arguments(walk: Walk, node: ast.Call) -> list[Given]:
    """Evaluate the arguments of a call, in order: each waits until the last is evaluated."""
    given = [_argument(walk, a, None) for a in node.args]
    given += [_argument(walk, k.value, k.arg, star=k.arg is None) for k in node.keywords]
    now = ((g, walk.used(walk.done(g.node))) for g in given)
    return [g if value is g.value else g._replace(value=value) for g, value in now]


def _argument(walk: Walk, node: ast.expr, keyword: str | None, star: bool = False) -> Given:
    if isinstance(node, ast.Starred):
        marked, subject, star = False, node.value, True
        value = walk.evaluate(node)
    else:
        marked, subject = unmarked(walk, node)
        value = walk.handle(subject) if marked else walk.evaluate(subject)
        value = part(value, "[]") if star else value
    walk.wait(node, value)
    return Given(node, subject, value, marked, keyword, star)


def matched(
    parameters: Iterable[Parameter], given: Iterable[Given]
) -> Iterator[tuple[Given, Parameter | None]]:
    """Pair the arguments of a call with the parameters of a function.

    What stands behind a star has no known parameter.
    """
    parameters = tuple(parameters)
    positional = [p for p in parameters if p.passing in (Passing.POSITIONAL, Passing.EITHER)]
    rest = next((p for p in parameters if p.passing is Passing.STAR), None)
    named = {p.name: p for p in parameters if p.passing in (Passing.EITHER, Passing.KEYWORD)}
    others = next((p for p in parameters if p.passing is Passing.DOUBLE_STAR), None)
    position: int | None = 0
    for argument in given:
        if argument.keyword is not None:
            yield argument, named.get(argument.keyword, others)
        elif argument.star or position is None:
            position = None
            yield argument, None
        else:
            yield argument, positional[position] if position < len(positional) else rest
            position += 1


def meet(
    walk: Walk,
    node: ast.Call,
    function: Function,
    given: list[Given],
    receiver: Passed | None = None,
) -> None:
    """Record a call of a known function, whose markers the rules compare with its parameters."""
    pairs = list(matched(function.parameters or (), given))
    passed = tuple(
        Passed(a.node if a.marked else a.subject, a.marked, parameter, a.value)
        for a, parameter in pairs
    )
    _check_stars(walk, function, pairs)
    walk.facts.record(Call(node, function, passed, receiver))
    mark_all(walk, given, function.name)
    if function.role is Role.FN:
        _read_during(walk, given, receiver)


def _read_during(walk: Walk, given: list[Given], receiver: Passed | None) -> None:
    """Note that a function reads its tensors while it changes the models that they are fields of.

    A plain function may be interested in the parameter itself; one of ours gets a value.
    """
    changed = {o for a in given if a.marked for o in a.value.origins}
    if receiver is not None and receiver.marked:
        changed |= receiver.value.origins
    for argument in given:
        if not argument.marked:
            walk.used(age(argument.value, changed))


def _check_stars(
    walk: Walk, function: Function, pairs: list[tuple[Given, Parameter | None]]
) -> None:
    """Record stars that may stand for a ``Mut`` parameter, which must be marked by name.

    A wrapper that hands on its own ``*args`` and ``**kwargs`` hands on their markers too.
    """
    met = {p.name for _, p in pairs if p is not None}
    open_ = [p.name for p in function.parameters or () if p.mut and p.name not in met]
    own = walk.root.signature.star_names if walk.root.signature else frozenset()
    stars = [
        g
        for g, _ in pairs
        if g.star and not (isinstance(g.subject, ast.Name) and g.subject.id in own)
    ]
    if open_ and stars:
        what = f"a star stands for the `Mut` parameter `{open_[0]}` of `{function.name}`"
        fix = f"give it by name: `{function.name}(..., {open_[0]}=mut({open_[0]}))`"
        walk.facts.record(Opaque(stars[0].node, what, fix))


def mark_all(walk: Walk, given: Iterable[Given], target: str) -> None:
    """Record that the marked arguments of a call are changed by it."""
    for argument in given:
        if argument.marked:
            mark(walk, argument, target)


def mark(walk: Walk, argument: Given, target: str) -> None:
    """Record that a marked argument is changed by the call."""
    walk.change(argument.node, argument.subject, argument.value.origins, Verb.ARGUMENT, target)
