"""Storing into names, attributes, items and tuples."""

from __future__ import annotations

import ast

from dslmut.checking import entities as en
from dslmut.checking.entities import Kind
from dslmut.checking.facts import FieldSet, Note, Opaque, Verb
from dslmut.checking.knowledge import MACHINERY, SCRATCH
from dslmut.checking.lattice import Value, join_all, part
from dslmut.checking.origins import Root
from dslmut.checking.values import SETTLED, attribute_owners, is_ordinary, is_tensor, kept_by
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
            set_attribute(walk, target, value, source)
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


def set_attribute(
    walk: Walk, target: ast.Attribute, value: Value, literal: ast.expr | None
) -> None:
    """Assign an attribute: a change of a model, an error on a value, or nobody's business."""
    owner = walk.evaluate(target.value)
    if _replaces(walk, target, owner):
        return
    walk.facts.record(FieldSet(target, owner, target.attr, value, literal))
    if not is_ordinary(owner) and target.attr not in SCRATCH:
        walk.facts.note(target, Note.FIELD)
    if owner.type.kind in (Kind.MODEL, Kind.PART):
        walk.facts.note(target, Note.MODEL)
    if owner.contents or not all(o.root is Root.FRESH for o in owner.origins):
        walk.facts.note(target, Note.SHARED)
    walk.note_alias(target, value)
    owners = frozenset(attribute_owners(owner, target.attr))
    walk.change(target, target.value, owners, Verb.FIELD, target.attr)
    if not is_tensor(owner):
        declared = owner.type.cls.members.field(target.attr) if owner.type.cls else None
        fields = [o.deeper(target.attr) for o in owners]
        walk.rewritten(target, fields, declared is not None and declared.trained)
    if is_ordinary(owner) or value.type.kind not in SETTLED:
        walk.hold(target.value, kept_by(owner, value), target)


def _replaces(walk: Walk, target: ast.Attribute, owner: Value) -> bool:
    """Record an assignment that exchanges the machinery of a model, and say whether it does."""
    name, cls = target.attr, owner.entity
    if isinstance(cls, en.Class) and cls.kind is Kind.MODEL:
        what = f"`{cls.name}.{name} = ...` changes all models of the class"
        walk.facts.record(Opaque(target, what, "set the field of one model"))
        return True
    if name == "data" and owner.in_storage:
        what = "`.data = ...` gives the parameter other memory, which nobody else knows of"
        return walk.opaque(target, owner, what, "set the field: `m.w = value`, or `p.copy_(value)`")
    if name in MACHINERY and not is_tensor(owner):
        what = f"`{name}` belongs to the machinery of a module"
        return walk.opaque(target, owner, what, "define it in the class")
    return False


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
        walk.hold(target.value, kept_by(owner, value), target)


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
