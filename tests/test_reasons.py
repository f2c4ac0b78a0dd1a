"""What an error gives as its reason: one that is true of this mistake, under a title that is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Ctx,
    Curriculum,
    Hyper,
    OptimizerError,
    Stage,
    Update,
    optimizer,
    optimizer_update,
)
from dslmut.diagnostics.codes.optimizers import BadOption
from dslmut.diagnostics.model import Diagnostic
from dslmut.optim import adamw, clip_by_norm, schedule_value, sgd
from dslmut.optim.schedules import preview


def raised(act) -> Diagnostic:
    with pytest.raises(OptimizerError) as caught:
        act()
    [found] = caught.value.diagnostics
    assert found.title in str(caught.value)
    assert f"why: {found.why}" in str(caught.value)
    return found


def net() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


OPTIONS: list[dict[str, Any]] = [
    {"foreach": True}, {"rounding": "Stochastic"}, {"skip_nonfinite": "yes"}, {"compile": "no"},
    {"diagnostics_every": 0}, {"diagnostics_every": 2.5}, {"seed": -1}, {"seed": "a"},
    {"curriculum": "long"}, {"curriculum": 0}, {"curriculum": []}, {"curriculum": ["a"]},
    {"ctx": {"step": 1.0}}, {"ctx": {"a b": 1.0}}, {"ctx": {"temp": "a"}}, {"lr": 0.1},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_option_of_a_run_has_a_code_of_its_own(options: dict[str, Any]) -> None:
    found = raised(lambda: adamw(lr=1e-3).bind(net(), **options))
    assert (found.code, found.title, found.why) == ("E-OPT-011", BadOption.title(), BadOption.why)
    assert next(iter(options)) in found.message or "curriculum" in options


@pytest.mark.parametrize(
    "act",
    [
        lambda: Curriculum(),
        lambda: Curriculum(["a"]),  # pyright: ignore[reportArgumentType]
        lambda: Stage("short", 0),
        lambda: preview(1e-3, curriculum="long"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_curricula_are_options_of_a_run_wherever_they_are_made(act) -> None:
    assert raised(act).code == "E-OPT-011"


def stepped(gradient: Tensor | None = None, **given: Any) -> None:
    model = net()
    opt = sgd(lr=0.1).bind(model, compile=False, ctx={"loss": 0.0})
    model.weight.grad_dtype = None
    model.weight.grad = torch.ones(2, 3) if gradient is None else gradient
    opt.step(**given)


@optimizer
def unread(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
    return optimizer_update(param - lr * grad)  # pyright: ignore[reportOperatorIssue]


@optimizer
def drawing(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
    return optimizer_update(param - schedule_value(lr, ctx) * ctx.rand_like(3.0) * grad)  # pyright: ignore


bind = {"compile": False}

REASONS = {
    "a misspelt hyperparameter": (lambda: adamw(weight_decy=0.1), "002", "a misspelt hyper"),  # pyright: ignore
    "no number": (lambda: adamw(lr=None), "002", "each of the kind that it declares"),  # pyright: ignore
    "a number by position": (lambda: adamw(net(), 0.1), "002", "says not which"),  # pyright: ignore
    "given twice": (lambda: clip_by_norm(1.0, max_norm=2.0), "002", "one of the two"),  # pyright: ignore
    "missing": (lambda: clip_by_norm(), "002", "no value that the rule could take"),  # pyright: ignore
    "a schedule without a number": (
        lambda: sgd(lr=lambda ctx: "a").bind(net(), **bind),  # pyright: ignore
        "002",
        "one number for each step",
    ),
    "a schedule that is not read": (
        lambda: unread(lr=lambda ctx: 0.1).bind(net(), **bind),
        "002",
        "another one at each step",
    ),
    "ctx as a number": (
        lambda: sgd(lr=lambda ctx: 0.1 * ctx).bind(net(), **bind),
        "002",
        "`ctx` holds the numbers",
    ),
    "not bound": (lambda: adamw(lr=0.1).step(), "005", "together with the parameters"),  # pyright: ignore
    "twice": (lambda: sgd(lr=0.1).bind([*[net().weight] * 2], **bind), "005", "updated twice"),
    "one name": (
        lambda: sgd(lr=0.1).bind([("w", net().weight), ("w", net().bias)], **bind),
        "005",
        "as those of the other",
    ),
    "sparse": (lambda: stepped(torch.ones(2, 3).to_sparse()), "005", "gradient's element"),
    "complex": (lambda: stepped(torch.ones(2, 3) * 1j), "005", "a real parameter"),
    "no curriculum": (
        lambda: sgd(lr=lambda ctx: ctx.progress).bind(net(), **bind),
        "006",
        "what the run counts",
    ),
    "a misspelt key": (lambda: stepped(ctx={"los": 1.0}), "006", "the old number"),
    "a schedule that draws": (
        lambda: sgd(lr=lambda ctx: ctx.rand_like(ctx.step)).bind(net(), **bind),
        "006",
        "on the device",
    ),
    "draws like a number": (lambda: drawing().bind(net(), **bind), "006", "each element"),
    "no number for a key": (lambda: stepped(ctx={"loss": "a"}), "011", "what a run is told"),
}


@pytest.mark.parametrize(("act", "code", "why"), REASONS.values(), ids=list(REASONS))
def test_the_reason_is_true_of_the_mistake(act, code: str, why: str) -> None:
    found = raised(act)
    assert found.code == f"E-OPT-{code}"
    assert why in found.why
