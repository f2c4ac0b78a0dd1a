"""A step of `dslmut.optim.adamw` against torch's fused and foreach AdamW, on GPT-2's tensors.

Run: python -m benchmarks.bench_step
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.measure import alternating, arguments, report
from dslmut.optim import adamw


def shapes(width: int, layers: int) -> list[tuple[int, ...]]:
    """Return the shapes of GPT-2's parameters at a width; the vocabulary shrinks with it."""
    w = width
    found: list[tuple[int, ...]] = [(50257 * w // 768 // 8 * 8, w), (1024 * w // 768, w)]
    for _ in range(layers):
        found += [(w,), (w,), (3 * w, w), (3 * w,), (w, w), (w,)]
        found += [(w,), (w,), (4 * w, w), (4 * w,), (w, 4 * w), (w,)]
    return [*found, (w,), (w,)]


def parameters(width: int, layers: int) -> list[nn.Parameter]:
    found = [nn.Parameter(torch.randn(s) * 0.02) for s in shapes(width, layers)]
    for p in found:
        p.grad = torch.randn_like(p)
    return found


def main() -> None:
    options = arguments(__doc__)
    rows = []
    for width in (8,) if options.toy else (64, 256):
        layers, rounds, calls = (1, 1, 1) if options.toy else (12, 9, 10)
        own = adamw(parameters(width, layers))
        start = time.perf_counter()
        own.step()
        first = time.perf_counter() - start
        opts: dict[str, torch.optim.Optimizer] = {
            "ours": own,
            "fused": torch.optim.AdamW(parameters(width, layers), fused=True),
            "foreach": torch.optim.AdamW(parameters(width, layers), foreach=True),
        }
        steps: dict[str, Callable[[], object]] = {n: o.step for n, o in opts.items()}
        found = alternating(steps, rounds, calls)
        count = sum(torch.Size(s).numel() for s in shapes(width, layers)) / 1e6
        ratios = [found["ours"] / found[n] for n in ("fused", "foreach")]
        rows.append((f"{count:.2f} M", found["ours"] / 1e3, *ratios, first))
    heads = ("parameters", "ours, ms", "over fused", "over foreach", "first step, s")
    report("one AdamW step", heads, rows, options)


if __name__ == "__main__":
    main()
