"""The call that is being made, found in the user's text: which of its arguments is which object."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from dslmut.diagnostics.model import Position, Span
from dslmut.diagnostics.raising import characters, span_of, user_frame
from dslmut.diagnostics.render import read_lines

PASSING = frozenset({"value_and_grad", "checkpoint"})
"""Functions that call their first argument with the others."""

_MISSING = object()


@dataclass(frozen=True, eq=False)
class Argument:
    """What a parameter got.

    Args:
        name: Of the parameter.
        value: The object, as it was passed.
        position: Its number among the arguments of a call; None if it is given by name alone.
        receiver: Whether it is the receiver of a method.
    """

    name: str
    value: object
    position: int | None = None
    receiver: bool = False


def call_that_gave(
    frame: FrameType | None, function: str, arguments: Sequence[Argument]
) -> MadeCall:
    """Return the user's call that gave a function its arguments.

    That is the innermost one, unless it stands in a wrapper that hands on its own ``*args``: then it
    is the call of that. Where no call shows the arguments (a callback, a generator that is resumed),
    it is the innermost one, and none of its arguments are ours.

    Args:
        frame: The caller's.
        function: Its name.
        arguments: Those that are asked about.
    """
    innermost: MadeCall | None = None
    while True:
        call = MadeCall(frame, function)
        innermost = innermost or call
        if any(call.node_of(a) is not None for a in arguments):
            return call
        if call.frame is None or not any(call.hands_on(a) for a in arguments):
            return innermost
        frame = call.frame.f_back


class MadeCall:
    """The call in the user's code that a frame is at, as far as its text can be found.

    Args:
        frame: The user's, or one that the user's code has called.
        function: The name of the function that got the arguments in the end.
    """

    def __init__(self, frame: FrameType | None, function: str) -> None:
        self.frame, self._function = user_frame(frame), function.rpartition(".")[2]
        self._shift = 0
        while frame is not None and frame is not self.frame:
            self._shift |= frame.f_code.co_name in PASSING
            frame = frame.f_back
        self.span = None if frame is None else span_of(frame)
        self._lines = _lines(self.span)
        self._call = _parsed("\n".join(self._lines))

    def node_of(self, argument: Argument) -> ast.expr | None:
        """Return the expression that gave an argument, or None where it cannot be told."""
        if self._call is None:
            return None
        found = self._receiver() if argument.receiver else self._at(argument)
        value = self._value(found)
        if value is argument.value or (value is _MISSING and found is not None and self._is_named):
            return found
        named = [n for n in self._written(self._call) if self._value(n) is argument.value]
        return named[0] if len(named) == 1 and not argument.receiver else None

    def _at(self, argument: Argument) -> ast.expr | None:
        """Return what stands where a parameter's argument should stand."""
        assert self._call is not None
        by_name = [k.value for k in self._call.keywords if k.arg == argument.name]
        if by_name or argument.position is None:
            return by_name[0] if by_name else None
        count = argument.position + self._shift + 1
        before = self._call.args[:count]
        starred = any(isinstance(a, ast.Starred) for a in before)
        return before[-1] if len(before) == count and not starred else None

    def _receiver(self) -> ast.expr | None:
        function = None if self._call is None or self._shift else self._call.func
        return function.value if isinstance(function, ast.Attribute) else None

    @property
    def _is_named(self) -> bool:
        """Say whether what is called, or passed on, has the name of the function."""
        assert self._call is not None
        node = self._call.args[0] if self._shift and self._call.args else self._call.func
        return self._function in (getattr(node, "attr", None), getattr(node, "id", None))

    @staticmethod
    def _written(call: ast.Call) -> Iterator[ast.expr]:
        yield from call.args
        yield from (k.value for k in call.keywords if k.arg is not None)

    def _value(self, node: ast.expr | None) -> object:
        """Return what a name stands for; nothing else is evaluated again."""
        if self.frame is None or not isinstance(node, ast.Name):
            return _MISSING
        for scope in (self.frame.f_locals, self.frame.f_globals):
            if node.id in scope:
                return scope[node.id]
        return _MISSING

    def hands_on(self, argument: Argument) -> bool:
        """Say whether it passes an argument on with a star, as a wrapper does with its own."""
        if self._call is None or self.frame is None:
            return False
        stars = [a.value for a in self._call.args if isinstance(a, ast.Starred)]
        stars += [k.value for k in self._call.keywords if k.arg is None]
        code = self.frame.f_code
        takes_any = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        values = [self._value(s) for s in stars] if takes_any else []
        given = [v.values() if isinstance(v, dict) else v for v in values]
        return any(x is argument.value for v in given if v is not _MISSING for x in v)  # pyright: ignore

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
