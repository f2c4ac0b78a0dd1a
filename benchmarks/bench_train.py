"""A whole training step of a small GPT: ours, and plain torch with its fused AdamW.

Ours: loss and gradients by `value_and_grad`, and `update`. Theirs: `zero_grad`, `backward`, `step`. Two
texts of 32 tokens, so that a step is not only products of matrices. Both must have come to the same
parameters after three steps.

Run: python -m benchmarks.bench_train
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpt import GPT
from benchmarks.measure import Run, arguments, compared, met, report
from benchmarks.tensors import WIDTHS, vocabulary
from dslmut import Mut, OptState, fn, mut, update, value_and_grad
from dslmut.optim import adamw

HEADS = ("million", "ours, ms", "torch, ms", "ratio", "quartiles", "target", "met")
BATCH, LENGTH = 2, 32
TARGET = 1.0


def loss_of(m: GPT, text: Tensor) -> Tensor:
    """Return the cross-entropy of each next token, as a mean."""
    scores = m(text[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())


@fn
def step(m: Mut[GPT], opt: Mut[OptState[GPT]], text: Tensor) -> Tensor:
    loss, g = value_and_grad(loss_of, m, text)
    update(mut(m), mut(opt), g)
    return loss


def ours(m: GPT, text: Tensor, compile: bool) -> Run:
    opt = adamw().bind(m, compile=compile)
    return lambda: step(mut(m), mut(opt), text)


def torchs(m: GPT, text: Tensor) -> Run:
    opt = torch.optim.AdamW(m.parameters(), fused=True)

    def run() -> Tensor:
        opt.zero_grad()
        loss = loss_of(m, text)
        loss.backward()
        opt.step()
        return loss

    return run


def check(one: GPT, other: GPT, runs: Sequence[Run]) -> None:
    """Make three steps with each, and compare the parameters: Adam multiplies small differences."""
    for _ in range(3):
        for run in runs:
            run()
    for (name, p), q in zip(one.named_parameters(), other.parameters()):
        apart, typical = (p - q).abs().mean(), 3e-3
        assert apart <= 0.01 * typical, f"{name} is {apart} apart"


def row(width: int, layers: int, budget: float, compile: bool) -> tuple[Any, ...]:
    """Compare at a width."""
    torch.manual_seed(0)
    own = GPT(width, layers)
    other = copy.deepcopy(own)
    text = torch.randint(0, vocabulary(width), (BATCH, LENGTH + 1))
    runs = ours(own, text, compile), torchs(other, text)
    check(own, other, runs)
    found = compared(*runs, budget)
    million = f"{sum(p.numel() for p in own.parameters()) / 1e6:.2f}"
    spread = f"{found.low:.2f}-{found.high:.2f}"
    times = found.ours * 1e3, found.theirs * 1e3
    return million, *times, found.ratio, spread, TARGET, met(found.ratio, TARGET)


def main() -> None:
    options = arguments(
        __doc__, widths={"type": int, "nargs": "+", "default": WIDTHS, "help": "of the model"}
    )
    found = []
    for width in (16,) if options.toy else options.widths:
        layers, budget = (1, 0) if options.toy else (12, 12)
        found.append(row(width, layers, budget, compile=not options.toy))
        gc.collect()
    report("a training step", HEADS, found, options)


if __name__ == "__main__":
    main()
