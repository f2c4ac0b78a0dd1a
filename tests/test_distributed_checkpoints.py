"""`torch.distributed.checkpoint` with our optimizers, in one process."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)

from dslmut import OptState, group, groups
from dslmut.optim import adamw, momentum_sgd, sgd

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
NESTED = StateDictOptions()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Torch warns of its own calls here, and of there being one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch")
        yield


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def train(m: nn.Module, opt: torch.optim.Optimizer, steps: range) -> None:
    for i in steps:
        generator = torch.Generator().manual_seed(i)
        for p in m.parameters():
            p.grad = torch.randn(p.shape, generator=generator) if p.requires_grad else None
        opt.step()
    opt.zero_grad()


def everything(opt: OptState[Any]) -> list[Any]:
    found: list[Any] = []
    for g in opt.param_groups:
        found.append({k: v for k, v in g.items() if k != "params"})
        for p in g["params"]:
            found.append(p.tolist())
            states = opt.state[p].items()
            found.append({k: v.tolist() if isinstance(v, Tensor) else v for k, v in states})
    return found


def frozen(m: nn.Module) -> OptState[Any]:
    m.requires_grad_(False)
    return sgd(lr=lambda ctx: 0.1).bind(m, compile=False)


def several(m: nn.Module) -> OptState[Any]:
    rules = groups(group("*.bias", optimizer=sgd(lr=0.1)), group(optimizer=adamw(lr=0.1)))
    return rules.bind(m, compile=False)


MAKERS: dict[str, Callable[[nn.Module], OptState[Any]]] = {
    "stateless": lambda m: sgd(lr=0.1, weight_decay=0.1).bind(m, compile=False),
    "adamw": lambda m: adamw(lr=0.1).bind(m, compile=False),
    "unnamed": lambda m: momentum_sgd(lr=0.1).bind(m.parameters(), compile=False),
    "scheduled": lambda m: sgd(lr=lambda ctx: 0.1 / ctx.updates).bind(m, compile=False),
    "told": lambda m: sgd(lr=lambda ctx: ctx.k).bind(m, ctx={"k": 0.5}, compile=False),
    "several rules": several,
    "frozen": frozen,
}
by_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
by_layout = pytest.mark.parametrize("options", [NESTED, FLAT], ids=["nested", "flat"])


@by_layout
@by_maker
def test_asking_before_the_training_changes_nothing(
    make: Callable[[nn.Module], OptState[Any]], options: StateDictOptions
) -> None:
    """pt 164929: asking for a state dict before training moved Adam to its second step."""
    m, n = net(), net()
    opt, twin = make(m), make(n)
    get_optimizer_state_dict(m, opt, options=options)
    assert everything(opt) == everything(twin)
    assert all(p.grad is None for p in m.parameters())


@by_layout
@by_maker
def test_a_run_goes_on_from_the_disk(
    make: Callable[[nn.Module], OptState[Any]], options: StateDictOptions, tmp_path: Any
) -> None:
    """dion 18, pt 192224: flattening crashed, and a stateless SGD saved junk."""
    m, n = net(), net()
    opt, again = make(m), make(n)
    train(m, opt, range(3))
    model, state = get_state_dict(m, opt, options=options)
    dcp.save({"model": model, "opt": state}, checkpoint_id=tmp_path)
    train(m, opt, range(3, 6))
    model, state = get_state_dict(n, again, options=options)
    parts = {"model": model, "opt": state}
    dcp.load(parts, checkpoint_id=tmp_path)
    set_state_dict(
        n,
        again,
        model_state_dict=parts["model"],
        optim_state_dict=parts["opt"],
        options=options,
    )
    train(n, again, range(3, 6))
    assert everything(again) == everything(opt)


def test_saving_while_the_training_goes_on(tmp_path: Any) -> None:
    m, n = net(), net()
    opt, again = MAKERS["adamw"](m), MAKERS["adamw"](n)
    train(m, opt, range(3))
    expected = [copy.deepcopy(opt.state[p]) for p in m.parameters()]
    state = {"opt": get_optimizer_state_dict(m, opt)}
    future: Any = dcp.async_save(state, checkpoint_id=tmp_path, no_dist=True)
    train(m, opt, range(3, 6))
    future.result()
    state = {"opt": get_optimizer_state_dict(n, again)}
    dcp.load(state, checkpoint_id=tmp_path)
    set_optimizer_state_dict(n, again, state["opt"])
    for p, q, saved in zip(m.parameters(), n.parameters(), expected):
        assert again.state[q]["updates"] == 3
        assert torch.equal(again.state[q]["exp_avg"], saved["exp_avg"])
        assert not torch.equal(again.state[q]["exp_avg"], opt.state[p]["exp_avg"])


def test_gradients_that_are_there_lose_nothing() -> None:
    """pt 140898: an empty optimizer was saved while gradients were there."""
    m = net()
    opt = MAKERS["adamw"](m)
    for p in m.parameters():
        p.grad = torch.ones_like(p)
    state: Any = get_optimizer_state_dict(m, opt)["state"]
    assert set(state) == {n for n, _ in m.named_parameters()}
    assert all(set(s) == {"exp_avg", "exp_avg_sq", "updates"} for s in state.values())


def parts(m: nn.Module, *names: str) -> dict[str, Any]:
    return {"params": [(n, m.get_parameter(n)) for n in names]}


def arranged(m: nn.Module, number: int, rate: float = 0.1) -> OptState[Any]:
    arrangements = [
        [parts(m, "0.weight", "0.bias"), parts(m, "2.weight", "2.bias")],
        [parts(m, "2.weight", "0.weight"), parts(m, "0.bias", "2.bias")],
        [parts(m, "2.bias", "2.weight", "0.weight", "0.bias")],
    ]
    return adamw(lr=rate).bind(arrangements[number], compile=False)


@by_layout
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.filterwarnings("ignore:dslmut. the file lacks:UserWarning")
def test_states_follow_names_into_other_groups(after: int, options: StateDictOptions) -> None:
    """Torch leaves the names of the old groups, and groups without any settings."""
    m, n = net(), net()
    opt, again = arranged(m, 0), arranged(n, after)
    train(m, opt, range(3))
    set_optimizer_state_dict(
        n, again, get_optimizer_state_dict(m, opt, options=options), options=options
    )
    for p, q in zip(m.parameters(), n.parameters()):
        assert torch.equal(opt.state[p]["exp_avg"], again.state[q]["exp_avg"])
        assert again.state[q]["updates"] == 3
    assert [g["step"] for g in again.param_groups] == [3] * len(again.param_groups)


def test_an_optimizer_of_a_part_of_a_model() -> None:
    """The names of a checkpoint are the whole model's, and those of the optimizer the part's."""
    m, n = nn.ModuleDict({"body": net()}), nn.ModuleDict({"body": net()})
    opt, again = arranged(m["body"], 0), arranged(n["body"], 0)
    train(m, opt, range(3))
    set_optimizer_state_dict(n, again, get_optimizer_state_dict(m, opt))
    for p, q in zip(m.parameters(), n.parameters()):
        assert torch.equal(opt.state[p]["exp_avg"], again.state[q]["exp_avg"])


def test_the_names_of_a_distributed_checkpoint_may_be_loaded_directly() -> None:
    m, n = net(), net()
    opt, again = arranged(m, 0), arranged(n, 1)
    train(m, opt, range(3))
    file: Any = get_optimizer_state_dict(m, opt)
    again.load_state_dict(file)
    for p, q in zip(m.parameters(), n.parameters()):
        assert torch.equal(opt.state[p]["exp_avg"], again.state[q]["exp_avg"])


def test_a_distributed_checkpoint_of_torchs_own_optimizer() -> None:
    m, n = net(), net()
    theirs = torch.optim.AdamW(m.parameters(), lr=0.1)
    train(m, theirs, range(3))
    file: Any = get_optimizer_state_dict(m, theirs)
    again = arranged(n, 2, rate=0.5)
    again.load_state_dict(file)
    for p, q in zip(m.parameters(), n.parameters()):
        assert torch.equal(theirs.state[p]["exp_avg"], again.state[q]["exp_avg"])
        assert again.state[q]["updates"] == 3
    assert again.param_groups[0]["lr"] == 0.1
