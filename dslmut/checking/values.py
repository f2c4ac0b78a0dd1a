"""Questions about values that statements, calls and rules ask."""

from __future__ import annotations

from collections.abc import Iterator

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.entities import Kind
from dslmut.checking.lattice import NOTHING, PLAIN_VALUE, Use, Value, bound_method
from dslmut.checking.origins import Origin

SETTLED = frozenset({Kind.TENSOR, Kind.FIELD, Kind.PLAIN})
"""What cannot come to hold anything: a tensor copies what is put into it."""


def is_tensor(value: Value) -> bool:
    """Say whether a value is a tensor, of a model or not."""
    return value.type.kind in (Kind.TENSOR, Kind.FIELD)


def is_ordinary(owner: Value) -> bool:
    """Say whether assigning an attribute of it is certainly no field of a model."""
    return owner.type.kind in (Kind.OBJECT, Kind.CALLABLE) or isinstance(
        owner.entity, en.Module | en.Class
    )


def kept_by(owner: Value, value: Value) -> Value:
    """Return what an object comes to hold that is given a value as an attribute or item.

    A model copies tensors, and takes a module only where the function made the model itself. Of a
    value that may be either it is not known that the model comes to hold it.
    """
    kind = value.type.kind
    if is_ordinary(owner) or not owner.inside_model:
        return value
    if kind in SETTLED or kind in (Kind.UNKNOWN, Kind.PART):
        return NOTHING
    return value._replace(reads=frozenset())


def attribute_owners(owner: Value, name: str) -> Iterator[Origin]:
    """Yield those origins of an object for which assigning an attribute is a change."""
    kind = owner.type.kind
    if name == "grad" or kind in (Kind.PLAIN, Kind.CONTAINER, Kind.CALLABLE):
        return
    if kind in (Kind.TENSOR, Kind.FIELD):
        if name in ("requires_grad", "data") and not owner.view:
            yield from owner.origins
        return
    for origin in owner.origins:
        if kind in en.MARKABLE or origin.kind in en.MARKABLE:
            yield origin


def is_known_method(owner: Value, attr: str) -> bool:
    """Say whether an attribute is one of torch's methods that change the owner."""
    if owner.type.kind is Kind.PART:
        return kn.in_place(attr)
    return owner.type.kind is Kind.MODEL and attr in kn.MODULE_WRITERS | kn.MODULE_MOVERS


def tensor_attribute(owner: Value, attr: str) -> Value:
    """An attribute of a tensor: a number, a view, or a method."""
    if attr in kn.TENSOR_NUMBERS:
        return PLAIN_VALUE
    if attr in kn.VIEWS:
        return (cut_off(owner) if attr in kn.CONSTANTS else owner)._replace(view=True)
    return bound_method(owner, attr)


def cut_off(value: Value) -> Value:
    """Return a value as one that is differentiated by nothing; what a container holds still is."""
    contents = () if value.type.kind is Kind.TENSOR else value.contents
    return value._replace(graph=frozenset(), contents=contents) if value.graph else value


def constant_parts(value: Value) -> Value:
    """Return a value of which nothing that it holds is differentiated, either."""
    return value._replace(graph=frozenset(), contents=tuple(map(constant_parts, value.contents)))


def now(value: Value) -> Value:
    """Return what a function gives as a value that is computed only when that is called."""
    graph = frozenset(Use(u.origins) for u in value.graph)
    return value._replace(graph=graph, contents=tuple(map(now, value.contents)))
