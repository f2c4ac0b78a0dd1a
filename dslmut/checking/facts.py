"""What one walk over a function finds out: its changes, calls, rebindings and markers.

The rules turn these records into diagnostics, and the rewriter takes from them where a field is
written and where a snapshot is due.
"""

from __future__ import annotations

import ast
import enum
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from dslmut.checking.entities import Function, Parameter, Passing
from dslmut.checking.lattice import NOTHING, Value, join
from dslmut.checking.origins import Origin
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


class Passed(NamedTuple):
    """An argument of a call, or its receiver.

    Args:
        node: Its expression, marker included.
        marked: Whether it is ``mut(...)``.
        parameter: The parameter that it meets, where that is known.
        value: What it may be.
    """

    node: ast.expr
    marked: bool
    parameter: Parameter | None = None
    value: Value = NOTHING

    @property
    def is_none(self) -> bool:
        """Say whether the argument is left out by ``None``."""
        return isinstance(self.node, ast.Constant) and self.node.value is None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function that is known.

    Args:
        node: The call.
        callee: The function.
        passed: Its arguments.
        receiver: Of a method, where markers are due.
    """

    node: ast.Call
    callee: Function
    passed: tuple[Passed, ...]
    receiver: Passed | None = None


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


@dataclass(frozen=True, slots=True)
class Opaque:
    """A construct whose effect on a model cannot be followed.

    Args:
        node: What to underline.
        what: What it does, in a sentence.
        fix: What to write instead.
    """

    node: ast.AST
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A value that the function gives back."""

    node: ast.AST
    value: Value


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that outlives the call.

    Args:
        node: Where it is stored or returned.
        things: What is kept: parameters, and functions that were defined here.
        returned: Whether the caller gets it.
    """

    node: ast.AST
    things: frozenset[Origin]
    returned: bool = False


@dataclass(frozen=True, slots=True)
class Late:
    """Something that is differentiated wrongly: parameters change in it, or did since.

    Args:
        node: What differentiates.
        changed: Where the parameters are changed.
        origin: Of what is changed.
        how: The function that differentiates; None where the change came before it.
    """

    node: ast.AST
    changed: Span
    origin: Origin
    how: str | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """Where tensors of a model get new values, and whether parameters are certainly among them."""

    place: Span
    trained: bool


Event = Change | FieldSet | Call | Misplaced | Rebinding | Opaque | Kept | Returned | Late
E = TypeVar("E", bound=Event)


class Note(enum.Enum):
    """What the rewriter has to know of a node; found on some path, it holds."""

    SNAPSHOT = "the field read is used after a change"
    HANDLE = "the field read is needed as the tensor itself"
    IN_PLACE = "this writes into a field of a model"
    STORED = "what is read here is written into"
    FIELD = "the owner of this target may be a model"
    MODEL = "the owner of this target is known to be a model, or a part of one"
    SHARED = "the owner of this target may not be the function's own"
    ALIASED = "this target's new value may share storage with a field"
    CONTAINER = "this gives a container that nobody else has"
    MARKER = "this is a call of `mut`"


@dataclass
class Facts:
    """What a walk records. Loops are walked until nothing new is found, so records are joined.

    Attributes:
        events: In the order in which they were first found.
        notes: On nodes, by their ``id``.
        changed: Everything that is changed anywhere.
        statistics: Whether fields were read that a forward pass moves.
    """

    events: dict[tuple[object, ...], Event] = field(default_factory=dict)
    notes: dict[int, set[Note]] = field(default_factory=dict)
    changed: set[Origin] = field(default_factory=set)
    statistics: bool = False

    def note(self, node: ast.AST | int, note: Note) -> None:
        """Note something on a node, which may be given by its ``id``."""
        key = node if isinstance(node, int) else id(node)
        self.notes.setdefault(key, set()).add(note)

    def has(self, node: ast.AST, note: Note) -> bool:
        """Say whether something was noted on a node."""
        return note in self.notes.get(id(node), ())

    def is_copied(self, node: ast.AST) -> bool:
        """Say whether a field read must be made a snapshot of."""
        return self.has(node, Note.SNAPSHOT) and not self.has(node, Note.HANDLE)

    def record(self, event: Event) -> None:
        """Add an event, or join it with what was found at the same place before."""
        key = (type(event), id(event.node), _detail(event))
        before = self.events.get(key)
        if before != event:
            self.events[key] = event if before is None else _merge(before, event)

    def of(self, kind: type[E]) -> Iterator[E]:
        """Yield the events of one kind."""
        return (e for e in self.events.values() if isinstance(e, kind))


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
        case Returned(), Returned():
            return replace(b, value=join(a.value, b.value))
        case Kept(), Kept():
            return replace(b, things=a.things | b.things)
        case Call(), Call() if len(a.passed) == len(b.passed):
            pairs = zip(a.passed, b.passed)
            passed = tuple(y._replace(value=join(x.value, y.value)) for x, y in pairs)
            return replace(b, passed=passed)
    return b


@dataclass(frozen=True)
class Signature:
    """A function under check, as it declares itself.

    Args:
        definition: Where it stands.
        parameters: In order.
        returns_mut: Whether its result is annotated ``Mut[...]``.
        returns_fresh: Whether its result is annotated ``Fresh[...]``.
    """

    definition: Definition
    parameters: tuple[Parameter, ...]
    returns_mut: bool = False
    returns_fresh: bool = False

    @property
    def name(self) -> str:
        """Return the name that messages use."""
        return self.definition.name

    @functools.cached_property
    def mut_names(self) -> frozenset[str]:
        """Return the names of the parameters that it may change."""
        return frozenset(p.name for p in self.parameters if p.mut)

    @functools.cached_property
    def star_names(self) -> frozenset[str]:
        """Return the names of its ``*args`` and ``**kwargs``."""
        stars = (Passing.STAR, Passing.DOUBLE_STAR)
        return frozenset(p.name for p in self.parameters if p.passing in stars)

    def parameter(self, name: str) -> Parameter | None:
        """Return a parameter by name."""
        return next((p for p in self.parameters if p.name == name), None)
