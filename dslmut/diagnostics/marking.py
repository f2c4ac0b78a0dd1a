"""Markers of a call that is being made: found in its text, and the corrected call quoted."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from dslmut.diagnostics.codes.mutation import MeaninglessMut, MissingMut
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.model import Diagnostic, Label, Position, Span
from dslmut.diagnostics.raising import characters, is_user, user_span
from dslmut.diagnostics.render import read_lines
from dslmut.diagnostics.wording import an

PASSING = frozenset({"value_and_grad", "checkpoint"})
"""Functions that call their first argument with the others."""


@dataclass(frozen=True)
class Unmarked:
    """A parameter whose argument lacks its marker.

    Args:
        name: Of the parameter.
        position: Its number among the arguments of a call; None if it is given by name alone.
        declared: Where the parameter is declared.
        receiver: Whether it is the receiver of a method.
    """

    name: str
    position: int | None = None
    declared: Span | None = None
    receiver: bool = False


def spurious_token(kind: str, how: str) -> DslmutError:
    """E1101: a token reached code that no marker was meant for, and ``how`` it was used there."""
    return MeaninglessMut.raised(
        user_span(),
        f"{an(kind)} was passed as `mut(...)` to code that takes no marker: {how}",
        fix="pass the object itself to a function that is not `@fn`",
        why="a plain function may change anything, so that there is nothing to mark",
    )


def spurious_argument(
    function: str, parameter: str, position: int | None, frame: FrameType | None
) -> DslmutError:
    """E1101: a marked argument for a parameter without ``Mut``."""
    call = _Call(frame)
    node = call.argument(parameter, position)
    fix = f"pass it without the marker, or declare `{parameter}: Mut[...]` if it should be changed"
    if isinstance(node, ast.Call) and node.args:
        fix = f"write `{call.corrected({node: call.segment(node.args[0])})}`"
    return MeaninglessMut.raised(
        call.place(node),
        f"`{function}` does not change its parameter `{parameter}`, which was passed as `mut(...)`",
        fix=fix,
    )


def missing_markers(
    function: str, unmarked: Sequence[Unmarked], frame: FrameType | None
) -> DslmutError:
    """E1103: the arguments of a call for ``Mut`` parameters that were not marked.

    Args:
        function: Its name.
        unmarked: Every parameter whose argument lacks the marker.
        frame: The caller's.
    """
    call = _Call(frame)
    found = {
        u: call.receiver() if u.receiver else call.argument(u.name, u.position) for u in unmarked
    }
    names: Mapping[ast.expr, str] = {
        n: f"mut({n.id})" for n in found.values() if isinstance(n, ast.Name)
    }
    return MissingMut.error([_missing(function, u, node, names, call) for u, node in found.items()])


def _missing(
    function: str,
    unmarked: Unmarked,
    node: ast.expr | None,
    names: Mapping[ast.expr, str],
    call: _Call,
) -> Diagnostic:
    name, declared = unmarked.name, unmarked.declared
    subject = "its receiver" if unmarked.receiver else f"its parameter `{name}`"
    if isinstance(node, ast.Name):
        fix = f"write `{call.corrected(names, node)}`"
    elif node is not None:
        part = call.corrected({**names, node: "mut(part)"}, node)
        fix = f"bind it to a name first: `part = {call.segment(node)}`, then write `{part}`"
    elif unmarked.receiver:
        fix = f"write `mut(x).{function.rpartition('.')[2]}(...)`"
    else:
        fix = "write `mut(...)` around it"
    return MissingMut.at(
        call.place(node),
        f"`{function}` may change {subject}, which was passed without `mut`",
        fix=fix,
        labels=[Label(declared, f"`{name}: Mut[...]` is declared here")] if declared else [],
    )


class _Call:
    """The call in the user's code that a frame is at, as far as its text can be found."""

    def __init__(self, frame: FrameType | None) -> None:
        self.span = user_span(frame)
        self._lines = _lines(self.span)
        self._call = _parsed("\n".join(self._lines))
        self._shift = _is_passed_on(frame)

    def argument(self, name: str, position: int | None) -> ast.expr | None:
        """Return the argument for a parameter, or None where it cannot be told."""
        if self._call is None:
            return None
        by_name = next((k.value for k in self._call.keywords if k.arg == name), None)
        if by_name is not None or position is None:
            return by_name
        before = self._call.args[: position + self._shift + 1]
        complete = len(before) == position + self._shift + 1
        starred = any(isinstance(a, ast.Starred) for a in before)
        return before[-1] if complete and not starred else None

    def receiver(self) -> ast.expr | None:
        """Return what stands before the dot of a method."""
        function = None if self._call is None or self._shift else self._call.func
        return function.value if isinstance(function, ast.Attribute) else None

    def segment(self, node: ast.expr) -> str:
        """Return the text of a part."""
        return ast.get_source_segment("\n".join(self._lines), node) or "x"

    def corrected(self, new: Mapping[ast.expr, str], node: ast.expr | None = None) -> str:
        """Return the call with other texts for some parts; of a long one the text for *node*."""
        if len(self._lines) > 1:
            return new[node] if node is not None else next(iter(new.values()))
        text = self._lines[0].encode()
        for part in sorted(new, key=lambda n: -n.col_offset):
            text = text[: part.col_offset] + new[part].encode() + text[part.end_col_offset :]
        return text.decode()

    def place(self, node: ast.expr | None) -> Span | None:
        """Return where a part stands in the user's file; without one, where the call does."""
        if node is None or self.span is None:
            return self.span
        start = self._position(node.lineno, node.col_offset)
        end = self._position(node.end_lineno or 0, node.end_col_offset or 0)
        return Span(self.span.path, start, end)

    def _position(self, line: int, offset: int) -> Position:
        assert self.span is not None
        column = characters(self._lines, line, offset)
        start = self.span.start
        return Position(start.line + line - 1, column + start.column * (line == 1))


def _lines(span: Span | None) -> list[str]:
    """Return the text of a range, line by line."""
    if span is None:
        return [""]
    lines = [*read_lines(span.path)[span.start.line - 1 : span.end.line]]
    if not lines:
        return [""]
    lines[-1] = lines[-1][: span.end.column]
    lines[0] = lines[0][span.start.column :]
    return lines


def _parsed(text: str) -> ast.Call | None:
    try:
        found = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    return found if isinstance(found, ast.Call) else None


def _is_passed_on(frame: FrameType | None) -> bool:
    """Say whether the user's call passes the function on, so that its arguments come one later."""
    while frame is not None and not is_user(frame):
        if frame.f_code.co_name in PASSING:
            return True
        frame = frame.f_back
    return False
