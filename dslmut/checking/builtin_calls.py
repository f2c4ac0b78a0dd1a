"""Python's own functions, and those of ``itertools``: what they hold, pass on, or make."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslmut.checking import knowledge as kn
from dslmut.checking.entities import CALLABLE, Class, Kind
from dslmut.checking.facts import Opaque, Verb
from dslmut.checking.lattice import (
    PLAIN_VALUE,
    Given,
    Value,
    bound_method,
    fresh_tensor,
    holding,
    join_all,
    part,
)
from dslmut.checking.origins import Origin
from dslmut.checking.values import (
    attribute_owners,
    cut_off,
    is_known_method,
    is_tensor,
    tensor_attribute,
)
from dslmut.checking.walk import Walk

Items = list[Value]
"""What iterating over each argument gives."""

BUILTIN_CLASSES = frozenset(
    "list tuple set frozenset dict reversed zip enumerate map filter int float bool str bytes "
    "complex range slice type object super deque OrderedDict defaultdict".split()
)
"""Classes of Python and its ``collections`` that are called like functions."""

_MAPPINGS = frozenset({"dict", "OrderedDict", "defaultdict"})


def call_builtin(walk: Walk, node: ast.Call, name: str, given: list[Given]) -> Value | None:
    """Return what a function of Python gives, or None where nothing is known of it."""
    if name == "super":
        return walk.super_()
    if name == "type" and len(given) == 1:
        return _class_of(given[0].value)
    if name in kn.NUMBERS:
        return PLAIN_VALUE
    if name in _ON_ATTRIBUTES:
        return _ON_ATTRIBUTES[name](walk, node, given)
    values = [g.value for g in given if g.keyword is None]
    items = [part(v, "[]") for v in values]
    if name in _MAPPINGS:
        items += [g.value for g in given if g.keyword is not None]
    handler = _ON_ITEMS.get(name)
    return handler(values, items, walk.fresh(node)) if handler is not None else None


def _class_of(value: Value) -> Value:
    """``type(a)``."""
    kind = value.type.kind
    if value.type.cls is None and kind is not Kind.MODEL:
        return PLAIN_VALUE
    return Value(CALLABLE, entity=value.type.cls or Class("Module", kind))


# -- containers and iterators --------------------------------------------------------------------


def _zip(values: Items, items: Items, fresh: Origin) -> Value:
    return holding([holding(items, fresh, positional=True)], fresh)


def _enumerate(values: Items, items: Items, fresh: Origin) -> Value:
    return holding([holding([PLAIN_VALUE, *items[:1]], fresh, positional=True)], fresh)


def _next(values: Items, items: Items, fresh: Origin) -> Value:
    return join_all([*map(cut_off, items[:1]), *values[1:]])


def _extreme(values: Items, items: Items, fresh: Origin) -> Value:
    return items[0] if len(items) == 1 else join_all(values)


def _list(values: Items, items: Items, fresh: Origin) -> Value:
    return holding(items, fresh)


def _tuple(values: Items, items: Items, fresh: Origin) -> Value:
    if values and values[0].positional:
        return holding(values[0].contents, fresh, positional=True)
    return holding(items, fresh)


def _islice(values: Items, items: Items, fresh: Origin) -> Value:
    return holding(items[:1], fresh)


def _mapped(values: Items, items: Items, fresh: Origin) -> Value:
    return holding(items[1:], fresh)


def _dict(values: Items, items: Items, fresh: Origin) -> Value:
    """A mapping is copied; an iterator of pairs gives its second parts."""
    pairs = [i for i in items if i.positional and len(i.contents) == 2]
    return holding([i.contents[1] if i in pairs else i for i in items], fresh)


def _sum(values: Items, items: Items, fresh: Origin) -> Value:
    return fresh_tensor(fresh, *items[:1], *values[1:])


_ON_ITEMS: dict[str, Callable[[Items, Items, Origin], Value]] = {
    **dict.fromkeys(("zip", "zip_longest", "product"), _zip),
    "enumerate": _enumerate,
    "next": _next,
    "min": _extreme,
    "max": _extreme,
    "tuple": _tuple,
    "map": _mapped,
    "filter": _mapped,
    **dict.fromkeys(_MAPPINGS, _dict),
    "sum": _sum,
    **dict.fromkeys(("list", "deque", "set", "frozenset", "sorted", "reversed", "iter"), _list),
    **dict.fromkeys(("chain", "cycle"), _list),
    "islice": _islice,
}

# -- attributes ----------------------------------------------------------------------------------


def _name_of(given: list[Given]) -> str | None:
    if len(given) > 1 and isinstance(given[1].subject, ast.Constant):
        return str(given[1].subject.value)
    return None


def _getattr(walk: Walk, node: ast.Call, given: list[Given]) -> Value:
    if not given:
        return PLAIN_VALUE
    name = _name_of(given)
    owner = given[0].value
    if name is not None and is_tensor(owner):
        return tensor_attribute(owner, name)
    found = part(owner, "[]") if name is None else walk.attribute(owner, name)
    if name is not None and found.entity is None and is_known_method(owner, name):
        return bound_method(owner, name)
    return walk.field_read(node, found)


def _vars(walk: Walk, node: ast.Call, given: list[Given]) -> Value:
    for argument in given[:1]:
        what = "`vars` leads past everything that sees a change"
        fix = "set fields: `m.w = value`; read them by `named_parameters()`"
        walk.opaque(node, argument.value, what, fix)
    return _getattr(walk, node, given)


def _setattr(walk: Walk, node: ast.Call, given: list[Given]) -> Value:
    if given:
        name = _name_of(given)
        what = "the name of what is set is computed, so that nobody can say what changes"
        fix = "set fields by their names, or work in place: `dict(m.named_parameters())[name].mul_(...)`"
        if name is None and walk.opaque(node, given[0].value, what, fix):
            return PLAIN_VALUE
        name = name or "[...]"
        owners = attribute_owners(given[0].value, name)
        walk.change(node, given[0].subject, owners, Verb.FIELD, name)
    return PLAIN_VALUE


def _run(walk: Walk, node: ast.Call, given: list[Given]) -> Value:
    what = "text that is run may change anything"
    walk.facts.record(Opaque(node, what, "write the code itself, or call a plain function"))
    return PLAIN_VALUE


_ON_ATTRIBUTES: dict[str, Callable[[Walk, ast.Call, list[Given]], Value]] = {
    "getattr": _getattr,
    "setattr": _setattr,
    "delattr": _setattr,
    "vars": _vars,
    "exec": _run,
    "eval": _run,
}
