"""The memory that a step and `load_state_dict` need for a while, of AdamW: ours, torch's.

It is what a process holds at its peak over what it held before, as Linux counts it, in a new process
for each optimizer, and after steps that have compiled and made everything. Large tensors are given
back to the system at once there, so that none hides in memory that was needed before.

Run: python -m benchmarks.bench_memory
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Run, arguments, met, report
from benchmarks.tensors import elements, gpt2, random, trained

HEADS = ("million", "what", "ours, MB", "fused", "foreach", "largest tensor", "states", "target", "met")  # fmt: skip
WHOSE = ("ours", "fused", "foreach")

BUFFERS = 3
"""A step may hold so many tensors of the largest parameter's size: a few, not the model's."""

PROCESS = Path("/proc/self")
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""Tensors of this size are mapped by themselves; unset, the threshold grows with what is freed."""


# -- in a process of its own ---------------------------------------------------------------------


def held(field: str) -> int:
    """Return a size of this process in bytes: the present one (VmRSS), or the peak (VmHWM)."""
    found = re.search(rf"{field}:\s+(\d+) kB", (PROCESS / "status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def peak(run: Run) -> int:
    """Return how many bytes more than before a function has held at its peak."""
    gc.collect()
    (PROCESS / "clear_refs").write_text("5")  # the peak is counted anew from here
    before = held("VmRSS")
    run()
    return max(held("VmHWM") - before, 0)


def optimizer(whose: str, params: list[Any], compile: bool) -> Any:
    import torch

    from dslmut.optim import adamw

    if whose == "ours":
        return adamw().bind(params, compile=compile)
    return torch.optim.AdamW(params, fused=whose == "fused", foreach=whose == "foreach")


def peaks(whose: str, width: int, toy: bool) -> dict[str, int]:
    """Return the peaks of one optimizer, as the largest of three times each."""
    shapes = gpt2(width)
    params = trained(random(shapes, 0.02), random(shapes))
    opt = optimizer(whose, params, compile=not toy)
    for _ in range(2):
        opt.step()
    step = max(peak(opt.step) for _ in range(3))
    saved = copy.deepcopy(opt.state_dict())
    opt.load_state_dict(copy.deepcopy(saved))  # what is imported for that is no part of it
    return {"step": step, "load": max(peak(lambda: opt.load_state_dict(saved)) for _ in range(3))}


# -- all of them ---------------------------------------------------------------------------------


def started(whose: str, width: int, toy: bool) -> dict[str, int]:
    """Return the peaks of one optimizer, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.bench_memory", "--only", whose, str(width)]
    command += ["--toy"] * toy
    environment = {**os.environ, **RETURNED}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def rows(widths: Sequence[int], toy: bool) -> Iterator[tuple[Any, ...]]:
    for width in widths:
        shapes = gpt2(width)
        found = {whose: started(whose, width, toy) for whose in WHOSE}
        largest = max(elements([s]) for s in shapes) * 4 / 1e6
        states = 2 * elements(shapes) * 4 / 1e6
        for what, target in {"step": BUFFERS * largest, "load": None}.items():
            sizes = [found[whose][what] / 1e6 for whose in WHOSE]
            label = "a step" if what == "step" else "load_state_dict"
            million = f"{elements(shapes) / 1e6:.1f}"
            yield million, label, *sizes, largest, states, target, met(sizes[0], target)


def main() -> None:
    options: argparse.Namespace = arguments(
        __doc__, only={"nargs": 2, "help": "whose, and at which width, in this process"}
    )
    if not (PROCESS / "clear_refs").exists():
        raise SystemExit("this counts memory as Linux does, and there is no /proc/self/clear_refs")
    if options.only:
        print(json.dumps(peaks(options.only[0], int(options.only[1]), options.toy)))
        return
    widths = (8,) if options.toy else (256, 576)
    report("peak memory", HEADS, list(rows(widths, options.toy)), options)


if __name__ == "__main__":
    main()
