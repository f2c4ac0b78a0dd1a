"""What went wrong for users of other optimizers, by the public report: it does not here.

``pt`` is pytorch/pytorch. Further reports stand in the tests of schedulers, schedules and scripts.
"""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.optim import lr_scheduler

from dslmut import (
    Ctx,
    Hyper,
    OptimizerError,
    OptState,
    Update,
    group,
    groups,
    optimizer,
    optimizer_update,
)
from dslmut.optim import adamw, compiling, momentum_sgd, schedule_value, sgd
from dslmut.optim.schedules import cosine, preview


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()


X = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)


def train(m: nn.Module, opt: torch.optim.Optimizer, steps: int, start: int = 0) -> None:
    for i in range(start, start + steps):
        opt.zero_grad()
        ((m(X + math.sin(i)) - math.cos(i)) ** 2).mean().backward()
        opt.step()


def equal(a: Any, b: Any) -> None:
    for p, q in zip(a, b):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-10)


def parameters(count: int, size: int | None = None) -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(3)
    shapes = [(size or i + 1,) for i in range(count)]
    found = [torch.randn(s, dtype=torch.float64, generator=draw) for s in shapes]
    return [nn.Parameter(p) for p in found]


def pulled(opt: Any, ps: list[nn.Parameter], steps: int) -> None:
    for _ in range(steps):
        for p in ps:
            p.grad = p.detach() * 0.5
        opt.step()


# -- the plan ------------------------------------------------------------------------------------


def test_more_than_64_shapes_hit_no_limit_and_none_falls_back() -> None:
    """HeavyBall 16, pt 97711: a closure that is compiled for each shape hits a limit."""
    ours, theirs = parameters(70), parameters(70)
    before = counters["stats"]["unique_graphs"]
    opt = momentum_sgd(lr=0.1).bind(ours, compile={"backend": "eager"})
    with torch._dynamo.config.patch(error_on_recompile=True, fail_on_recompile_limit_hit=True):
        pulled(opt, ours, 3)
    assert counters["stats"]["unique_graphs"] - before == 5
    pulled(torch.optim.SGD(theirs, lr=0.1, momentum=0.9), theirs, 3)
    equal(ours, theirs)


def test_the_quick_way_makes_few_kernels_for_many_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HeavyBall 16, the same for what users get by default."""
    made = []

    def compile_(module: Any, examples: Any, *, fake_mode: Any, **options: Any) -> Any:
        made.append({tuple(e.shape) for e in examples[:-1]})
        return module

    monkeypatch.setattr(torch._inductor, "standalone_compile", compile_)
    ps = parameters(70)
    opt = sgd(lr=0.1).bind(ps)
    pulled(opt, ps, 3)
    assert len(made) == 5
    assert set.union(*made) >= {(i + 1,) for i in range(70)}


def test_groups_with_equal_settings_are_told_apart_by_a_schedule_that_asks() -> None:
    """A schedule may ask for the name of the parameter and the number of its group."""

    def by_group(ctx: Ctx) -> float:
        return 0.1 * (1 + ctx.group)

    def by_name(ctx: Ctx) -> float:
        return {"0": 0.1, "1": 0.2, "2": 0.3}[ctx.name] if ctx.step >= 0 else 0.0

    for schedule in (by_group, by_name):
        ps = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
        opt = sgd(lr=schedule).bind([{"params": [p]} for p in ps], compile=False)
        for p in ps:
            p.grad = torch.ones(2)
        opt.step()
        assert [p[0].item() for p in ps] == pytest.approx([-0.1, -0.2, -0.3])


# -- compiling -----------------------------------------------------------------------------------


def test_without_a_compiler_it_is_said_at_once_and_computed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """villa 1480, autoresearch 232: no C++ compiler, which others find at the first step."""
    monkeypatch.setattr(compiling, "missing_compiler", lambda device: "there is no C++ compiler")
    m, n = net(), net()
    with pytest.warns(RuntimeWarning, match="`adamw` runs uncompiled(.|\n)*no C\\+\\+ compiler"):
        opt = adamw(m, lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(m, opt, 3)
    train(n, torch.optim.AdamW(n.parameters(), lr=0.1), 3)
    equal(m.parameters(), n.parameters())


def test_a_compiler_that_fails_is_reported_once_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """villa 1480: the same for a toolchain that is there, and broken."""

    def compile_(*_: Any, fake_mode: Any, **__: Any) -> Any:
        raise RuntimeError("clang: not today")

    monkeypatch.setattr(torch._inductor, "standalone_compile", compile_)
    m, n = net(), net()
    opt = adamw(m, lr=0.1)
    with pytest.warns(RuntimeWarning, match="not today") as seen:
        train(m, opt, 3)
    assert len([w for w in seen if "not today" in str(w.message)]) == 1
    train(n, torch.optim.AdamW(n.parameters(), lr=0.1), 3)
    equal(m.parameters(), n.parameters())


def test_copies_of_a_compiled_optimizer_go_on() -> None:
    """pt 10906, accelerate 805: deepcopy and pickle after compiling lose attributes."""
    m = net()
    opt = momentum_sgd(lr=0.1).bind(m)
    train(m, opt, 2)
    copies = [copy.deepcopy((m, opt)), pickle.loads(pickle.dumps((m, opt)))]
    train(m, opt, 2, 2)
    for n, again in copies:
        assert isinstance(again, OptState)
        train(n, again, 2, 2)
        for p, q in zip(m.parameters(), n.parameters()):
            assert torch.equal(p, q)
        again.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
        train(n, again, 1, 4)


def test_a_parameter_without_a_gradient_at_first_is_not_left_out_later() -> None:
    """dion 108: it was frozen out of the captured graph."""
    m, n = net(), net()
    pairs = (m, momentum_sgd(lr=0.1).bind(m)), (n, torch.optim.SGD(n.parameters(), 0.1, 0.9))
    for model, opt in pairs:
        model[0].requires_grad_(False)
        train(model, opt, 2)
        model[0].requires_grad_(True)
        train(model, opt, 2, 2)
    equal(m.parameters(), n.parameters())


# -- hyperparameters -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weight_decy", "momentun", "learning_rate", "wd"])
def test_a_misspelt_key_in_a_group_is_an_error(name: str) -> None:
    """timm 2532: a key that nobody reads."""
    m = net()
    opt = momentum_sgd(lr=0.1).bind(m, compile=False)
    train(m, opt, 1)
    before = [p.detach().clone() for p in m.parameters()]
    opt.param_groups[0][name] = 0.5
    with pytest.raises(OptimizerError, match=f"E-OPT-002(.|\n)*no hyperparameter `{name}`") as e:
        train(m, opt, 1)
    fix = e.value.diagnostics[0].fix
    assert fix is not None
    assert "write `" in fix.text
    equal(before, m.parameters())
    del opt.param_groups[0][name]
    train(m, opt, 1)


def test_keys_of_peoples_own_in_a_group_stay() -> None:
    """timm's `lr_scale`, and what third-party schedulers remember in a group."""
    m = net()
    opt = momentum_sgd(lr=0.1).bind(m, compile=False)
    own = {"lr_scale": 0.5, "initial_weight_decay": 0.1, "name": "all", "weight_decay_scale": 2.0}
    opt.param_groups[0].update(own)
    train(m, opt, 1)
    assert opt.param_groups[0].items() >= own.items()


def test_a_schedule_may_be_written_into_a_group() -> None:
    """accelerate 3539: a function in a group would make the file unreadable."""
    m = net()
    opt = momentum_sgd(lr=0.1).bind(m, compile=False)
    train(m, opt, 2)
    numbers = preview(cosine(0.3, steps=9), 9)
    opt.param_groups[0]["lr"] = cosine(0.3, steps=9)
    for step in range(2, 6):
        train(m, opt, 1, step)
        assert opt.param_groups[0]["lr"] == pytest.approx(numbers[step])
    opt.param_groups[0]["lr"] = lambda ctx: 0.5 / (1 + ctx.step)
    train(m, opt, 1, 6)
    assert opt.param_groups[0]["lr"] == 0.5 / 7
    assert not any(callable(v) for v in opt.state_dict()["param_groups"][0].values())
    opt.param_groups[0]["momentum"] = lambda: 0.9
    with pytest.raises(OptimizerError, match="E-OPT-002(.|\n)*does not take `ctx` alone"):
        train(m, opt, 1, 7)


def test_one_of_two_betas_may_become_a_schedule() -> None:
    m = net()
    opt = adamw(lr=0.1).bind(m, compile=False)
    opt.param_groups[0]["betas"] = [lambda ctx: 0.5 + 0.1 * ctx.step, 0.9]
    for step in range(3):
        train(m, opt, 1, step)
        assert opt.param_groups[0]["betas"] == pytest.approx((0.5 + 0.1 * step, 0.9))


def test_functions_that_come_and_go_are_not_taken_for_each_other() -> None:
    """A function that is gone may have had the address of the next one."""

    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, change=torch.sign) -> Update:
        return optimizer_update(param - change(grad))

    p = nn.Parameter(torch.zeros(1))
    opt = rule().bind([p], compile=False)
    for i in range(12):
        opt.param_groups[0]["change"] = lambda g, i=i: g * float(i)
        p.grad = torch.ones(1)
        before = p.item()
        opt.step()
        assert before - p.item() == i


def test_a_scheduler_drives_all_rules_of_a_composite() -> None:
    """tt-metal 56027: it drove one half."""
    m = net()
    opt = groups(group("0.*", optimizer=momentum_sgd(lr=0.1)), group(optimizer=adamw(lr=0.2))).bind(
        m, compile=False
    )
    scheduler = lr_scheduler.ExponentialLR(opt, 0.5)
    for i in range(3):
        train(m, opt, 1, i)
        scheduler.step()
    assert [g["lr"] for g in opt.param_groups] == [0.0125, 0.025]


def test_new_data_keeps_its_state() -> None:
    """HeavyBall 56: a state that was found by its storage was lost when `p.data` moved."""
    m, n = net(), net()
    pairs = (
        (m, momentum_sgd(lr=0.1).bind(m, compile=False)),
        (n, torch.optim.SGD(n.parameters(), 0.1, 0.9)),
    )
    for model, opt in pairs:
        train(model, opt, 2)
        for p in model.parameters():
            p.data = p.data.clone()
        train(model, opt, 2, 2)
    equal(m.parameters(), n.parameters())


def test_decay_that_is_scheduled_and_compiled() -> None:
    """pt 127699: weight decay and betas can't be scheduled when a step is compiled."""

    @optimizer
    def rule(
        param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, weight_decay: Hyper = 0.0
    ) -> Update:
        lr, weight_decay = schedule_value(lr, ctx), schedule_value(weight_decay, ctx)
        return optimizer_update(param * (1 - lr * weight_decay) - lr * grad)

    p = nn.Parameter(torch.ones(4))
    opt = rule(weight_decay=lambda ctx: 0.5 / ctx.updates).bind([p])
    expected = 1.0
    for step in range(5):
        p.grad = torch.ones(4)
        opt.step()
        expected = expected * (1 - 0.1 * 0.5 / (step + 1)) - 0.1
    torch.testing.assert_close(p.detach(), torch.full((4,), expected))
