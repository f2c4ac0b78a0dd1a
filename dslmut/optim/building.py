"""Kernels are written one after the other, and built beside that.

The compiler writes C++, which takes about a second of Python for a kernel, then waits for the C++
compiler, which takes as long. Here it goes on to the next kernel instead, so that two cores are busy.
Threads wait for other processes; nothing that writes kernels runs in two threads at once.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dslmut.diagnostics.garbage import rare_collections
from dslmut.optim.compiling import Kernel, quiet
from dslmut.optim.instructions import believed, choose
from dslmut.optim.progress import Progress

Name = TypeVar("Name", bound=Hashable)

FEW = 4
"""For so many kernels it is quicker to read all headers anew (1.5 s for each) than to prepare them
first (6 s). What has been prepared stays in torch's cache, and is used for any number."""


@dataclass(frozen=True, eq=False)
class Wait:
    """The end of a module that the compiler has written, where it waits for what is being built.

    Args:
        now: Waits, and puts what has been built into the module.
        scope: The module's names.
    """

    now: Callable[[], None]
    scope: dict[str, Any]

    def forget(self) -> None:
        """Keep the compiler from using the module again, which lacks what could not be built."""
        from torch._inductor.codecache import PyCodeCache

        PyCodeCache.modules_no_attr.pop(str(self.scope.get("__file__")), None)


@dataclass(frozen=True, eq=False)
class Beside:
    """How kernels are built in this thread, and those that it puts off.

    Args:
        headers: Whether they include prepared headers.
        waits: What has been put off.
    """

    headers: bool
    waits: list[Wait] = field(default_factory=list)


_BESIDE: ContextVar[Beside | None] = ContextVar("beside", default=None)


def built(
    makers: Mapping[Name, Callable[[], Kernel]], rule: str, beside: bool
) -> dict[Name, Kernel]:
    """Return compiled kernels.

    Args:
        makers: What writes each of them, and builds it too unless that is put off. One whose
            building fails is made again, from the start, with nothing put off.
        rule: Whose kernels they are, for the progress line.
        beside: Whether they are built beside the writing: on other devices than a CPU the compiler
            has its own way.
    """
    found: dict[Name, Kernel] = {}
    begun: deque[tuple[Name, list[Wait]]] = deque()
    with quiet():
        threads = _threads() if beside else 1
        headers = threads > 1 and _has_headers(len(makers))
        if threads > 1:
            choose()
    with rare_collections(), Progress(len(makers), rule) as progress, _preparing(headers):
        try:
            for name, make in makers.items():
                with _put_off(threads > 1, headers) as waits:
                    found[name] = make()
                begun.append((name, waits))
                while len(begun) > threads:
                    _finish(*begun.popleft(), makers, found, progress)
            while begun:
                _finish(*begun.popleft(), makers, found, progress)
        finally:  # after an error
            for _, waits in begun:
                _forget(waits)
    return found


def _finish(
    name: Name,
    waits: list[Wait],
    makers: Mapping[Name, Callable[[], Kernel]],
    found: dict[Name, Kernel],
    progress: Progress,
) -> None:
    """Wait until a kernel is built."""
    try:
        for wait in waits:
            wait.now()
    except BaseException as error:
        _forget(waits)
        if not isinstance(error, Exception):
            raise
        found[name] = makers[name]()
    progress.advance()


def _forget(waits: list[Wait]) -> None:
    for wait in waits:
        wait.forget()


@contextmanager
def _put_off(beside: bool, headers: bool) -> Iterator[list[Wait]]:
    """Put off, in this block and thread, the compiler's waits for what is being built."""
    state = Beside(headers) if beside else None
    token = _BESIDE.set(state)
    waits = state.waits if state else []
    try:
        yield waits
    except BaseException:
        _forget(waits)
        raise
    finally:
        _BESIDE.reset(token)


# -- the compiler --------------------------------------------------------------------------------


def _threads() -> int:
    """Return how many builds there may be at once; with 1, the compiler waits for each."""
    try:
        from torch._inductor.async_compile import get_compile_threads

        _hook()
        return get_compile_threads()
    except (ImportError, AttributeError):  # another torch
        return 1


@functools.cache
def _hook() -> None:
    """Make the compiler's waits such as can be put off; for everybody else they stay what they are."""
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codecache import CppPythonBindingsCodeCache, LambdaFuture

    build, wait = AsyncCompile.cpp_pybinding, AsyncCompile.wait
    header = CppPythonBindingsCodeCache._get_uncompiled_header

    @functools.wraps(build)
    def build_beside(self: AsyncCompile, argtypes: list[str], source_code: str) -> Any:
        if _BESIDE.get() is None:
            return build(self, argtypes, source_code)
        load = functools.partial(CppPythonBindingsCodeCache.load_pybinding, argtypes, source_code)
        return LambdaFuture(self.pool().submit(copy_context().run, load).result)

    @functools.wraps(wait)
    def wait_later(self: AsyncCompile, scope: dict[str, Any]) -> None:
        state = _BESIDE.get()
        if state is None:
            wait(self, scope)
        else:
            state.waits.append(Wait(functools.partial(wait, self, scope), scope))

    def header_if_prepared(cls: type[CppPythonBindingsCodeCache], device: str) -> str | None:
        state = _BESIDE.get()
        return header(device) if state is None or state.headers else None

    AsyncCompile.cpp_pybinding, AsyncCompile.wait = build_beside, wait_later
    CppPythonBindingsCodeCache._get_uncompiled_header = classmethod(header_if_prepared)  # pyright: ignore[reportAttributeAccessIssue]


def _has_headers(count: int) -> bool:
    """Say whether so many kernels are built with prepared headers; the results are the same."""
    from torch._inductor import codecache

    return count > FEW or any(Path(codecache._HEADER_DIR).glob("*.[gp]ch"))


@contextmanager
def _preparing(headers: bool) -> Iterator[None]:
    """Prepare headers beside the block, if there are to be some."""
    if not headers:
        yield
        return
    context = copy_context()
    context.run(_BESIDE.set, Beside(headers))
    thread = threading.Thread(target=context.run, args=(_prepare,), name="dslmut headers")
    thread.daemon = True  # nobody waits for it when the program ends
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _prepare() -> None:
    """Ask for an empty kernel, for which the compiler prepares headers; it is not built."""
    with suppress(Exception):  # whatever it is, it will be met again where it can be said
        from torch._inductor import config
        from torch._inductor.codecache import CppPythonBindingsCodeCache

        with config.patch(believed()):
            CppPythonBindingsCodeCache.load_pybinding_async([], 'extern "C" void kernel() {}')
