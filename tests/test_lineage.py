"""A rule, and all chains around it, read each other's files: transforms come and go between runs."""

from __future__ import annotations

import copy
import warnings
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
    group,
    groups,
    optimizer,
    optimizer_update,
)
from dslmut.optim import (
    adamw,
    cautious,
    centralised,
    chain,
    clip_by_global_norm,
    clip_by_value,
    gradient_transform,
    momentum_sgd,
    schedule_value,
    transformed,
    update_transform,
)


@gradient_transform
def averaged(param: Tensor, grad: Tensor, ctx: Ctx, share: Hyper = 0.5) -> Update:
    share = schedule_value(share, ctx)
    new = share * defstate("mean", torch.zeros_like(grad)) + (1 - share) * grad
    return transformed(new, mean=new)


@update_transform
def counted(param: Tensor, grad: Tensor, new: Tensor, ctx: Ctx) -> Update:
    return transformed(new, seen=defstate("seen", torch.zeros(())) + 1)


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))


def trained(rule: Any, steps: int = 3) -> tuple[nn.Sequential, OptState[Any]]:
    m = net()
    opt = rule.bind(m, compile=False)
    train(m, opt, range(steps))
    return m, opt


def train(m: nn.Module, opt: OptState[Any], steps: range) -> None:
    for i in steps:
        for number, p in enumerate(m.parameters()):
            generator = torch.Generator().manual_seed(100 * i + number)
            p.grad = torch.randn(p.shape, generator=generator)
        opt.step()


def states(opt: OptState[Any]) -> list[dict[str, Any]]:
    return [dict(opt.state[p]) for g in opt.param_groups for p in g["params"]]


RULES = {
    "adamw": adamw(lr=0.1),
    "chain(clip_by_value, adamw)": chain(clip_by_value(9.0), adamw(lr=0.1)),
    "chain(averaged, adamw, counted)": chain(averaged(0.25), adamw(lr=0.1), counted()),
    "chain(averaged, clip_by_value, averaged_2, adamw)": chain(
        averaged(0.25), clip_by_value(9.0), averaged(0.75), adamw(lr=0.1)
    ),
}


@pytest.mark.parametrize("before", RULES)
@pytest.mark.parametrize("after", RULES)
def test_what_both_have_goes_on_and_the_rest_is_said(before: str, after: str) -> None:
    _, old = trained(RULES[before])
    new = RULES[after].bind(net(), compile=False)
    fresh = [copy.deepcopy(s) for s in states(new)]
    own = dict(new.param_groups[0])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        new.load_state_dict(old.state_dict())
    for was, starts, now in zip(states(old), fresh, states(new)):
        assert list(now) == list(starts)
        for name, value in now.items():
            expected = was.get(name, starts[name])
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(expected)), name
    old_group = old.param_groups[0]
    for name in set(own) - {"params", "rule"}:
        assert new.param_groups[0][name] == old_group.get(name, own[name]), name
    assert new.param_groups[0]["rule"] == after
    texts = "\n".join(str(w.message) for w in said)
    assert (f"saved from `{before}`, and this is `{after}`" in texts) == (before != after)
    for part in before[6:-1].split(", ") if "(" in before else ():
        gone = part not in after.replace("(", " ").replace(",", " ").replace(")", " ").split()
        assert (f"`{part}`" in texts.rpartition("it goes on without ")[2]) == gone, part
    assert len(said) == (before != after)


def test_the_run_goes_on_as_the_rule_alone_would() -> None:
    """Both ways, through a clipping that clips nothing."""
    clipped = chain(clip_by_global_norm(1e9), adamw(lr=0.1))
    for first, second in ((adamw(lr=0.1), clipped), (clipped, adamw(lr=0.1))):
        m, opt = trained(first)
        n = copy.deepcopy(m)
        again = second.bind(n, compile=False)
        with pytest.warns(UserWarning, match="saved from"):
            again.load_state_dict(opt.state_dict())
        train(m, opt, range(3, 8))
        train(n, again, range(3, 8))
        for p, q in zip(m.parameters(), n.parameters()):
            torch.testing.assert_close(p, q)


def test_parts_in_another_order_are_said() -> None:
    _, opt = trained(chain(averaged(), clip_by_value(1.0), adamw(lr=0.1)))
    again = chain(clip_by_value(1.0), averaged(), adamw(lr=0.1)).bind(net(), compile=False)
    with pytest.warns(UserWarning, match="the parts are in another order"):
        again.load_state_dict(opt.state_dict())


def test_groups_differ_in_their_transforms() -> None:
    """One of two rules gets a transform; and parameters move to a group that has one."""
    m, opt = trained(
        groups(group("*.bias", optimizer=adamw(lr=0.1)), group(optimizer=momentum_sgd(lr=0.1)))
    )
    n = net()
    again = groups(
        group("0.bias", optimizer=chain(centralised(), adamw(lr=0.3))),
        group("2.bias", optimizer=adamw(lr=0.3)),
        group(optimizer=chain(averaged(), momentum_sgd(lr=0.3))),
    ).bind(n, compile=False)
    with pytest.warns(UserWarning, match="begins now") as said:
        again.load_state_dict(opt.state_dict())
    texts = sorted(str(w.message) for w in said)
    assert len(texts) == 2, texts
    assert [g["lr"] for g in again.param_groups] == [0.1] * 3
    for p, q in zip(m.parameters(), n.parameters()):
        for name, value in opt.state[p].items():
            assert torch.equal(torch.as_tensor(again.state[q][name]), torch.as_tensor(value))


@optimizer
def other(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
    return optimizer_update(param - schedule_value(lr, ctx) * grad)


@pytest.mark.parametrize(
    "rule", [other(), chain(centralised(), other()), chain(other(), cautious())], ids=str
)
def test_another_rule_is_refused_with_or_without_transforms(rule: Any) -> None:
    for file in (trained(RULES[name])[1].state_dict() for name in list(RULES)[:3]):
        opt = rule.bind(net(), compile=False)
        with pytest.raises(OptimizerError, match="E-OPT-007(.|\n)*the file was saved from `"):
            opt.load_state_dict(file)


def test_what_belongs_to_no_part_is_refused_all_the_same() -> None:
    _, opt = trained(chain(averaged(), adamw(lr=0.1)))
    for change, message in (
        (lambda f: f["state"][0].update({"averaged_3.mean": 1.0}), "state `averaged_3.mean`"),
        (lambda f: f["param_groups"][0].update({"averaging.share": 1.0}), "`averaging.share`"),
    ):
        file = copy.deepcopy(opt.state_dict())
        change(file)
        again = adamw(lr=0.5).bind(net(), compile=False)
        with pytest.raises(OptimizerError, match=f"E-OPT-007(.|\n)*{message}"):
            again.load_state_dict(file)
        assert again.param_groups[0]["lr"] == 0.5
