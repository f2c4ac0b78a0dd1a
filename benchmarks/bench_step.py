"""A step of optimizers against others that do the same, on GPT-2's tensors and on 1,000 small ones.

Before anything is timed, both sides make three steps, and must have come to the same parameters. At
the largest width each elementwise rule is timed against a copy of memory, too: its bytes are what it
reads and writes of parameters, gradients and states; those of a copy are counted twice.
HeavyBall and optax are timed where they are installed.

Run: python -m benchmarks.bench_step
     python -m benchmarks.bench_step --widths 64 256 --rules adamw lion
     python -m benchmarks.bench_step --all    (also those that need a minute to compile)
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import Comparison, arguments, compared, met, report
from benchmarks.rivals import ROWS, Rival, Row
from benchmarks.sides import Side, ours
from benchmarks.tensors import (
    WIDTHS,
    Shape,
    elements,
    gpt2,
    hidden_matrices,
    random,
    thirty,
    trained,
)

TIMES = ("rule", "over", "ours, ms", "theirs, ms", "ratio", "quartiles", "target", "met")
BYTES = ("rule", "MB", "ours, ms", "GB/s", "over a copy", "quartiles", "target", "met")

BYTES_TARGET = 1.15
SCALE = 0.2
"""Parameters are so large that a wrong decay shows, and so small that rounding them does not."""

COPIED = 64 * 2**20
"""So many float32 are copied: more than a cache holds."""


@dataclass(frozen=True)
class Workload:
    """Tensors to make steps on.

    Args:
        name: Above its table.
        shapes: Of the parameters.
        width: Of the model, by which the targets are; None for no model.
        budget: So many seconds each comparison may take.
        toy: Whether nothing is compiled, and little is copied.
    """

    name: str
    shapes: Sequence[Shape]
    width: int | None
    budget: float
    toy: bool = False


def workloads(options: argparse.Namespace) -> Iterator[Workload]:
    """Yield what is to be timed."""
    if options.toy:
        yield Workload("toy", gpt2(8, layers=1), WIDTHS[-1], budget=0, toy=True)
        return
    for width in options.widths:
        shapes = gpt2(width)
        name = f"GPT-2 at width {width}, {elements(shapes) / 1e6:.2f} M in {len(shapes)} tensors"
        yield Workload(name, shapes, width, budget=1 if width < WIDTHS[-1] else 4)
    if options.many:
        shapes = thirty(options.many)
        name = f"{len(shapes)} tensors of 30 shapes, {elements(shapes) / 1e6:.2f} M"
        yield Workload(name, shapes, None, budget=1)


def chosen(work: Workload, options: argparse.Namespace) -> Iterator[tuple[Row, Rival]]:
    """Yield the pairs to compare: without a model AdamW alone, matrices where they are small."""
    for row in ROWS:
        if options.rules and row.name not in options.rules:
            continue
        if work.width is None and row is not ROWS[0]:
            continue
        if not row.elementwise and work.width not in row.rivals[0].targets and not work.toy:
            continue
        yield from ((row, r) for r in row.rivals if options.all or not r.costly)


# -- comparing -----------------------------------------------------------------------------------


def made(row: Row, rival: Rival, work: Workload, start: Any, gradients: Any) -> tuple[Side, Side]:
    """Return both sides, with equal parameters and the same gradients, after they have agreed."""
    make = ours(row.rule, not work.toy, **row.hyperparameters)
    own, other = make(trained(start, gradients)), rival.make(trained(start, gradients))
    apart = disagreement(own, other, start, gradients)
    if not apart <= rival.tolerance:
        raise AssertionError(f"{row.name} and {rival.name} disagree: by {apart} of a step")
    return own, other


def disagreement(
    one: Side, other: Side, start: Sequence[Tensor], gradients: Sequence[Tensor]
) -> float:
    """Make three steps on both sides, with other gradients in between; return how far they differ.

    That is the largest difference of two elements, over the largest distance that one has moved.
    """
    for factor in (-0.5, -0.5, 4.0):  # in the end they are what they were, to the last bit
        for side in (one, other):
            side.step()
        for g in gradients:
            g.mul_(factor)
        for side in (one, other):
            side.refresh()
    with torch.no_grad():
        triples = list(zip(one.values(), other.values(), start))
        apart = max(float((a - b).abs().max()) for a, b, _ in triples)
        moved = max(float((a - p).abs().max()) for a, _, p in triples)
    return apart / moved


def traffic(side: Side) -> int:
    """Return how many bytes an elementwise step moves: all is read, all but gradients is written."""
    sizes = [2 * p.nbytes for p in side.values()] + [p.nbytes for p in side.values()]
    states = [t for own in side.states() for t in own.values() if isinstance(t, Tensor)]
    return sum(sizes) + 2 * sum(t.nbytes for t in states)


def timed(row: Row, rival: Rival, found: Comparison, work: Workload) -> tuple[Any, ...]:
    target = rival.targets.get(work.width)
    times = found.ours * 1e3, found.theirs * 1e3
    return row.name, rival.name, *times, *judged(found, 1.0, target)


def judged(found: Comparison, scale: float, target: float | None) -> tuple[Any, ...]:
    """Return the last four columns."""
    ratio, low, high = (scale * x for x in (found.ratio, found.low, found.high))
    return ratio, f"{low:.2f}-{high:.2f}", target, met(ratio, target)


def beside_a_copy(row: Row, own: Side, work: Workload) -> tuple[Any, ...]:
    """Time a rule against a copy of memory, by the byte."""
    source = torch.rand(COPIED if not work.toy else 1024)
    copy, size = torch.empty_like(source), traffic(own)
    found = compared(own.step, lambda: copy.copy_(source), work.budget)
    speed = size / found.ours / 1e9
    columns = judged(found, 2 * source.nbytes / size, BYTES_TARGET)
    return row.name, round(size / 1e6), found.ours * 1e3, speed, *columns


def measure(work: Workload, options: argparse.Namespace) -> None:
    """Time all pairs on the tensors of a workload; print one table, or two."""
    start, gradients = random(work.shapes, SCALE), random(work.shapes)
    times, sizes = [], {}
    for row, rival in chosen(work, options):
        places = range(len(start)) if row.elementwise else hidden_matrices(work.shapes)
        own, other = made(row, rival, work, [start[i] for i in places], [gradients[i] for i in places])  # fmt: skip
        times.append(timed(row, rival, compared(own.step, other.step, work.budget), work))
        del other
        if row.elementwise and work.width == WIDTHS[-1] and row.name not in sizes:
            sizes[row.name] = beside_a_copy(row, own, work)
        del own
        gc.collect()  # optimizers are in cycles, and the next pair needs their memory
    if times:
        report(f"a step on {work.name}", TIMES, times, options)
    if sizes:
        report(f"its memory traffic on {work.name}", BYTES, list(sizes.values()), options)


def main() -> None:
    options = arguments(
        __doc__,
        widths={"type": int, "nargs": "*", "default": WIDTHS, "help": "of GPT-2"},
        many={"type": int, "default": 1000, "help": "how many small tensors; 0 for none"},
        rules={"nargs": "+", "choices": [r.name for r in ROWS], "help": "all by default"},
        all={"action": "store_true", "help": "also what needs a minute to compile"},
    )
    for work in workloads(options):
        measure(work, options)


if __name__ == "__main__":
    main()
