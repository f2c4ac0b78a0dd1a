"""From after `import torch` to the end of AdamW's first step, each time in a new process.

Cold: with an empty folder for the compiler's caches and prepared headers. Warm: in the next process,
with the same folder.
A model's 148 tensors, and 1,000 tensors of 30 shapes.

Run: python -m benchmarks.bench_start
     python -m benchmarks.bench_start --all    (also torch's AdamW under `torch.compile`: a minute more)
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import arguments, met, report

HEADS = ("what", "s", "of them", "graphs", "target", "met")
OVER_COMPILED = 0.33


def first_step(folder: str, whose: str, tensors: str) -> dict[str, Any]:
    """Make a first step in a new process; return its time, and the number of graphs."""
    command = [sys.executable, "-m", "benchmarks.first_step", whose, tensors]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder, "TMPDIR": folder}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def starts(whose: str, tensors: str, processes: int) -> list[dict[str, Any]]:
    """Return first steps in processes that share one folder of caches, the first of them cold."""
    with TemporaryDirectory() as folder:
        return [first_step(folder, whose, tensors) for _ in range(processes)]


def row(what: str, found: list[dict[str, Any]], target: float | None) -> tuple[Any, ...]:
    """Return the median of several starts, with the quickest and the slowest."""
    times = [f["seconds"] for f in found]
    middle = statistics.median(times)
    spread = f"{min(times):.1f}-{max(times):.1f}"
    return what, middle, spread, found[0]["graphs"], target, met(middle, target)


def rows(options: argparse.Namespace) -> Iterator[tuple[Any, ...]]:
    """Measure, and yield one row after the other."""
    tensors, rounds = ("toy", 1) if options.toy else ("gpt2", 3)
    cold, warm = zip(*(starts("ours", tensors, 2) for _ in range(rounds)))
    yield row("148 tensors, cold", list(cold), 15.0)
    yield row("148 tensors, warm", list(warm), 3.0)
    if not options.toy:
        yield row("1,000 tensors of 30 shapes, cold", starts("ours", "thirty", 1), 40.0)
    if options.all:
        theirs = starts("torch", tensors, 1)
        ratio = statistics.median(c["seconds"] for c in cold) / theirs[0]["seconds"]
        yield row("148 tensors, `torch.compile` of torch's, cold", theirs, None)
        yield "ours over it", ratio, "", None, OVER_COMPILED, met(ratio, OVER_COMPILED)


def main() -> None:
    options = arguments(__doc__, all={"action": "store_true", "help": "also torch's, compiled"})
    report("the first step of AdamW", HEADS, list(rows(options)), options)


if __name__ == "__main__":
    main()
