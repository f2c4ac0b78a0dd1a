"""Diagnostics raised while a program runs: where in the user's code that was, and as what."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from dslmut.diagnostics.codes.mutation import MeaninglessMut, MissingMut
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.model import Fix, Label, Position, Span
from dslmut.diagnostics.render import read_lines

_HERE = str(Path(__file__).parents[1])
_EXAMPLES = str(Path(__file__).parents[1] / "examples")


def user_span(frame: FrameType | None = None) -> Span | None:
    """Say where the user's code is, in the innermost frame that is neither ours nor torch's.

    Args:
        frame: Where to start; by default the caller's.
    """
    frame = frame or sys._getframe(1)
    while frame is not None and not _is_user(frame):
        frame = frame.f_back
    return None if frame is None else span_of(frame)


def _is_user(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    if path.startswith(_EXAMPLES):
        return True
    return not path.startswith(_HERE) and "/torch/" not in path.replace("\\", "/")


def span_of(frame: FrameType) -> Span:
    """Return the range of the expression that a frame is at."""
    code = frame.f_code
    positions = list(code.co_positions())[frame.f_lasti // 2]
    line, end_line, column, end_column = positions
    start = line or frame.f_lineno
    if column is None or end_column is None:  # python -X no_debug_ranges
        return _whole_line(code.co_filename, start)
    lines = read_lines(code.co_filename)
    return Span(
        code.co_filename,
        Position(start, _characters(lines, start, column)),
        Position(end_line or start, _characters(lines, end_line or start, end_column)),
    )


def _characters(lines: object, line: int, offset: int) -> int:
    """Turn a count of UTF-8 bytes, as code objects keep it, into one of characters."""
    text = lines[line - 1] if 0 < line <= len(lines) else ""  # pyright: ignore
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


def _whole_line(path: str, line: int) -> Span:
    lines = read_lines(path)
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    indent = len(text) - len(text.lstrip())
    return Span(path, Position(line, indent), Position(line, max(len(text), indent + 1)))


def spurious_token(kind: str, how: str) -> DslmutError:
    """E1101: a token reached code that no marker was meant for, and ``how`` it was used there."""
    return MeaninglessMut.raised(
        user_span(sys._getframe(1)),
        f"a `{kind}` was passed as `mut(...)` to code that takes no marker: {how}",
        fix="pass the object itself to a function that is not `@fn`",
        why="a plain function may change anything, so that there is nothing to mark",
    )


def spurious_argument(function: str, parameter: str, frame: FrameType | None) -> DslmutError:
    """E1101: a marked argument for a parameter without ``Mut``."""
    return MeaninglessMut.raised(
        user_span(frame),
        f"`{function}` does not change its parameter `{parameter}`, which was passed as `mut(...)`",
        fix=f"pass it without the marker, or declare `{parameter}: Mut[...]` if it should be changed",
    )


def missing_marker(
    function: str, parameter: str, frame: FrameType | None, declared: Span | None, receiver: bool
) -> DslmutError:
    """E1103: an argument for a ``Mut`` parameter that was not marked."""
    label = [Label(declared, f"`{parameter}: Mut[...]` is declared here")] if declared else []
    text = f"mut(x).{function.rpartition('.')[2]}(...)" if receiver else "mut(...)"
    subject = "its receiver" if receiver else f"its parameter `{parameter}`"
    return MissingMut.error(
        [
            MissingMut.at(
                user_span(frame),
                f"`{function}` may change {subject}, which was passed without `mut`",
                fix=Fix(f"write `{text}` at the call, with `from dslmut import mut`"),
                labels=label,
            )
        ]
    )
