"""Diagnostics for people: pure functions of a diagnostic and of the lines of its files."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dslmut.diagnostics.cells import Line
from dslmut.diagnostics.model import Diagnostic, Span

Reader = Callable[[str], Sequence[str]]
"""Gives the lines of a file, without their ends; none where the file cannot be read."""


def read_lines(path: str) -> Sequence[str]:
    """Read the lines of a file, of a notebook cell too."""
    return [line.rstrip("\r\n") for line in linecache.getlines(path)]


@dataclass(frozen=True)
class Style:
    """How the parts of a text are coloured: escape sequences, or nothing."""

    error: str = ""
    note: str = ""
    dim: str = ""
    strong: str = ""
    reset: str = ""


PLAIN = Style()
COLOURED = Style("\033[1;31m", "\033[1;34m", "\033[2m", "\033[1m", "\033[0m")


def full(diagnostic: Diagnostic, read: Reader = read_lines, style: Style = PLAIN) -> str:
    """Render title, place, code frame, reason and fix, over several lines."""
    heading = (
        f"{style.error}{diagnostic.code}{style.reset} {style.strong}{diagnostic.title}{style.reset}"
    )
    frame = _frame(diagnostic, read, style)
    if not frame:
        heading += f": {diagnostic.message}"
    parts = [heading, *frame]
    if diagnostic.why:
        parts.append(_remark("why", diagnostic.why, style))
    if diagnostic.fix:
        parts.append(_remark("fix", diagnostic.fix.text, style))
    return "\n".join(parts)


def _remark(word: str, text: str, style: Style) -> str:
    """Write a remark below a frame; a text of several lines, such as code, stays together."""
    indented = text.replace("\n", "\n" + " " * len(f"  {word}: "))
    return f"  {style.note}{word}{style.reset}: {indented}"


def concise(diagnostic: Diagnostic) -> str:
    """Render one line: ``path:line:column: code message``."""
    return f"{place(diagnostic.span)}: {diagnostic.code} {_one_line(diagnostic.message)}"


def _one_line(text: str) -> str:
    return re.sub(r"\s*[\r\n]\s*", " ", text)


def place(span: Span | None) -> str:
    """Write a span as ``path:line:column``, the column in characters from 1, as editors do."""
    if span is None:
        return "<unknown>"
    return f"{span.path}:{span.start.line}:{span.start.column + 1}"


# -- code frames ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mark:
    """One underlined range of a frame; the primary one is drawn with ``^``."""

    span: Span
    text: str
    primary: bool


def _frame(diagnostic: Diagnostic, read: Reader, style: Style) -> list[str]:
    """Draw the lines that the diagnostic and its labels stand on, in the order of the file."""
    if diagnostic.span is None:
        return []
    marks = [
        _Mark(diagnostic.span, _one_line(diagnostic.message), True),
        *(_Mark(label.span, _one_line(label.text), False) for label in diagnostic.labels),
    ]
    lines = {mark.span.path: read(mark.span.path) for mark in marks}
    there = [m for m in marks if _has(lines[m.span.path], m.span.start.line)]
    drawn: list[str] = []
    if marks[0] not in there:  # its text is gone
        drawn = [
            f"  {style.note}-->{style.reset} {place(diagnostic.span)}",
            f"  {diagnostic.message}",
        ]
    width = len(str(max((m.span.start.line for m in there), default=0)))
    for path in dict.fromkeys(m.span.path for m in there):
        here = [m for m in there if m.span.path == path]
        anchor = next((m for m in here if m.primary), here[0])
        arrow = "-->" if anchor.primary else ":::"
        drawn.append(f"{' ' * width} {style.note}{arrow}{style.reset} {place(anchor.span)}")
        drawn.extend(_block(here, lines[path], width, style))
    gone = [m for m in marks[1:] if m not in there]
    return drawn + [_remark("note", f"{place(m.span)}: {m.text}", style) for m in gone]


def _block(marks: list[_Mark], lines: Sequence[str], width: int, style: Style) -> list[str]:
    bar = f"{style.note}|{style.reset}"
    numbers = sorted({m.span.start.line for m in marks})
    drawn = [f"{' ' * width} {bar}"]
    for previous, number in zip([None, *numbers], numbers):
        if previous is not None and number > previous + 1:
            drawn.append(f"{style.note}{'.' * width}{style.reset}")
        # The rightmost first, so that a frame reads from right to left as its marks point up.
        on_line = sorted(
            (m for m in marks if m.span.start.line == number),
            key=lambda m: (-m.span.start.column, not m.primary),
        )
        anchor = next((m for m in on_line if m.primary), on_line[-1])
        text = lines[number - 1].rstrip() if number <= len(lines) else ""
        line = Line.of(text, around=anchor.span.start.column)
        drawn.append(f"{style.note}{number:>{width}}{style.reset} {bar} {line.text}".rstrip())
        for mark in on_line:
            drawn.append(f"{' ' * width} {bar} {_underline(mark, line, style)}")
    drawn.append(f"{' ' * width} {bar}")
    return drawn


def _underline(mark: _Mark, line: Line, style: Style) -> str:
    """Draw what is marked; of a range over several lines what is on the first."""
    span = mark.span
    stop = span.end.column if span.end.line == span.start.line else None
    indent, length = line.cells(span.start.column, stop)
    colour = style.error if mark.primary else style.note
    sign = "^" if mark.primary else "-"
    return f"{' ' * indent}{colour}{sign * length} {mark.text}{style.reset}"


def _has(lines: Sequence[str], number: int) -> bool:
    """Say whether a line can be shown; the end of a file may be the line after its last one."""
    return bool(lines) and 0 < number <= len(lines) + 1
