"""The scalar program: hyperparameters and `ctx` in arithmetic, in torch's functions, in schedules."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Ctx,
    Hyper,
    OptimizerError,
    OptState,
    Update,
    defstate,
    optimizer,
    optimizer_update,
)
from dslmut.optim import adamw, schedule_value, sgd
from dslmut.optim.expressions import Expression, compiled, evaluate, in_order


def bound(body: Any, p: Tensor | None = None, **options: Any) -> tuple[OptState[Any], Tensor]:
    """Return an optimizer whose new parameter is computed by *body*, and its parameter."""

    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.25, count: int = 2) -> Update:
        return optimizer_update(body(param, grad, ctx, schedule_value(lr, ctx)))

    parameter = nn.Parameter(torch.tensor([1.0, 2.0, 3.0])) if p is None else p
    return rule().bind([parameter], compile=False, **options), parameter


def step(opt: OptState[Any], value: float = 1.0) -> None:
    for group in opt.param_groups:
        for p in group["params"]:
            p.grad = torch.full_like(p, value)
    opt.step()


# -- torch's functions ---------------------------------------------------------------------------

CALLS: dict[str, Any] = {
    "add alpha": lambda p, g, lr, n: torch.add(p, g, alpha=-lr),
    "sub alpha": lambda p, g, lr, n: p.sub(g, alpha=lr),
    "rsub alpha": lambda p, g, lr, n: torch.rsub(g, p, alpha=lr),
    "addcmul": lambda p, g, lr, n: p.addcmul(g, g, value=-lr),
    "addcdiv": lambda p, g, lr, n: torch.addcdiv(p, g, p, value=-lr),
    "lerp": lambda p, g, lr, n: p.lerp(g, lr),
    "clamp": lambda p, g, lr, n: p.clamp(-lr, 2.5),
    "clamp by one": lambda p, g, lr, n: p.clamp(max=lr),
    "clamp_min": lambda p, g, lr, n: torch.clamp_min(p, lr),
    "full_like": lambda p, g, lr, n: p - torch.full_like(p, lr),
    "full": lambda p, g, lr, n: p - torch.full(p.shape, lr),
    "new_full": lambda p, g, lr, n: p - p.new_full((3,), lr),
    "tensor": lambda p, g, lr, n: p - torch.tensor(lr),
    "tensor of several": lambda p, g, lr, n: p - torch.tensor([lr, 1.0, lr * 2]),
    "masked_fill": lambda p, g, lr, n: p.masked_fill(p > 1, lr),
    "where": lambda p, g, lr, n: torch.where(p > 2 * lr, p - lr, p),
    "where on numbers": lambda p, g, lr, n: torch.where(torch.as_tensor(n < 2), p - lr * g, p),
    "where of numbers": lambda p, g, lr, n: p * torch.where(p > 1, lr, 2.0),
    "logic": lambda p, g, lr, n: torch.where(torch.as_tensor((n < 2) | (lr > 1)), p - g, p),
    "maximum": lambda p, g, lr, n: torch.maximum(p, torch.as_tensor(lr)),
    "pow": lambda p, g, lr, n: torch.pow(p, lr),
    "addmm": lambda p, g, lr, n: torch.addmv(p, torch.ones(3, 3), g, beta=lr, alpha=lr),
    "outer": lambda p, g, lr, n: p - torch.addr(torch.ones(3, 3), p, g, alpha=lr)[0],
    "norm": lambda p, g, lr, n: p / (p.norm() + lr),
    "dunder": lambda p, g, lr, n: 1 / (lr**2 - p) + lr % 0.2 - (-lr) // 0.2 + abs(-lr),
    "divmod": lambda p, g, lr, n: p - divmod(lr, 0.2)[0] - divmod(lr, 0.2)[1],
    "trunc": lambda p, g, lr, n: p - math.trunc(lr * 9) - math.floor(lr) - math.ceil(lr),
    "rounding": lambda p, g, lr, n: p - round(lr * 1.37, 2),
    "count": lambda p, g, lr, n: p / (n + 1),
    "whole": lambda p, g, lr, n: p * (n > 0) + (p > 1) * lr,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_functions_of_torch_take_hyperparameters(call: Any) -> None:
    opt, p = bound(lambda p, g, ctx, lr: call(p, g, lr, ctx.updates))
    expected = p.detach().clone()
    for n, lr in ((1, 0.25), (2, 0.5)):
        opt.param_groups[0]["lr"] = lr
        step(opt)
        expected = call(expected, torch.ones(3), lr, n)
        torch.testing.assert_close(p.detach(), expected.to(torch.float32))


def test_whole_numbers_stay_whole_beside_whole_states() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        seen = defstate("seen", torch.zeros_like(param, dtype=torch.int64))
        return optimizer_update(param, seen=seen + ctx.updates)

    p = nn.Parameter(torch.ones(2))
    opt = rule().bind([p], compile=False)
    for _ in range(3):
        step(opt)
    assert opt.state[p]["seen"].tolist() == [6, 6]


def test_a_function_that_takes_only_numbers_says_so() -> None:
    with pytest.raises(
        OptimizerError, match=r"E-OPT-022(.|\n)*`torch.softshrink` takes a plain number"
    ):
        bound(lambda p, g, ctx, lr: nn.functional.softshrink(p, lr))
    with pytest.raises(
        RuntimeError, match="broadcast|must match"
    ):  # torch's own words, where numbers fail too
        bound(lambda p, g, ctx, lr: torch.add(p, torch.ones(5), alpha=lr))


NEEDS = {
    "text": lambda p, g, ctx, lr: p - float(f"{lr}") * g,
    "str": lambda p, g, ctx, lr: p - float(str(lr)) * g,
    "dictionary": lambda p, g, ctx, lr: p - {0.25: 1.0}.get(lr, 2.0) * g,
    "set": lambda p, g, ctx, lr: p if ctx.step in {1, 2} else p - g,
    "index": lambda p, g, ctx, lr: p - [1.0, 2.0][ctx.step] * g,
    "NumPy": lambda p, g, ctx, lr: p - np.sqrt(lr) * g,
}


@pytest.mark.parametrize("body", NEEDS.values(), ids=NEEDS)
def test_what_needs_the_number_is_refused_in_a_body(body: Any) -> None:
    with pytest.raises((OptimizerError, TypeError), match="E-OPT-022|ufunc"):
        bound(body)


@pytest.mark.parametrize("body", [
    lambda p, g, ctx, lr: p - p[p > 1].sum() * g,
    lambda p, g, ctx, lr: p - p.nonzero().sum() * g,
    lambda p, g, ctx, lr: p - torch.unique(p).sum() * g,
])  # fmt: skip
def test_shapes_that_depend_on_values_are_refused(body: Any) -> None:
    with pytest.raises(OptimizerError, match=r"E-OPT-022(.|\n)*torch.where"):
        bound(body)


def _kept_grad(p: Tensor, g: Tensor, ctx: Ctx, lr: Any) -> Tensor:
    g.data = g + p
    return p - lr * g


ATTRIBUTES = [
    ("E-OPT-022", lambda p, g, ctx, lr: p if p.grad is None else p - g),
    ("E-OPT-022", lambda p, g, ctx, lr: p if p.requires_grad else p - g),
    ("E-OPT-022", lambda p, g, ctx, lr: p - p._version * g),
    ("E-OPT-022", lambda p, g, ctx, lr: p - p.data_ptr() * g),
    ("E-OPT-022", lambda p, g, ctx, lr: p - p.storage_offset() * g),
    ("E-OPT-020", lambda p, g, ctx, lr: g.clone().requires_grad_()),
    ("E-OPT-020", lambda p, g, ctx, lr: g.clone().apply_(abs)),
    ("E-OPT-020", _kept_grad),
]


@pytest.mark.parametrize(("code", "body"), ATTRIBUTES)
def test_what_only_the_real_tensor_has_is_refused(code: str, body: Any) -> None:
    with pytest.raises(OptimizerError, match=code):
        bound(body)


# -- expressions ---------------------------------------------------------------------------------


def test_expressions_are_shared_and_evaluated_without_recursion() -> None:
    x = Expression("input", ("lr",))
    assert Expression("mul", (x, 0.0)) is Expression("mul", (x, 0.0))
    kinds = [Expression("mul", (x, zero)) for zero in (0.0, -0.0, 0, False)]
    assert len(set(kinds)) == 4
    deep = x
    for _ in range(5000):
        deep = Expression("add", (deep, 1.0))
    wide = x
    for _ in range(200):
        wide = Expression("mul", (wide, wide))
    began = time.perf_counter()
    assert len(in_order([deep, wide])) == 5201
    assert evaluate([deep, wide], {"lr": 1.0}, None) == [5001.0, 1.0]
    assert list(compiled((deep, wide))({"lr": 1.0}, None)) == [5001.0, 1.0]
    assert len(str(wide)) < 300
    assert time.perf_counter() - began < 2


def test_long_products_in_a_body() -> None:
    def body(p: Tensor, g: Tensor, ctx: Ctx, lr: Any) -> Tensor:
        for _ in range(60):
            lr = lr + lr * 1e-9
        return p - lr * g

    began = time.perf_counter()
    opt, p = bound(body)
    step(opt)
    assert time.perf_counter() - began < 2
    torch.testing.assert_close(p.detach(), torch.tensor([0.75, 1.75, 2.75]))


@pytest.mark.parametrize("op", ["minimum", "maximum"])
def test_not_a_number_wins(op: str) -> None:
    x = Expression("input", ("x",))
    for e in (Expression(op, (x, 1.0)), Expression(op, (1.0, x))):
        assert math.isnan(compiled((e,))({"x": math.nan}, None)[0])


def test_numbers_beyond_all_doubles() -> None:
    opt, p = bound(lambda p, g, ctx, lr: p / (10**400 + ctx.updates))
    step(opt)
    assert p.tolist() == [0, 0, 0]


# -- hyperparameters -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [1, np.float32(0.5), np.int64(2), np.array(0.5), torch.tensor(0.5)]
)
def test_numbers_of_any_kind(value: Any) -> None:
    opt = sgd(lr=value).bind([nn.Parameter(torch.ones(2))], compile=False)
    assert type(opt.param_groups[0]["lr"]) is float
    assert opt.param_groups[0]["lr"] == float(value)


def test_numbers_that_are_written_into_a_group_are_inputs_too() -> None:
    p = nn.Parameter(torch.zeros(2))
    opt = sgd(lr=0.1).bind([p], compile=False)
    step(opt)
    assert opt._runner is not None
    programs = opt._runner._programs
    before = sum(map(len, programs.values()))
    for written in (1, np.float32(0.5), torch.tensor(0.25), 0.125):
        opt.param_groups[0]["lr"] = written
        old = p.detach().clone()
        step(opt)
        assert (old - p).tolist() == pytest.approx([float(written)] * 2, rel=1e-5)
    assert sum(map(len, programs.values())) == before


def test_tuples_that_are_written_into_a_group_are_inputs_too() -> None:
    results = []
    for written in ([0, 0.5], (0.0, 0.5), (np.float32(0), torch.tensor(0.5))):
        p = nn.Parameter(torch.zeros(2))
        opt = adamw(lr=0.1).bind([p], compile=False)
        step(opt)
        assert opt._runner is not None
        before = list(opt._runner._programs)
        opt.param_groups[0]["betas"] = written
        step(opt, 2.0)
        assert list(opt._runner._programs) == before
        results.append(p.tolist())
    assert results[0] == results[1] == results[2]


def test_tensors_in_a_group_are_read_at_each_step() -> None:
    p, lr, beta = nn.Parameter(torch.zeros(1)), torch.tensor(0.1), torch.tensor(0.5)
    opt = adamw(lr=0.1).bind([p], compile=False)
    opt.param_groups[0].update(lr=lr, betas=(beta, 0.9))
    step(opt)
    beta.fill_(0.0)
    step(opt, 3.0)
    assert opt.state[p]["exp_avg"].item() == 3.0


@pytest.mark.parametrize(("given", "words"), [
    ({"lr": "a"}, "number or a schedule"), ({"lr": True}, "number or a schedule"),
    ({"lr": None}, "number or a schedule"), ({"lr": 10**400}, "number or a schedule"),
    ({"lr": torch.ones(2)}, "number or a schedule"), ({"count": 2.5}, "whole number"),
    ({"count": True}, "whole number"), ({"lr": {}}, "number or a schedule"),
    ({"learning_rate": 1.0}, "write `lr="), ({"curriculum": 5}, "bind\\(model, curriculum="),
    ({"fused": True}, "leave it out"),
])  # fmt: skip
def test_values_that_do_not_fit(given: Any, words: str) -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.25, count: int = 2) -> Update:
        return optimizer_update(param - count * schedule_value(lr, ctx) * grad)

    with pytest.raises(OptimizerError, match=f"E-OPT-002(.|\n)*{words}"):
        rule(**given)
    p = nn.Parameter(torch.ones(2))
    opt = rule(count=3.0).bind([p], compile=False)
    known = {k: v for k, v in given.items() if k in ("lr", "count")}
    if known:
        opt.param_groups[0].update(known)
        with pytest.raises(OptimizerError, match=f"E-OPT-002(.|\n)*{words}"):
            step(opt)
        assert p.tolist() == [1, 1]


def test_a_schedule_needs_hyper() -> None:
    @optimizer
    def rule(
        param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1, change=torch.sign
    ) -> Update:
        return optimizer_update(param - lr * change(grad))

    with pytest.raises(OptimizerError, match="annotate it `lr: Hyper`"):
        rule(lr=lambda ctx: 0.1)
    p = nn.Parameter(torch.ones(2))
    opt = rule(change=torch.neg).bind([p], compile=False)
    step(opt, 2.0)
    assert p.tolist() == pytest.approx([1.2, 1.2])


def test_a_hyperparameter_may_be_called_self() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, self: float = 0.5) -> Update:
        return optimizer_update(param - self * grad)

    p = nn.Parameter(torch.ones(2))
    step(rule(self=0.25).bind([p], compile=False))
    assert p.tolist() == [0.75, 0.75]


# -- schedules -----------------------------------------------------------------------------------


@dataclass
class Ramp:
    """A schedule that cannot be hashed."""

    top: float

    def __call__(self, ctx: Ctx) -> float:
        return min(self.top, 0.1 * (ctx.step + 1))


SCHEDULES: dict[str, tuple[Any, list[float]]] = {
    "an object": (Ramp(0.25), [0.1, 0.2, 0.25]),
    "a dictionary": (lambda ctx: {0: 0.1, 1: 0.2}.get(ctx.step, 0.5), [0.1, 0.2, 0.5]),
    "a set": (lambda ctx: 0.1 if ctx.step in {1} else 0.2, [0.2, 0.1, 0.2]),
    "rounded": (lambda ctx: round(0.123 * ctx.updates, 2), [0.12, 0.25, 0.37]),
    "a tensor": (lambda ctx: torch.tensor(0.1) * ctx.updates, [0.1, 0.2, 0.3]),
    "a tensor behind a branch": (
        lambda ctx: torch.tensor([0.1]) if ctx.step < 1 else 0.2, [0.1, 0.2, 0.2],
    ),
    "a table": (lambda ctx: [0.1, 0.2, 0.3][ctx.step], [0.1, 0.2, 0.3]),
    "a guard": (lambda ctx: getattr(ctx, "warmup", 0.5), [0.5, 0.5, 0.5]),
    "a question": (lambda ctx: 0.1 if "progress" in ctx else 0.2, [0.2, 0.2, 0.2]),
    "NumPy": (lambda ctx: np.sqrt(float(ctx.updates)), [1.0, 2**0.5, 3**0.5]),
    "torch": (lambda ctx: torch.sqrt(ctx.updates), [1.0, 2**0.5, 3**0.5]),
    "whole": (lambda ctx: 1, [1.0, 1.0, 1.0]),
}  # fmt: skip


@pytest.mark.parametrize(("schedule", "numbers"), SCHEDULES.values(), ids=SCHEDULES)
def test_schedules_of_every_kind(schedule: Any, numbers: list[float]) -> None:
    p = nn.Parameter(torch.zeros(1))
    opt = sgd(lr=schedule).bind([p], compile=False)
    for number in numbers:
        before = p.item()
        step(opt)
        assert before - p.item() == pytest.approx(number, rel=1e-5)


def _careful(ctx: Ctx) -> float:
    try:
        return float(ctx.updates) / 10
    except Exception:
        return 99.0


def test_a_schedule_that_catches_exceptions() -> None:
    p = nn.Parameter(torch.zeros(1))
    step(sgd(lr=_careful).bind([p], compile=False))
    assert p.item() == pytest.approx(-0.1)


@pytest.mark.parametrize("value", [None, "a", torch.ones(2), [0.1]])
def test_schedules_that_return_no_number(value: Any) -> None:
    p = nn.Parameter(torch.zeros(1))
    with pytest.raises(OptimizerError, match="E-OPT-002(.|\n)*the schedule `broken` returned"):

        def broken(ctx: Ctx) -> Any:
            return value

        sgd(lr=broken).bind([p], compile=False)


@pytest.mark.parametrize(("schedule", "words"), [
    (lambda step: 1e-3 * step, "take `ctx.step`"), (lambda step: 0.1 if step < 9 else 0.2, "take `ctx.step`"),
    (lambda step: 0.95**step, "take `ctx.step`"), (lambda: 0.1, "write `lr=lambda ctx: ...`"),
    (lambda a, b: 0.1, "write `lr=lambda ctx: ...`"),
])  # fmt: skip
def test_schedules_that_are_written_for_something_else(schedule: Any, words: str) -> None:
    with pytest.raises(OptimizerError, match=f"E-OPT-002(.|\n)*{words}"):
        sgd(lr=schedule).bind([nn.Parameter(torch.zeros(1))], compile=False)


def test_a_configured_optimizer_is_not_bound() -> None:
    rule = sgd(lr=0.1)
    for name in ("step", "zero_grad", "param_groups"):
        with pytest.raises(OptimizerError, match=r"E-OPT-005(.|\n)*`opt = sgd\(model, ...\)`"):
            getattr(rule, name)
    assert not hasattr(rule, "fit")


@pytest.mark.parametrize(("key", "words"), [("progress", "steps="), ("stage", "Stage\\(")])
def test_what_a_missing_curriculum_should_be(key: str, words: str) -> None:
    with pytest.raises(OptimizerError, match=f"E-OPT-006(.|\n)*{words}"):
        sgd(lr=lambda ctx: 0.1 * ctx[key]).bind([nn.Parameter(torch.zeros(1))], compile=False)


def test_not_a_number_from_a_schedule_is_no_conflict() -> None:
    p = nn.Parameter(torch.zeros(1))
    opt = sgd(lr=lambda ctx: math.nan).bind([p], compile=False)
    step(opt)
    step(opt)
    assert math.isnan(p.item())


def test_schedules_in_a_tuple() -> None:
    results = []
    for betas in ((lambda ctx: 0.5 + 0.1 * ctx.step, 0.9), (0.5, 0.9)):
        p = nn.Parameter(torch.zeros(1))
        opt = adamw(lr=0.1, betas=betas).bind([p], compile=False)
        for number in range(3):
            if betas[0] == 0.5:
                opt.param_groups[0]["betas"] = (0.5 + 0.1 * number, 0.9)
            step(opt, number + 1.0)
        results.append((p.item(), *opt.param_groups[0]["betas"]))
    assert results[0] == pytest.approx(results[1])


def test_the_branch_of_a_schedule_that_is_called() -> None:
    p, q = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    groups = [{"params": [p], "weight_decay": 0.5}, {"params": [q]}]
    opt = sgd(lr=0.1, weight_decay=lambda ctx: min(1.0, 0.5 * ctx.step)).bind(groups, compile=False)
    for _ in range(2):
        step(opt)
    assert p.item() == pytest.approx(0.85 - 0.1 * (1 + 0.425))
    assert q.item() == pytest.approx(0.9 - 0.1 * (1 + 0.45))


def test_a_state_in_a_branch() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, momentum: float = 0.0) -> Update:
        if not momentum:
            return optimizer_update(param - grad)
        velocity = defstate("velocity", torch.zeros_like(param))
        v = momentum * velocity + grad
        return optimizer_update(param - v, velocity=v)

    p, q = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    opt = rule().bind([{"params": [p]}, {"params": [q], "momentum": 0.5}], compile=False)
    step(opt)
    opt.param_groups[0]["momentum"] = 0.5
    step(opt)
    assert (p.item(), q.item()) == (-2.0, -2.5)
    again = rule().bind([{"params": [p]}, {"params": [q], "momentum": 0.5}], compile=False)
    again.load_state_dict(opt.state_dict())
    assert again.state[p]["velocity"].item() == 1.0


@pytest.mark.parametrize("use", [
    lambda lr, g: lr * g, lambda lr, g: g * lr, lambda lr, g: g if lr else -g,
    lambda lr, g: torch.mul(g, lr), lambda lr, g: g.add(g, alpha=lr), lambda lr, g: -lr * g,
    lambda lr, g: g * (lr > 0), lambda lr, g: g * math.sqrt(lr),
])  # fmt: skip
def test_a_schedule_must_be_read(use: Any) -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.25) -> Update:
        return optimizer_update(param - use(lr, grad))

    words = r"E-OPT-002(.|\n)*`lr = schedule_value\(lr, ctx\)`"
    with pytest.raises(OptimizerError, match=words):
        rule(lr=lambda ctx: 0.5).bind([nn.Parameter(torch.ones(1))], compile=False)


# -- options of a run ----------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "words"), [
    ({"ctx": {"step": 1.0}}, "it has one"), ({"ctx": {"temp": "a"}}, "is a number"),
    ({"ctx": {"a b": 1.0}}, "no name"), ({"diagnostics_every": 0}, "at least 1"),
    ({"diagnostics_every": 2.5}, "at least 1"), ({"curriculum": "long"}, "number of steps"),
    ({"curriculum": ["a"]}, "stages"), ({"curriculum": 0}, "0 steps"), ({"compile": 3}, "compile"),
])  # fmt: skip
def test_options_that_do_not_fit(options: Any, words: str) -> None:
    with pytest.raises(OptimizerError, match=f"E-OPT-011(.|\n)*{words}"):
        sgd(lr=0.1).bind([nn.Parameter(torch.ones(1))], **options)


# -- NumPy's numbers -----------------------------------------------------------------------------

NUMPY: dict[str, Any] = {
    "float64": lambda p, g, ctx, lr: p - (lr * np.sqrt(4.0)) * g,
    "float32 in front": lambda p, g, ctx, lr: p - np.float32(2) * lr * g,
    "divided": lambda p, g, ctx, lr: p - np.float64(0.5) / (1 + ctx.step) * g,
    "compared": lambda p, g, ctx, lr: p - torch.where(np.int64(1) > ctx.step, 0.5, 0.25) * g,
}


@pytest.mark.parametrize("body", NUMPY.values(), ids=NUMPY)
def test_numbers_of_numpy_in_a_body(body: Any) -> None:
    opt, p = bound(body)
    step(opt)
    torch.testing.assert_close(p.detach(), torch.tensor([0.5, 1.5, 2.5]))


@pytest.mark.parametrize("schedule", [
    lambda ctx: np.float64(0.5) / (1 + ctx.step), lambda ctx: 0.5 * np.cos(ctx.step * 0.1),
    lambda ctx: 0.5 * np.float32(1),
])  # fmt: skip
def test_numbers_of_numpy_in_a_schedule(schedule: Any) -> None:
    p = nn.Parameter(torch.zeros(1))
    opt = sgd(lr=schedule).bind([p], compile=False, ctx={"x": np.array(0.5)})
    step(opt)
    opt.step(ctx={"x": np.float32(2)})
    assert p.item() == pytest.approx(-0.5 - schedule(type("C", (), {"step": 1})))


# -- schedules that ask for the parameter --------------------------------------------------------


def named(**numbers: float) -> nn.Module:
    m = nn.Module()
    for name, number in numbers.items():
        setattr(m, name, nn.Parameter(torch.full((2,), number)))
    return m


def test_a_branch_that_goes_by_the_name() -> None:
    def decay(ctx: Ctx) -> float:
        if ctx.name == "bias":
            return 0.5 if ctx.step >= 2 else 0.0
        return 0.0

    m = named(weight=1.0, bias=1.0)
    opt = sgd(lr=0.1, weight_decay=decay).bind(m, compile=False)
    for _ in range(4):
        step(opt, 0.0)
    assert m.bias.tolist() == pytest.approx([0.9025] * 2)
    assert m.weight.tolist() == [1, 1]


def test_a_name_that_is_asked_for_later() -> None:
    def lr(ctx: Ctx) -> float:
        return 0.0 if ctx.step >= 2 and ctx.name == "bias" else 0.1

    m = named(weight=0.0, bias=0.0)
    opt = sgd(lr=lr).bind(m, compile=False)
    for _ in range(4):
        step(opt, -1.0)
    assert m.weight.tolist() == pytest.approx([0.4] * 2)
    assert m.bias.tolist() == pytest.approx([0.2] * 2)


def test_a_schedule_is_called_for_its_own_group_alone() -> None:
    asked = []

    def decay(ctx: Ctx) -> float:
        asked.append(ctx.group)
        return min(1.0, (ctx.step + 1) / 5)

    a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4))
    opt = sgd(lr=0.1).bind([{"params": [a], "weight_decay": decay}, {"params": [b]}], compile=False)
    step(opt)
    assert set(asked) == {0}


def test_a_schedule_that_catches_everything() -> None:
    def lr(ctx: Ctx) -> float:
        try:
            return [0.1, 0.2][ctx.step]
        except BaseException:
            return 1.0

    p = nn.Parameter(torch.zeros(1))
    opt = sgd(lr=lr).bind([p], compile=False)
    for _ in range(3):
        step(opt)
    assert p.item() == pytest.approx(-1.3)


def test_defaults_that_are_no_numbers() -> None:
    with pytest.raises(OptimizerError, match="E-OPT-001(.|\n)*no number"):

        @optimizer
        def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, opts: dict = {}) -> Update:  # noqa: B006
            return optimizer_update(param - grad)
