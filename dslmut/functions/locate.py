"""The text of a function: found in its file or notebook cell, and known to be what was compiled."""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import linecache
import types
from collections.abc import Iterator

from dslmut.checking.scopes import arguments_of
from dslmut.checking.source import Definition, FunctionNode, Source, parse
from dslmut.diagnostics.codes.mutation import SourceUnavailable
from dslmut.diagnostics.exceptions import CheckError, DslmutError
from dslmut.diagnostics.model import Position, Span
from dslmut.functions.trees import bare_arguments, compiled_alone


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
            _advice(code.co_filename),
        )
    try:
        source = parse(code.co_filename, "".join(lines))
    except SyntaxError as error:
        raise _stale(function) from error
    found = [d for d in source.definitions if _is_at(d, code)]
    if len(found) > 1:
        found = [d for d in found if _columns_match(d, code)] or found
    if len(found) > 1:
        raise _unavailable(
            function,
            f"{len(found)} lambdas stand on line {code.co_firstlineno} and cannot be told apart",
            "give each of them a line of its own, or write a `def`",
        )
    if not found or not _is_compiled_from(found[0], code):
        raise _stale(function)
    return source, found[0]


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


def _is_compiled_from(definition: Definition, code: types.CodeType) -> bool:
    """Compare what the text says with what was compiled: parameters, names, constants, lines.

    Not the bytecode, and no assertions: pytest and other tools put more into a function than its
    text says. So all that the text says has to be in the code.
    """
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    compiled = sorted(_plain(n, definition) for n in code.co_varnames[:count])
    if sorted(_plain(a.arg, definition) for a in arguments_of(definition.node)) != compiled:
        return False
    text = compiled_alone(_bare(definition.node), definition, code)
    return all(said <= there for said, there in zip(_content(text), _content(code)))


def _bare(node: FunctionNode) -> FunctionNode:
    """Return a function without its assertions, annotations, defaults and decorators."""
    if isinstance(node, ast.Lambda):
        return ast.copy_location(ast.Lambda(bare_arguments(node.args), node.body), node)
    new = _WithoutAssertions().visit(copy.deepcopy(node))
    new.args, new.returns = bare_arguments(node.args), None
    new.decorator_list = [ast.copy_location(ast.Constant(None), d) for d in node.decorator_list]
    return new


class _WithoutAssertions(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)


def _content(code: types.CodeType) -> tuple[set[str], set[object], set[int]]:
    """Return the names, constants and lines of a function and of those inside of it."""
    names = {*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars}
    lines = {line for start, _, line in code.co_lines() if line is not None and start > 0}
    constants: set[object] = set()
    for constant in code.co_consts:
        if isinstance(constant, int | float | str | bytes):
            constants.add((type(constant), constant))
        elif isinstance(constant, types.CodeType):
            more = _content(constant)
            names, constants, lines = names | more[0], constants | more[1], lines | more[2]
            # A class says where it stands, which is elsewhere for a text that is compiled alone.
            constants.discard((str, constant.co_qualname))
    return names, constants, lines


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
