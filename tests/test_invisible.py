"""The rewrite is invisible: debuggers, tracebacks and tools see the user's function."""

# ruff: noqa: RET503
from __future__ import annotations

import bdb
import contextlib
import copy
import functools
import gc
import inspect
import sys
import textwrap
import traceback
import types
import unittest.mock
import weakref
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


# -- names and cells -----------------------------------------------------------------------------


def test_functions_and_classes_inside_keep_their_qualified_names() -> None:
    def plain() -> list[str]:
        def inner() -> None: ...

        class Local:
            def method(self) -> Callable[[], None]:
                return lambda: None

        found = [inner, Local, Local.method, Local().method(), (x for x in ())]
        return [f.__qualname__ for f in found]

    assert fn(plain)() == plain()
    assert plain()[0].endswith("plain.<locals>.inner")


def test_cells_are_shared() -> None:
    count, factor = 0, 2.0

    def plain() -> float:
        return factor

    @fn
    def step(m: Mut[nn.Linear]) -> int:
        nonlocal count
        count += 1
        m.bias = m.bias * factor
        x = 1

        def up() -> None:
            nonlocal x
            x += count

        up()
        return x

    m = net()
    assert step(mut(m)) == 2
    assert step(mut(m)) == 3
    assert count == 2
    factor = 0.0
    step(mut(m))
    assert not m.bias.any()
    assert plain() == 0.0
    assert plain.__closure__ is not None
    assert any(c is plain.__closure__[0] for c in step.__closure__ or ())


def test_what_is_bound_later_is_seen() -> None:
    @fn
    def calls() -> int:
        return later()

    def later() -> int:
        return 1

    assert calls() == 1

    def later() -> int:  # noqa: F811
        return 2

    assert calls() == 2


def test_what_a_function_does_not_use_is_not_kept_alive() -> None:
    class Big:
        pass

    class Used:
        pass

    def make() -> tuple[Any, weakref.ref[Any], weakref.ref[Any]]:
        big, used = Big(), Used()

        @fn
        def step(x: Big | None) -> Any:
            return used

        return step, weakref.ref(big), weakref.ref(used)

    step, big, used = make()
    step(None)
    gc.collect()
    assert big() is None
    assert used() is step(None)
    del step
    gc.collect()
    assert used() is None


def glob() -> float:
    return 1.0


@fn
def uses_a_global(m: Mut[nn.Linear]) -> float:
    m.bias = m.bias * glob()
    return glob()


def test_globals_can_be_patched() -> None:
    m = net()
    with unittest.mock.patch(f"{__name__}.glob", return_value=0.0):
        assert uses_a_global(mut(m)) == 0.0
    assert not m.bias.any()
    with unittest.mock.patch(f"{__name__}.uses_a_global", autospec=True) as mocked:
        uses_a_global(mut(m))
        with pytest.raises(TypeError):
            uses_a_global()  # pyright: ignore
    assert mocked.call_count == 1


def test_signature_source_and_copies() -> None:
    def plain(x: Any, /, y: int = 1, *a: str, k: float = 2.0, **kw: bytes) -> int:
        """Say something."""
        return y

    plain.attribute = [1]  # pyright: ignore[reportFunctionMemberAccess]
    made: Any = fn(plain)
    assert inspect.signature(made) == inspect.signature(plain)
    assert not hasattr(made, "__wrapped__")
    assert inspect.getsource(made) == inspect.getsource(plain)
    assert made.attribute is plain.attribute  # pyright: ignore[reportFunctionMemberAccess]
    for name in "co_argcount co_posonlyargcount co_kwonlyargcount co_flags co_firstlineno".split():
        assert getattr(made.__code__, name) & ~inspect.CO_NESTED == (
            getattr(plain.__code__, name) & ~inspect.CO_NESTED
        )
    assert copy.deepcopy([uses_a_global])[0] is uses_a_global
    assert len(repr(made.__dslmut__)) < 100


def test_locals_are_the_users() -> None:
    @fn
    def everything(m: Mut[nn.Linear], x: int, y: int = 2) -> dict[str, object]:
        m.weight, m.bias = m.weight * 1, m.bias * 1
        z = x + y
        return dict(locals())

    assert set(everything(mut(net()), 1)) == {"m", "x", "y", "z"}


def test_standard_library_functions_run_as_before() -> None:
    text = "  Some text\n    that is indented\n  and goes on for longer than a line has room"
    dedent, wrapped = fn(textwrap.dedent), functools.partial(fn(textwrap.wrap), width=20)
    assert dedent(text) == textwrap.dedent(text)
    assert wrapped(text) == textwrap.wrap(text, width=20)
