"""Questions about values that statements, calls and rules ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslmut.checking import entities as en
from dslmut.checking.entities import Kind
from dslmut.checking.origins import NOTHING, Origin, Value

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
    return replace(value, reads=frozenset())


def attribute_owners(owner: Value, name: str) -> Iterator[Origin]:
    """Yield those origins of an object for which assigning an attribute is a change."""
    kind = owner.type.kind
    if kind is Kind.OBJECT:  # `m.config` is a part of the model as well
        yield from (o for o in owner.origins if o.path and o.kind in en.MARKABLE)
        return
    if name == "grad" or kind in (Kind.PLAIN, Kind.CONTAINER, Kind.CALLABLE):
        return
    if kind in (Kind.TENSOR, Kind.FIELD):
        if name in ("requires_grad", "data") and not owner.view:
            yield from owner.origins
        return
    for origin in owner.origins:
        if kind in en.MARKABLE or origin.kind in en.MARKABLE:
            yield origin
