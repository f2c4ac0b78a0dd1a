"""Where schedules are behind the end of what they go over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dslmut import Curriculum, Stage
from dslmut.optim import sgd
from dslmut.optim.schedules import (
    by_stage,
    cosine,
    join,
    linear,
    one_cycle,
    polynomial,
    preview,
    stable_then_decay,
    warm_up,
)

WITHOUT_STEPS = [
    cosine(1.0),
    cosine(1.0, 0.1),
    cosine(0.1, 1.0),
    linear(1.0, 0.0),
    polynomial(1.0, power=2.0),
    one_cycle(1.0),
    stable_then_decay(1.0),
    warm_up(cosine(1.0), steps=3),
    warm_up(cosine(1.0, 0.1), steps=0.25),
    join(0.5, cosine(1.0), at=4),
]


@pytest.mark.parametrize("schedule", WITHOUT_STEPS, ids=repr)
def test_without_steps_it_stays_behind_the_end_of_the_curriculum(schedule: Any) -> None:
    run = Curriculum(steps=12)
    numbers = preview(schedule, 40, curriculum=run)
    assert set(numbers[12:]) == {numbers[12]}
    assert len(set(numbers[:12])) > 1


def test_the_last_stage_stays_too() -> None:
    run = Curriculum([Stage("a", 4), Stage("b", 6)])
    numbers = preview(by_stage({"a": linear(0.0, 1.0), "b": cosine(1.0, 0.1)}), 30, curriculum=run)
    assert numbers[10:] == pytest.approx([0.1] * 20)


def test_an_optimizer_that_goes_on_does_not_warm_up_again() -> None:
    p = nn.Parameter(torch.zeros(1))
    opt = sgd(lr=cosine(1e-3)).bind([p], curriculum=2, compile=False)
    seen = []
    for _ in range(6):
        p.grad = torch.ones(1)
        before = p.item()
        opt.step()
        seen.append(before - p.item())
    assert seen == pytest.approx([1e-3, 5e-4, 0, 0, 0, 0], abs=1e-9)


def test_with_steps_a_cosine_is_that_of_torch() -> None:
    p = nn.Parameter(torch.zeros(1))
    theirs = torch.optim.SGD([p], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, T_max=5, eta_min=0.1)
    expected = []
    for _ in range(15):
        expected.append(scheduler.get_last_lr()[0])
        theirs.step()
        scheduler.step()
    assert preview(cosine(1.0, 0.1, steps=5), 15) == pytest.approx(expected)
    assert preview(cosine(1.0, 0.1, steps=5), 15, curriculum=5) == pytest.approx(expected)
