"""E0902 in the body of a ``Model`` class, of a file that is only parsed: what torch would not see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslmut.checking import knowledge as kn
from dslmut.checking.definitions import class_from, is_declared_model
from dslmut.checking.entities import Class, Function, Kind
from dslmut.checking.resolve import Resolver, entity_of, last_name, read_annotation
from dslmut.checking.source import Source
from dslmut.checking.wellknown import MODULE_NAMES
from dslmut.diagnostics.codes.fields import BadDeclaration
from dslmut.diagnostics.model import Diagnostic

_NAMES = MODULE_NAMES - {"training", "init"}
_MAPPINGS = frozenset("dict Dict Mapping MutableMapping OrderedDict defaultdict".split())


def check_bodies(source: Source, resolver: Resolver) -> Iterator[Diagnostic]:
    """E0902 in each class of a file that is made of ``Model``."""
    for node in source.classes:
        if is_declared_model(class_from(node, source, resolver)):
            for statement in node.body:
                yield from _check(statement, node, source, resolver)


def _check(
    statement: ast.stmt, owner: ast.ClassDef, source: Source, resolver: Resolver
) -> Iterator[Diagnostic]:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
            found = _declared(name, annotation, owner, resolver)
            if found is None and value is not None and "ClassVar" not in source.segment(annotation):
                found = _shared(name, value, owner, resolver)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            found = _shared(name, value, owner, resolver)
            found = found or _assigned_type(name, value, owner, source, resolver)
        case _:
            return
    if found is not None:
        message, fix = found
        yield BadDeclaration.at(source.span(statement), message, fix=fix)


Found = tuple[str, str] | None
"""What is wrong, and what to write."""


def _declared(name: str, annotation: ast.expr, owner: ast.ClassDef, resolver: Resolver) -> Found:
    if name in _NAMES:
        return (
            f"a field of `{owner.name}` is called `{name}`, as a method of every torch module is",
            f"choose another name: `{name}_: ...`",
        )
    type_ = read_annotation(annotation, resolver).type
    if type_.kind is Kind.CONTAINER and type_.item is not None and type_.item.kind is Kind.MODEL:
        by_key = isinstance(annotation, ast.Subscript) and last_name(annotation.value) in _MAPPINGS
        kind = "dict" if by_key else "list"
        made, inside = ("ModuleDict", "{...}") if by_key else ("ModuleList", "[...]")
        return (
            f"`{name}` is a {kind} of modules, whose parameters torch would not see",
            f"write `{name}: nn.{made}`, and `{owner.name}.init(..., {name}=nn.{made}({inside}))`",
        )
    return None


def _shared(name: str, value: ast.expr, owner: ast.ClassDef, resolver: Resolver) -> Found:
    made = entity_of(value.func, resolver) if isinstance(value, ast.Call) else None
    if isinstance(made, Class) and made.kind is Kind.MODEL:
        kind = made.name
        return (
            f"`{name}` is a module in the body of `{owner.name}`, which all its instances would share",
            f"declare it: `{name}: {kind}`, and give it: `{owner.name}.init(..., {name}={kind}(...))`",
        )
    tensor = isinstance(made, Class) and made.kind is Kind.TENSOR
    if tensor or (isinstance(made, Function) and kn.gives_tensors(made.qualified)):
        return (
            f"`{name}` is a tensor in the body of `{owner.name}`, which all its instances would share",
            f'declare it: `{name}: Float[Tensor, "..."] = param(...)`, or `buffer(...)` if it is not trained',
        )
    return None


def _assigned_type(
    name: str, value: ast.expr, owner: ast.ClassDef, source: Source, resolver: Resolver
) -> Found:
    if not isinstance(value, ast.Subscript):
        return None
    if read_annotation(value, resolver).type.kind is not Kind.TENSOR:
        return None
    annotations = [source.segment(s.annotation) for s in owner.body if isinstance(s, ast.AnnAssign)]
    if any(re.search(rf"\b{name}\b", text) for text in annotations):
        return None  # a name for a type, which fields are declared with
    return (
        f"`{name}` is assigned a type in `{owner.name}`, which declares no field",
        f"write a colon: `{name}: {source.segment(value)}`",
    )
