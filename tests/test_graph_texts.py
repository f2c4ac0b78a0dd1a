"""Texts of update graphs: of every standard optimizer, of random numbers, of branches and reports."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, Hyper, Update, diagnostic, optimizer, optimizer_update
from dslmut.optim import clip_by_global_norm, schedule_value
from dslmut.optim.chains import chain
from tests.conformance import ROWS, Row


def bound(rule, dtype: torch.dtype = torch.float32, **options):
    weight = nn.Parameter(torch.ones(3, 2, dtype=dtype))
    return rule.bind([("weight", weight)], compile=False, **options)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_every_standard_optimizer_has_a_text_of_every_kind(row: Row) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.complex64):
        if dtype.is_complex and not row.elementwise:
            continue
        rule = row.rule(**row.base)
        for whole in (rule, chain(clip_by_global_norm(1.0), rule)):
            opt = bound(whole, dtype, rounding="stochastic")
            for updates in (1, 2):
                text = opt.graph("weight", updates=updates)
                assert "\n  param <- " in text
                assert "random_key" not in text
                assert ("round_by_chance" in text) == (dtype is torch.bfloat16)
                assert ("ctx.grad_norm" in text) == (whole is not rule)


@optimizer
def jumping(
    param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, noise: float = 1.0
) -> Update:
    lr = schedule_value(lr, ctx)
    trust = param.norm() / ctx.grad_norm
    diagnostic("trust", trust)
    diagnostic("rate", lr)
    diagnostic("largest", grad.abs().max())
    moved = param - lr * trust * grad
    if ctx.updates > 2:
        moved = moved + noise * ctx.randn_like(param) * (ctx.rand_like(param) < 0.5)
    return optimizer_update(moved)


def test_what_is_drawn_is_written_as_the_body_draws_it() -> None:
    text = bound(jumping(), torch.float64).graph("weight", updates=3)
    assert "moved_2 = moved + noise * ctx.randn_like(float64[3, 2])" in text
    assert "ctx.rand_like(float64[3, 2]) < 0.5" in text
    assert "moved_2" not in bound(jumping()).graph("weight")


def test_a_text_says_how_the_branches_came_out_and_is_that_of_the_next_update() -> None:
    opt = bound(jumping(noise=0.0))
    [weight] = opt.param_groups[0]["params"]
    for number in (1, 2, 3):
        text = opt.graph("weight")
        outcome = "true" if number > 2 else "false"
        title = f"branches of the body, as update {number} takes them"
        assert f"{title}\n  ctx.updates > 2 is {outcome}\n" in text
        assert text == opt.graph("weight", updates=number)
        weight.grad = torch.ones(3, 2)
        opt.step()


def test_a_text_lists_every_diagnostic_of_whatever_name() -> None:
    lines = bound(jumping()).graph("weight").partition("diagnostics")[2].splitlines()
    assert lines[1:] == [
        "  rate = lr.to(float32)",
        "  largest = max(abs(grad))",
        "  trust <- trust",
    ]

    @optimizer
    def named(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        diagnostic("grad", grad)
        return optimizer_update(param * (1 - lr))

    single = nn.Parameter(torch.ones(()))
    text = named().bind([("w", single)], compile=False).graph("w")
    assert text.endswith("\n  grad <- grad")
