"""Run-time objects as entities: what a function, a class or an annotation that exists declares."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dslmut.checking import definitions, generic, wellknown
from dslmut.checking import entities as en
from dslmut.checking.entities import (
    Alias,
    Annotation,
    Class,
    Entity,
    Function,
    Instance,
    Kind,
    Module,
    Parameter,
    Passing,
    Role,
    Text,
    Type,
    Word,
)
from dslmut.checking.loaded import find_class, find_function
from dslmut.checking.memory import Memory
from dslmut.checking.resolve import read_annotation
from dslmut.checking.static import member_of_class
from dslmut.vocabulary import FRESH, MUT, Fresh, Mut

_MISSING = object()


def entity_from(found: object, name: str, module: str = "") -> Entity | None:
    """Return what an object is to the checker.

    Args:
        found: The object.
        name: The name it was found under.
        module: The dotted name of the module it was found in.
    """
    if found is MUT:
        return Word("MUT")
    if isinstance(found, types.ModuleType):
        return Module(found.__name__, found)
    spec = getattr(found, "__dslmut__", None)
    if spec is not None and not isinstance(found, type):
        return _from_spec(spec, found)
    if isinstance(found, type):
        return class_from_object(found)
    if isinstance(found, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return _function(found, name, module)
    if isinstance(
        found,
        types.BuiltinMethodType
        | types.MethodWrapperType
        | types.WrapperDescriptorType
        | types.MethodDescriptorType,
    ):
        return Function(name, Role.BUILTIN, qualified=f"{module}.{name}" if module else "")
    if type(found) is functools.partial:
        inner = entity_from(found.func, name, module)
        if isinstance(inner, Function):
            return definitions.opened(inner, len(found.args), found.keywords)
    if typing.get_origin(found) is not None or isinstance(found, types.UnionType):
        return _alias(found)
    if generic.is_open(found):
        return Alias(annotation_from_object(found))
    return Instance(type_of_object(found))


def _from_spec(spec: Any, found: object) -> Entity | None:
    if isinstance(spec, Function | Word | Class | Instance):
        return spec
    return getattr(spec, "entity", None)


def _alias(found: object) -> Entity | None:
    if found == Mut:
        return Word("Mut")
    if found == Fresh:
        return Word("Fresh")
    return Alias(annotation_from_object(found))


def annotation_from_object(found: object) -> Annotation:
    """Read an annotation that exists as an object: ``Mut[Mlp]`` under a name of its own."""
    if found is None or found is type(None):
        return Annotation(en.PLAIN, optional=True)
    if generic.is_open(found):
        return generic.variable_of(found, annotation_from_object)
    origin, arguments = typing.get_origin(found), typing.get_args(found)
    if origin is typing.Annotated:
        inner = annotation_from_object(arguments[0])
        mut = any(a is MUT for a in found.__metadata__)  # pyright: ignore[reportAttributeAccessIssue]
        return replace(
            inner,
            mut=mut or inner.mut,
            misplaced=inner.misplaced or (mut and inner.mut),
            fresh=inner.fresh or FRESH in found.__metadata__,  # pyright: ignore[reportAttributeAccessIssue]
        )
    if origin in (typing.Union, types.UnionType):
        parts = [annotation_from_object(a) for a in arguments]
        joined = functools.reduce(en.join_types, (p.type for p in parts))
        rest = [p for p in parts if not p.mut and p.type != en.PLAIN]
        mut = any(p.mut for p in parts)
        misplaced = any(p.misplaced for p in parts) or bool(mut and rest)
        fresh = [p.fresh or p.type == en.PLAIN for p in parts]
        optional, said = any(p.optional for p in parts), any(p.fresh for p in parts)
        return Annotation(joined, mut, misplaced, optional, all(fresh) and said)
    if isinstance(origin, type):
        cls = class_from_object(origin)
        misplaced = any(a.mut or a.misplaced for a in map(annotation_from_object, arguments))
        if isinstance(cls, Class) and cls.kind is not Kind.OBJECT:
            return Annotation(cls.type)
        return Annotation(en.container(en.UNKNOWN), misplaced=misplaced)
    if isinstance(found, type):
        entity = class_from_object(found)
        if isinstance(entity, Class):
            return Annotation(en.PLAIN if found in _PLAIN else entity.type)
    return Annotation()


_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})


def _function(found: Any, name: str, module: str) -> Entity | None:
    home = str(getattr(found, "__module__", None) or module or "")
    bare = getattr(found, "__name__", name)
    known = wellknown.well_known(f"{home}.{bare}")
    if known is not None:
        return known
    if home.partition(".")[0] == "torch" or module.partition(".")[0] == "torch":
        dotted = f"{module or home}.{bare}"
        return wellknown.torch_function(dotted, isinstance(found, types.FunctionType))
    if not isinstance(found, types.FunctionType):
        return Function(bare, Role.BUILTIN, qualified=f"{home}.{bare}")
    return function_from_object(found)


def function_from_object(found: types.FunctionType, method: bool = False) -> Function:
    """Return a plain function as its code and its annotations declare it."""
    found = _without_gradients(found)

    def parameter(name: str, passing: Passing) -> Parameter:
        annotation = found.__annotations__.get(name, _MISSING)
        return Parameter(name, passing, _annotation(annotation, found), annotation is not _MISSING)

    result = found.__annotations__.get("return", _MISSING)
    gives = _annotation(result, found)
    return Function(
        name=found.__qualname__.replace("<locals>.", ""),
        role=Role.PLAIN,
        parameters=tuple(parameter(n, p) for n, p in _passed(found.__code__)),
        result=gives.type,
        result_known=result is not _MISSING,
        fresh=gives.fresh,
        qualified=f"{found.__module__}.{found.__qualname__}",
        method=method,
        text=functools.partial(_text_of, found),
    )


def _without_gradients(found: types.FunctionType) -> types.FunctionType:
    """Return the function behind ``@torch.no_grad()`` and its like, which only calls it."""
    inner = getattr(found, "__wrapped__", None)
    of_torch = found.__globals__.get("__name__") == "torch.utils._contextlib"
    return inner if of_torch and isinstance(inner, types.FunctionType) else found


def _passed(code: types.CodeType) -> Iterator[tuple[str, Passing]]:
    """Yield the parameters of a function, and how an argument finds each."""
    names = iter(code.co_varnames)
    for position, name in enumerate(itertools.islice(names, code.co_argcount)):
        only = position < code.co_posonlyargcount
        yield name, Passing.POSITIONAL if only else Passing.EITHER
    keywords = list(itertools.islice(names, code.co_kwonlyargcount))
    if code.co_flags & inspect.CO_VARARGS:
        yield next(names), Passing.STAR
    yield from ((name, Passing.KEYWORD) for name in keywords)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        yield next(names), Passing.DOUBLE_STAR


def _text_of(function: types.FunctionType) -> Text | None:
    found = find_function(function)
    if found is None:
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    return Text(*found, _NamesOf(function.__globals__, cells))


def _annotation(found: object, function: types.FunctionType) -> Annotation:
    if found is _MISSING:
        return Annotation()
    return _read(found, _NamesOf(function.__globals__))


def _read(found: object, names: _NamesOf) -> Annotation:
    """Read an annotation that is an object or, postponed, a text."""
    if not isinstance(found, str):
        return annotation_from_object(found)
    try:
        node = ast.parse(found, mode="eval").body
    except SyntaxError:
        return Annotation()
    return read_annotation(node, names)


class _NamesOf:
    """Resolves the names in an annotation of an object that exists."""

    def __init__(
        self, names: Mapping[str, object], cells: Mapping[str, types.CellType] | None = None
    ) -> None:
        self._names, self._cells = names, cells or {}
        self.memory = Memory()

    def name(self, name: str) -> Entity | None:
        found = self._names.get(name, getattr(builtins, name, _MISSING))
        if name in self._cells:
            try:
                found = self._cells[name].cell_contents
            except ValueError:  # not bound yet
                return None
        return None if found is _MISSING else entity_from(found, name)

    def member(self, owner: Module | Class, name: str) -> Entity | None:
        if isinstance(owner, Class):
            return member_of_class(owner, name)
        found = inspect.getattr_static(owner.handle, name, _MISSING)
        return None if found is _MISSING else entity_from(found, name, owner.name)

    def imported(self, module: str, name: str | None, level: int) -> Entity | None:
        loaded = sys.modules.get(module) if level == 0 else None
        owner = Module(module, loaded)
        return self.member(owner, name) if loaded is not None and name is not None else None

    def own_class(self) -> Class | None:
        return None

    def super_class(self) -> Class | None:
        return None


def class_from_object(found: type) -> Entity | None:
    """Return a class as the checker sees it, or a word of the language that is one."""
    if hasattr(found, "dim_str") and found.__module__.startswith("jaxtyping"):
        return Class(found.__name__, Kind.TENSOR, key=found.__name__)
    known = wellknown.well_known(f"{found.__module__}.{found.__qualname__}")
    if known is not None:
        return known
    kind, base = _kind_of(found)
    key = f"{found.__module__}.{found.__qualname__}"
    return Class(found.__name__, kind, key=(key, id(found)), members=ObjectMembers(found, base))


def _kind_of(found: type) -> tuple[Kind, Class | None]:
    for base in found.__mro__:
        known = wellknown.well_known(f"{base.__module__}.{base.__qualname__}")
        if isinstance(known, Class) and known.kind is not Kind.OBJECT:
            return known.kind, known
    names = _NamesOf(vars(sys.modules.get(found.__module__, builtins)))
    return generic.protocol_of(found, lambda a: _read(a, names)) or Kind.OBJECT, None


def type_of_object(found: object) -> Type:
    """Return the type of an object."""
    if found is None or isinstance(found, int | float | bool | str | bytes | complex):
        return en.PLAIN
    if isinstance(found, list | tuple | dict | set | frozenset):
        return en.container()
    entity = class_from_object(type(found))
    return entity.type if isinstance(entity, Class) else en.OBJECT


class ObjectMembers:
    """What instances of a class have, as the class object and the text of it say."""

    def __init__(self, cls: type, base: Class | None) -> None:
        self._cls, self._base = cls, base

    def field(self, name: str) -> Type | None:
        """Return the type of a declared field, or of one that a method sets by its source."""
        for cls in self._own():
            annotation = inspect.get_annotations(cls).get(name)
            if annotation is not None:
                declared, text = self._declared(annotation, cls), _text_members(cls)
                written = text._own_fields.get(name) if text is not None else None
                return declared if written != en.PARAMETER else en.PARAMETER
        for cls in self._own():
            found = _text_members(cls)
            type_ = found._own_fields.get(name) if found is not None else None
            if type_ is not None:
                return type_
        return None

    def method(self, name: str) -> Function | None:
        """Return a method that is written in Python, from outside of torch."""
        for cls in self._own():
            found = cls.__dict__.get(name)
            static = isinstance(found, staticmethod)
            bound = isinstance(found, classmethod)
            getter = isinstance(found, property | functools.cached_property)
            found = _behind(found)
            if isinstance(found, types.FunctionType):
                if cls.__module__.partition(".")[0] == "torch":
                    return None
                spec = getattr(found, "__dslmut__", None)
                entity = _from_spec(spec, found) if spec is not None else None
                if not isinstance(entity, Function):
                    entity = function_from_object(found, method=not static and not bound)
                parameters = entity.parameters
                if bound and parameters is not None:  # its class is given already
                    parameters = parameters[1:]
                return replace(entity, getter=getter, parameters=parameters)
        return None

    def shape(self, name: str) -> str | None:
        """Return the dimensions of a field as declared."""
        for cls in self._own():
            annotation = inspect.get_annotations(cls).get(name)
            if isinstance(annotation, str):
                return definitions.shape_text(ast.Constant(annotation))
            if annotation is not None:
                return getattr(annotation, "dim_str", None)
        return None

    def names(self) -> frozenset[str] | None:
        """Return the names of everything an instance has; None where names are computed."""
        if self._base is None:
            return None
        names = self._base.members.names()
        for cls in self._own():
            text = _text_members(cls)
            if text is None or text._open or names is None:
                return None
            names |= frozenset(text._own_fields) | frozenset(cls.__dict__)
        return names

    def _own(self) -> list[type]:
        """Return the class and its bases, up to the one that torch or dslmut defines."""
        own = []
        for cls in self._cls.__mro__:
            known = wellknown.well_known(f"{cls.__module__}.{cls.__qualname__}")
            if cls is object or (isinstance(known, Class) and known.kind is not Kind.OBJECT):
                break
            own.append(cls)
        return own

    def _declared(self, annotation: object, cls: type) -> Type:
        names = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
        type_ = _read(annotation, _NamesOf(names)).type
        if type_.kind is Kind.TENSOR and self._base is not None and self._base.kind is Kind.MODEL:
            return en.FIELD
        return type_


def _behind(found: object) -> object:
    """Return the function of a static method, a class method or a property."""
    match found:
        case staticmethod() | classmethod():
            return found.__func__
        case property():
            return found.fget
        case functools.cached_property():
            return found.func
    return found


@functools.lru_cache(maxsize=512)
def _text_members(cls: type) -> definitions.SourceMembers | None:
    """Return the members of a class by its text, or None where there is none."""
    found = find_class(cls)
    if found is None:
        return None
    resolver = _NamesOf(vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {})
    known = wellknown.well_known(f"{cls.__module__}.{cls.__qualname__}")
    kind = known.kind if isinstance(known, Class) else _kind_of(cls)[0]
    return definitions.SourceMembers(*found, resolver, (), kind)
