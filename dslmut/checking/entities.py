"""What a name can stand for, as far as the checker needs to know: frozen records."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dslmut.checking.source import FunctionNode, Source
from dslmut.diagnostics.model import Span

if TYPE_CHECKING:
    from dslmut.checking.resolve import Resolver


class Kind(enum.Enum):
    """What sort of thing a value is."""

    MODEL = "model"
    STATE = "optimizer state"
    REFERENCE = "reference"
    TENSOR = "tensor"
    FIELD = "tensor of a model"  # shares its storage with a field
    PART = "part of a model"  # reached from one; which sort is not known
    PLAIN = "value"  # a number, a string, a schedule: nothing that could be changed
    CONTAINER = "container"
    CALLABLE = "function"
    OBJECT = "object"  # an ordinary object of Python, outside of the system
    UNKNOWN = "unknown"

    __hash__ = object.__hash__  # that of Enum is written in Python, and this is asked all the time


MARKABLE = frozenset({Kind.MODEL, Kind.STATE, Kind.REFERENCE})
"""What ``Mut`` may annotate and ``mut`` may mark."""


@dataclass(frozen=True)
class Type:
    """A kind, and the class where it is known.

    Args:
        kind: What sort of thing.
        cls: Its class.
        item: For a container, the type of what it holds.
        trained: For a tensor of a model, whether it is known to be a parameter.
    """

    kind: Kind
    cls: Class | None = None
    item: Type | None = None
    trained: bool = False

    @property
    def markable(self) -> bool:
        """Say whether ``Mut[...]`` of it makes sense, as far as is known."""
        return self.kind in MARKABLE or self.kind is Kind.UNKNOWN

    @property
    def name(self) -> str:
        """Name it in a message."""
        return self.cls.name if self.cls else self.kind.value


UNKNOWN = Type(Kind.UNKNOWN)
TENSOR = Type(Kind.TENSOR)
FIELD = Type(Kind.FIELD)
PARAMETER = Type(Kind.FIELD, trained=True)
PART = Type(Kind.PART)
PLAIN = Type(Kind.PLAIN)
OBJECT = Type(Kind.OBJECT)
CALLABLE = Type(Kind.CALLABLE)


ITEMS = {
    **dict.fromkeys(("ModuleList", "ModuleDict", "Sequential"), Type(Kind.MODEL)),
    **dict.fromkeys(("ParameterList", "ParameterDict"), PARAMETER),
}
"""What torch's own containers of modules and parameters hold."""


def container(item: Type | None = None) -> Type:
    """Make the type of a list, tuple, dictionary or iterator of *item*."""
    return Type(Kind.CONTAINER, item=item)


def join_types(a: Type, b: Type) -> Type:
    """Return the type of what is one or the other."""
    if a == b or b == PLAIN:
        return a
    if a == PLAIN:
        return b
    if {a.kind, b.kind} == {Kind.TENSOR, Kind.FIELD}:
        return FIELD
    if a.kind is not b.kind and {a.kind, b.kind} <= _MAY_BE_PARTS:
        return PART
    if a.kind is not b.kind:
        return UNKNOWN
    item = join_types(a.item, b.item) if a.item and b.item else a.item or b.item
    return Type(a.kind, a.cls if a.cls == b.cls else None, item)


_MAY_BE_PARTS = frozenset({Kind.MODEL, Kind.PART, Kind.FIELD, Kind.TENSOR})


@dataclass(frozen=True)
class Annotation:
    """What an annotation says.

    Args:
        type: Of the value.
        mut: Whether it is ``Mut[...]``, perhaps joined with None.
        misplaced: Whether a ``Mut`` stands where it means nothing: ``list[Mut[M]]``.
        optional: Whether None is allowed.
        fresh: Whether it is ``Fresh[...]``.
    """

    type: Type = UNKNOWN
    mut: bool = False
    misplaced: bool = False
    optional: bool = False
    fresh: bool = False


class Passing(enum.Enum):
    """How an argument finds its parameter."""

    POSITIONAL = "positional only"
    EITHER = "positional or keyword"
    KEYWORD = "keyword only"
    STAR = "*"
    DOUBLE_STAR = "**"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function."""

    name: str
    passing: Passing = Passing.EITHER
    annotation: Annotation = Annotation()
    annotated: bool = False

    @property
    def mut(self) -> bool:
        """Say whether the function may change its argument."""
        return self.annotation.mut

    @property
    def type(self) -> Type:
        """Return the type of its argument."""
        return self.annotation.type


class Role(enum.Enum):
    """What the checker may expect of a function."""

    FN = "@fn"
    EXTERN = "@extern"
    PLAIN = "plain Python"
    BUILTIN = "built in"  # of Python, of a C module, or one of dslmut's own


@dataclass(frozen=True, eq=False)
class Text:
    """The text of a function, with what the names in it stand for.

    Args:
        node: The function.
        source: The file.
        resolver: Of the names in it.
        read: What it does, where it has been read already.
    """

    node: FunctionNode
    source: Source
    resolver: Resolver
    read: object = None


@dataclass(frozen=True)
class Function:
    """A function.

    Args:
        name: As a message calls it.
        role: What may be expected of it.
        parameters: In order; None where they are unknown.
        result: Its type, from the annotation.
        result_known: Whether the result is annotated.
        definition: Where its ``def`` stands.
        qualified: Its dotted name, for the tables of what known functions do.
        passes: Whether it calls its first argument with the others, markers included.
        method: Whether its first parameter is the receiver.
        fresh: Whether its result shares nothing with its arguments.
        getter: Whether reading an attribute calls it: a property.
        text: Gives its text, where that can be read.
    """

    name: str
    role: Role
    parameters: tuple[Parameter, ...] | None = None
    result: Type = UNKNOWN
    result_known: bool = False
    definition: Span | None = field(default=None, compare=False)
    qualified: str = ""
    passes: bool = False
    method: bool = False
    fresh: bool = False
    getter: bool = False
    text: Callable[[], Text | None] | None = field(default=None, compare=False, repr=False)

    @property
    def marks_receiver(self) -> bool:
        """Say whether it is a method that may change its ``self``."""
        return bool(self.parameters) and self.method and self.parameters[0].mut


class Members(Protocol):
    """What the instances of a class have; looked up when asked for, since it means reading files."""

    def field(self, name: str) -> Type | None:
        """Return the type of an attribute that the class declares or its methods set."""
        ...

    def method(self, name: str) -> Function | None:
        """Return a method that is written in Python, from outside of torch."""
        ...

    def shape(self, name: str) -> str | None:
        """Return the dimensions of a field as declared, as in ``"D H"``."""
        ...

    def names(self) -> frozenset[str] | None:
        """Return the names of everything an instance has; None where that cannot be known."""
        ...


class NoMembers:
    """A class of which nothing but its name and kind is known."""

    def field(self, name: str) -> Type | None:
        """Return None: unknown."""

    def method(self, name: str) -> Function | None:
        """Return None: unknown."""

    def shape(self, name: str) -> str | None:
        """Return None: unknown."""

    def names(self) -> frozenset[str] | None:
        """Return None: unknown."""


@dataclass(frozen=True)
class Class:
    """A class.

    Args:
        name: As a message calls it.
        kind: What its instances are.
        key: Tells classes of one name apart.
        members: What its instances have.
        definition: Where it stands.
    """

    name: str
    kind: Kind
    key: object = None
    members: Members = field(default=NoMembers(), compare=False)
    definition: Span | None = field(default=None, compare=False)

    @property
    def type(self) -> Type:
        """Return the type of its instances."""
        return Type(self.kind, self)


@dataclass(frozen=True)
class Module:
    """A module or package."""

    name: str
    handle: object = field(default=None, compare=False)


@dataclass(frozen=True)
class Word:
    """A word of the language: ``mut``, ``Mut``, ``fn`` …"""

    name: str


@dataclass(frozen=True)
class Alias:
    """A name for an annotation, as after ``Model = Mut[Mlp]``."""

    annotation: Annotation


@dataclass(frozen=True)
class Instance:
    """Any other object that a name stands for."""

    type: Type


Entity = Function | Class | Module | Word | Alias | Instance
