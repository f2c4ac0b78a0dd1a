"""A toy size of each benchmark runs, so that none of them rots."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = sorted(p.stem for p in (ROOT / "benchmarks").glob("bench_*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_benchmark(name: str, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--toy", "--json", str(result)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(result.read_text())
    assert record["rows"]
    assert record["environment"]["torch"]
    text = (ROOT / "benchmarks" / f"{name}.py").read_text()
    assert f"Run: python -m benchmarks.{name}" in text
