"""Each standard optimizer equals its reference over 200 steps, and its body is at most fifteen lines.

The deviation is the largest of all parameters and hyperparameters, relative to a parameter's
largest element.

Run: python -m benchmarks.bench_conformance
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from benchmarks.measure import arguments, report
from tests.conformance import ROWS, TOLERANCES, Row, body_lines, deviations


def measured(row: Row) -> tuple[Any, ...]:
    torch.manual_seed(0)
    largest = {dtype: max(deviations(row, dtype).values()) for dtype in row.dtypes}
    shown = (f"{largest[d]:.1e}" if d in largest else "" for d in TOLERANCES)
    return row.name, body_lines(row.rule), *shown


def main() -> None:
    options = arguments(__doc__)
    chosen = [replace(r, steps=2) for r in ROWS[:3]] if options.toy else ROWS
    names = [str(dtype).removeprefix("torch.") for dtype in TOLERANCES]
    rows = [measured(row) for row in chosen]
    report("against the reference", ("optimizer", "lines", *names), rows, options)


if __name__ == "__main__":
    main()
