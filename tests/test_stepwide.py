"""``ctx.grad_norm`` and clipping by it: one norm of all gradients, before any update."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Ctx,
    Hyper,
    OptimizerError,
    OptState,
    Update,
    diagnostic,
    group,
    groups,
    optimizer,
    optimizer_update,
)
from dslmut.optim import (
    adamw,
    centralised,
    chain,
    clip_by_global_norm,
    gradient_transform,
    momentum_sgd,
    schedule_value,
    sgd,
    update_transform,
)
from dslmut.optim.stepwide import total_norm


def model(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)).to(dtype)


def give(m: nn.Module, step: int, missing: bool = True) -> None:
    """Give a gradient to each parameter, but for one that is another one at each step."""
    draw = torch.Generator().manual_seed(step)
    for i, p in enumerate(m.parameters()):
        g = torch.randn(p.shape, generator=draw, dtype=torch.float64)
        p.grad = None if missing and step % 7 == i else (3 * g).to(p.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_clipping_by_the_global_norm_is_torchs(dtype: torch.dtype) -> None:
    ours, theirs = model(dtype), model(dtype)
    opt = chain(clip_by_global_norm(1.5), adamw(lr=0.01)).bind(ours, compile=False)
    other = torch.optim.AdamW(theirs.parameters(), lr=0.01)
    for step in range(50):
        give(ours, step)
        give(theirs, step)
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.5)
        opt.step()
        other.step()
    tolerance = 1e-12 if dtype is torch.float64 else 1e-5
    for p, q in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


def test_the_norm_is_over_all_groups_and_rules() -> None:
    ours, theirs = model(), model()
    clipped = clip_by_global_norm(lambda ctx: 1.0 + ctx.step)
    rules = groups(
        group("0.*", optimizer=chain(clipped, sgd(lr=0.1))),
        group(optimizer=chain(clipped, momentum_sgd(lr=0.2))),
    )
    opt = rules.bind(ours, compile=False)
    first = [p for n, p in theirs.named_parameters() if n.startswith("0.")]
    rest = [p for n, p in theirs.named_parameters() if not n.startswith("0.")]
    others = [torch.optim.SGD(first, 0.1), torch.optim.SGD(rest, 0.2, momentum=0.9)]
    for step in range(10):
        give(ours, step)
        give(theirs, step)
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0 + step)
        opt.step()
        for other in others:
            other.step()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


@optimizer
def normalised(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
    diagnostic("norm", ctx.grad_norm)
    assert ctx.grad_norm is ctx["grad_norm"]
    return optimizer_update(param - schedule_value(lr, ctx) * grad / ctx.grad_norm)


def test_a_body_reads_the_norm() -> None:
    m = model(torch.float32)
    m[2].double()  # pyright: ignore
    opt = normalised(lr=0.5).bind(m, compile=False, diagnostics_every=1)
    give(m, 1)
    expected = sum(
        float(p.grad.double().square().sum()) for p in m.parameters() if p.grad is not None
    )
    before = {n: p.detach().clone() for n, p in m.named_parameters()}
    opt.step()
    assert set(opt.diagnostics["norm"]) == {
        n for n, p in m.named_parameters() if p.grad is not None
    }
    for number in opt.diagnostics["norm"].values():
        assert number == pytest.approx(expected**0.5, rel=1e-6)
    for n, p in m.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(p.detach(), before[n] - 0.5 * p.grad / expected**0.5)
    assert "ctx.grad_norm" in opt.graph("0.weight")


def test_norms_of_low_precision_are_summed_in_single() -> None:
    gradients = [torch.full((4096,), 0.01, dtype=torch.bfloat16) for _ in range(64)]
    exact = sum(float(g.double().square().sum()) for g in gradients) ** 0.5
    assert float(total_norm(gradients)) == pytest.approx(exact, rel=1e-6)
    assert total_norm(gradients).dtype is torch.float32
    mixed = [*gradients, torch.ones(3), torch.ones(2, dtype=torch.float64), torch.zeros(0)]
    assert float(total_norm(mixed)) == pytest.approx((exact**2 + 5) ** 0.5, rel=1e-6)


def test_it_is_computed_only_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(gradients: Any) -> Tensor:
        asked.append(len(gradients))
        return total_norm(gradients)

    monkeypatch.setattr("dslmut.optim.stepwide.COMPUTED", {"grad_norm": counted})
    plain = sgd(lr=0.1).bind(model(), compile=False)
    mixed = model(torch.float32)
    mixed[0].double()  # pyright: ignore
    reading = normalised().bind(mixed, compile=False)
    for opt in (plain, reading):
        for p in opt.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        opt.step()
    assert asked == [6]


def test_a_compiled_step_reads_each_new_norm_without_compiling_again() -> None:
    ours, theirs = model(torch.float32), model(torch.float32)
    rule = chain(clip_by_global_norm(1.0), sgd(lr=0.1))
    compiled, plain = rule.bind(ours[2]), rule.bind(theirs[2], compile=False)  # pyright: ignore
    for step in range(3):
        give(ours, step, missing=False)
        give(theirs, step, missing=False)
        compiled.step()
        plain.step()
        kernels = len(compiled._runner.kernels)  # pyright: ignore
        assert kernels == 1
    for p, q in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)


def test_copies_and_files_of_an_optimizer_that_reads_it() -> None:
    m = model()
    rule = chain(clip_by_global_norm(1.0), momentum_sgd(lr=0.1))
    opt = rule.bind(m, compile=False)
    give(m, 0)
    with torch.inference_mode():
        opt.step()
    file = io.BytesIO()
    torch.save(opt.state_dict(), file)
    file.seek(0)
    other, again = copy.deepcopy((m, opt))
    third = copy.deepcopy(m)
    loaded = rule.bind(third, compile=False)
    loaded.load_state_dict(torch.load(file))
    for mine, own in ((m, opt), (other, again), (third, loaded)):
        give(mine, 1)
        own.step()
    for p, q, r in zip(m.parameters(), other.parameters(), third.parameters()):
        assert torch.equal(p, q)
        assert torch.equal(p, r)


# -- where it cannot be read ---------------------------------------------------------------------


@gradient_transform
def own_clip(param: Tensor, grad: Tensor, ctx: Ctx) -> Tensor:
    return grad / ctx.grad_norm


@update_transform
def late(param: Tensor, grad: Tensor, new: Tensor, ctx: Ctx) -> Tensor:
    return new / ctx.grad_norm


@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        (chain(centralised(), clip_by_global_norm(1.0), sgd()), "centralised"),
        (chain(clip_by_global_norm(1.0), own_clip(), sgd()), "clip_by_global_norm"),
        (chain(centralised(), normalised()), "centralised"),
        (chain(centralised(), sgd(), late()), "centralised"),
    ],
)
def test_behind_a_change_of_the_gradient_it_is_refused(rule: Any, changed: str) -> None:
    """It would be the norm of other gradients than those that the part sees."""
    with pytest.raises(OptimizerError, match=f"E-OPT-010(.|\n)*behind `{changed}`"):
        rule.bind(model(), compile=False)


def test_behind_the_rule_alone_it_may_be_read() -> None:
    opt = chain(sgd(lr=1.0), late()).bind(model(), compile=False)
    assert isinstance(opt, OptState)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda ctx: 0.1 / ctx.grad_norm,
        lambda ctx: 0.1 if ctx.step < 3 else float(ctx.grad_norm),
        lambda ctx: 0.1 if ctx.grad_norm < 3 else 0.2,
    ],
)
def test_a_schedule_cannot_read_it(schedule: Any) -> None:
    m = model()
    with pytest.raises(Exception, match="E-OPT-006(.|\n)*a schedule reads `ctx.grad_norm`"):
        opt = sgd(lr=schedule).bind(m, compile=False)
        for step in range(5):
            give(m, step)
            opt.step()


def test_the_name_is_taken() -> None:
    with pytest.raises(Exception, match="E-OPT-011(.|\n)*cannot get a key `grad_norm`"):
        sgd().bind(model(), ctx={"grad_norm": 0.0}, compile=False)
