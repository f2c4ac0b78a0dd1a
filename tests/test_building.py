"""Kernels are built beside the writing of further ones; a line says how far it is."""

from __future__ import annotations

import io
import platform
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import codecache, config, cpu_vec_isa
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.cpp_builder import CppBuilder
from torch._inductor.exc import CppCompileError
from torch._inductor.utils import fresh_cache

import dslmut as dm
from dslmut.optim import adamw, building, instructions, momentum_sgd, progress

Scope = dict[str, Any]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with dm.config(progress=False):
        yield


class Modules:
    """Modules as the compiler writes them, whose kernels are built when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, threads: int = 2) -> None:
        monkeypatch.setattr(building, "_threads", lambda: threads)
        monkeypatch.setattr(building, "_prepare", lambda: None)
        monkeypatch.setattr(building, "choose", lambda: None)
        building._hook()
        self.events: list[str] = []
        self.scopes: dict[str, Scope] = {}

    def make(self, name: str, fails: bool = False) -> str:
        """Write a module and wait at its end, as it does."""
        self.events.append(f"write {name}")
        again = name in self.scopes
        future = _Told(partial(self.events.append, f"wait {name}"))
        if fails and not again:
            future.set_exception(RuntimeError("no compiler"))
        else:
            future.set_result(name.upper())
        self.scopes[name] = {"kernel": future, "__file__": name}
        AsyncCompile().wait(self.scopes[name])
        self.events.append(f"written {name}")
        return name

    def makers(self, *names: str, fails: str = "") -> dict[str, Callable[[], Any]]:
        return {n: partial(self.make, n, n == fails) for n in names}


class _Told(Future[Any]):
    def __init__(self, waits: Callable[[], None]) -> None:
        super().__init__()
        self.waits = waits

    def result(self, timeout: float | None = None) -> Any:
        self.waits()
        return super().result(timeout)


def test_the_next_kernel_is_written_before_the_last_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = Modules(monkeypatch)
    found = building.built(modules.makers("a", "b", "c"), "sgd", beside=True)
    assert found == {"a": "a", "b": "b", "c": "c"}
    written = [e for e in modules.events if not e.startswith("written")]
    assert written == ["write a", "write b", "write c", "wait a", "wait b", "wait c"]
    assert [s["kernel"] for s in modules.scopes.values()] == ["A", "B", "C"]


@pytest.mark.parametrize(("beside", "threads"), [(False, 2), (True, 1)])
def test_each_is_waited_for_otherwise(
    monkeypatch: pytest.MonkeyPatch, beside: bool, threads: int
) -> None:
    modules = Modules(monkeypatch, threads)
    building.built(modules.makers("a", "b"), "sgd", beside)
    assert modules.events == [f"{e} {n}" for n in "ab" for e in ("write", "wait", "written")]


def test_what_could_not_be_built_is_made_again_with_nothing_put_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = Modules(monkeypatch)
    found = building.built(modules.makers("a", "b", fails="a"), "sgd", beside=True)
    assert found == {"a": "a", "b": "b"}
    assert modules.events.count("write a") == 2
    assert modules.events[-5:] == ["wait a", "write a", "wait a", "written a", "wait b"]
    assert modules.scopes["a"]["kernel"] == "A"


def test_after_an_error_the_compiler_does_not_know_what_was_not_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = Modules(monkeypatch)

    def interrupted() -> Any:
        modules.make("b")
        raise KeyboardInterrupt

    known = {"a": sys, "b": sys, "other": sys}
    monkeypatch.setattr(codecache.PyCodeCache, "modules_no_attr", known)
    with pytest.raises(KeyboardInterrupt):
        building.built({**modules.makers("a"), "b": interrupted}, "sgd", beside=True)
    assert list(known) == ["other"]
    assert building._BESIDE.get() is None


def test_other_threads_wait_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = Modules(monkeypatch)

    def make() -> Any:
        thread = threading.Thread(target=modules.make, args=("theirs",))
        thread.start()
        thread.join()
        return modules.make("ours")

    building.built({"ours": make}, "sgd", beside=True)
    assert modules.events.index("wait theirs") < modules.events.index("written theirs")
    assert modules.events.index("wait ours") > modules.events.index("written ours")


def test_headers_are_prepared_for_many_kernels_or_if_they_have_been(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(codecache, "_HEADER_DIR", str(tmp_path))
    few, many = building.FEW, building.FEW + 1
    assert [building._has_headers(n) for n in (1, few, many)] == [False, False, True]
    (tmp_path / "a.h.gch").touch()
    assert building._has_headers(1)


def test_prepared_headers_are_taken_where_that_is_decided() -> None:
    building._hook()
    header = codecache.CppPythonBindingsCodeCache._get_uncompiled_header
    plain = header("cpu")
    assert plain is not None
    for headers in (True, False):
        with building._put_off(True, headers):
            assert header("cpu") == (plain if headers else None)
    assert header("cpu") == plain


# -- in an optimizer -----------------------------------------------------------------------------


def tensors(*dtypes: torch.dtype) -> list[nn.Parameter]:
    torch.manual_seed(0)
    found = [nn.Parameter(torch.randn(5, dtype=d)) for d in dtypes]
    for p in found:
        p.grad = torch.randn_like(p)
    return found


def test_several_kernels_give_the_numbers_of_plain_operations() -> None:
    dtypes = torch.float32, torch.float64  # a kernel for each
    built, plain = tensors(*dtypes), tensors(*dtypes)
    opt, other = adamw().bind(built), adamw().bind(plain, compile=False)
    assert opt.explain().kernels == 2
    for _ in range(3):
        opt.step()
        other.step()
    assert all(map(torch.allclose, built, plain))


def test_a_failing_build_is_said_once_and_the_numbers_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the C++ compiler has crashed")

    dtypes = torch.float32, torch.float64
    built, plain = tensors(*dtypes), tensors(*dtypes)
    opt, other = momentum_sgd(lr=0.3).bind(built), momentum_sgd(lr=0.3).bind(plain, compile=False)
    with fresh_cache(), config.patch({"cpp.vec_isa_ok": True}), monkeypatch.context() as patched:
        patched.setattr(codecache, "_worker_compile_cpp", fail)
        with pytest.warns(RuntimeWarning, match="has crashed") as warned:
            opt.step()
    assert len([w for w in warned if "runs uncompiled" in str(w.message)]) == 1
    other.step()
    for _ in range(2):
        opt.step()
        other.step()
    assert all(map(torch.equal, built, plain))


# -- vector instructions -------------------------------------------------------------------------


@pytest.fixture
def _forgetful() -> Iterator[None]:
    """Forget what instructions were chosen, before and after."""

    def forget() -> None:
        instructions.doubt()
        instructions._doubted = False
        instructions._choose.cache_clear()

    forget()
    yield
    forget()


on_x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="others have one set of instructions"
)


def available() -> list[str]:
    return [str(i) for i in cpu_vec_isa.valid_vec_isa_list()]


@on_x86
@pytest.mark.usefixtures("_forgetful")
def test_the_processor_is_believed_until_a_build_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def build(own: object, code: str) -> bool:
        asked.append(own)
        return False

    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", build)
    assert instructions.believed() == instructions.BELIEVING
    instructions.choose()
    believed = available()
    assert asked == []
    assert cpu_vec_isa.VecISA.check_build is build
    instructions.doubt()
    assert instructions.believed() == {}
    assert available() == []
    assert len(asked) >= len(believed), "each of them is asked for"


def test_only_what_the_cpp_compiler_says_casts_doubt_on_them() -> None:
    unknown = CppCompileError(["g++", "-mavx512"], "unrecognized command-line option")
    wrapped = RuntimeError("the backend failed")
    wrapped.__cause__ = unknown
    assert instructions.may_be_unknown(unknown)
    assert instructions.may_be_unknown(wrapped)
    assert not instructions.may_be_unknown(RuntimeError("no lowering"))


@on_x86
@pytest.mark.usefixtures("_forgetful")
def test_a_compiler_that_is_older_than_the_processor_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if it knew none of the instructions: a kernel is built without."""
    build = CppBuilder.build

    def old(self: CppBuilder) -> None:
        if " -mavx" in self.get_command_line():
            raise CppCompileError(["g++"], "unrecognized command-line option")
        build(self)

    monkeypatch.setattr(CppBuilder, "build", old)
    (built,), (plain,) = tensors(torch.float32), tensors(torch.float32)
    opt, other = (
        momentum_sgd(lr=0.3).bind([built]),
        momentum_sgd(lr=0.3).bind([plain], compile=False),
    )
    with fresh_cache():
        opt.step()
    other.step()
    assert instructions.believed() == {}
    assert torch.equal(built, plain)


@on_x86
@pytest.mark.usefixtures("_forgetful")
def test_what_somebody_has_decided_on_holds() -> None:
    with config.patch({"cpp.vec_isa_ok": False}):
        assert instructions.believed() == {}
        instructions.choose()
        assert available() == []


# -- the line ------------------------------------------------------------------------------------


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def said(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, seconds: float, error: bool = False
) -> str:
    """Return what is said of seven kernels, of which three are built."""
    stream = Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "TICK", 0.05)
    monkeypatch.delenv("TERM", raising=False)
    try:
        with dm.config(progress=True), progress.Progress(7, "adamw") as line:
            for _ in range(3):
                line.advance()
            time.sleep(seconds)
            if error:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    return re.sub(r"\d+ s", "4 s", stream.getvalue())


NOW = "dslmut: compiling 7 kernels for adamw: 3 of 7, 4 s"
DONE = "dslmut: compiled 7 kernels for adamw in 4 s"


def test_nothing_is_said_of_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, True, 0) == ""


def test_a_file_or_a_notebook_gets_one_line_at_first_and_one_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert said(monkeypatch, False, 0.4) == f"{NOW}\n{DONE}\n"


def test_a_terminal_gets_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = said(monkeypatch, True, 0.4)
    assert shown.count(f"\r{NOW}\x1b[K") >= 2
    assert shown.endswith(f"\r{DONE}\x1b[K\n")
    assert shown.count("\n") == 1


def test_an_interrupt_ends_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = said(monkeypatch, True, 0.2, error=True)
    assert shown.endswith(f"{NOW}\x1b[K\n")
    assert DONE not in shown


def test_it_is_off_if_the_settings_say_so_or_nobody_can_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    stream = Stream(True)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.Progress(1, "sgd"):
        time.sleep(0.05)
    assert stream.getvalue() == ""
    stream.close()
    for nobody in (None, stream):
        monkeypatch.setattr(sys, "stderr", nobody)
        with dm.config(progress=True), progress.Progress(1, "sgd"):
            time.sleep(0.05)
