"""Type variables and protocols: what is known of a value whose class is left open."""

from __future__ import annotations

import ast
import functools
import inspect
import typing
from collections.abc import Callable, Iterable

from dslmut.checking import entities as en
from dslmut.checking.entities import Alias, Annotation, Class, Kind
from dslmut.checking.resolve import Resolver, entity_of, read_annotation

Read = Callable[[typing.Any], Annotation]
"""Reads an annotation: an object, or a tree."""


def bounded(bound: object, constraints: Iterable[object], read: Read) -> Annotation:
    """Return what a type variable says: its bound, or what its constraints have in common.

    Args:
        bound: Its bound, or None.
        constraints: The types that it may be instead.
        read: Reads them.
    """
    types = [read(c).type for c in ([bound] if bound is not None else constraints)]
    return Annotation(functools.reduce(en.join_types, types)) if types else Annotation()


def is_open(found: object) -> bool:
    """Say whether an object is a type variable, or what ``type A = ...`` makes."""
    return isinstance(found, typing.TypeVar) or type(found).__name__ == "TypeAliasType"


def variable_of(found: typing.Any, read: Read) -> Annotation:
    """Return what such an object says."""
    try:
        if isinstance(found, typing.TypeVar):
            return bounded(found.__bound__, found.__constraints__, read)
        return read(found.__value__)
    except Exception:  # from Python 3.12 on, both are evaluated when they are asked for
        return Annotation()


def variable_from(value: ast.Call, resolver: Resolver) -> Alias | None:
    """Return what ``T = TypeVar("T", bound=M)`` makes."""
    made = entity_of(value.func, resolver)
    if not isinstance(made, Class) or made.name != "TypeVar":
        return None
    bound = next((k.value for k in value.keywords if k.arg == "bound"), None)
    return Alias(bounded(bound, value.args[1:], lambda a: read_annotation(a, resolver)))


def variable_in(scopes: Iterable[ast.AST], name: str, resolver: Resolver) -> Alias | None:
    """Return what a name means that ``def f[T: M]`` or ``class C[T: M]`` declares.

    Args:
        scopes: The functions and classes around the name, the innermost first.
        name: The name.
        resolver: Of the names in its bound.
    """
    for scope in scopes:
        for parameter in getattr(scope, "type_params", ()):
            if parameter.name == name:
                bound = getattr(parameter, "bound", None)
                constraints = bound.elts if isinstance(bound, ast.Tuple) else ()
                bound = None if constraints else bound
                return Alias(bounded(bound, constraints, lambda a: read_annotation(a, resolver)))
    return None


def kind_of_protocol(attributes: Iterable[Annotation]) -> Kind:
    """Return what has to be expected of an object that a protocol describes.

    One that declares parameters or modules describes models, any other one may.
    """
    model = any(
        a.type.kind is Kind.MODEL or (a.type.cls and a.type.cls.name in ("Parameter", "Buffer"))
        for a in attributes
    )
    return Kind.MODEL if model else Kind.UNKNOWN


def protocol_from(
    node: ast.ClassDef, bases: Iterable[Class | None], resolver: Resolver
) -> Kind | None:
    """Return the kind of a class that is a protocol by its text; None for any other class."""
    if not any(b is not None and b.name == "Protocol" for b in bases):
        return None
    declared = [s.annotation for s in node.body if isinstance(s, ast.AnnAssign)]
    return kind_of_protocol(read_annotation(a, resolver) for a in declared)


def protocol_of(found: type, read: Read) -> Kind | None:
    """Return the kind of a class that is a protocol; None for any other class."""
    if not vars(found).get("_is_protocol"):
        return None
    bases = [b for b in found.__mro__ if vars(b).get("_is_protocol")]
    return kind_of_protocol(read(a) for b in bases for a in inspect.get_annotations(b).values())
