"""A missing marker is shown in the call that the user wrote, through whatever stands between."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import nn

from dslmut import CheckError, Mut, fn
from tests.test_stacking import forwards, hides, net


@fn
def step(m: Mut[nn.Linear], k: float) -> None:
    m.bias = m.bias * k


@fn
def steps(m: Mut[nn.Linear], k: float) -> Iterator[int]:
    m.bias = m.bias * k
    yield 1


@fn
async def later(m: Mut[nn.Linear], k: float) -> None:
    m.bias = m.bias * k


@fn
def named(*args: int, m: Mut[nn.Linear], **rest: int) -> None:
    m.bias = m.bias * 0


class Method:
    @fn
    def step(self, m: Mut[nn.Linear]) -> None:
        m.bias = m.bias * 0


def run_in_thread(m: nn.Linear) -> None:
    found: list[BaseException] = []

    def run() -> None:
        try:
            step(m, 1.0)
        except CheckError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise found[0]


wrapped, hidden, twice = forwards(step), hides(step), forwards(forwards(step))
elsewhere = "mark it where `step` gets it: `step(mut(m), k)`"


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (lambda m: step(m, 0.0), "write `step(mut(m), 0.0)`"),
        (lambda m: step(k=0.0, m=m), "write `step(k=0.0, m=mut(m))`"),
        (lambda m: wrapped(m, 0.0), "write `wrapped(mut(m), 0.0)`"),
        (lambda m: twice(m, k=0.0), "write `twice(mut(m), k=0.0)`"),
        (lambda m: hidden(m=m, k=0.0), "write `hidden(m=mut(m), k=0.0)`"),
        (lambda m: step([m][0], 0.0), "`part = [m][0]`, then write `step(mut(part), 0.0)`"),
        (lambda m: functools.partial(step, m)(0.0), elsewhere),
        (lambda m: functools.partial(step, k=0.0)(m), "`functools.partial(step, k=0.0)(mut(m))`"),
        (lambda m: list(map(step, [m], [0.0])), elsewhere),
        (lambda m: next(steps(m, 0.0)), elsewhere.replace("step", "steps")),
        (lambda m: asyncio.run(later(m, 0.0)), elsewhere.replace("step", "later")),
        (lambda m: functools.partial(named, 1, m=m)(), "`named(*args, m=mut(m), **rest)`"),
        (lambda m: Method().step(*[m]), "`x.step(mut(m))`"),
        (run_in_thread, "write `step(mut(m), 1.0)`"),
        (lambda m: (lambda *a: step(*a))(m, 0.0), "write `(lambda *a: step(*a))(mut(m), 0.0)`"),
    ],
)
def test_the_fix_is_a_call_that_the_user_wrote(call: Callable[..., Any], fix: str) -> None:
    m = net()
    with pytest.raises(CheckError, match="E1103") as caught:
        call(m)
    (d,) = caught.value.diagnostics
    assert d.fix is not None
    assert fix in d.fix.text
    assert d.span is not None
    assert d.span.path == __file__
    assert m.bias.all()
