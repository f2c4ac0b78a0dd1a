"""The standard optimizers: each is what its reference is, and short."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dslmut import OptimizerError, optim
from dslmut.optim.define import Optimizer
from tests.conformance import ROWS, Row, body_lines, deviations

LONGEST_BODY = 15


def standard() -> dict[str, Optimizer[...]]:
    found = {n: getattr(optim, n) for n in optim.__all__}
    return {n: v for n, v in found.items() if isinstance(v, Optimizer)}


@pytest.mark.parametrize("name", standard())
def test_a_standard_optimizer_is_short_and_stands_in_the_table(name: str) -> None:
    rule = standard()[name]
    assert body_lines(rule) <= LONGEST_BODY
    rows = [r for r in ROWS if r.rule is rule]
    assert rows
    held_to = {h for r in rows for h in r.moved} | {h for r in rows for h in r.base}
    assert set(rule.hyperparameters) - {"batch_dims"} == held_to


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_each_hyperparameter_is_moved(row: Row) -> None:
    for name, value in row.moved.items():
        default = row.rule.hyperparameters[name].default
        pairs = zip(value, default) if isinstance(value, tuple) else [(value, default)]
        assert all(new != old for new, old in pairs)


@pytest.mark.parametrize(
    ("row", "dtype"),
    [(row, dtype) for row in ROWS for dtype in row.dtypes],
    ids=lambda x: x.name if isinstance(x, Row) else str(x).removeprefix("torch."),
)
def test_a_standard_optimizer_equals_its_reference(row: Row, dtype: torch.dtype) -> None:
    found = deviations(row, dtype)
    worst: dict[Any, float] = {k: v for k, v in found.items() if not v <= row.tolerance(dtype)}
    assert not worst


@pytest.mark.parametrize("row", [r for r in ROWS if not r.elementwise], ids=lambda r: r.name)
def test_others_refuse_complex_parameters_when_they_are_bound(row: Row) -> None:
    p = torch.nn.Parameter(torch.ones(3, 3, dtype=torch.complex64))
    with pytest.raises(OptimizerError, match="E-OPT-005(.|\n)*complex"):
        row.rule(**row.base).bind([p], compile=False)


@pytest.mark.parametrize(
    "rule", [optim.rprop, optim.adafactor, optim.lamb, optim.soap], ids=lambda r: r.__name__
)
def test_a_compiled_optimizer_equals_an_uncompiled_one(rule: Optimizer[...]) -> None:
    """Of each kind of body one: signs and choices, factors, norms, and bases in several graphs."""
    results = []
    for compiled in (True, False):
        torch.manual_seed(0)
        p = torch.nn.Parameter(torch.randn(4, 3))
        opt = rule().bind([p], compile=compiled)
        for _ in range(3):
            p.grad = torch.randn(4, 3)
            opt.step()
        results.append(p.detach())
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-7)
