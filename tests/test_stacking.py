"""`@fn` together with other decorators, above and below them, and with functions of functions."""

from __future__ import annotations

import abc
import contextlib
import functools
import os
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, overload

import pytest
import torch
from torch import Tensor, nn

from dslmut import CheckError, Mut, extern, fn, mut


def net() -> nn.Linear:
    m = nn.Linear(3, 2)
    nn.init.ones_(m.bias)
    return m


def zero() -> Callable[..., Any]:
    """Make a plain function anew."""

    def zero(m: Mut[nn.Linear], k: float = 0.0) -> int:
        m.bias = m.bias * 0 + k
        return 1

    return zero


def forwards(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return wrapper


def hides(f: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return wrapper


def registers(f: Callable[..., Any]) -> Callable[..., Any]:
    registered.append(f)
    return f


registered: list[object] = []

SAME: dict[str, Any] = {
    "registers": registers,
    "abstractmethod": abc.abstractmethod,
    "final": typing.final,
    "no_type_check": typing.no_type_check,
    "staticmethod": staticmethod,
    "jit.ignore": torch.jit.ignore,
    "fn": fn,
}
"""Decorators that give the function back, or one that `@fn` looks into."""

WRAPPERS: dict[str, Any] = {
    "forwards": forwards,
    "no_grad": torch.no_grad(),
    "inference_mode": torch.inference_mode(),
    "autocast": torch.autocast("cpu"),
    "compile": lambda f: torch.compile(f, backend="eager", fullgraph=True),
    "compiler.disable": torch.compiler.disable,
    "singledispatch": functools.singledispatch,
    "partial": lambda f: functools.partial(f, k=0.0),
}
"""Decorators that put something else in its place."""


def uses(f: Any) -> None:
    """Call a function with its marker and without it."""
    m = net()
    assert f(mut(m)) == 1
    assert not m.bias.any()
    m = net()
    with pytest.raises(Exception, match="E1103"):
        f(m)
    assert m.bias.all()


@pytest.mark.parametrize("name", SAME)
def test_in_both_orders(name: str) -> None:
    uses(fn(SAME[name](zero())))
    uses(SAME[name](fn(zero())))


@pytest.mark.parametrize("name", WRAPPERS)
def test_below_a_wrapper_and_not_above_it(name: str) -> None:
    uses(WRAPPERS[name](fn(zero())))
    with pytest.raises(CheckError, match="E1109") as caught:
        fn(WRAPPERS[name](zero()))
    fix = caught.value.diagnostics[0].fix
    assert fix is not None
    assert "above the `def`" in fix.text or "functools.partial(fn(zero), ...)" in fix.text


def test_a_wrapper_that_says_nothing_is_found_out() -> None:
    for wrapper in (hides, forwards):
        with pytest.raises(CheckError, match="E1109") as caught:

            @fn
            @registers
            @wrapper
            def step(m: nn.Linear) -> None:
                m.bias = m.bias * 0

        if wrapper is hides:
            assert "`@registers`, `@wrapper` stands between `@fn` and `step`" in str(caught.value)
    with pytest.raises(CheckError, match="stands between `@extern` and `look`"):

        @extern
        @hides
        def look(m: nn.Linear) -> None: ...

    @hides
    @fn
    @registers
    def good(m: Mut[nn.Linear]) -> int:
        m.bias = m.bias * 0
        return 1

    uses(good)


@pytest.mark.parametrize(
    ("thing", "kind", "fix"),
    [
        (nn.Linear, "the class `Linear`", "put `@fn` above those of its methods"),
        (len, "the built-in function `len`", "call it from a function that is `@fn`"),
        (torch.relu, "the built-in function `relu`", "call it from"),
        (nn.Linear(1, 1).forward, "a bound method", "put `@fn` above the method in its class"),
        (functools.partial(zero), "a `partial`", "`functools.partial(fn(zero), ...)`"),
        (nn.Linear(1, 1), "a `Linear`", "put `@fn` above the method of `Linear`"),
        (3, "a `int`", "directly above a `def`"),
    ],
    ids=str,
)
def test_what_is_no_function(thing: Any, kind: str, fix: str) -> None:
    for decorator, word in ((fn, "@fn"), (extern, "@extern")):
        with pytest.raises(CheckError, match="E1109") as caught:
            decorator(thing)
        (d,) = caught.value.diagnostics
        assert d.message == f"`{word}` decorates a function written in Python, not {kind}"
        assert d.fix is not None
        assert fix.replace("fn", word[1:]) in d.fix.text or "call it" in fix


# -- members of classes --------------------------------------------------------------------------


def test_properties() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(2))

        @property
        @fn
        def above(self) -> Tensor:
            return self.w

        @above.setter
        @fn
        def above(self: Mut[Scaled], value: Tensor) -> None:
            self.w = value

        @fn
        @property
        def below(self) -> Tensor:
            return self.w

        @fn
        @below.setter
        def below(self: Mut[Scaled], value: Tensor) -> None:
            self.w = value

        @functools.cached_property
        @fn
        def first(self) -> float:
            return self.w[0].item()

        @fn
        @functools.cached_property
        def second(self) -> float:
            return self.w[1].item()

    s = Scaled()
    w = s.w
    s.above = torch.ones(2)  # pyright: ignore[reportAttributeAccessIssue]
    assert s.w is w
    assert s.below.tolist() == [1, 1]
    s.below = torch.tensor([2.0, 3.0])  # pyright: ignore[reportAttributeAccessIssue]
    assert s.above.tolist() == [2, 3]
    assert (s.first, s.second) == (2.0, 3.0)
    assert "second" in vars(s)


def test_named_tuples_and_dispatch() -> None:
    class Pair(NamedTuple):
        a: int
        b: int = 2

        @fn
        def total(self) -> int:
            return self.a + self.b

    class Kinds:
        @functools.singledispatchmethod
        @fn
        def of(self, x: object) -> str:
            return "object"

        @of.register
        @fn
        def _(self, x: int) -> str:
            return "int"

    assert Pair(1).total() == 3
    assert (Kinds().of(1), Kinds().of("a")) == ("int", "object")


def test_methods_that_python_calls() -> None:
    class Base(nn.Module):
        tag = 0
        last: int = 0

        @fn
        def __init_subclass__(cls, tag: int = 0) -> None:
            super().__init_subclass__()
            cls.tag = tag

        @fn
        def __class_getitem__(cls, tag: int) -> Any:
            return types.new_class("Made", (cls,), {"tag": tag})

        @fn
        def __new__(cls, *args: Any) -> Any:
            made = super().__new__(cls)
            made.__dict__["made"] = cls.tag
            return made

        @fn
        def __getitem__(self, i: int) -> int:
            return i + self.tag

        @fn
        def __iter__(self) -> Iterator[int]:
            yield self.tag

        @fn
        def __enter__(self) -> Any:
            return self

        @fn
        def __exit__(self, *_: Any) -> None: ...

        @fn
        def __call__(self: Mut[Base], x: int) -> int:
            self.last = x
            return x

    with Base[3]() as b:
        assert (b.made, b[1], list(b), b(5), b.last) == (3, 4, [3], 5, 5)


def test_overloads() -> None:
    @overload
    def f(m: Mut[nn.Linear], k: int) -> int: ...
    @overload
    @fn
    def f(m: Mut[nn.Linear], k: str) -> str: ...
    @fn
    def f(m: Mut[nn.Linear], k: int | str) -> int | str:
        m.bias = m.bias * 0
        return k

    m = net()
    assert f(mut(m), "a") == "a"
    assert not m.bias.any()


def test_context_managers() -> None:
    @contextlib.contextmanager
    @fn
    def shifted(m: Mut[nn.Linear], by: float) -> Iterator[nn.Linear]:
        m.bias = m.bias + by
        try:
            yield m
        finally:
            m.bias = m.bias - by

    m = net()
    with shifted(mut(m), 2.0) as same:
        assert same is m
        assert (m.bias == 3).all()
    assert (m.bias == 1).all()
    with pytest.raises(CheckError, match="E1103") as caught, shifted(m, 2.0):
        pass
    assert "mark it where `shifted` gets it: `shifted(mut(m), by)`" in str(caught.value)


@pytest.mark.parametrize("hook", ["jaxtyping", "beartype"])
def test_import_hooks_that_check_values(hook: str, tmp_path: Path) -> None:
    (tmp_path / "hooked.py").write_text(
        "from jaxtyping import Float\n"
        "from torch import Tensor, nn\n"
        "from dslmut import Mut, fn\n"
        "@fn\n"
        'def f(m: Mut[nn.Linear], x: Float[Tensor, "b d"]) -> Float[Tensor, "b e"]:\n'
        "    m.bias = m.bias * 0\n"
        "    return m(x)\n"
        "def plain(x: int) -> int:\n"
        "    return x\n"
    )
    install = {
        "jaxtyping": "from jaxtyping import install_import_hook as h; h('hooked', 'beartype.beartype')",
        "beartype": "from beartype.claw import beartype_package; beartype_package('hooked')",
    }[hook]
    (tmp_path / "main.py").write_text(
        f"{install}\n"
        "import hooked, torch\n"
        "from dslmut import mut\n"
        "m = torch.nn.Linear(2, 3)\n"
        "hooked.f(mut(m), torch.ones(4, 2))\n"
        "print(m.bias.any().item())\n"
        "for call in (lambda: hooked.plain('a'), lambda: hooked.f(mut(m), torch.ones(4))):\n"
        "    try: call()\n"
        "    except Exception as e: print(str(e)[:5])\n"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "main.py")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    lines = done.stdout.split()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "False"
    assert lines[-1] == "E0601"
    assert len(lines) >= 3, "the hook does not check anything"
