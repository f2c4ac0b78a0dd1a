"""Whatever is given to an optimizer that does not fit is refused with a code, and nothing was changed before."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dslmut import (
    Curriculum,
    OptimizerError,
    OptState,
    Stage,
    group,
    groups,
    metric,
    record,
)
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.optim import adamw, muon, muon_groups, sgd
from dslmut.optim.schedules import constant, one_cycle, preview

ODD: list[Any] = [
    b"x", -1, 1.5, math.nan, math.inf, 10**400, {1}, object(), torch.zeros(()), torch.zeros(2),
    np.zeros(2), np.array(1), 1j, torch.float32, SimpleNamespace(), [None],
]  # fmt: skip


def described(value: Any) -> str:
    return f"{type(value).__name__}:{value!r}"[:24]


ANY = pytest.mark.parametrize("odd", ODD, ids=described)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))


def bound(skip: bool = False) -> OptState[Any]:
    """Return an optimizer that has made a step."""
    opt = adamw(lr=0.1).bind(network(), ctx={"loss": 0.0}, skip_nonfinite=skip, compile=False)
    for p in opt.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    opt.step()
    return opt


def contents(opt: OptState[Any]) -> list[Any]:
    """Return everything that a step or a file may change."""
    parameters = [p for g in opt.param_groups for p in g["params"]]
    tensors = [p.detach().clone() for p in parameters]
    counts = [(g["step"], g["lr"]) for g in opt.param_groups]
    for p in parameters:
        tensors += [v.clone() for v in opt.state[p].values() if isinstance(v, torch.Tensor)]
        counts.append(opt.state[p]["updates"])
    return [counts, *tensors]


def unchanged(opt: OptState[Any], call: Callable[[], Any]) -> None:
    before = contents(opt)
    with pytest.raises(DslmutError):
        call()
    after = contents(opt)
    assert before[0] == after[0]
    assert all(map(torch.equal, before[1:], after[1:]))


# -- what is bound -------------------------------------------------------------------------------


@ANY
def test_targets_rules_and_selectors(odd: Any) -> None:
    m, rest = network(), group(optimizer=sgd())
    rule = {"muon": muon(), "adamw": adamw()}
    calls: list[Callable[[], Any]] = [
        lambda: adamw(odd),
        lambda: groups(odd, rest),
        lambda: groups(m, odd),
        lambda: group("*", optimizer=odd),
        lambda: group(odd, optimizer=sgd()),
        lambda: muon_groups(odd, **rule),
        lambda: muon_groups(m, **{**rule, "muon": odd}),
        lambda: muon_groups(m, **{**rule, "adamw": odd}),
        lambda: muon_groups(m, **rule, heads=odd),
        lambda: OptState(odd, m),
        lambda: Curriculum(odd),
        lambda: Stage(odd, 1),
    ]
    for call in calls:
        with pytest.raises(DslmutError):
            call()


def test_a_selector_takes_name_and_parameter() -> None:
    with pytest.raises(OptimizerError, match="a name and a parameter"):
        group(lambda name: True, optimizer=sgd())  # pyright: ignore[reportArgumentType]


@ANY
@pytest.mark.parametrize("option", ["ctx", "rounding", "skip_nonfinite", "compile"])
def test_options_of_a_run(option: str, odd: Any) -> None:
    with pytest.raises(DslmutError):
        adamw().bind(network(), **{option: odd})


@pytest.mark.parametrize("value", [math.nan, 10**400, torch.tensor(math.nan)], ids=described)
def test_a_hyperparameter_is_a_number_that_there_is(value: Any) -> None:
    with pytest.raises(OptimizerError):
        adamw(lr=value)
    with pytest.raises(OptimizerError):
        adamw(betas=(0.9, value))
    opt = bound()
    lr = opt.param_groups[0]["lr"]
    opt.param_groups[0]["lr"] = value
    with pytest.raises(OptimizerError):
        opt.step()
    opt.param_groups[0]["lr"] = lr
    assert opt.param_groups[0]["step"] == 1
    with pytest.raises(OptimizerError):
        adamw().bind(network(), ctx={"loss": 10**400})


# -- a step --------------------------------------------------------------------------------------


@ANY
def test_arguments_of_a_step(odd: Any) -> None:
    opt = bound()
    for name in ("closure", "diagnostics", "ctx", "gradients"):
        unchanged(opt, lambda name=name: opt.step(**{name: odd}))


@ANY
@pytest.mark.parametrize("key", ["step", "seed", "skipped", "rule", "params"])
def test_what_is_written_over_a_groups_own_keys(key: str, odd: Any) -> None:
    if key == "params" and isinstance(odd, torch.Tensor):
        return  # it is one parameter
    opt = bound(skip=True)
    kept = opt.param_groups[0][key]
    before = contents(opt)
    opt.param_groups[0][key] = odd
    with pytest.raises(DslmutError):
        opt.step()
    opt.param_groups[0][key] = kept
    after = contents(opt)
    assert before[0] == after[0]
    assert all(map(torch.equal, before[1:], after[1:]))
    opt.step()
    assert opt.param_groups[0]["step"] == 2


@ANY
@pytest.mark.parametrize("key", ["step", "seed", "skipped", "rule", "params", "optimizer", "lr"])
def test_a_further_group(key: str, odd: Any) -> None:
    if (key == "params" and isinstance(odd, torch.Tensor)) or (key == "lr" and _is_number(odd)):
        return  # it is one
    opt = bound(skip=True)
    unchanged(opt, lambda: opt.add_param_group({"params": [nn.Parameter(torch.ones(2))], key: odd}))
    unchanged(opt, lambda: opt.add_param_group(odd))
    assert len(opt.param_groups) == 1


def _is_number(value: Any) -> bool:
    try:
        return not math.isnan(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def test_a_rebuilt_group_of_another_rule_keeps_it() -> None:
    opt = bound()
    opt.add_param_group({"params": [nn.Parameter(torch.ones(2))], "optimizer": sgd(lr=0.5)})
    opt.param_groups[1] = dict(opt.param_groups[1])
    opt.step()
    assert [g["rule"] for g in opt.param_groups] == ["adamw", "sgd"]


# -- files, reports and schedules ----------------------------------------------------------------


@ANY
def test_files(odd: Any) -> None:
    is_zero = isinstance(odd, torch.Tensor) and odd.ndim == 0  # which is a count
    opt = bound()
    unchanged(opt, lambda: opt.load_state_dict(odd))
    for key in ("state", "param_groups"):
        unchanged(opt, lambda key=key: opt.load_state_dict({**opt.state_dict(), key: odd}))
    for key in ("params", "seed", "step", "rule", "param_names", "betas", "amsgrad"):
        file = opt.state_dict()
        if key == "step" and is_zero:
            continue
        file["param_groups"][0][key] = odd
        unchanged(opt, lambda file=file: opt.load_state_dict(file))
    for name in ("exp_avg", "updates"):
        if name == "updates" and is_zero:
            continue
        file = opt.state_dict()
        file["state"] = {n: dict(s) for n, s in file["state"].items()}
        file["state"][0][name] = odd
        unchanged(opt, lambda file=file: opt.load_state_dict(file))
    file = opt.state_dict()
    file["state"] = {n: dict(s) for n, s in file["state"].items()}
    for part in (file["state"][1], file["param_groups"][0]):
        part[0] = odd
        unchanged(opt, lambda file=file: opt.load_state_dict(file))
        del part[0]


@ANY
def test_reports(odd: Any) -> None:
    opt = bound()
    calls: list[Callable[[], Any]] = [
        lambda: opt.attach(odd),
        lambda: metric(odd, 1.0),
        lambda: record(odd).__enter__(),
    ]
    if not isinstance(odd, int):
        calls.append(lambda: metric("loss", 1.0, step=odd))
        calls.append(lambda: record(every=odd).__enter__())
    if not _is_number(odd) and not (isinstance(odd, float) and math.isnan(odd)):
        calls.append(lambda: metric("loss", odd))
    for call in calls:
        with pytest.raises(OptimizerError):
            call()
    with pytest.raises(KeyError):
        opt.graph(odd)


def test_previews_and_ready_schedules() -> None:
    for call in (
        lambda: preview(constant(1.0), 1.5),  # pyright: ignore[reportArgumentType]
        lambda: preview("fast", 2),  # pyright: ignore[reportArgumentType]
        lambda: preview(10**400, 2),
        lambda: constant(10**400),
        lambda: one_cycle(0.1, start="low"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(OptimizerError):
            call()
