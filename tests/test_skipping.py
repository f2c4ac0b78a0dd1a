"""``skip_nonfinite``: a step with a non-finite gradient is as if it had not been called."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Configured,
    Ctx,
    DslmutError,
    Hyper,
    OptState,
    Update,
    defstate,
    diagnostic,
    group,
    groups,
    mut,
    optimizer,
    optimizer_update,
    update,
    value_and_grad,
)
from dslmut.optim import adamw, chain, clip_by_global_norm, momentum_sgd, schedule_value, sgd


@pytest.fixture(params=["host", "device", "late"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Decide as on a CPU; as on a device that is as fast as the host; and as on one far behind."""
    if request.param != "host":
        monkeypatch.setattr("dslmut.optim.counting.decides_on_host", lambda given: not given)
    if request.param == "late":
        monkeypatch.setattr("dslmut.optim.skipping.OpenStep.known", lambda step: False)
    return request.param


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).to(dtype)


def give(m: nn.Module, step: int, bad: float | None = None, at: int = 0, missing: int = -1) -> None:
    """Give gradients; *bad* stands in the one of parameter *at*, that of *missing* is None."""
    draw = torch.Generator().manual_seed(step)
    for i, p in enumerate(m.parameters()):
        g = torch.randn(p.shape, generator=draw).to(p.dtype)
        if bad is not None and i == at:
            g.flatten()[-1] = bad
        p.grad = None if i == missing else g


def seen(m: nn.Module, opt: OptState[Any]) -> Any:
    """Return all that a step changes."""
    return copy.deepcopy(
        ([p.detach() for p in m.parameters()], opt.state_dict(), dict(opt.diagnostics))
    )


def same(a: Any, b: Any) -> bool:
    """Compare bit by bit, but for the count of skipped steps, and whether they are skipped."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b) and a.dtype is b.dtype
    if isinstance(a, dict):
        keys = a.keys() - {"skipped", "bound_with"}
        return keys == b.keys() - {"skipped", "bound_with"} and all(same(a[k], b[k]) for k in keys)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def fall(ctx: Ctx) -> float:
    return 0.1 / (1 + ctx.step)


def asked(ctx: Ctx) -> float:
    return 0.1 if ctx.step < 3 else 0.05


@optimizer
def watched(
    param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, share: Hyper = 0.5
) -> Update:
    mean = defstate("mean", torch.zeros_like(param))
    new = schedule_value(share, ctx) * mean + grad
    diagnostic("step", ctx.step)
    diagnostic("size", grad.norm())
    if ctx.step > 4:
        new = new * 0.5
    return optimizer_update(param - schedule_value(lr, ctx) * new, mean=new)


RULES: dict[str, Configured] = {
    "adamw": adamw(lr=0.05),
    "scheduled": adamw(lr=fall, betas=(0.8, 0.9)),
    "called": watched(lr=asked, share=fall),
    "clipped": chain(clip_by_global_norm(0.5), momentum_sgd(lr=0.1)),
}


def test_one_bad_element_anywhere_skips_the_step(way: str) -> None:
    m = model()
    opt = momentum_sgd(lr=0.1).bind(m, compile=False, skip_nonfinite=True)
    give(m, 0)
    opt.step()
    before = seen(m, opt)
    for bad in (math.nan, math.inf, -math.inf):
        for at in range(4):
            give(m, 1, bad, at)
            opt.step()
            assert same(seen(m, opt), before)
    assert opt.skipped == 12
    give(m, 2)
    opt.step()
    assert not same(seen(m, opt), before)
    assert opt.skipped == 12


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("looks", [1, 7])
def test_a_run_with_bad_steps_equals_one_without_them(name: str, looks: int, way: str) -> None:
    """Counts, schedules, bias corrections and the cadence of diagnostics included."""
    ours, theirs = model(), model()
    options: dict[str, Any] = {"compile": False, "diagnostics_every": 3, "curriculum": 8}
    opt = RULES[name].bind(ours, skip_nonfinite=True, **options)
    other = RULES[name].bind(theirs, **options)
    bad = 0
    for step in range(16):
        if step % 5 in (0, 3):
            give(ours, 100 + step, math.nan, step % 4, missing=(step + 1) % 4)
            opt.step()
            bad += 1
            continue
        missing = step % 6
        give(ours, step, missing=missing)
        give(theirs, step, missing=missing)
        opt.step()
        other.step()
        if step % looks == 0:
            assert same(seen(ours, opt), seen(theirs, other)), step
    assert opt.skipped == bad
    assert same(seen(ours, opt), seen(theirs, other))
    assert other.skipped == 0


def test_all_rules_of_all_groups_stand_still(way: str) -> None:
    m = model()
    rules = groups(group("0.*", optimizer=adamw()), group(optimizer=sgd(lr=0.1)))
    opt = rules.bind(m, compile=False, skip_nonfinite=True)
    give(m, 0)
    opt.step()
    before = seen(m, opt)
    give(m, 1, math.inf, at=3)
    opt.step()
    assert same(seen(m, opt), before)
    assert [g["step"] for g in opt.param_groups] == [1, 1]
    give(m, 1, math.inf, at=0)
    opt.step()
    opt.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "optimizer": sgd()})
    assert opt.param_groups[2]["skipped"] == 2


def test_what_is_told_at_a_skipped_step_is_forgotten(way: str) -> None:
    @optimizer
    def told(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        return optimizer_update(param - ctx["loss"] * grad)

    m = model()
    opt = told().bind(m, ctx={"loss": 0.5}, compile=False, skip_nonfinite=True)
    for bad, told, loss in [
        (math.nan, {"loss": 100.0}, 0.5),
        (math.nan, None, 0.5),
        (None, {"loss": 0.25}, 0.25),
        (None, None, 0.25),
        (math.nan, {"loss": 100.0}, 0.25),
        (None, None, 0.25),
    ]:
        give(m, 1, bad)
        expected = [p.detach() - loss * p.grad for p in m.parameters()]  # pyright: ignore
        before = [p.detach().clone() for p in m.parameters()]
        opt.step(ctx=told)
        for p, e in zip(m.parameters(), before if bad else expected):
            torch.testing.assert_close(p.detach(), e)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_and_extremes(dtype: torch.dtype, way: str) -> None:
    m = model(dtype)
    opt = sgd(lr=1e-3).bind(m, compile=False, skip_nonfinite=True)
    give(m, 0, torch.finfo(dtype).max)
    opt.step()
    assert (opt.skipped, opt.param_groups[0]["step"]) == (0, 1)
    give(m, 0, math.inf, at=2)
    opt.step()
    assert (opt.skipped, opt.param_groups[0]["step"]) == (1, 1)


def test_empty_and_missing_gradients_are_finite() -> None:
    ps = [nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.zeros(2))]
    opt = sgd().bind(ps, compile=False, skip_nonfinite=True)
    opt.step()
    ps[0].grad = torch.zeros(0, 3)
    opt.step()
    assert (opt.skipped, opt.param_groups[0]["step"]) == (0, 2)


def test_without_the_option_it_goes_through_as_in_torch() -> None:
    ours, theirs = model(), model()
    opt, other = sgd(lr=0.1).bind(ours, compile=False), torch.optim.SGD(theirs.parameters(), 0.1)
    give(ours, 0, math.nan)
    give(theirs, 0, math.nan)
    opt.step()
    other.step()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(p, q, equal_nan=True)
    assert "skipped" not in opt.param_groups[0]


def test_a_run_is_resumed_after_a_skipped_step(way: str) -> None:
    m = model()
    rule = adamw(lr=fall)
    opt = rule.bind(m, compile=False, skip_nonfinite=True, diagnostics_every=2)
    for step in range(4):
        give(m, step, math.nan if step in (0, 3) else None)
        opt.step()
    file = io.BytesIO()
    torch.save(opt.state_dict(), file)
    file.seek(0)
    third = copy.deepcopy(m)
    other, again = copy.deepcopy((m, opt))
    loaded = rule.bind(third, compile=False, skip_nonfinite=True, diagnostics_every=2)
    loaded.load_state_dict(torch.load(file))
    assert opt.skipped == again.skipped == loaded.skipped == 2
    for mine, own in ((m, opt), (other, again), (third, loaded)):
        for step in range(4, 9):
            give(mine, step, math.inf if step == 6 else None)
            own.step()
        assert own.skipped == 3
    for p, q, r in zip(m.parameters(), other.parameters(), third.parameters()):
        assert torch.equal(p, q)
        assert torch.equal(p, r)
    plain = rule.bind(third, compile=False)
    with pytest.warns(UserWarning, match="skip_nonfinite=True"):
        plain.load_state_dict(opt.state_dict())
    assert plain.param_groups[0]["step"] == opt.param_groups[0]["step"]


def test_a_closure_and_a_gradient_record(way: str) -> None:
    m = nn.Linear(2, 1)
    opt = sgd(lr=0.1).bind(m, compile=False, skip_nonfinite=True)
    before = seen(m, opt)

    def closure() -> Tensor:
        opt.zero_grad()
        loss = m(torch.full((1, 2), math.inf)).sum()
        loss.backward()
        return loss

    assert not opt.step(closure).isfinite()

    def loss_of(m: nn.Linear, x: Tensor) -> Tensor:
        return m(x).square().sum()

    _, g = value_and_grad(loss_of, m, torch.full((1, 2), 1e30))
    update(mut(m), mut(opt), g)
    assert same(seen(m, opt), before)
    assert opt.skipped == 2


@pytest.mark.parametrize("way", ["host", "late"], indirect=True)
def test_a_compiled_step_is_skipped_too(way: str) -> None:
    """A state that takes the old parameter is among what the compiler must not confuse."""

    @optimizer
    def previous(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        old = defstate("old", torch.zeros_like(param))
        return optimizer_update(param - grad / ctx.updates + 0.1 * old, old=param)

    ours, theirs = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
    theirs.load_state_dict(ours.state_dict())
    opt = previous().bind(ours, skip_nonfinite=True)
    other = previous().bind(theirs, compile=False)
    for step, bad in enumerate([None, math.nan, None, math.inf, None, None]):
        give(ours, step, bad)
        opt.step()
        if bad is None:
            give(theirs, step)
            other.step()
    torch.testing.assert_close(ours.weight, theirs.weight)
    old = (o.state[m.weight]["old"] for o, m in ((opt, ours), (other, theirs)))
    torch.testing.assert_close(*old)
    assert opt.skipped == 2
    assert len(opt._runner.kernels) == 1  # pyright: ignore


def test_the_host_waits_only_where_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a fourth step behind, for a branch whose outcome is open, and for what is shown."""
    waited: list[int] = []
    m = model()
    monkeypatch.setattr("dslmut.optim.counting.decides_on_host", lambda given: not given)
    monkeypatch.setattr("dslmut.optim.skipping.OpenStep.known", lambda step: False)

    def read(step: Any) -> bool:
        waited.append(len(opt._runner.counts.open) + 1)  # pyright: ignore
        return bool(step.finite)

    monkeypatch.setattr("dslmut.optim.skipping.OpenStep.counts", read)
    opt = adamw(lr=fall).bind(m, compile=False, skip_nonfinite=True)
    for step in range(9):
        give(m, step, math.nan if step == 4 else None)
        opt.step()
    assert waited == [4] * 5
    waited.clear()
    assert opt.skipped == 1
    assert waited == [4, 3, 2, 1]
    waited.clear()
    opt = watched().bind(m, compile=False, skip_nonfinite=True)
    for step in range(6):
        give(m, step)
        opt.step()
    assert waited == [4, 4, 3, 2, 1]  # at step 5, `ctx.step > 4` was open


# -- torch's scaler ------------------------------------------------------------------------------


@pytest.mark.parametrize("skips", [False, True])
def test_a_step_that_the_scaler_skips_does_not_count(skips: bool) -> None:
    ours, theirs = model(), model()
    opt = adamw(lr=fall).bind(
        ours, compile=False, diagnostics_every=2, ctx={"loss": 0.0}, skip_nonfinite=skips
    )
    other = adamw(lr=fall).bind(theirs, compile=False, diagnostics_every=2, ctx={"loss": 0.0})
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(8):
        overflows = step in (0, 2, 5)
        give(ours, step, math.inf if overflows else None, at=step % 4)
        for p in ours.parameters():
            p.grad *= scaler.get_scale()  # pyright: ignore
        scaler.scale(torch.zeros(()))  # which makes the scaler's tensors
        scaler.step(opt)
        scaler.update()
        if not overflows:
            give(theirs, step)
            other.step()
        assert same(seen(ours, opt), seen(theirs, other)), step
    assert scaler.get_scale() == 1.0
    assert opt.param_groups[0]["step"] == 5
    assert opt.skipped == 0


def test_scaling_and_clipping_equal_torchs() -> None:
    ours, theirs = model(), model()
    opt = adamw(lr=0.1).bind(ours, compile=False)
    other = torch.optim.AdamW(theirs.parameters(), lr=0.1)
    for m, own in ((ours, opt), (theirs, other)):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        for step in range(6):
            own.zero_grad()
            x = torch.full((2, 4), 1e30 if step == 3 else 1.0)
            scaler.scale(m(x).square().mean()).backward()
            scaler.unscale_(own)
            torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            scaler.step(own)
            scaler.update()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


# -- the option ----------------------------------------------------------------------------------


def test_the_option_belongs_to_the_run() -> None:
    with pytest.raises(DslmutError, match="E-OPT-011(.|\n)*`skip_nonfinite` is True or False"):
        sgd().bind(model(), skip_nonfinite="yes")  # pyright: ignore
    with pytest.raises(DslmutError, match=r"E-OPT-002(.|\n)*bind\(model, skip_nonfinite=...\)"):
        sgd(skip_nonfinite=True)  # pyright: ignore
