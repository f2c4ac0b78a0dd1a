"""What names stand for: the protocol of the resolvers, and the reading of annotations."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Protocol

from dslmut.checking.entities import (
    CALLABLE,
    PLAIN,
    TENSOR,
    UNKNOWN,
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
    Type,
    Word,
    container,
    join_types,
)
from dslmut.checking.memory import Memory
from dslmut.checking.source import FunctionNode


class Resolver(Protocol):
    """Says what stands behind the names that a function does not bind itself.

    Two of them exist: over run-time objects (``live``), and over files that are only parsed
    (``static``). None means unknown, which is never a reason for a report.
    """

    @property
    def memory(self) -> Memory:
        """Return what is remembered of the functions that are called."""
        ...

    def name(self, name: str) -> Entity | None:
        """Return what a free name stands for."""
        ...

    def member(self, owner: Module | Class, name: str) -> Entity | None:
        """Return what ``owner.name`` stands for."""
        ...

    def imported(self, module: str, name: str | None, level: int) -> Entity | None:
        """Return what an import inside the function gives: a module, or a name out of it."""
        ...

    def own_class(self) -> Class | None:
        """Return the class whose method is checked."""
        ...

    def super_class(self) -> Class | None:
        """Return the class that ``super()`` looks in."""
        ...


_CONTAINERS = frozenset(
    "list tuple set frozenset dict List Tuple Set Dict Sequence Iterable Iterator Collection "
    "Mapping Generator Deque deque defaultdict MutableSequence MutableMapping".split()
)
_WRAPPERS = frozenset({"Annotated", "Final", "ClassVar", "Required", "Type"})
_PLAIN = frozenset({"int", "float", "bool", "str", "bytes", "complex", "None", "NoneType", "slice"})


def read_annotation(node: ast.expr | None, resolver: Resolver) -> Annotation:
    """Say what an annotation means; a part that cannot be resolved is unknown, not an error.

    Args:
        node: The expression, quoted or not.
        resolver: Of the names in it.
    """
    if node is None:
        return Annotation()
    match node:
        case ast.Constant(value=None):
            return Annotation(PLAIN, optional=True)
        case ast.Constant(value=str(text)):
            return read_annotation(_unquoted(text), resolver)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([left, right], resolver)
        case ast.Subscript(value=base, slice=index):
            return _subscript(base, index, resolver)
        case ast.Name() | ast.Attribute():
            return annotation_of(entity_of(node, resolver))
    return Annotation()


def entity_of(node: ast.expr, resolver: Resolver) -> Entity | None:
    """Return what a dotted name stands for."""
    match node:
        case ast.Name(id=name):
            return resolver.name(name)
        case ast.Attribute(value=value, attr=name):
            owner = entity_of(value, resolver)
            return resolver.member(owner, name) if isinstance(owner, Module | Class) else None
    return None


def annotation_of(entity: Entity | None) -> Annotation:
    """Say what a name means that stands as an annotation of its own."""
    match entity:
        case Alias(annotation):
            return annotation
        case Class(name="object"):
            return Annotation()
        case Class(kind=Kind.OBJECT) as cls:
            return Annotation(_special(cls.name) or cls.type)
        case Class() as cls:  # a model may be called `Generator`
            return Annotation(cls.type)
        case Word("Index"):
            return Annotation(TENSOR)
    return Annotation()


def _special(name: str) -> Type | None:
    if name in _CONTAINERS:
        return container(UNKNOWN)
    if name == "Callable":
        return CALLABLE
    return PLAIN if name in _PLAIN else None


def _subscript(base: ast.expr, index: ast.expr, resolver: Resolver) -> Annotation:
    arguments = list(index.elts) if isinstance(index, ast.Tuple) else [index]
    if len(arguments) == 2 and getattr(arguments[1], "value", None) is ...:
        arguments.pop()  # tuple[M, ...]
    entity = entity_of(base, resolver)
    name = last_name(base)
    if isinstance(entity, Word):
        if entity.name == "Mut":
            inner = read_annotation(arguments[0], resolver)
            return Annotation(inner.type, mut=True, misplaced=inner.mut or inner.misplaced)
        if entity.name == "Fresh":
            return replace(read_annotation(arguments[0], resolver), fresh=True)
        if entity.name == "Index":
            return Annotation(TENSOR)
    if isinstance(entity, Class) and entity.kind is not Kind.OBJECT:
        # Float[Tensor, "b D"], OptState[Mlp]: the argument is no value of its own.
        return Annotation(entity.type)
    if name == "Optional":
        return _union([*arguments, ast.Constant(None)], resolver)
    if name == "Union":
        return _union(arguments, resolver)
    if name in _WRAPPERS:
        return read_annotation(arguments[0], resolver)
    inner = [read_annotation(a, resolver) for a in arguments]
    misplaced = any(a.mut or a.misplaced for a in inner)
    if name in _CONTAINERS:
        item = UNKNOWN
        if inner:
            item = inner[-1].type if name in ("dict", "Dict", "Mapping") else _joined(inner)
        return Annotation(container(item), misplaced=misplaced)
    if name == "Callable":
        return Annotation(CALLABLE)
    if name == "Literal":
        return Annotation(PLAIN)
    if isinstance(entity, Class):
        return Annotation(entity.type, misplaced=misplaced)
    return Annotation(misplaced=misplaced)


def _union(parts: list[ast.expr], resolver: Resolver) -> Annotation:
    inner = [read_annotation(p, resolver) for p in parts]
    marked = [a for a in inner if a.mut]
    rest = [a for a in inner if not a.mut and a.type != PLAIN]
    # `Mut[M] | None` is a Mut parameter that may be left out; `Mut[M] | M` says two things.
    misplaced = any(a.misplaced for a in inner) or bool(marked and rest)
    optional = any(a.optional for a in inner)
    fresh = all(a.fresh or a.type == PLAIN for a in inner) and any(a.fresh for a in inner)
    return Annotation(_joined(inner), bool(marked), misplaced, optional, fresh)


def _joined(annotations: list[Annotation]) -> Type:
    joined = annotations[0].type
    for annotation in annotations[1:]:
        joined = join_types(joined, annotation.type)
    return joined


def _unquoted(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name, or an empty string."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def read_parameters(node: FunctionNode, resolver: Resolver) -> tuple[Parameter, ...]:
    """Return the parameters of a function in order, with what their annotations say."""
    a = node.args

    def parameter(arg: ast.arg, passing: Passing) -> Parameter:
        annotation = read_annotation(arg.annotation, resolver)
        return Parameter(arg.arg, passing, annotation, arg.annotation is not None)

    found = [parameter(arg, Passing.POSITIONAL) for arg in a.posonlyargs]
    found += [parameter(arg, Passing.EITHER) for arg in a.args]
    found += [parameter(a.vararg, Passing.STAR)] if a.vararg else []
    found += [parameter(arg, Passing.KEYWORD) for arg in a.kwonlyargs]
    found += [parameter(a.kwarg, Passing.DOUBLE_STAR)] if a.kwarg else []
    return tuple(found)


def type_of(entity: Entity | None) -> Type:
    """Return the type of the object that a name stands for."""
    match entity:
        case Instance(type):
            return type
        case Function() | Class():
            return CALLABLE
        case Module():
            return Type(Kind.OBJECT)
    return UNKNOWN
