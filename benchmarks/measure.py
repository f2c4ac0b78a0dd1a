"""What every benchmark shares: alternating runs, medians, a table, and a record with the environment."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch


def arguments(description: str | None) -> argparse.Namespace:
    """Read the command line that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--toy", action="store_true", help="so small that it only shows it runs")
    parser.add_argument("--json", type=Path, help="write the result and the environment there")
    return parser.parse_args()


def alternating(
    functions: Mapping[str, Callable[[], object]], rounds: int, calls: int
) -> dict[str, float]:
    """Return the median time of one call of each function, in microseconds.

    The functions take turns, so that a machine that slows down slows all of them down.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


def environment() -> dict[str, Any]:
    """Describe the machine and the versions."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def report(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], options: argparse.Namespace
) -> None:
    """Print a table, and write it with the environment if that was asked for."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *texts)]
    print(title)
    for row in (list(heads), *texts):
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("  ".join(cells))
    if options.json is not None:
        record = {
            "title": title,
            "rows": [dict(zip(heads, row)) for row in rows],
            "environment": environment(),
        }
        options.json.write_text(json.dumps(record, indent=2))


def _text(cell: Any) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
