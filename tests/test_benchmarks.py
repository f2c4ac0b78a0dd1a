"""A toy size of each benchmark runs, so that none of them rots; and they compare equals, fairly."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import bench_step, rivals
from benchmarks.measure import compared, met
from benchmarks.sides import of_torch, ours
from benchmarks.tensors import WIDTHS, elements, gpt2, hidden_matrices, random, thirty
from dslmut.optim import adamw

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
    assert record["tables"]
    for table in record["tables"]:
        assert table["rows"]
        assert table["title"] in done.stdout
    assert record["environment"]["torch"]
    text = (ROOT / "benchmarks" / f"{name}.py").read_text()
    assert f"Run: python -m benchmarks.{name}" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_guide_names_each_benchmark(name: str) -> None:
    guide = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert f"`{name}`" in guide


def test_the_model_has_the_tensors_that_are_timed() -> None:
    from benchmarks.gpt import GPT

    for width in WIDTHS[:2]:
        own = sorted(tuple(p.shape) for p in GPT(width).parameters())
        assert own == sorted(gpt2(width))
    assert [round(elements(gpt2(w)) / 1e6, 2) for w in WIDTHS] == [0.73, 10.0, 124.44]
    assert [len(gpt2(w)) for w in WIDTHS] == [148] * 3
    assert len(hidden_matrices(gpt2(64))) == 48
    assert len(set(thirty(1000))) == 30


def test_the_ratio_is_that_of_the_times() -> None:
    found = compared(lambda: time.sleep(0.002), lambda: time.sleep(0.006), budget=0.3)
    assert 0.2 < found.ratio < 0.6
    assert found.low <= found.ratio <= found.high
    assert met(0.5, 0.5) == "yes"
    assert met(0.6, 0.5) == "no"
    assert met(0.6, None) == ""


def pair(make: Any) -> Any:
    shapes = gpt2(8, layers=1)
    work = bench_step.Workload("toy", shapes, None, budget=0, toy=True)
    start, gradients = random(shapes, bench_step.SCALE), random(shapes)
    row = rivals.Row(adamw, (rivals.Rival("another", make),))
    return bench_step.made(row, row.rivals[0], work, start, gradients)


def test_what_computes_something_else_is_not_timed() -> None:
    own, other = pair(of_torch("AdamW"))
    torch.testing.assert_close(own.values(), other.values())
    for wrong in (
        of_torch("AdamW", lr=2e-3),
        of_torch("AdamW", betas=(0.9, 0.99)),
        of_torch("Adam", weight_decay=1e-2),
        of_torch("NAdam"),
    ):
        with pytest.raises(AssertionError, match="adamw and another disagree"):
            pair(wrong)


def test_the_bytes_of_a_step_are_all_that_it_reads_and_writes() -> None:
    for rule, tensors in (("sgd", 3), ("momentum_sgd", 5), ("adamw", 7), ("adan", 11)):
        (row,) = (r for r in rivals.ROWS if r.name == rule)
        p = torch.nn.Parameter(torch.ones(5, 2))
        side = ours(row.rule, compile=False)([p])
        assert bench_step.traffic(side) == tensors * 40
