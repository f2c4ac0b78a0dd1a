"""What every benchmark shares: taking turns, medians, a table, and a record with the environment."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Run = Callable[[], object]

BLOCK = 0.02
"""One function runs for so many seconds before it is the other's turn: a clock sees less badly."""

PAIRS = (5, 31)
"""So many pairs at the least and at the most."""


def arguments(description: str | None, **further: Mapping[str, Any]) -> argparse.Namespace:
    """Read the command line: the options that every benchmark has, and a script's own.

    Args:
        description: The script's docstring.
        further: For the name of each further option what ``add_argument`` takes.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--toy", action="store_true", help="so small that it only shows it runs")
    parser.add_argument("--json", type=Path, help="write the tables and the environment there")
    for name, option in further.items():
        parser.add_argument(f"--{name}", **option)
    return parser.parse_args(namespace=argparse.Namespace(tables=[]))


# -- measuring -----------------------------------------------------------------------------------


def seconds(run: Run, calls: int = 1) -> float:
    """Return how long one of several calls in a row takes."""
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def alternating(functions: Mapping[str, Run], rounds: int, calls: int) -> dict[str, float]:
    """Return the median time of one call of each function, in microseconds.

    The functions take turns, so that a machine that slows down slows all of them down.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(seconds(function, calls) * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


@dataclass(frozen=True)
class Comparison:
    """Two functions that were timed in turn.

    Args:
        ours: The median time of a call, in seconds.
        theirs: The same of the other function.
        ratio: The median of the pairs' ratios, ours over theirs.
        low: The lower quartile of the ratios.
        high: The upper one.
    """

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float


def compared(ours: Run, theirs: Run, budget: float) -> Comparison:
    """Time two functions in pairs, who is first changing with each pair.

    The ratio is the median of the pairs' ratios. What slows the machine down for a while slows
    both of a pair, and leaves their ratio alone; a ratio of two medians may be that of a quick
    moment of one and a slow moment of the other. Each turn begins with a call that is not timed,
    which brings back what the other one has driven out of the caches.

    Args:
        ours: The one.
        theirs: The other; both have run before, so that nothing is compiled here.
        budget: So many seconds it may take, as far as the least number of pairs allows.
    """
    functions = (ours, theirs)
    once = [seconds(f) for f in functions]
    calls = [max(1, round(BLOCK / t)) for t in once]
    pair = sum((c + 1) * t for c, t in zip(calls, once))
    rounds = min(max(round(budget / pair), PAIRS[0]), PAIRS[1]) if budget else 1
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for i in (0, 1) if number % 2 else (1, 0):
            functions[i]()
            times[i].append(seconds(functions[i], calls[i]))
    ratios = [a / b for a, b in zip(*times)]
    low, _, high = statistics.quantiles(ratios) if rounds > 1 else ratios * 3
    own, others = map(statistics.median, times)
    return Comparison(own, others, statistics.median(ratios), low, high)


# -- showing -------------------------------------------------------------------------------------


def met(value: float, target: float | None) -> str:
    """Say whether a value is at most its target."""
    if target is None:
        return ""
    return "yes" if value <= target else "no"


def environment() -> dict[str, Any]:
    """Describe the machine and the versions."""
    return {
        "processor": platform.processor() or platform.machine(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def report(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], options: argparse.Namespace
) -> None:
    """Print a table, and write all tables so far with the environment, if that was asked for."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *texts)]
    print(title)
    for row in (list(heads), *texts):
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("  ".join(cells), flush=True)
    options.tables.append({"title": title, "rows": [dict(zip(heads, row)) for row in rows]})
    if options.json is not None:
        record = {"environment": environment(), "tables": options.tables}
        options.json.write_text(json.dumps(record, indent=2))


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
