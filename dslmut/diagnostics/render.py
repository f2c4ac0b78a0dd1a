"""Diagnostics as text: pure functions of a diagnostic and of the lines of its files."""

from __future__ import annotations

import json
import linecache
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dslmut.diagnostics.model import Diagnostic, Fix, Position, Span

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
        parts.append(f"  {style.note}why{style.reset}: {diagnostic.why}")
    if diagnostic.fix:
        parts.append(f"  {style.note}fix{style.reset}: {diagnostic.fix.text}")
    return "\n".join(parts)


def concise(diagnostic: Diagnostic) -> str:
    """Render one line: ``path:line:column: code message``."""
    return f"{place(diagnostic.span)}: {diagnostic.code} {diagnostic.message}"


def place(span: Span | None) -> str:
    """Write a span as ``path:line:column``, the column counted from 1 as editors do."""
    if span is None:
        return "<unknown>"
    return f"{span.path}:{span.start.line}:{span.start.column + 1}"


def as_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Render all as a JSON array, lines and columns counted from 1."""
    return json.dumps([_record(d) for d in diagnostics], indent=2, ensure_ascii=False)


def github(diagnostic: Diagnostic) -> str:
    """Render a workflow command that shows the diagnostic on its line of a pull request."""
    span = diagnostic.span
    where = ""
    if span is not None:
        where = (
            f" file={_property(span.path)},line={span.start.line},col={span.start.column + 1},"
            f"endLine={span.end.line},endColumn={span.end.column + 1},title={diagnostic.code}"
        )
    text = diagnostic.message + (f" fix: {diagnostic.fix.text}" if diagnostic.fix else "")
    return f"::error{where}::{_data(text)}"


def sarif(
    diagnostics: Iterable[Diagnostic], titles: Iterable[tuple[str, str]], version: str
) -> str:
    """Render a SARIF 2.1.0 log.

    Args:
        diagnostics: The results.
        titles: Code and title of every rule.
        version: Of this tool.
    """
    driver = {
        "name": "dslmut",
        "version": version,
        "rules": [{"id": c, "shortDescription": {"text": t}} for c, t in titles],
    }
    results = [
        {
            "ruleId": d.code,
            "level": "error",
            "message": {"text": d.message},
            "locations": [_sarif_location(d.span)] if d.span else [],
        }
        for d in diagnostics
    ]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False)


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
        _Mark(diagnostic.span, diagnostic.message, True),
        *(_Mark(label.span, label.text, False) for label in diagnostic.labels),
    ]
    lines = {mark.span.path: read(mark.span.path) for mark in marks}
    if not _has(lines[diagnostic.span.path], diagnostic.span.start.line):
        return [f"  --> {place(diagnostic.span)}", f"  {diagnostic.message}"]
    marks = [m for m in marks if _has(lines[m.span.path], m.span.start.line)]
    width = len(str(max(m.span.start.line for m in marks)))
    drawn: list[str] = []
    for path in dict.fromkeys(m.span.path for m in marks):
        here = [m for m in marks if m.span.path == path]
        anchor = next((m for m in here if m.primary), here[0])
        arrow = "-->" if anchor.primary else ":::"
        drawn.append(f"{' ' * width} {style.note}{arrow}{style.reset} {place(anchor.span)}")
        drawn.extend(_block(here, lines[path], width, style))
    return drawn


def _block(marks: list[_Mark], lines: Sequence[str], width: int, style: Style) -> list[str]:
    bar = f"{style.note}|{style.reset}"
    numbers = sorted({m.span.start.line for m in marks})
    drawn = [f"{' ' * width} {bar}"]
    for previous, number in zip([None, *numbers], numbers):
        if previous is not None and number > previous + 1:
            drawn.append(f"{style.note}{'.' * width}{style.reset}")
        text = lines[number - 1].expandtabs(1)
        drawn.append(f"{style.note}{number:>{width}}{style.reset} {bar} {text}".rstrip())
        # The rightmost first, so that a frame reads from right to left as its marks point up.
        on_line = sorted(
            (m for m in marks if m.span.start.line == number),
            key=lambda m: (-m.span.start.column, not m.primary),
        )
        for mark in on_line:
            drawn.append(f"{' ' * width} {bar} {_underline(mark, text, style)}")
    drawn.append(f"{' ' * width} {bar}")
    return drawn


def _underline(mark: _Mark, text: str, style: Style) -> str:
    start = mark.span.start.column
    stop = mark.span.end.column if mark.span.end.line == mark.span.start.line else len(text)
    colour = style.error if mark.primary else style.note
    sign = "^" if mark.primary else "-"
    indent = "".join(" " * _cells(c) for c in text[:start])
    length = max(1, sum(_cells(c) for c in text[start:stop]))
    return f"{indent}{colour}{sign * length} {mark.text}{style.reset}"


def _cells(character: str) -> int:
    """Count the terminal cells of a character, so that underlines stand under their text."""
    import unicodedata

    if character.isascii():
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _has(lines: Sequence[str], number: int) -> bool:
    return 0 < number <= len(lines)


# -- records -------------------------------------------------------------------------------------


def _record(d: Diagnostic) -> dict[str, object]:
    return {
        "code": d.code,
        "title": d.title,
        "message": d.message,
        **_range(d.span),
        "why": d.why,
        "fix": _fix(d.fix),
        "labels": [{**_range(label.span), "text": label.text} for label in d.labels],
    }


def _range(span: Span | None) -> dict[str, object]:
    if span is None:
        return {"path": None}
    return {"path": span.path, "start": _position(span.start), "end": _position(span.end)}


def _position(position: Position) -> dict[str, int]:
    return {"line": position.line, "column": position.column + 1}


def _fix(fix: Fix | None) -> dict[str, object] | None:
    if fix is None:
        return None
    edits = [{**_range(e.span), "replacement": e.replacement} for e in fix.edits]
    return {"text": fix.text, "edits": edits}


def _sarif_location(span: Span) -> dict[str, object]:
    region = {
        "startLine": span.start.line,
        "startColumn": span.start.column + 1,
        "endLine": span.end.line,
        "endColumn": span.end.column + 1,
    }
    return {"physicalLocation": {"artifactLocation": {"uri": span.path}, "region": region}}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
