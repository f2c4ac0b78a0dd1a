"""Cells, globals, names and attributes of a decorated function are those of the plain one."""

from __future__ import annotations

import copy
import gc
import inspect
import unittest.mock
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from dslmut import Mut, fn, mut


def net() -> nn.Linear:
    return nn.Linear(3, 2)


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


def test_functions_of_the_user_that_are_called_like_that() -> None:
    def plain() -> tuple[int, list[str]]:
        def locals() -> int:
            return 3

        return locals(), dir()

    assert fn(plain)() == plain()
