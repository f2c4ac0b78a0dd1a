"""What `@fn` costs: once to decorate a function, and at each call over the plain function.

Run: python -m benchmarks.bench_calls
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn, ones

from benchmarks.measure import alternating, arguments, report
from dslmut import Mut, fn, mut


def plain(m: nn.Linear, x: Tensor) -> None:
    pass


@fn(check=False)
def unmarked(m: nn.Linear, x: Tensor) -> None:
    pass


@fn(check=False)
def marked(m: Mut[nn.Linear], x: Tensor) -> None:
    pass


@fn
def checked(m: nn.Linear, x: Tensor) -> None:
    pass


@fn
def shaped(m: Mut[nn.Linear], x: Float[Tensor, "b D"]) -> None:
    pass


def small(m: Mut[nn.Linear], x: Tensor) -> None:
    m.weight = m.weight + x


def large(m: Mut[nn.Linear], x: Tensor, n: int) -> Tensor:
    a, b, c = x, x * 2, x * 3
    for i in range(n):
        if i % 2:
            m.weight = m.weight + a
        else:
            m.weight -= b
        a, b, c = b, c, a + 1
    for p in m.parameters():
        p.mul_(0.5)
    try:
        d = m.weight
        m.weight = m.weight.T.contiguous().T
    except ValueError:
        d = m.weight * 2
    return (a + b + c + d).sum()


def main() -> None:
    options = arguments(__doc__)
    rounds, calls = (2, 10) if options.toy else (15, 20_000)
    m, x = nn.Linear(2, 2), ones(3, 2)
    calls_ = {
        "a plain function": lambda: plain(m, x),
        "@fn(check=False)": lambda: unmarked(m, x),
        "@fn(check=False), Mut": lambda: marked(mut(m), x),
        "@fn, classes checked": lambda: checked(m, x),
        "@fn, Mut, shapes checked": lambda: shaped(mut(m), x),
    }
    found = alternating(calls_, rounds, calls)
    base = found["a plain function"]
    rows = [(name, t, t - base) for name, t in found.items()]
    report("one call", ("function", "us", "over plain"), rows, options)
    decorated = alternating(
        {"4 lines": lambda: fn(small), "17 lines": lambda: fn(large)}, rounds, max(1, calls // 400)
    )
    report("decorating one function", ("length", "us"), list(decorated.items()), options)


if __name__ == "__main__":
    main()
