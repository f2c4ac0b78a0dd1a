"""Where in the user's code something happened, while a program runs."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import FrameType

from dslmut.diagnostics.model import Position, Span
from dslmut.diagnostics.render import read_lines

_HERE = str(Path(__file__).parents[1])
_PYTHON = str(Path(os.__file__).parent) + os.sep
_EXAMPLES = str(Path(__file__).parents[1] / "examples")


def user_span(frame: FrameType | None = None) -> Span | None:
    """Say where the user's code is, in the innermost frame that is neither ours nor a library's.

    Args:
        frame: Where to start; by default the caller's.
    """
    found = user_frame(frame or sys._getframe(1))
    return None if found is None else span_of(found)


def raised_span(error: BaseException) -> Span | None:
    """Say where in the user's code an error came from: in the innermost frame that is the user's."""
    found, step = None, error.__traceback__
    while step is not None:
        if is_user(step.tb_frame):
            found = step.tb_frame
        step = step.tb_next
    return None if found is None else span_of(found)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's; where a library runs a thread, the library's."""
    frames: list[FrameType] = []
    while frame is not None:
        if is_user(frame):
            return frame
        frames.append(frame)
        frame = frame.f_back
    return next((f for f in frames if not f.f_code.co_filename.startswith(_HERE)), None)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn where the user's code is, however deep the call stack is below it."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    path, line = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(message, category, path, line, registry=registry)


def is_user(frame: FrameType) -> bool:
    """Say whether a frame runs code that is neither ours nor torch's, NumPy's or Python's own."""
    path = frame.f_code.co_filename
    if path.startswith(_EXAMPLES):
        return True
    if path.startswith((_HERE, _place_of("torch"), _place_of("numpy"), "<frozen ")):
        return False
    if path == "<string>" and str(frame.f_globals.get("__name__")).startswith("dslmut."):
        return False  # the `__init__` that was written for a dataclass of ours
    return not path.startswith(_PYTHON) or "-packages" in path


def _place_of(package: str) -> str:
    """Return the folder of a package, if anything has imported it; we do not."""
    file = getattr(sys.modules.get(package), "__file__", None)
    return str(Path(file).parent) + os.sep if file else "\0"


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
        Position(start, characters(lines, start, column)),
        Position(end_line or start, characters(lines, end_line or start, end_column)),
    )


def characters(lines: object, line: int, offset: int) -> int:
    """Turn a count of UTF-8 bytes, as code objects keep it, into one of characters."""
    text = lines[line - 1] if 0 < line <= len(lines) else ""  # pyright: ignore
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


def _whole_line(path: str, line: int) -> Span:
    lines = read_lines(path)
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    indent = len(text) - len(text.lstrip())
    return Span(path, Position(line, indent), Position(line, max(len(text), indent + 1)))
