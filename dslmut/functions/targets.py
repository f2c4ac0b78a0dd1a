"""What a decorator of ours was put on: the plain function in it, or why there is none."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import types
from typing import Any

from dslmut.checking.source import Definition, Source, parse
from dslmut.diagnostics.codes.mutation import SourceUnavailable
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.diagnostics.wording import listed


def plain_function(function: Any, word: str = "@fn") -> types.FunctionType:
    """Return the function written in Python that is to be decorated.

    Args:
        function: What was decorated.
        word: The decorator.

    Raises:
        CheckError: E1109.
    """
    function = _without_value_checks(function)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None and not hasattr(function, "__dslmut__"):
        raise _wrapper(getattr(wrapped, "__name__", "the function"), "another decorator", word)
    if isinstance(function, types.FunctionType):
        return function
    kind, fix = _kind_of(function, word)
    raise SourceUnavailable.raised(
        user_span(), f"`{word}` decorates a function written in Python, not {kind}", fix=fix
    )


def _without_value_checks(function: Any) -> Any:
    """Look through the wrappers of beartype and jaxtyping, which their import hooks put everywhere.

    They check values against the annotations, as ``@fn`` does itself.
    """
    while isinstance(function, types.FunctionType) and "__wrapped__" in vars(function):
        home = str(function.__globals__.get("__name__", ""))
        generated = function.__code__.co_filename.startswith("<@beartype(")
        if not generated and home.partition(".")[0] != "jaxtyping":
            break
        function = vars(function)["__wrapped__"]
    return function


def _kind_of(thing: Any, word: str) -> tuple[str, str]:
    """Return what something is that cannot be decorated, and what to do instead."""
    if isinstance(thing, type):
        return (
            f"the class `{thing.__name__}`",
            f"put `{word}` above those of its methods that need it",
        )
    if isinstance(thing, types.BuiltinFunctionType | types.BuiltinMethodType):
        return (
            f"the built-in function `{thing.__name__}`",
            "call it from a function that is `@fn`: it has no text that could be checked",
        )
    if isinstance(thing, types.MethodType):
        return "a bound method", f"put `{word}` above the method in its class"
    if isinstance(thing, functools.partial | functools.partialmethod):
        inner = getattr(thing.func, "__name__", "f")
        kind = type(thing).__name__
        return (
            f"a `{kind}`",
            f"decorate the function in it: `functools.{kind}({word[1:]}({inner}), ...)`",
        )
    kind = type(thing).__name__
    fix = f"put `{word}` directly above a `def`, below the other decorators"
    if callable(thing) and not inspect.isroutine(thing):
        fix = f"put `{word}` above the method of `{kind}` that a call of it runs"
    return f"a `{kind}`", fix


def check_decorated(
    function: types.FunctionType, frame: types.FrameType, word: str = "@fn"
) -> None:
    """See that a decorator above a ``def`` got that function, and not what another decorator made of it.

    Args:
        function: What it got.
        frame: Of the code that decorates.
        word: The decorator.

    Raises:
        CheckError: E1109.
    """
    if hasattr(function, "__dslmut__"):
        return  # what is inside was checked when it was decorated
    source, found = _decorated_at(frame)
    if source is None or found is None:
        return
    code = function.__code__
    place = (code.co_filename, code.co_firstlineno, code.co_name)
    if place == (source.path, found.first_line, found.name):
        return
    assert isinstance(found.node, ast.FunctionDef | ast.AsyncFunctionDef)
    below = [d for d in found.node.decorator_list if d.lineno > frame.f_lineno]
    between = listed("@" + source.segment(d) for d in below) or "another decorator"
    raise _wrapper(found.name, between, word)


def _decorated_at(frame: types.FrameType) -> tuple[Source | None, Definition | None]:
    """Return the function whose decorator a frame is at."""
    path = frame.f_code.co_filename
    lines = linecache.getlines(path, frame.f_globals)
    try:
        source = parse(path, "".join(lines))
    except SyntaxError:
        return None, None
    position = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    for definition in source.definitions:
        for decorator in getattr(definition.node, "decorator_list", ()):
            if (decorator.lineno, decorator.col_offset) == (position[0], position[2]):
                return source, definition
    return None, None


def _wrapper(name: str, between: str, word: str) -> DslmutError:
    """Return the error for ours above a decorator that puts another function around the user's."""
    return SourceUnavailable.raised(
        user_span(),
        f"{between} stands between `{word}` and `{name}`: `{word}` gets its wrapper, whose text is another",
        fix=f"put `{word}` directly above the `def`, below the other decorators",
    )
