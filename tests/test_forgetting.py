"""A resumed run that has forgotten what the file's run was bound with is told so."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from dslmut import OptState
from dslmut.optim import adamw, momentum_sgd, sgd
from dslmut.optim.schedules import constant, cosine, linear

FALLING = cosine(1e-2, steps=10)
MEMORIES: list[tuple[Any, dict[str, Any], Any, dict[str, Any], list[str]]] = [
    (adamw(lr=FALLING), {}, adamw(lr=FALLING), {}, []),
    (adamw(lr=FALLING), {}, adamw(lr=0.5), {}, ["`lr` of `adamw` followed a schedule"]),
    (adamw(lr=FALLING), {}, adamw(lr=constant(0.5)), {}, []),
    (adamw(lr=0.5), {}, adamw(lr=FALLING), {}, []),
    (
        adamw(lr=FALLING, betas=(linear(0.5, 0.9, steps=9), 0.9)),
        {},
        adamw(weight_decay=lambda ctx: 0.1),
        {},
        ["`lr` of `adamw` followed", "`betas` of `adamw` followed"],
    ),
    (sgd(), {"rounding": "stochastic"}, sgd(), {}, ["rounded by chance"]),
    (sgd(), {"rounding": "stochastic"}, sgd(), {"rounding": "stochastic"}, []),
    (sgd(), {}, sgd(), {"rounding": "stochastic"}, []),
    (sgd(), {"skip_nonfinite": True}, sgd(), {}, ["not finite"]),
    (sgd(), {}, sgd(), {"skip_nonfinite": True}, []),
]


def trained(rule: Any, m: nn.Module, steps: int = 3, **options: Any) -> OptState[Any]:
    opt = rule.bind(m, compile=False, **options)
    for _ in range(steps):
        for p in m.parameters():
            p.grad = torch.ones_like(p)
        opt.step()
    return opt


def said_by(opt: OptState[Any], file: dict[str, Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        opt.load_state_dict(file)
    return [str(w.message) for w in found]


@pytest.mark.parametrize(("rule", "options", "later", "now", "expected"), MEMORIES)
def test_what_was_forgotten_is_said(
    rule: Any, options: dict[str, Any], later: Any, now: dict[str, Any], expected: list[str]
) -> None:
    opt = trained(rule, nn.Linear(2, 2).bfloat16(), **options)
    again = later.bind(nn.Linear(2, 2).bfloat16(), compile=False, **now)
    said = said_by(again, copy.deepcopy(opt.state_dict()))
    assert len(said) == len(expected), said
    assert all(part in text for part, text in zip(expected, said)), said


def test_rounding_matters_to_low_precisions_alone() -> None:
    opt = trained(sgd(), nn.Linear(2, 2), rounding="stochastic")
    assert said_by(sgd().bind(nn.Linear(2, 2), compile=False), opt.state_dict()) == []


def test_the_number_that_stays_is_in_the_message() -> None:
    opt = trained(adamw(lr=FALLING), nn.Linear(2, 2))
    again = adamw(lr=0.5).bind(nn.Linear(2, 2), compile=False)
    (message,) = said_by(again, opt.state_dict())
    assert f"stays at {again.param_groups[0]['lr']}; bind with the schedule" in message


def test_groups_are_told_once_and_torch_gets_nothing_of_it() -> None:
    def groups(m: nn.Linear) -> list[dict[str, Any]]:
        return [{"params": [("w", m.weight)]}, {"params": [("b", m.bias)]}]

    m = nn.Linear(2, 2)
    opt = momentum_sgd(lr=FALLING).bind(groups(m), compile=False)
    again = momentum_sgd(lr=0.1).bind(groups(nn.Linear(2, 2)), compile=False)
    assert len(said_by(again, opt.state_dict())) == 1
    assert "bound_with" not in opt.torch_state_dict()["param_groups"][0]
    assert "bound_with" not in again.param_groups[0]
    old = copy.deepcopy(opt.state_dict())  # of a version that did not write it
    for g in old["param_groups"]:
        del g["bound_with"]
    assert said_by(again, old) == []


def test_a_group_shows_the_number_of_the_last_step() -> None:
    """After a step, a load, a copy and a new group alike; before the first step, the first one's."""
    m = nn.Linear(2, 2)
    opt = trained(adamw(lr=FALLING), m, steps=0)
    assert opt.param_groups[0]["lr"] == FALLING.start
    opt = trained(adamw(lr=FALLING), m, steps=4)
    shown = opt.param_groups[0]["lr"]
    again = adamw(lr=FALLING).bind(nn.Linear(2, 2), compile=False)
    again.load_state_dict(opt.state_dict())
    copied = copy.deepcopy(opt)
    opt.add_param_group({"params": [("w", nn.Parameter(torch.zeros(2)))]})
    for each in (opt, again, copied):
        assert [g["lr"] for g in each.param_groups] == [shown] * len(each.param_groups)
        for g in each.param_groups:
            for p in g["params"]:
                p.grad = torch.ones_like(p)
        each.step()
        assert each.param_groups[0]["lr"] < shown


def test_warnings_that_are_errors_change_nothing() -> None:
    opt = trained(adamw(lr=FALLING), nn.Linear(2, 2))
    m = nn.Linear(2, 2)
    again = adamw(lr=0.5).bind(m, compile=False)
    with pytest.raises(UserWarning, match="followed a schedule"):
        again.load_state_dict(opt.state_dict())
    assert (again.param_groups[0]["lr"], again.param_groups[0]["step"]) == (0.5, 0)
    assert again.state[m.weight]["updates"] == 0
    del opt.state_dict()["state"][0]["exp_avg"]
    with pytest.raises(UserWarning, match="the file lacks `exp_avg` of `weight`"):
        again.load_state_dict(opt.state_dict())
    assert (again.param_groups[0]["lr"], again.param_groups[0]["step"]) == (0.5, 0)
