"""Diagnostics raised while a program runs: where in the user's code that was, and as what."""

from __future__ import annotations

import ast
import os
import sys
import warnings
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


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn where the user's code is, however deep the call stack is below it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_user(frame):
        frame = frame.f_back
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    path, line = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(message, category, path, line, registry=registry)


def _is_user(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    if path.startswith(_EXAMPLES):
        return True
    return not path.startswith((_HERE, _torch()))


def _torch() -> str:
    """Return where torch is, if anything has imported it; we do not."""
    torch = sys.modules.get("torch")
    return str(Path(torch.__file__).parent) + os.sep if torch and torch.__file__ else "\0"


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


def spurious_argument(
    function: str, parameter: str, position: int | None, frame: FrameType | None
) -> DslmutError:
    """E1101: a marked argument for a parameter without ``Mut``."""
    span = user_span(frame)
    found = _argument(span, parameter, position)
    fix = f"pass it without the marker, or declare `{parameter}: Mut[...]` if it should be changed"
    if found is not None and isinstance(found.node, ast.Call) and found.node.args:
        inner = ast.get_source_segment(found.text, found.node.args[0]) or "x"
        fix = f"write `{found.replaced(inner)}`"
    return MeaninglessMut.raised(
        found.span if found else span,
        f"`{function}` does not change its parameter `{parameter}`, which was passed as `mut(...)`",
        fix=fix,
    )


def missing_marker(
    function: str,
    parameter: str,
    position: int | None,
    frame: FrameType | None,
    declared: Span | None,
    receiver: bool,
) -> DslmutError:
    """E1103: an argument for a ``Mut`` parameter that was not marked.

    Args:
        function: Its name.
        parameter: The parameter's name.
        position: Its number among the arguments of a call; None if it is given by name alone.
        frame: The caller's.
        declared: Where the parameter is declared.
        receiver: Whether it is the receiver of a method.
    """
    span = user_span(frame)
    found = _argument(span, parameter, None if receiver else position, receiver)
    subject = "its receiver" if receiver else f"its parameter `{parameter}`"
    if found is None:
        fix = (
            f"write `mut(x).{function.rpartition('.')[2]}(...)`"
            if receiver
            else "write `mut(...)` around it"
        )
    elif isinstance(found.node, ast.Name):
        fix = f"write `{found.replaced(f'mut({found.node.id})')}`"
    else:
        text = ast.get_source_segment(found.text, found.node)
        fix = (
            f"bind it to a name first: `part = {text}`, then write `{found.replaced('mut(part)')}`"
        )
    labels = [Label(declared, f"`{parameter}: Mut[...]` is declared here")] if declared else []
    message = f"`{function}` may change {subject}, which was passed without `mut`"
    return MissingMut.error(
        [MissingMut.at(found.span if found else span, message, fix=Fix(fix), labels=labels)]
    )


class _Argument:
    """An argument in the text of a call that is being made, all on one line."""

    def __init__(self, text: str, node: ast.expr, call: Span) -> None:
        self.text, self.node = text, node
        self._start = _characters([text], 1, node.col_offset)
        self._end = _characters([text], 1, node.end_col_offset or 0)
        line, column = call.start.line, call.start.column
        self.span = Span(
            call.path, Position(line, column + self._start), Position(line, column + self._end)
        )

    def replaced(self, new: str) -> str:
        """Return the call with another argument."""
        return self.text[: self._start] + new + self.text[self._end :]


def _argument(
    span: Span | None, name: str, position: int | None, receiver: bool = False
) -> _Argument | None:
    """Find an argument in the text of a call; None where that is no call on one line."""
    if span is None or span.start.line != span.end.line:
        return None
    lines = read_lines(span.path)[span.start.line - 1 : span.end.line]
    text = lines[0][span.start.column : span.end.column] if lines else ""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(call, ast.Call):
        return None
    if receiver:
        node = call.func.value if isinstance(call.func, ast.Attribute) else None
        return _Argument(text, node, span) if node is not None else None
    by_name = next((k.value for k in call.keywords if k.arg == name), None)
    if by_name is not None:
        return _Argument(text, by_name, span)
    if position is None or position >= len(call.args):
        return None
    if any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return None
    return _Argument(text, call.args[position], span)
