"""Storing into names, attributes, items and tuples."""

from __future__ import annotations

import ast

from dslmut.checking import entities as en
from dslmut.checking.entities import Kind
from dslmut.checking.facts import Verb
from dslmut.checking.origins import (
    Value,
    join_all,
    part,
)
from dslmut.checking.values import is_tensor
from dslmut.checking.walk import Walk


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
            if form in _HIDDEN_FORMS:
                what = (
                    f"a field is no target of `{form}`: it would be set where nobody looks for it"
                )
                fix = "bind a name, and set the field in a statement: `m.w = name`"
                if walk.opaque(target, walk.peek(target.value), what, fix):
                    return
            walk.set_attribute(target, value, source)
        case ast.Subscript():
            store_item(walk, target, value)
        case ast.Starred(value=inner):
            store(walk, inner, value, None, form)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            unpack(walk, targets, value, source, form)


_HIDDEN_FORMS = frozenset({"for", "with ... as"})


def unpack(
    walk: Walk, targets: list[ast.expr], value: Value, source: ast.expr | None, form: str
) -> None:
    """Give several targets what a value holds, in order.

    The values wait, since storing one may change what the next was read from.
    """
    for target, waiting in zip(targets, _positions(targets, value)):
        walk.wait(target, waiting)
    sources = source.elts if isinstance(source, ast.Tuple | ast.List) else []
    paired = len(sources) == len(targets) and not any(
        isinstance(x, ast.Starred) for x in [*sources, *targets]
    )
    for number, target in enumerate(targets):
        pending = walk.used(walk.done(target))
        store(walk, target, pending, sources[number] if paired else None, form)


def _positions(targets: list[ast.expr], value: Value) -> list[Value]:
    """Say what each target gets, exactly where the value is a tuple of known length."""
    star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    known, wanted = len(value.contents), len(targets)
    fits = known == wanted if star is None else known >= wanted - 1
    if not value.positional or not fits:
        item = part(value, "[]")
        rest = Value(en.container(), contents=(item,))
        return [rest if isinstance(t, ast.Starred) else item for t in targets]
    if star is None:
        return list(value.contents)
    behind = known - (wanted - star - 1)
    caught = Value(en.container(), contents=(join_all(value.contents[star:behind]),))
    return [*value.contents[:star], caught, *value.contents[behind:]]


def store_item(walk: Walk, target: ast.Subscript, value: Value) -> None:
    """``a[i] = value``: a change of a tensor; a container comes to hold the value."""
    owner = walk.peek(target.value)
    if owner.type.kind is not Kind.CONTAINER:  # what is in a list is not needed to fill it
        walk.needed(owner)
    if is_tensor(owner):
        walk.evaluate(target.slice)
    else:
        walk.handle(target.slice)
    change_item(walk, target, owner, Verb.ITEM)
    walk.note_alias(target, value)
    if not is_tensor(owner):
        walk.hold(target.value, value, target)


def change_item(walk: Walk, target: ast.Subscript, owner: Value, verb: Verb) -> None:
    """Record a change of an item, where the owner belongs to a model or is a tensor."""
    kind = owner.type.kind
    walk.written(target, owner)
    if kind in (Kind.TENSOR, Kind.FIELD, Kind.PART, Kind.MODEL, Kind.STATE):
        walk.change(target, target.value, owner.origins, verb, "[...]")
    elif kind in (Kind.UNKNOWN, Kind.CONTAINER):
        # opt.param_groups[0]["lr"] = 0.1: a container inside of a model or an optimizer state.
        inside = [o for o in owner.origins if o.path and o.kind in en.MARKABLE]
        walk.change(target, target.value, inside, verb, "[...]")
