"""The text of a function: found in its file or notebook cell, and known to be what was compiled."""

from __future__ import annotations

import ast
import linecache
import types

from dslmut.checking.source import Definition, Source, parse
from dslmut.diagnostics.codes.mutation import SourceUnavailable
from dslmut.diagnostics.exceptions import CheckError, DslmutError
from dslmut.diagnostics.model import Position, Span


def locate(function: types.FunctionType) -> tuple[Source, Definition]:
    """Return the text that a function is in, and its place there.

    Raises:
        CheckError: E1109.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise _unavailable(
            function,
            f"the source of `{function.__qualname__}` cannot be found: there is no text for {code.co_filename!r}",
            "write the function into a file or a notebook cell; for generated code, register the "
            "text in `linecache.cache` under the name that it is compiled with",
        )
    try:
        source = parse(code.co_filename, "".join(lines))
    except SyntaxError as error:
        raise _stale(function) from error
    found = [d for d in source.definitions if _is_at(d, code)]
    if len(found) > 1:
        found = [d for d in found if _columns_match(d, source, code)] or found
    if len(found) > 1:
        raise _unavailable(
            function,
            f"{len(found)} lambdas stand on line {code.co_firstlineno} and cannot be told apart",
            "give each of them a line of its own, or write a `def`",
        )
    if not found or not _is_compiled_from(found[0], code):
        raise _stale(function)
    return source, found[0]


def heading(function: types.FunctionType) -> Span | None:
    """Return the line of a function's ``def``, or None where there is no text."""
    try:
        source, definition = locate(function)
    except CheckError:
        return None
    line, column = definition.node.lineno, definition.node.col_offset
    end = len(source.lines[line - 1])
    return Span(source.path, Position(line, column), Position(line, end))


def _is_at(definition: Definition, code: types.CodeType) -> bool:
    return definition.name == code.co_name and definition.first_line == code.co_firstlineno


def _columns_match(definition: Definition, source: Source, code: types.CodeType) -> bool:
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
    return bool(inside) and source is not None


def _is_compiled_from(definition: Definition, code: types.CodeType) -> bool:
    """Compare what the text says with what was compiled: parameters and lines.

    Not the bytecode: pytest's rewriting of assertions changes that.
    """
    arguments = definition.node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    compiled = [_plain(n, definition) for n in code.co_varnames[:count]]
    if [_plain(n, definition) for n in names] != compiled:
        return False
    last = max((line for _, _, line in code.co_lines() if line is not None), default=0)
    return last <= (definition.node.end_lineno or last)


def _plain(name: str, definition: Definition) -> str:
    """Undo the mangling of a parameter's name in a class."""
    owner = definition.owner
    prefix = f"_{owner.name.lstrip('_')}" if owner is not None else ""
    return name.removeprefix(prefix) if prefix and name.startswith(f"{prefix}__") else name


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
