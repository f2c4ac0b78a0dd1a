"""What is known of a value in a body: a tensor or a number, whose it is, and how it was made."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from dslmut.checking.source import FunctionNode
from dslmut.diagnostics.model import Diagnostic, Span


class Sort(enum.Enum):
    """What sort of value something is for certain."""

    TENSOR = "Tensor"
    SCALAR = "hyperparameter"  # a number of the scalar program, of which only the outcome is known
    NUMBER = "number"  # or a shape, a dtype, a string, None: a constant of the trace
    CTX = "Ctx"
    TUPLE = "tuple"
    UPDATE = "Update"
    FUNCTION = "function"
    UNKNOWN = "unknown"


class _Missing:
    """Stands for a constant that is not known."""


MISSING = _Missing()


@dataclass(frozen=True)
class Thing:
    """A value.

    Args:
        sort: What it is; nothing else is said of what is unknown.
        given: Whose memory it is or views: ``the gradient``.
        state: Of which state it is exactly the declared value.
        made: How it was made, if that makes it neither a zero constant nor a declared state.
        boolean: Whether it is the result of a comparison of tensors.
        outside: Whether it is a tensor that the body neither got nor made.
        clock: Whether it differs from one trace to the next.
        value: The constant, where it is one.
        parts: Of a tuple.
        node: Of a function that is defined in the body.
        text: A scalar as it is written.
        problems: What is wrong with a result, if it is returned.
    """

    sort: Sort = Sort.UNKNOWN
    given: str = ""
    state: str = ""
    made: str = ""
    boolean: bool = False
    outside: bool = False
    clock: bool = False
    value: object = MISSING
    parts: tuple[Thing, ...] = ()
    node: FunctionNode | None = None
    text: str = ""
    problems: tuple[Diagnostic, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """Say whether it is a tensor for certain."""
        return self.sort is Sort.TENSOR

    @property
    def is_scalar(self) -> bool:
        """Say whether it is a number of the scalar program for certain."""
        return self.sort is Sort.SCALAR

    @property
    def is_constant(self) -> bool:
        """Say whether its value is known."""
        return self.value is not MISSING


UNKNOWN = Thing()
NUMBER = Thing(Sort.NUMBER)
TENSOR = Thing(Sort.TENSOR)


def constant(value: object) -> Thing:
    """Return a number, a string or None that is written out."""
    return Thing(Sort.NUMBER, value=value)


def computed(operation: str) -> Thing:
    """Return a new tensor that an operation gives."""
    return Thing(Sort.TENSOR, made=f"it was computed by `{operation}`")


def join(a: Thing, b: Thing) -> Thing:
    """Return what holds of a value that is one or the other."""
    if a == b or a.sort is not b.sort:
        return a if a == b else UNKNOWN
    if a.sort is Sort.TUPLE and len(a.parts) == len(b.parts):
        return Thing(Sort.TUPLE, parts=tuple(map(join, a.parts, b.parts)))
    if a.sort in (Sort.TUPLE, Sort.FUNCTION):
        return UNKNOWN
    return Thing(
        a.sort,
        given=a.given if a.given == b.given else "",
        state=a.state if a.state == b.state else "",
        made=a.made and b.made,
        boolean=a.boolean and b.boolean,
        text=a.text,
        problems=tuple(dict.fromkeys((*a.problems, *b.problems))),
    )


@dataclass(frozen=True)
class Declared:
    """A state that is declared, at least on some of the paths that lead here.

    Args:
        place: Where.
        certain: Whether it is declared on all of them.
    """

    place: Span
    certain: bool = True


@dataclass
class Path:
    """What is known at a point of a body.

    Args:
        names: The values of local names; what does not stand here is unknown.
        states: The declared states, by name.
        open: Whether other states may have been declared by something that cannot be read.
    """

    names: dict[str, Thing] = field(default_factory=dict)
    states: dict[str, Declared] = field(default_factory=dict)
    open: bool = False

    def fork(self) -> Path:
        """Return a copy that goes its own way."""
        return Path(dict(self.names), dict(self.states), self.open)

    def forget(self, names: Iterable[str]) -> None:
        """Take it that names may stand for anything."""
        for name in names:
            self.names.pop(name, None)


def meet(paths: Iterable[Path | None]) -> Path | None:
    """Return what holds where paths come together; None where none of them arrives."""
    arriving = [p for p in paths if p is not None]
    if not arriving:
        return None
    met = arriving[0].fork()
    for other in arriving[1:]:
        shared = met.names.keys() & other.names.keys()
        met.names = {n: join(met.names[n], other.names[n]) for n in met.names if n in shared}
        met.states = {
            name: Declared(
                (met.states.get(name) or other.states[name]).place,
                all(name in p.states and p.states[name].certain for p in (met, other)),
            )
            for name in {**met.states, **other.states}
        }
        met.open = met.open or other.open
    return met
