"""Functions and classes read from their source: what a ``def`` or a ``class`` declares."""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator
from dataclasses import replace

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.entities import (
    Class,
    Entity,
    Function,
    Instance,
    Kind,
    Members,
    Role,
    Text,
    Type,
    Word,
)
from dslmut.checking.generic import protocol_from
from dslmut.checking.resolve import Resolver, entity_of, last_name, read_annotation, read_parameters
from dslmut.checking.source import Source, takes_instance

_TRANSPARENT = frozenset(
    "staticmethod classmethod override final no_grad inference_mode enable_grad abstractmethod "
    "cached_property property wraps".split()
)
"""Decorators that keep a function's signature, besides our own."""


def function_from(
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    source: Source,
    resolver: Resolver,
    owner: str = "",
) -> Entity | None:
    """Return what a ``def`` makes: a function, or with ``@optimizer`` a maker of states.

    Args:
        node: The definition.
        source: The text it is in.
        resolver: Of the names in its signature.
        owner: The name of the class it stands in.
    """
    words = [decorator_word(d, resolver) for d in node.decorator_list]
    if Word("optimizer") in words:
        return Class(
            node.name, Kind.STATE, key=(source.path, node.lineno), definition=source.span(node)
        )
    if Word("fn") in words:
        role = Role.FN
    elif Word("extern") in words:
        role = Role.EXTERN
    elif all(decorator_name(d) in _TRANSPARENT for d in node.decorator_list):
        role = Role.PLAIN
    else:
        return None
    names = {decorator_name(d) for d in node.decorator_list}
    parameters = read_parameters(node, resolver)
    if owner and "classmethod" in names:
        parameters = parameters[1:]
    result = read_annotation(node.returns, resolver)
    return Function(
        name=f"{owner}.{node.name}" if owner else node.name,
        role=role,
        parameters=parameters,
        result=result.type,
        result_known=node.returns is not None,
        fresh=result.fresh,
        definition=source.span(node),
        method=bool(owner) and takes_instance(node),
        getter=bool(names & {"property", "cached_property"}),
        text=functools.partial(Text, node, source, resolver),
    )


def opened(function: Function, given: int, named: Collection[str | None]) -> Function:
    """Return a function that has got some of its arguments: what it takes besides.

    Its text is left out, since it would be read with other parameters.
    """
    rest = [p for p in (function.parameters or ())[given:] if p.name not in named]
    return replace(function, parameters=tuple(rest), text=None)


def function_of_lambda(node: ast.Lambda, source: Source, resolver: Resolver) -> Function:
    """Return what a ``lambda`` makes."""
    return Function(
        "<lambda>",
        Role.PLAIN,
        read_parameters(node, resolver),
        definition=source.span(node),
        text=functools.partial(Text, node, source, resolver),
    )


def decorator_word(node: ast.expr, resolver: Resolver) -> Entity | None:
    """Return what a decorator is, whether it is called or not."""
    return entity_of(node.func if isinstance(node, ast.Call) else node, resolver)


def decorator_name(node: ast.expr) -> str:
    """Return the last part of a decorator's name."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def class_from(
    node: ast.ClassDef, source: Source, resolver: Resolver, of_torch: bool = False
) -> Class:
    """Return what a ``class`` statement makes.

    Args:
        node: The statement.
        source: The text it is in.
        resolver: Of the names in it.
        of_torch: Whether torch defines it, so that ``knowledge`` says what its methods do.
    """
    bases = tuple(base_of(b, resolver) for b in node.bases)
    kind = next((b.kind for b in bases if b is not None and b.kind is not Kind.OBJECT), None)
    kind = kind or protocol_from(node, bases, resolver)
    if kind is None:
        # A base that cannot be resolved may be a model.
        kind = Kind.OBJECT if all(b is not None for b in bases) else Kind.UNKNOWN
    return Class(
        node.name,
        kind,
        key=(source.path, node.lineno, node.name),
        members=SourceMembers(node, source, resolver, bases, kind, of_torch),
        definition=source.span(node),
    )


def is_declared_model(cls: Class | None) -> bool:
    """Say whether a class is made of ``dslmut.Model``, so that it declares its fields."""
    if cls is None:
        return False
    members = cls.members
    bases = members.bases if isinstance(members, SourceMembers) else ()
    return any(b is not None and (b.key == DECLARED or is_declared_model(b)) for b in bases)


DECLARED = "dslmut.Model"


def base_of(node: ast.expr, resolver: Resolver) -> Class | None:
    """Return a base class; ``Generic[T]`` and its like are ordinary ones."""
    entity = entity_of(node.value if isinstance(node, ast.Subscript) else node, resolver)
    return entity if isinstance(entity, Class) else None


class SourceMembers(Members):
    """What instances of a class have, as its ``class`` statement and its bases say."""

    def __init__(
        self,
        node: ast.ClassDef,
        source: Source,
        resolver: Resolver,
        bases: tuple[Class | None, ...],
        kind: Kind,
        of_torch: bool = False,
    ) -> None:
        self._node, self._source, self._resolver = node, source, resolver
        self.bases, self._kind, self._of_torch = bases, kind, of_torch

    def field(self, name: str) -> Type | None:
        """Return the type of a declared field or of an attribute that a method sets."""
        found = self._own_fields.get(name)
        return found if found is not None else self._inherited("field", name)

    def method(self, name: str) -> Function | None:
        """Return a method of the class or of a base."""
        found = None if self._of_torch else self._own_methods.get(name)
        if found is None:
            return self._inherited("method", name)
        entity = function_from(found, self._source, self._resolver, self._node.name)
        return entity if isinstance(entity, Function) else None

    def shape(self, name: str) -> str | None:
        """Return the dimensions in a field's annotation."""
        found = self._own_shapes.get(name)
        return found if found is not None else self._inherited("shape", name)

    def names(self) -> frozenset[str] | None:
        """Return all names, or None where a base is unknown or names are computed."""
        if self._open or any(b is None for b in self.bases):
            return None
        inherited = [b.members.names() for b in self.bases if b is not None]
        known = [n for n in inherited if n is not None]
        if len(known) != len(inherited):
            return None
        own = frozenset(self._own_fields) | frozenset(_assigned(self._node.body))
        return own.union(*known)

    def _inherited(self, question: str, name: str):
        for base in self.bases:
            found = getattr(base.members, question)(name) if base is not None else None
            if found is not None:
                return found
        return None

    @functools.cached_property
    def _own_methods(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        return {
            n.name: n
            for n in self._node.body
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    @functools.cached_property
    def _own_fields(self) -> dict[str, Type]:
        fields = {
            n.target.id: self._declared_field(n)
            for n in self._node.body
            if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
        }
        for method in self._own_methods.values():
            for name, type_ in self._set_by(method):
                # What is registered says more than a declaration as a tensor.
                if name not in fields or {fields[name], type_} == {en.FIELD, en.PARAMETER}:
                    fields[name] = type_
        return fields

    def _declared_field(self, node: ast.AnnAssign) -> Type:
        """Say what a class declares: of a `Model`, a tensor of floats is a parameter."""
        type_ = self._declared(node.annotation)
        maker = last_name(node.value.func) if isinstance(node.value, ast.Call) else ""
        text = self._source.segment(node.annotation).lstrip("\"'")
        floats = text.rpartition("[")[0] and text.startswith(_FLOATS)
        if type_ == en.FIELD and (maker == "param" or (floats and maker != "buffer")):
            return en.PARAMETER
        return type_

    def _declared(self, annotation: ast.expr) -> Type:
        type_ = read_annotation(annotation, self._resolver).type
        if type_.kind is Kind.TENSOR and self._kind is Kind.MODEL:
            return en.FIELD
        return type_

    @functools.cached_property
    def _own_shapes(self) -> dict[str, str]:
        return {
            n.target.id: text
            for n in self._node.body
            if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
            if (text := shape_text(n.annotation)) is not None
        }

    def _set_by(self, method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, Type]]:
        """Yield the attributes that a method sets on ``self``."""
        if not method.args.args:
            return
        me = method.args.args[0].arg
        annotated = {p.name: p.type for p in read_parameters(method, self._resolver)}
        for node in ast.walk(method):
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        yield from (
                            (name, self._type_of(source, annotated))
                            for name, source in _attributes_of(me, target, value)
                        )
                case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id=owner), attr=name)):
                    if owner == me:
                        yield name, self._declared(node.annotation)
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=owner), attr=maker),
                    args=[ast.Constant(value=str(name)), *_],
                ) if owner == me and maker in _REGISTERING:
                    yield name, _REGISTERED.get(maker, en.PART)

    def _type_of(self, value: ast.expr | None, annotated: dict[str, Type]) -> Type:
        """Say what ``self.x = value`` makes of the field."""
        if isinstance(value, ast.Name):
            return annotated.get(value.id, en.UNKNOWN)
        if isinstance(value, ast.Constant):
            return en.PLAIN if value.value is not None else en.UNKNOWN
        if isinstance(value, ast.Call):
            made = entity_of(value.func, self._resolver)
            if isinstance(made, Class) and made.kind is Kind.TENSOR and self._kind is Kind.MODEL:
                return en.PARAMETER if made.name == "Parameter" else en.FIELD
            if isinstance(made, Class) and made.kind is not Kind.UNKNOWN:
                return made.type
        return en.UNKNOWN

    @functools.cached_property
    def _open(self) -> bool:
        """Say whether the class makes attributes whose names cannot be read."""
        if {"__getattr__", "__setattr__", "__getattribute__"} & set(self._own_methods):
            return True
        if self._node.decorator_list or self._node.keywords:
            return True
        return any(_computes_names(m) for m in self._own_methods.values())


_FLOATS = ("Float", "BFloat", "Complex", "Inexact")
_REGISTERED = {"register_parameter": en.PARAMETER, "register_buffer": en.FIELD}
_REGISTERING = frozenset({"register_buffer", "register_parameter", "add_module", "register_module"})


def _computes_names(method: ast.AST) -> bool:
    for node in ast.walk(method):
        match node:
            case ast.Call(func=ast.Name(id="setattr" | "vars" | "exec" | "eval")):
                return True
            case ast.Call(func=ast.Attribute(attr=maker), args=[first, *_]) if (
                maker in _REGISTERING
            ):
                if not isinstance(first, ast.Constant):
                    return True
            case ast.Attribute(attr="__dict__" | "_parameters" | "_buffers" | "_modules"):
                return True
    return False


def _attributes_of(
    me: str, target: ast.expr, value: ast.expr | None
) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the attributes that an assignment sets, each with its own value where that is written."""
    match target:
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == me:
            yield name, value
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            starred = any(isinstance(e, ast.Starred) for e in (*targets, *values))
            paired = len(values) == len(targets) and not starred
            for i, inner in enumerate(targets):
                yield from _attributes_of(me, inner, values[i] if paired else None)
        case ast.Starred(value=inner):
            yield from _attributes_of(me, inner, None)


def _assigned(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that a class body binds without an annotation."""
    for node in body:
        match node:
            case ast.Assign(targets=targets):
                yield from (t.id for t in targets if isinstance(t, ast.Name))
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name


def shape_text(annotation: ast.expr) -> str | None:
    """Return ``"D H"`` from ``Float[Tensor, "D H"]``, the part before an arrow."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return shape_text(ast.parse(annotation.value, mode="eval").body)
        except SyntaxError:
            return None
    match annotation:
        case ast.Subscript(slice=ast.Tuple(elts=[_, ast.Constant(value=str(text))])):
            return text.partition("->")[0].strip()
    return None


def instance_of(value: ast.expr, resolver: Resolver) -> Instance | None:
    """Return what ``name = value`` makes, where the value is a call of a class, or a new tensor."""
    if not isinstance(value, ast.Call):
        return None
    made = entity_of(value.func, resolver)
    if isinstance(made, Class):
        return Instance(made.type)
    if isinstance(made, Function) and made.result_known:
        return Instance(made.result)
    if isinstance(made, Function) and made.qualified in kn.MAKERS:
        return Instance(en.TENSOR)
    return None


def initialiser_of(cls: Class) -> Function:
    """Return ``C.init``, which makes a model that nobody else knows."""
    return Function(f"{cls.name}.init", Role.BUILTIN, None, cls.type, True, fresh=True)
