"""Arguments that a function does not take, said as everything else that is wrong."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from dslmut.diagnostics.exceptions import DslmutError

F = TypeVar("F", bound=Callable[..., Any])


def misfit_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> str | None:
    """Return why a function cannot be called with these arguments; None if it can."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


class _Left:
    """What is to be filled in."""

    def __repr__(self) -> str:
        return "..."


def form(function: Callable[..., Any]) -> str:
    """Return how a function is called, for people: ``group(*selectors, optimizer=...)``."""
    signature = inspect.signature(function)
    shown = [
        p.replace(annotation=p.empty, default=_Left())
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty
        else p.replace(annotation=p.empty)
        for p in signature.parameters.values()
        if p.kind is not p.VAR_KEYWORD and p.name != "self"
    ]
    call = signature.replace(parameters=shown, return_annotation=signature.empty)
    return f"{function.__name__}{call}"


def told(refuse: Callable[[str, str], DslmutError]) -> Callable[[F], F]:
    """Give the errors of a function about its arguments a code; calls that fit cost nothing.

    Args:
        refuse: Makes the error of what is wrong and what to write.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError:
                reason = misfit_of(function, args, kwargs)
                if reason is None:
                    raise
            raise refuse(f"`{function.__name__}`: {reason}", f"write `{form(function)}`")

        return called  # pyright: ignore[reportReturnType]

    return decorate
