"""The text of a function: found in its file or notebook cell, and known to be what was compiled."""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import types
from collections.abc import Iterator

from dslmut.checking.resolve import last_name
from dslmut.checking.scopes import own_nodes
from dslmut.checking.source import Definition, Source, parse
from dslmut.diagnostics.codes.mutation import SourceUnavailable
from dslmut.diagnostics.exceptions import CheckError, DslmutError
from dslmut.diagnostics.model import Position, Span
from dslmut.functions.sameness import is_compiled_from, is_exactly


def locate(function: types.FunctionType) -> tuple[Source, Definition]:
    """Return the text that a function is in, and its place there.

    What ``linecache`` kept is taken where it is exactly what was compiled: the file may have been
    edited since. Otherwise the file is read again: its module may have been loaded again.

    Raises:
        CheckError: E1109.
    """
    code = function.__code__
    kept = linecache.getlines(code.co_filename, function.__globals__)
    if not kept:
        raise _unavailable(
            function,
            f"the source of `{function.__qualname__}` cannot be found: there is no text for {code.co_filename!r}",
            _advice(code.co_filename),
        )
    found = _found_in(kept, function, exactly=True)
    if found is None and os.path.exists(code.co_filename):
        linecache.checkcache(code.co_filename)
        found = _found_in(linecache.getlines(code.co_filename, function.__globals__), function)
    found = found or _found_in(kept, function)
    if found is None:
        raise _stale(function)
    return found


def _found_in(
    lines: list[str], function: types.FunctionType, exactly: bool = False
) -> tuple[Source, Definition] | None:
    """Return the place of a function in a text, or None if it was not compiled from that."""
    code = function.__code__
    try:
        source = parse(code.co_filename, "".join(lines))
    except SyntaxError:
        return None
    found = [d for d in source.definitions if _is_at(d, code)]
    if len(found) > 1:
        found = [d for d in found if _columns_match(d, code)] or found
    if len(found) > 1:
        raise _unavailable(
            function,
            f"{len(found)} lambdas stand on line {code.co_firstlineno} and cannot be told apart",
            "give each of them a line of its own, or write a `def`",
        )
    compiled_from = is_exactly if exactly else is_compiled_from
    return (source, found[0]) if found and compiled_from(found[0], code) else None


@contextlib.contextmanager
def readable(function: types.FunctionType) -> Iterator[None]:
    """Read a function, and say so where it is nested deeper than Python's stack allows.

    Raises:
        CheckError: E1109.
    """
    try:
        yield
    except RecursionError as error:
        raise _unavailable(
            function,
            f"`{function.__qualname__}` cannot be checked: its expressions or blocks are nested too deeply",
            "give parts of it names, or write a long sum as `sum([...])`",
        ) from error


def _advice(path: str) -> str:
    if path.startswith("<timed"):
        return "take `%%time` off the cell that defines the function: such a cell keeps no text"
    if path.startswith("<magic-timeit"):
        return "define the function in another cell, and time its calls"
    if path.endswith(".py"):
        return "keep the module's `.py` file where it was compiled: a `.pyc` alone has no text"
    if path in ("<stdin>", "<string>"):
        return "write the function into a file or a notebook cell: what is typed here keeps no text"
    return (
        "write the function into a file or a notebook cell; for generated code, register the text "
        "in `linecache.cache` under the name that it is compiled with"
    )


def heading(function: types.FunctionType) -> Span | None:
    """Return the line of a function's ``def``, or None where there is no text."""
    try:
        source, definition = locate(function)
    except CheckError:
        return None
    line, column = definition.node.lineno, definition.node.col_offset
    end = len(source.lines[line - 1])
    return Span(source.path, Position(line, column), Position(line, end))


def returning(function: types.FunctionType, well: str) -> Span | None:
    """Return the one ``return`` of a function that does not call *well*; its heading if others may be meant."""
    try:
        source, definition = locate(function)
    except CheckError:
        return None
    found = [
        n
        for n in own_nodes(definition.node)
        if isinstance(n, ast.Return)
        and not (isinstance(n.value, ast.Call) and last_name(n.value.func) == well)
    ]
    return source.span(found[0]) if len(found) == 1 else heading(function)


def _is_at(definition: Definition, code: types.CodeType) -> bool:
    return definition.name == code.co_name and definition.first_line == code.co_firstlineno


def _columns_match(definition: Definition, code: types.CodeType) -> bool:
    """Tell lambdas on one line apart by where their bodies stand."""
    if not isinstance(definition.node, ast.Lambda):
        return True
    body = definition.node.body
    places = {(p[0], p[2]) for p in code.co_positions() if p[0] is not None and p[2] is not None}
    inside = [
        (line, column)
        for line, column in places
        if (body.lineno, body.col_offset)
        <= (line, column)
        <= (body.end_lineno or 0, body.end_col_offset or 0)
    ]
    return bool(inside)


def _stale(function: types.FunctionType) -> DslmutError:
    return _unavailable(
        function,
        f"the text of `{function.__qualname__}` is not what was compiled: its file was changed since",
        "import the module again (`importlib.reload`), or run the cell again",
    )


def _unavailable(function: types.FunctionType, message: str, fix: str) -> DslmutError:
    code = function.__code__
    start = Position(code.co_firstlineno, 0)
    span = Span(code.co_filename, start, Position(code.co_firstlineno, 1))
    return SourceUnavailable.raised(span, message, fix=fix)
