"""Where two parts of an optimizer meet: groups and defaults, schedules and files, and random runs of it all."""

from __future__ import annotations

import copy
import io
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Configured, Ctx, Hyper, OptState, Update, optimizer, optimizer_update
from dslmut.optim import adagrad, adamw, chain, clip_by_value, lion, nadam, rprop, sgd
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


# -- random runs ---------------------------------------------------------------------------------


DTYPES = [torch.float32, torch.float64, torch.bfloat16]
STEPS = 7


class Run:
    """Some groups with rules of their own, and all that happens to them, decided by a seed."""

    def __init__(self, seed: int) -> None:
        self.seed, draw = seed, random.Random(seed)
        lrs = [0.1, cosine(0.1), lambda ctx: 0.1 / (1 + ctx.step), lambda ctx: 0.1 * ctx["loss"]]
        makers = [adamw, sgd, lion, rprop, nadam, adagrad]
        rules = [draw.choice(makers)(lr=draw.choice(lrs)) for _ in range(3)]
        self.rules = [chain(clip_by_value(0.5), r) if draw.random() < 0.3 else r for r in rules]
        self.shapes = [draw.choice([(), (3,), (2, 3), (0, 2)]) for _ in range(5)]
        self.dtypes = [draw.choice(DTYPES) for _ in range(5)]
        self.late = draw.choice([None, 3])
        self.absent = {(i, j) for i in range(STEPS) for j in range(5) if draw.random() < 0.2}
        self.broken = {i for i in range(STEPS) if draw.random() < 0.2}
        self.told = {i: draw.random() for i in range(STEPS) if draw.random() < 0.4}
        self.rounding = draw.choice(["nearest", "stochastic"])
        self.interrupted = draw.randrange(1, STEPS)

    def parameters(self) -> list[nn.Parameter]:
        made = torch.Generator().manual_seed(self.seed)
        return [
            nn.Parameter(torch.randn(s, generator=made).to(d))
            for s, d in zip(self.shapes, self.dtypes)
        ]

    def bind(self, ps: list[nn.Parameter], step: int) -> OptState[Any]:
        count = 2 if self.late is not None and step <= self.late else 3
        groups = [self.group(ps, number) for number in range(count)]
        return self.rules[0].bind(
            groups, curriculum=STEPS, ctx={"loss": 0.5}, skip_nonfinite=True, seed=3,
            rounding=self.rounding, compile=False,
        )  # fmt: skip

    def group(self, ps: list[nn.Parameter], number: int) -> dict[str, Any]:
        own = [(f"p{i}", p) for i, p in enumerate(ps) if i % 3 == number]
        return {"params": own, "optimizer": self.rules[number]}

    def step(self, opt: OptState[Any], ps: list[nn.Parameter], step: int) -> None:
        if step == self.late:
            opt.add_param_group(self.group(ps, 2))
        made = torch.Generator().manual_seed(1000 * self.seed + step)
        for j, p in enumerate(ps):
            g = torch.randn(p.shape, generator=made).to(p.dtype)
            p.grad = None if (step, j) in self.absent else g
        if step in self.broken and ps[0].grad is not None:
            ps[0].grad.fill_(torch.nan)
        opt.step(ctx={"loss": self.told[step]} if step in self.told else None)


def through_a_file(run: Run, opt: OptState[Any], ps: list[nn.Parameter], step: int) -> Any:
    copies = [nn.Parameter(p.detach().clone()) for p in ps]
    again = run.bind(copies, step)
    again.load_state_dict(saved(opt))
    return again, copies


def as_a_copy(run: Run, opt: OptState[Any], ps: list[nn.Parameter], step: int) -> Any:
    return copy.deepcopy((opt, ps))


@pytest.mark.parametrize("interrupt", [through_a_file, as_a_copy])
@pytest.mark.parametrize("seed", range(8))
def test_an_interrupted_run_equals_another(seed: int, interrupt: Callable[..., Any]) -> None:
    run = Run(seed)
    found = []
    for stops in (False, True):
        ps = run.parameters()
        opt = run.bind(ps, 0)
        for step in range(STEPS):
            if stops and step == run.interrupted:
                opt, ps = interrupt(run, opt, ps, step)
            run.step(opt, ps, step)
        packed = opt.state_dict()
        counts = [(g["step"], g["skipped"], g["rule"]) for g in packed["param_groups"]]
        states = [dict(s) for s in packed["state"].values()]
        found.append(([p.detach() for p in ps], counts, states, opt.skipped))
    (ps, *a), (others, *b) = found
    assert all(map(torch.equal, ps, others))
    assert a[0] == b[0]
    assert a[2] == b[2]
    for x, y in zip(a[1], b[1], strict=True):
        assert x.keys() == y.keys()
        assert all(torch.equal(torch.as_tensor(v), torch.as_tensor(y[n])) for n, v in x.items())
