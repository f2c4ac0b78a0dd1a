"""Checkpoints of `torch.optim`, both ways, for every standard optimizer that torch has."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from dataclasses import dataclass, field
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
    defstate,
    optimizer,
    optimizer_update,
)
from dslmut.optim import (
    TorchFormat,
    TorchState,
    adadelta,
    adafactor,
    adagrad,
    adam,
    adamax,
    adamw,
    chain,
    clip_by_value,
    gradient_transform,
    momentum_sgd,
    muon,
    nadam,
    radam,
    rmsprop,
    rprop,
    schedule_value,
    sgd,
    transformed,
)


@dataclass(frozen=True)
class Pair:
    """A rule and the class of torch that it corresponds to.

    Args:
        rule: Ours.
        torchs: Torch's class.
        settings: What both are given.
        fixed: What torch's class is given besides, since its defaults compute something else.
        matrices: Whether it takes matrices alone.
        tolerance: Relative to the largest number, after 20 steps in float32.
    """

    rule: Any
    torchs: Any
    settings: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    matrices: bool = False
    tolerance: float = 1e-5

    def __str__(self) -> str:
        return "-".join([self.rule.__name__, *(f"{k}={v}" for k, v in self.settings.items())])


PAIRS = [
    Pair(sgd, torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    Pair(momentum_sgd, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    Pair(momentum_sgd, torch.optim.SGD, {"lr": 0.05, "momentum": 0.8, "dampening": 0.5}),
    Pair(momentum_sgd, torch.optim.SGD, {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    Pair(momentum_sgd, torch.optim.SGD, {"lr": 0.05, "momentum": 0.0}),
    Pair(adam, torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    Pair(adam, torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "maximize": True}),
    Pair(adamw, torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    Pair(adamw, torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
    Pair(nadam, torch.optim.NAdam, {"lr": 0.01}),
    Pair(
        nadam, torch.optim.NAdam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}
    ),
    Pair(radam, torch.optim.RAdam, {"lr": 0.01, "betas": (0.8, 0.9)}),
    Pair(adamax, torch.optim.Adamax, {"lr": 0.01, "weight_decay": 0.1}),
    Pair(adagrad, torch.optim.Adagrad, {"lr": 0.05, "lr_decay": 0.1}),
    Pair(adagrad, torch.optim.Adagrad, {"lr": 0.05, "initial_accumulator_value": 0.5}),
    Pair(adadelta, torch.optim.Adadelta, {"lr": 0.5, "rho": 0.8}),
    Pair(rmsprop, torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    Pair(rmsprop, torch.optim.RMSprop, {"lr": 0.01, "alpha": 0.9}),
    Pair(rprop, torch.optim.Rprop, {"lr": 0.01, "etas": (0.4, 1.3)}),
    Pair(adafactor, torch.optim.Adafactor, {"lr": 0.05, "weight_decay": 0.1}),
    Pair(muon, torch.optim.Muon, {"lr": 0.02}, matrices=True, tolerance=5e-3),
]


def net(matrices: bool = False) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(3, 4, bias=not matrices), nn.Tanh(), nn.Linear(4, 2, bias=not matrices)
    )


def train(m: nn.Module, opt: torch.optim.Optimizer, steps: range) -> None:
    """Train on gradients that depend on the step alone; the first layer's are missing now and then."""
    for i in steps:
        generator = torch.Generator().manual_seed(i)
        for name, p in m.named_parameters():
            gradient = torch.randn(p.shape, generator=generator)
            p.grad = None if name.startswith("0.") and i % 3 == 0 else gradient
        opt.step()


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def equal(a: nn.Module, b: nn.Module, tolerance: float) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        largest = max(p.abs().max().item(), 1.0)
        assert (p - q).abs().max().item() <= tolerance * largest, name


def states_equal(ours: torch.optim.Optimizer, theirs: torch.optim.Optimizer) -> None:
    """Compare what torch has with what is written for it, up to float32 rounding."""
    assert isinstance(ours, OptState)
    written = ours.torch_state_dict()["state"]
    for number, state in theirs.state_dict()["state"].items():
        for name, value in state.items():
            if value is not None:
                torch.testing.assert_close(written[number][name], value, rtol=1e-5, atol=1e-6)


def made(pair: Pair, m: nn.Module, ours: bool, **changed: Any) -> torch.optim.Optimizer:
    settings = pair.settings | changed
    if ours:
        return pair.rule(**settings).bind(m, compile=False)
    return pair.torchs(m.named_parameters(), **settings, **pair.fixed)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("first", [0, 5])
def test_a_run_that_began_in_torch_goes_on_here(pair: Pair, first: int) -> None:
    m = net(pair.matrices)
    theirs = made(pair, m, ours=False)
    train(m, theirs, range(1, 1 + first))
    n = copy.deepcopy(m)
    ours = made(pair, n, ours=True, lr=123.0)
    ours.load_state_dict(through_a_file(theirs.state_dict()))
    assert ours.param_groups[0]["lr"] == pair.settings["lr"]
    train(m, theirs, range(1 + first, 21 + first))
    train(n, ours, range(1 + first, 21 + first))
    equal(m, n, pair.tolerance)
    states_equal(ours, theirs)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("first", [0, 5])
def test_a_run_that_began_here_goes_on_in_torch(pair: Pair, first: int) -> None:
    m = net(pair.matrices)
    ours = made(pair, m, ours=True)
    assert isinstance(ours, OptState)
    train(m, ours, range(1, 1 + first))
    n = copy.deepcopy(m)
    theirs = made(pair, n, ours=False, lr=123.0)
    theirs.load_state_dict(through_a_file(ours.torch_state_dict()))
    assert theirs.param_groups[0]["lr"] == pair.settings["lr"]
    train(m, ours, range(1 + first, 21 + first))
    train(n, theirs, range(1 + first, 21 + first))
    equal(m, n, pair.tolerance)
    states_equal(ours, theirs)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_there_and_back_again_is_bit_for_bit(pair: Pair) -> None:
    """Up to conversions that round: a complement or a difference keeps the last bit or two."""
    m = net(pair.matrices)
    ours = made(pair, m, ours=True)
    assert isinstance(ours, OptState)
    train(m, ours, range(1, 5))
    again = made(pair, copy.deepcopy(m), ours=True)
    again.load_state_dict(ours.torch_state_dict())
    for a, b in zip(ours.state.values(), again.state.values()):
        assert list(a) == list(b)
        for name in set(a) - {"updates"}:
            torch.testing.assert_close(a[name], b[name], rtol=1e-6, atol=1e-7)
            assert a[name].untyped_storage().data_ptr() != b[name].untyped_storage().data_ptr()


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_what_is_written_has_the_keys_that_torch_writes(pair: Pair) -> None:
    """Other than SGD, whose buffer torch leaves out where the momentum is 0."""
    m, n = net(pair.matrices), net(pair.matrices)
    ours, theirs = made(pair, m, ours=True), made(pair, n, ours=False)
    assert isinstance(ours, OptState)
    train(m, ours, range(1, 4))
    train(n, theirs, range(1, 4))
    a, b = ours.torch_state_dict(), theirs.state_dict()
    assert [set(g) for g in a["param_groups"]] == [set(g) for g in b["param_groups"]]
    for group, other in zip(a["param_groups"], b["param_groups"]):
        assert {n: v for n, v in group.items() if v != other[n]} == {}
    if pair.settings.get("momentum") == 0:
        return
    assert a["state"].keys() == b["state"].keys()
    for number, state in b["state"].items():
        assert a["state"][number].keys() == state.keys()
        for name, value in state.items():
            assert a["state"][number][name].dtype is value.dtype, name


def test_parameters_follow_their_names_into_another_order() -> None:
    m = net()
    theirs = torch.optim.AdamW(m.named_parameters(), lr=0.1)
    train(m, theirs, range(2, 4))
    ours = adamw(lr=0.1).bind(reversed(list(m.named_parameters())), compile=False)
    ours.load_state_dict(theirs.state_dict())
    for p in m.parameters():
        assert torch.equal(ours.state[p]["exp_avg"], theirs.state[p]["exp_avg"])
        assert ours.state[p]["updates"] == theirs.state[p]["step"].item()


def test_groups_and_what_schedulers_keep_in_them() -> None:
    def groups(m: nn.Sequential) -> list[dict[str, Any]]:
        return [{"params": m[0].parameters(), "lr": 0.5}, {"params": m[2].parameters()}]

    m = net()
    theirs = torch.optim.AdamW(groups(m), lr=0.1)
    torch.optim.lr_scheduler.ExponentialLR(theirs, 0.9)
    theirs.param_groups[0]["mine"] = "kept"
    train(m, theirs, range(2, 4))
    n = net()
    ours = adamw(lr=0.2).bind(groups(n), compile=False)
    ours.param_groups[0]["mine"] = "present"
    ours.load_state_dict(theirs.state_dict())
    assert [g["lr"] for g in ours.param_groups] == [0.5, 0.1]
    assert ours.param_groups[0]["initial_lr"] == 0.5
    assert ours.param_groups[0]["mine"] == "kept"
    assert [g["step"] for g in ours.param_groups] == [1, 2]  # the first layer had one gradient
    back = ours.torch_state_dict()["param_groups"]
    assert [(g["lr"], g.get("initial_lr"), g.get("mine")) for g in back] == [
        (0.5, 0.5, "kept"),
        (0.1, 0.1, None),
    ]


def test_a_class_that_computes_something_else_is_refused() -> None:
    m = net()
    rows: list[tuple[Any, torch.optim.Optimizer, str]] = [
        (adamw, torch.optim.Adagrad(m.parameters()), "another optimizer than `torch.optim.AdamW`"),
        (adamw, torch.optim.Adam(m.parameters()), "with `decoupled_weight_decay=False`"),
        (sgd, torch.optim.SGD(m.parameters(), momentum=0.9), "with `momentum=0.9`"),
    ]
    for rule, theirs, message in rows:
        opt = rule(lr=0.7).bind(net(), compile=False)
        before = copy.deepcopy(opt.state_dict())
        with pytest.raises(OptimizerError, match=f"E-OPT-007(.|\n)*{message}"):
            opt.load_state_dict(theirs.state_dict())
        assert opt.state_dict()["param_groups"] == before["param_groups"]


def test_a_file_of_an_old_torch_lacks_settings() -> None:
    """They had their defaults then; and its counts were plain numbers."""
    m = net()
    theirs = torch.optim.AdamW(m.parameters(), lr=0.1)
    train(m, theirs, range(2, 4))
    file = theirs.state_dict()
    for name in ("decoupled_weight_decay", "fused", "maximize", "foreach", "differentiable"):
        del file["param_groups"][0][name]
    for state in file["state"].values():
        state["step"] = int(state["step"])
    ours = adamw(lr=0.2, maximize=True).bind(m.parameters(), compile=False)
    ours.load_state_dict(file)
    assert ours.param_groups[0]["maximize"] is False
    assert [ours.state[p]["updates"] for p in m.parameters()] == [1, 1, 2, 2]


def test_a_file_of_an_old_torch_has_states_before_the_first_step() -> None:
    """They are where they start, and start there here too."""
    settings = {"lr": 0.05, "initial_accumulator_value": 0.5}
    m, n = net(), net()
    theirs = torch.optim.Adagrad(m.parameters(), **settings)
    file = theirs.state_dict()
    sums = [torch.full_like(p, 0.5) for p in m.parameters()]
    file["state"] = {i: {"step": torch.tensor(0.0), "sum": s} for i, s in enumerate(sums)}
    ours = adagrad(lr=9.0).bind(n, compile=False)
    ours.load_state_dict(file)
    theirs.load_state_dict(file)
    train(m, theirs, range(1, 6))
    train(n, ours, range(1, 6))
    equal(m, n, 1e-5)


def test_rules_without_a_counterpart() -> None:
    @optimizer
    def own(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        return optimizer_update(param - schedule_value(lr, ctx) * grad)

    opt = own().bind(net(), compile=False)
    with pytest.raises(OptimizerError, match="E-OPT-007(.|\n)*`own` corresponds to no class"):
        opt.load_state_dict(torch.optim.AdamW(net().parameters()).state_dict())
    with pytest.raises(OptimizerError, match="E-OPT-007(.|\n)*TorchFormat"):
        opt.torch_state_dict()


class Signed(torch.optim.Optimizer):
    """Somebody's own optimizer: the sign of an average that starts at one."""

    def __init__(self, params: Any, rate: float, share: float = 0.9) -> None:
        super().__init__(params, {"rate": rate, "share": share})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "mean" not in state:
                    state.update(mean=torch.ones_like(p), t=0)
                state["mean"].lerp_(p.grad, 1 - group["share"])
                state["t"] += 1
                p.sub_(group["rate"] / state["t"] * state["mean"].sign())


_MEAN = TorchState("mean", read=lambda t, group: t - 1, write=lambda t, group: t + 1)
_SIGNED = TorchFormat(
    Signed,
    states={"above_one": _MEAN},
    hyperparameters={"lr": "rate"},
    settings={"rate": 0.1},
    step="t",
)


@optimizer(torch=_SIGNED)
def signed(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, share: Hyper = 0.9) -> Update:
    lr, share = schedule_value(lr, ctx), schedule_value(share, ctx)
    above_one = defstate("above_one", torch.zeros_like(param))
    mean = share * (above_one + 1) + (1 - share) * grad
    return optimizer_update(param - lr / ctx.updates * mean.sign(), above_one=mean - 1)


def test_a_class_of_ones_own() -> None:
    def follow(opt: torch.optim.Optimizer, steps: range) -> Tensor:
        p = opt.param_groups[0]["params"][0]
        for i in steps:
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
            opt.step()
        return p

    start = torch.linspace(-1, 1, 5)
    theirs = Signed([nn.Parameter(start.clone())], rate=0.3)
    half = follow(theirs, range(4)).detach().clone()
    ours = signed().bind([nn.Parameter(half.clone())], compile=False)
    ours.load_state_dict(through_a_file(theirs.state_dict()))
    assert ours.param_groups[0]["lr"] == 0.3
    back = Signed([nn.Parameter(half.clone())], rate=9.0)
    back.load_state_dict(through_a_file(ours.torch_state_dict()))
    assert back.param_groups[0] == {
        **theirs.param_groups[0],
        "params": back.param_groups[0]["params"],
    }
    whole = follow(theirs, range(4, 12))
    torch.testing.assert_close(follow(ours, range(4, 12)), whole)
    torch.testing.assert_close(follow(back, range(4, 12)), whole)


def test_a_chain_around_a_rule_that_torch_has() -> None:
    """What was `clip_grad_value_` and AdamW in a script goes on as a chain of both."""

    def clipped(m: nn.Module, opt: torch.optim.Optimizer, steps: range) -> None:
        for i in steps:
            for n, p in enumerate(m.parameters()):
                generator = torch.Generator().manual_seed(100 * i + n)
                p.grad = torch.randn(p.shape, generator=generator)
            if not isinstance(opt, OptState):
                nn.utils.clip_grad_value_(m.parameters(), 0.5)
            opt.step()

    m = net()
    theirs = torch.optim.AdamW(m.parameters(), lr=0.1)
    clipped(m, theirs, range(4))
    n = copy.deepcopy(m)
    ours = chain(clip_by_value(0.5), adamw(lr=0.2)).bind(n, compile=False)
    ours.load_state_dict(through_a_file(theirs.state_dict()))
    assert ours.param_groups[0]["clip_by_value.limit"] == 0.5
    clipped(m, theirs, range(4, 10))
    clipped(n, ours, range(4, 10))
    equal(m, n, 1e-5)
    with pytest.warns(UserWarning, match="AdamW` has no `clip_by_value.limit`, which is 0"):
        written = through_a_file(ours.torch_state_dict())
    theirs.load_state_dict(written)
    clipped(m, theirs, range(10, 14))
    clipped(n, ours, range(10, 14))
    equal(m, n, 1e-5)


@gradient_transform
def smoothed(param: Tensor, grad: Tensor, ctx: Ctx) -> Any:
    mean = 0.5 * defstate("mean", torch.zeros_like(grad)) + 0.5 * grad
    return transformed(mean, mean=mean)


def test_the_states_of_a_transform_are_none_of_torchs() -> None:
    m = net()
    ours = chain(smoothed(), adamw(lr=0.1)).bind(m, compile=False)
    train(m, ours, range(1, 3))
    found = ours.torch_state_dict()["state"]
    assert all(set(s) == {"step", "exp_avg", "exp_avg_sq"} for s in found.values())
    with pytest.warns(UserWarning, match="the file lacks `smoothed.mean`"):
        ours.load_state_dict(ours.torch_state_dict())


def test_settings_that_only_the_rule_has_stay() -> None:
    @optimizer(torch=TorchFormat(torch.optim.SGD, settings={"momentum": 0.0}, step=None))
    def rounded(
        param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, digits: int = 3
    ) -> Update:
        return optimizer_update((param - schedule_value(lr, ctx) * grad).round(decimals=digits))

    opt = rounded(digits=2).bind(net(), compile=False)
    opt.load_state_dict(torch.optim.SGD(net().parameters(), lr=0.5).state_dict())
    assert (opt.param_groups[0]["lr"], opt.param_groups[0]["digits"]) == (0.5, 2)
    with pytest.warns(UserWarning, match="`torch.optim.SGD` has no `digits`, which is 2 here"):
        opt.torch_state_dict()
