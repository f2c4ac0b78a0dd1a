"""Generators, coroutines and methods with private names: fields are set between suspensions."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import CheckError, Mut, fn, mut


def net() -> nn.Linear:
    return nn.Linear(3, 2)


def test_fields_are_set_between_suspensions() -> None:
    @fn
    def inner(m: Mut[nn.Linear]) -> Any:
        try:
            x = yield 1
            m.bias = m.bias * 0 + x
            yield 2
        except ValueError:
            m.bias = m.bias * 0 - 7
            yield "caught"
        return "end"

    @fn
    def outer(m: Mut[nn.Linear]) -> Any:
        return (yield from inner(mut(m)))

    m = net()
    g = outer(mut(m))
    assert next(g) == 1
    assert g.send(4) == 2
    assert (m.bias == 4).all()
    assert g.throw(ValueError()) == "caught"
    assert (m.bias == -7).all()
    with pytest.raises(StopIteration) as stop:
        next(g)
    assert stop.value.value == "end"


def test_async_generators_and_coroutines() -> None:
    @fn
    async def steps(m: Mut[nn.Linear], n: int) -> Any:
        for i in range(n):
            m.bias = m.bias * 0 + i
            try:
                yield i
            except KeyError:
                m.bias = m.bias * 0 - 1
                yield "thrown"

    @fn
    async def uses(m: Mut[nn.Linear], n: int) -> list[float]:
        found = []
        async with contextlib.aclosing(steps(mut(m), n)) as each:
            async for _ in each:
                m.bias = m.bias + 1
                await asyncio.sleep(0)
                found.append(m.bias[0].item())
        return found

    async def main() -> None:
        m = net()
        assert await uses(mut(m), 3) == [1.0, 2.0, 3.0]
        g = steps(mut(m), 5)
        assert await g.asend(None) == 0
        assert await g.athrow(KeyError) == "thrown"
        assert (m.bias == -1).all()
        await g.aclose()
        for wrong in (uses(m, 1), uses(mut(m), "a")):  # pyright: ignore
            with pytest.raises(CheckError):
                await wrong

    asyncio.run(main())
    assert inspect.iscoroutinefunction(uses)
    assert inspect.isasyncgenfunction(steps)


def test_private_names_in_a_class() -> None:
    class Private(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.__w = nn.Parameter(torch.ones(2))
            self.__n = 0

        @fn
        def go(self: Mut[Private], __m: Mut[nn.Linear], __x: Any, *, __k: int = 2) -> int:
            self.__w = self.__w * __k
            self.__w += 1
            self.__w[0] = 0
            first, self.__n = 1, self.__n + 1
            __m.bias = __m.bias * 0

            class Inner:
                __n = 7

                def get(self) -> int:
                    return self.__n

            return (lambda: self.__n + first)() + Inner().get()

        def w(self) -> Tensor:
            return self.__w

    p, m = Private(), net()
    assert mut(p).go(mut(m), 0) == 9
    assert p.w().tolist() == [0.0, 3.0]
    assert not m.bias.any()
    with pytest.raises(CheckError, match="E1103"):
        mut(p).go(m, 0)
    with pytest.raises(CheckError, match="E0601(.|\n)*`__k` is a `str`"):
        mut(p).go(mut(m), 0, _Private__k="a")  # pyright: ignore
    with pytest.raises(CheckError, match="E1101(.|\n)*does not change its parameter `__x`"):
        mut(p).go(mut(m), mut(m))
