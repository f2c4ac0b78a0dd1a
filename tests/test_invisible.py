"""The rewrite is invisible: debuggers, tracebacks and tools see the user's function."""

# ruff: noqa: RET503
from __future__ import annotations

import bdb
import contextlib
import functools
import inspect
import sys
import textwrap
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from dslmut import CheckError, Mut, fn, mut


def net() -> nn.Linear:
    return nn.Linear(3, 2)


# -- lines ---------------------------------------------------------------------------------------


def branches(x: int, y: int = 3, *args: int, k: int = 2, **kw: Any) -> int:
    """A docstring is no line."""
    if x > 2:
        z = [i + 1 for i in range(x)]
        return len(z)
    for i in range(2):
        try:
            y += i
        finally:
            y -= 1
    with contextlib.suppress(KeyError):
        {}[x]
    return y


def runs_off(x: int) -> int | None:
    if x:
        pass
    else:
        x = 3


def loops(x: int) -> "int | None":
    while x:
        x -= 1
        if x == 2:
            break
    else:
        x = 4


def one_line(x: int) -> int: return x + 1  # fmt: skip


def raises(x: int) -> None:
    raise ValueError(
        x)  # fmt: skip


def docstring_only(x: int) -> None:
    """Nothing else."""


def long_result(
    x: int,
    y: int = 2,
) -> int:
    def inner(a: int) -> int:
        return a + x

    class Local:
        z = x

    return inner(
        y
    ) + (
        Local.z)  # fmt: skip


def constant_below(x: int) -> int:
    return (
        1
    )  # fmt: skip


def matches(x: int) -> int:
    match x:
        case 1:
            return 2
        case _:
            return 4


def finally_(x: int) -> int:
    try:
        return x
    finally:
        x = 2


def early(x: int) -> None:
    if x:
        return
    x = 2


def tries(x: int) -> float | None:
    try:
        return 1 / x
    except ZeroDivisionError:
        x = 1


BODIES = [v for v in list(vars().values()) if getattr(v, "__module__", "") == __name__][1:]


def traced(function: Callable[..., object], *args: object) -> list[object]:
    """Return what a debugger would see of one function."""
    seen: list[object] = []

    def trace(frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_code is not function.__code__:
            return None
        seen.append((event, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        seen.append(function(*args))
    except ValueError as error:
        seen.append(repr(error))
    finally:
        sys.settrace(before)
    return seen


@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("argument", [0, 1, 3])
def test_line_events_are_those_of_the_plain_function(body: Any, argument: int) -> None:
    assert len(BODIES) == 12
    assert len(traced(body, argument)) >= 3
    assert traced(fn(body), argument) == traced(body, argument)


def test_a_breakpoint_on_a_function_stops_at_its_first_line() -> None:
    @fn
    def step(m: Mut[nn.Linear], factor: float) -> float:
        """Scale."""
        m.weight = m.weight * factor
        return factor

    class Debugger(bdb.Bdb):
        def __init__(self) -> None:
            super().__init__()
            self.stops: list[str] = []

        def user_line(self, frame: types.FrameType) -> None:
            if frame.f_code is step.__code__:
                self.stops.append(lines[frame.f_lineno - start].strip())
            self.set_next(frame)

    lines, start = inspect.getsourcelines(step)
    for options in ({"funcname": "step"}, {}):
        debugger = Debugger()
        line = step.__code__.co_firstlineno + (0 if options else 3)
        assert not debugger.set_break(__file__, line, **options)
        debugger.runcall(step, mut(net()), 2.0)
        assert debugger.stops[:2] == ["m.weight = m.weight * factor", "return factor"]


def test_carets_in_tracebacks() -> None:
    @fn
    def fails(m: Mut[nn.Linear], d: dict[str, dict[str, float]]) -> float:
        m.weight = m.weight * d["a"]["b"] + 1
        return 1.0

    with pytest.raises(KeyError) as caught:
        fails(mut(net()), {"a": {}})
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert frame.line is not None
    assert frame.colno is not None
    assert frame.end_colno is not None
    indent = 8  # `line` is stripped
    assert frame.line[frame.colno - indent : frame.end_colno - indent] == 'd["a"]["b"]'


def test_a_refused_call_stands_at_the_def() -> None:
    @fn
    def takes(m: Mut[nn.Linear], x: int, y: int = 0) -> int | None:
        while x:
            x -= y

    for args in ((net(), 1), (mut(net()), mut(net())), (mut(net()), "a")):
        with pytest.raises(CheckError) as caught:
            takes(*args)
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert [f.line for f in frames if f.name == "takes"] == [
            "def takes(m: Mut[nn.Linear], x: int, y: int = 0) -> int | None:"
        ]


def test_a_missing_result_stands_at_the_end() -> None:
    @fn
    def forgets(x: int) -> int:
        if x == 1:
            return 1
        while x:
            x -= 1

    assert forgets(1) == 1
    with pytest.raises(CheckError, match="the result is `None`") as caught:
        forgets(0)
    (d,) = caught.value.diagnostics
    assert d.span is not None
    assert d.span.start.line == forgets.__code__.co_firstlineno + 4


def test_standard_library_functions_run_as_before() -> None:
    text = "  Some text\n    that is indented\n  and goes on for longer than a line has room"
    dedent, wrapped = fn(textwrap.dedent), functools.partial(fn(textwrap.wrap), width=20)
    assert dedent(text) == textwrap.dedent(text)
    assert wrapped(text) == textwrap.wrap(text, width=20)
