"""`import dslmut` costs nothing to speak of: torch is loaded by what needs it, and not before.

Run: python -m benchmarks.bench_import
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.measure import arguments, report

CASES = {
    "nothing": "pass",
    "import dslmut": "import dslmut",
    "the command line": "import dslmut.front.cli",
    "import torch": "import torch",
    "torch, then fn": "import torch; from dslmut import fn",
    "torch, then fn and optimizer": "import torch; from dslmut import fn, optimizer",
}


def main() -> None:
    options = arguments(__doc__)
    rounds = 1 if options.toy else 7
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(rounds):
        for name, code in CASES.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times[name].append((time.perf_counter() - start) * 1e3)
    rows = [(name, statistics.median(t)) for name, t in times.items()]
    report("a new process, to its end", ("what", "ms"), rows, options)


if __name__ == "__main__":
    main()
