"""`opt.graph(name)`: update graphs that can be read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, Hyper, Update, defstate, diagnostic, optimizer, optimizer_update
from dslmut.optim import schedule_value, update_diagnostics
from dslmut.optim import sgd as ready_sgd


def graph(rule, model: nn.Module | None = None, name: str = "weight") -> str:
    return rule.bind(model or nn.Linear(3, 2), compile=False).graph(name)


@optimizer
def sgd(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 1e-3) -> Update:
    return optimizer_update(param - schedule_value(lr, ctx) * grad)


SGD = """\
weight, updated by sgd
  param  float32[2, 3]
  grad   float32[2, 3]
results
  param <- param - lr * grad"""


@optimizer
def momentum_sgd(
    param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.01, momentum: Hyper = 0.9
) -> Update:
    lr = schedule_value(lr, ctx)
    velocity = defstate("velocity", torch.zeros_like(param))
    v = momentum * velocity + grad
    new = param - lr * v
    update_diagnostics(param, grad, new)
    return optimizer_update(new, velocity=v)


MOMENTUM = """\
weight, updated by momentum_sgd
  param     float32[2, 3]
  grad      float32[2, 3]
  velocity  float32[2, 3], a state
the update
  v = momentum * velocity + grad
  new = param - lr * v
results
  param <- new
  velocity <- v
diagnostics, on the steps that ask for them
  param_norm = vector_norm(param)
  update_norm = vector_norm(new - param)
  grad_norm = vector_norm(grad)
  update_ratio = update_norm / param_norm"""


@optimizer
def adamw(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    betas: tuple[Hyper, Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-2,
) -> Update:
    lr = schedule_value(lr, ctx)
    beta1, beta2 = betas
    exp_avg = defstate("exp_avg", torch.zeros_like(param))
    exp_avg_sq = defstate("exp_avg_sq", torch.zeros_like(param))
    m = beta1 * exp_avg + (1 - beta1) * grad
    v = beta2 * exp_avg_sq + (1 - beta2) * (grad * grad)
    step_size = lr / (1 - beta1**ctx.updates)
    root = v.sqrt() / (1 - beta2**ctx.updates) ** 0.5 + eps
    new = (1 - lr * weight_decay) * param - step_size * (m / root)
    return optimizer_update(new, exp_avg=m, exp_avg_sq=v)


ADAMW = """\
weight, updated by adamw
  param       float32[2, 3]
  grad        float32[2, 3]
  exp_avg     float32[2, 3], a state
  exp_avg_sq  float32[2, 3], a state
numbers of the step, in float64 on the host
  s0 = 1 - betas[0]
  s1 = 1 - betas[1]
  s2 = (1 - betas[1] ** ctx.updates) ** 0.5
  s3 = 1 - lr * weight_decay
  step_size = lr / (1 - betas[0] ** ctx.updates)
the update
  m = betas[0] * exp_avg + s0 * grad
  v = betas[1] * exp_avg_sq + s1 * (grad * grad)
  root = sqrt(v) / s2 + eps
  new = s3 * param - step_size * (m / root)
results
  param <- new
  exp_avg <- m
  exp_avg_sq <- v"""


@pytest.mark.parametrize(("rule", "text"), [(sgd, SGD), (momentum_sgd, MOMENTUM), (adamw, ADAMW)])
def test_the_text_of_a_graph(rule, text: str) -> None:
    assert graph(rule()) == text


def warm(ctx: Ctx) -> Tensor | float:
    return 0.1 * ctx.updates


def looked_up(ctx: Ctx) -> float:
    return [0.1, 0.2][int(ctx.step) % 2]


def test_schedules_are_shown_as_they_are_computed_or_called() -> None:
    text = graph(momentum_sgd(lr=warm, momentum=0.5))
    assert "\n  lr = 0.1 * ctx.updates\n" in text
    assert "\n  lr = looked_up(ctx)\n" in graph(momentum_sgd(lr=looked_up))


def average(name: str, value: Tensor, share: float) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    old = defstate(name, torch.zeros_like(value, dtype=torch.float64))
    mean = share * old + (1 - share) * value
    root = mean.abs().sqrt()
    return -root, (old, mean)


def test_helpers_casts_and_several_names_of_one_kind() -> None:
    @optimizer
    def helped(param: Tensor, grad: Tensor, ctx: Ctx, *, share: float = 0.9) -> Update:
        grad = grad - grad.mean(dim=-1, keepdim=True)
        first, a = average("a", grad, share)
        second, b = average("b", grad * grad, 0.5)
        diagnostic("share", share)
        return optimizer_update(param - 2.0 * (first - second) @ torch.eye(3), a, b)

    assert (
        graph(helped(), nn.Linear(3, 2, bias=False))
        == """\
weight, updated by helped
  param  float32[2, 3]
  grad   float32[2, 3]
  a      float64[2, 3], a state
  b      float64[2, 3], a state
numbers of the step, in float64 on the host
  s0 = 1 - share
the update
  grad_2 = grad - mean(grad, [-1], True)
  mean = share * a + s0 * grad_2
  root = sqrt(abs(mean))
  first = -root
  value = grad_2 * grad_2
  mean_2 = 0.5 * b + 0.5 * value
  root_2 = sqrt(abs(mean_2))
  second = -root_2
results
  param <- (param - 2.0 * (first - second) @ eye(3)).to(float32)
  a <- mean
  b <- mean_2
diagnostics, on the steps that ask for them
  share <- share.to(float32)"""
    )


def test_what_is_changed_in_place_stands_in_its_order() -> None:
    @optimizer
    def local(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        d = grad.abs()
        before = d + 1
        d.mul_(lr)
        return optimizer_update(param - d * before)

    lines = graph(local()).splitlines()
    places = [next(i for i, x in enumerate(lines) if w in x) for w in ("abs(", "d + 1", "mul_(")]
    assert places == sorted(places)


def test_a_name_that_is_not_there_gets_the_nearest_one() -> None:
    opt = ready_sgd().bind(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), compile=False)
    with pytest.raises(KeyError, match=r"no parameter '0.wieght'; write `opt.graph\('0.weight'\)`"):
        opt.graph("0.wieght")
    assert opt.graph("1.bias").startswith("1.bias, updated by sgd\n  param  float32[1]")
