"""The records that a diagnostic is made of: frozen, and without behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text.

    Args:
        line: Counted from 1.
        column: Counted from 0, in characters.
    """

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a file; *end* is exclusive."""

    path: str
    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class Label:
    """A remark on a further place that explains the diagnostic."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the text of *span*."""

    span: Span
    replacement: str


@dataclass(frozen=True, slots=True)
class Fix:
    """What to write instead.

    Args:
        text: A sentence that holds the code to write.
        edits: The same as changes of the text, where that is possible; they apply together.
    """

    text: str
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One defect.

    Args:
        code: As in ``E1102``; its page is ``dslmut explain E1102``.
        title: The fixed sentence of that code.
        message: What is wrong here, said on *span*.
        span: Where; None where no source is known.
        why: One sentence: the rule that this breaks.
        fix: What to write instead.
        labels: Further places, such as where a value came from.
    """

    code: str
    title: str
    message: str
    span: Span | None = None
    why: str = ""
    fix: Fix | None = None
    labels: tuple[Label, ...] = field(default=())
