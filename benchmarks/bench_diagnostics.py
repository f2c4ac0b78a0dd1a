"""What diagnostics cost: AdamW with them over the same body without them.

Off: none is asked for. Every 100: each hundredth step computes them, and a sink keeps them.

Run: python -m benchmarks.bench_diagnostics
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import Run, arguments, compared, met, report
from benchmarks.tensors import gpt2, random, trained
from dslmut import Ctx, Hyper, Update, defstate, optimizer, optimizer_update
from dslmut.optim import adamw
from dslmut.optim.rules.common import schedule_values
from dslmut.optim.sinks import History

HEADS = ("million", "diagnostics", "with, ms", "without, ms", "ratio", "quartiles", "target", "met")
TARGET = 1.02
EVERY = 100


@optimizer
def silent(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    betas: tuple[Hyper, Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-2,
) -> Update:
    """AdamW as `dslmut.optim.adamw` writes it, with nothing reported."""
    lr, beta1, beta2, eps, weight_decay = schedule_values(ctx, lr, *betas, eps, weight_decay)
    m = beta1 * defstate("exp_avg", torch.zeros_like(param)) + (1 - beta1) * grad
    v = beta2 * defstate("exp_avg_sq", torch.zeros_like(param)) + (1 - beta2) * (grad * grad)
    root = v.sqrt() / (1 - beta2**ctx.updates) ** 0.5 + eps
    new = (1 - lr * weight_decay) * param - lr / (1 - beta1**ctx.updates) * (m / root)
    return optimizer_update(new, exp_avg=m, exp_avg_sq=v)


def steps(run: Run, count: int) -> Run:
    """Return a function that makes several steps."""

    def many() -> None:
        for _ in range(count):
            run()

    return many


def rows(width: int, every: int, budget: float, compile: bool) -> Iterator[tuple[Any, ...]]:
    """Compare at a width; yield a row without diagnostics, and one with some now and then."""
    shapes = gpt2(width)
    start, gradients = random(shapes, 0.02), random(shapes)
    for name, asked in {"off": None, f"every {every}": every}.items():
        one, other = trained(start, gradients), trained(start, gradients)
        reporting = adamw().bind(one, compile=compile, diagnostics_every=asked)
        if asked:
            reporting.attach(History())
        without = silent().bind(other, compile=compile)
        count = every if asked else 1
        both = steps(reporting.step, count), steps(without.step, count)
        for run in both:
            run()
        torch.testing.assert_close(one, other)  # the bodies are the same
        found = compared(*both, budget)
        times = found.ours / count * 1e3, found.theirs / count * 1e3
        million = f"{sum(p.numel() for p in start) / 1e6:.2f}"
        spread = f"{found.low:.3f}-{found.high:.3f}"
        ratio = f"{found.ratio:.3f}"
        yield million, name, *times, ratio, spread, TARGET, met(found.ratio, TARGET)


def main() -> None:
    options = arguments(__doc__)
    found = []
    for width in (8,) if options.toy else (64, 256):
        every, budget = (3, 0) if options.toy else (EVERY, 20)
        found += rows(width, every, budget, compile=not options.toy)
    report("AdamW with diagnostics over AdamW without", HEADS, found, options)


if __name__ == "__main__":
    main()
