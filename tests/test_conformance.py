"""The standard optimizers: each is what its reference is, and short."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dslmut import optim
from dslmut.optim.define import Optimizer
from tests.conformance import ROWS, TOLERANCES, Row, body_lines, deviations

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


@pytest.mark.parametrize("dtype", TOLERANCES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_a_standard_optimizer_equals_its_reference(row: Row, dtype: torch.dtype) -> None:
    found = deviations(row, dtype)
    worst: dict[Any, float] = {k: v for k, v in found.items() if not v <= row.tolerance(dtype)}
    assert not worst
