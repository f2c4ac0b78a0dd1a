"""Where two parts of an optimizer meet: groups and defaults, schedules and files, and random runs of it all."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Configured, Ctx, Hyper, OptState, Update, optimizer, optimizer_update
from dslmut.optim import adamw, chain, clip_by_value, lion, rprop, sgd
from dslmut.optim.schedules import cosine


def ones(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(*shape))


def saved(opt: torch.optim.Optimizer) -> dict[str, Any]:
    """Return its state dict, by way of a file."""
    file = io.BytesIO()
    torch.save(opt.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# -- groups of other rules -----------------------------------------------------------------------


RULES = [adamw(lr=0.1), sgd(lr=0.1), rprop(), lion(), chain(clip_by_value(1.0), sgd(lr=0.1))]


@pytest.mark.parametrize("first", RULES, ids=str)
@pytest.mark.parametrize("second", RULES, ids=str)
def test_a_group_has_the_hyperparameters_of_its_own_rule_alone(
    first: Configured, second: Configured
) -> None:
    opt = first.bind(
        [{"params": [ones(2)]}, {"params": [ones(2)], "optimizer": second}], compile=False
    )
    opt.add_param_group({"params": [ones(2)], "optimizer": second})
    own = {"params", "step", "rule", "seed"}
    shown = [set(g) - own for g in opt.param_groups]
    assert shown == [set(r.hyperparameters) for r in (first, second, second)]
    opt.load_state_dict(saved(opt))


# -- schedules and files -------------------------------------------------------------------------


def test_a_schedule_is_known_from_when_it_was_written_into_a_group() -> None:
    opt = adamw(lr=0.1).bind([ones(2)], curriculum=10, compile=False)
    before = opt.state_dict()
    opt.param_groups[0]["lr"] = cosine(0.5)
    opt.param_groups[0]["betas"] = (lambda ctx: 0.8, 0.9)
    group = saved(opt)["param_groups"][0]
    assert group["lr"] == 0.5
    assert group["betas"] == (0.8, 0.9)
    assert opt.torch_state_dict()["param_groups"][0]["lr"] == 0.5
    opt.load_state_dict(before)
    assert opt.param_groups[0]["lr"] == 0.5


@optimizer
def shaped(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 0.1,
    shape: Callable[[Tensor], Tensor] = torch.sign,
) -> Update:
    return optimizer_update(param - lr * shape(grad))


def test_functions_among_the_hyperparameters_are_code_and_not_saved() -> None:
    opt = shaped().bind([ones(2)], compile=False)
    file = saved(opt)
    assert "shape" not in file["param_groups"][0]
    again: OptState[Any] = shaped(shape=torch.tanh).bind([ones(2)], compile=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.load_state_dict(file)
    assert again.param_groups[0]["shape"] is torch.tanh
