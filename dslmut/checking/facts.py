"""What one walk over a function finds out: its changes, calls, rebindings and markers.

The rules turn these records into diagnostics, and the rewriter takes from them where a field is
written and where a snapshot is due.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dslmut.checking.entities import Function, Parameter
from dslmut.checking.origins import Origin, Value, join
from dslmut.checking.source import Definition
from dslmut.diagnostics.model import Span


class Verb(enum.Enum):
    """How something is changed."""

    FIELD = "sets"
    ITEM = "sets an item of"
    METHOD = "calls a method that changes"
    ARGUMENT = "passes as `mut`"
    WRITER = "calls a function that changes"
    AUGMENT = "works in place on"
    DELETE = "deletes from"


SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
"""How the operators of augmented assignments are written."""


@dataclass(frozen=True, slots=True)
class Alias:
    """A name that stands for something else: ``name`` may be ``origin``, bound at ``site``."""

    name: str
    site: Span
    origin: Origin


@dataclass(frozen=True, slots=True)
class Change:
    """A place that changes something.

    Args:
        node: What to underline.
        subject: The expression of what is changed.
        blamed: What it may be that must not be changed here.
        touched: All that it may be.
        verb: How it is changed.
        name: The field, method or function.
        alias: Name and place that brought the blamed thing here, if it has another name.
    """

    node: ast.AST
    subject: ast.expr
    blamed: frozenset[Origin]
    touched: frozenset[Origin]
    verb: Verb
    name: str
    alias: Alias | None = None


@dataclass(frozen=True, slots=True)
class FieldSet:
    """An assignment ``owner.name = value``."""

    node: ast.Attribute
    owner: Value
    name: str
    value: Value
    literal: ast.expr | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument whose marker and whose parameter disagree.

    Args:
        node: The argument, marker included.
        marked: Whether it is ``mut(...)``.
        callee: The function, where it is known.
        parameter: Its parameter, where that is known.
        target: What the call is, in a message.
    """

    node: ast.expr
    marked: bool
    callee: Function | None
    parameter: Parameter | None
    target: str
    value: Value


class Place(enum.Enum):
    """What is wrong with where ``mut(...)`` stands."""

    EXPRESSION = "it marks an expression"
    NOT_AN_ARGUMENT = "it is no argument"
    ARITY = "it takes one name"


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A ``mut(...)`` in a place where it means nothing."""

    node: ast.Call
    place: Place


@dataclass(frozen=True, slots=True)
class Rebinding:
    """A statement that gives a parameter's name, or the name ``mut``, another value."""

    node: ast.AST
    name: str
    form: str


Event = Change | FieldSet | Argument | Misplaced | Rebinding
E = TypeVar("E", bound=Event)


@dataclass
class Facts:
    """What a walk records. Loops are walked until nothing new is found, so records are joined.

    Attributes:
        events: In the order in which they were first found.
        snapshots: The ``id`` of the field reads that must be copied.
        handles: The ``id`` of those that must not be, as somebody needs the tensor itself.
        in_place: The ``id`` of the nodes that write into a field of a model.
        plain: The ``id`` of the attribute targets that are known to be no field of a model.
        fresh: The ``id`` of the attribute targets whose owner the function made itself.
        aliased: The ``id`` of the targets whose new value may share storage with a field.
        markers: The ``id`` of the calls of ``mut``.
    """

    events: dict[tuple[object, ...], Event] = field(default_factory=dict)
    snapshots: set[int] = field(default_factory=set)
    handles: set[int] = field(default_factory=set)
    in_place: set[int] = field(default_factory=set)
    plain: set[int] = field(default_factory=set)
    fresh: dict[int, bool] = field(default_factory=dict)
    aliased: set[int] = field(default_factory=set)
    markers: set[int] = field(default_factory=set)

    def record(self, event: Event) -> None:
        """Add an event, or join it with what was found at the same place before."""
        key = (type(event), id(event.node), _detail(event))
        before = self.events.get(key)
        self.events[key] = event if before is None else _merge(before, event)

    def of(self, kind: type[E]) -> Iterator[E]:
        """Yield the events of one kind."""
        return (e for e in self.events.values() if isinstance(e, kind))

    @property
    def copied(self) -> frozenset[int]:
        """Return the field reads that the rewriter must make snapshots of."""
        return frozenset(self.snapshots - self.handles)


def _detail(event: Event) -> object:
    match event:
        case Change(verb=verb, name=name) | Rebinding(name=name, form=verb):
            return (verb, name)
        case FieldSet(name=name):
            return name
    return None


def _merge(a: Event, b: Event) -> Event:
    match a, b:
        case Change(), Change():
            return replace(
                b,
                blamed=a.blamed | b.blamed,
                touched=a.touched | b.touched,
                alias=a.alias or b.alias,
            )
        case FieldSet(), FieldSet():
            return replace(b, owner=join(a.owner, b.owner), value=join(a.value, b.value))
    return b


@dataclass(frozen=True)
class Signature:
    """A function under check, as it declares itself.

    Args:
        definition: Where it stands.
        parameters: In order.
        returns_mut: Whether its result is annotated ``Mut[...]``.
        name: As a message calls it.
    """

    definition: Definition
    parameters: tuple[Parameter, ...]
    returns_mut: bool = False

    @property
    def name(self) -> str:
        """Return the name that messages use."""
        return self.definition.name

    @property
    def mut_names(self) -> frozenset[str]:
        """Return the names of the parameters that it may change."""
        return frozenset(p.name for p in self.parameters if p.mut)

    def parameter(self, name: str) -> Parameter | None:
        """Return a parameter by name."""
        return next((p for p in self.parameters if p.name == name), None)
