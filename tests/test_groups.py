"""Several rules in one optimizer: who updates what, in one step, one scheduler and one state dict."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Mut,
    MutationError,
    OptimizerError,
    OptState,
    fn,
    group,
    groups,
    mut,
    update,
    value_and_grad,
)
from dslmut.optim import adamw, momentum_sgd, sgd


class Net(nn.Module):
    """An embedding that is its own head, a norm and a hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.hidden = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, i: Tensor) -> Tensor:
        return self.head(self.norm(self.hidden(self.embedding(i))))


def seeded() -> Net:
    torch.manual_seed(0)
    return Net()


def loss_of(m: Net) -> Tensor:
    return nn.functional.cross_entropy(m(torch.arange(5)), torch.arange(5).flip(0))


def is_matrix(name: str, p: Tensor) -> bool:
    return p.ndim == 2


RULES = groups(
    group("*.bias", "norm.*", optimizer=adamw(lr=0.01, weight_decay=0)),
    group("head.*", optimizer=momentum_sgd(lr=0.02)),
    group(optimizer=sgd(lr=0.1, weight_decay=0.3)),
)
MEMBERS = [["hidden.bias", "norm.weight", "norm.bias"], ["embedding.weight"], ["hidden.weight"]]


def train(opt: torch.optim.Optimizer, m: Net, steps: int) -> None:
    for _ in range(steps):
        opt.zero_grad()
        loss_of(m).backward()
        opt.step()


def parameters(m: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in m.parameters()]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(map(torch.equal, a, b))


def test_each_rule_has_its_parameters_and_a_tied_one_is_chosen_by_any_name() -> None:
    opt = RULES.bind(Net(), compile=False)
    assert [g["param_names"] for g in opt.param_groups] == MEMBERS
    assert [g["rule"] for g in opt.param_groups] == ["adamw", "momentum_sgd", "sgd"]
    assert [g["lr"] for g in opt.param_groups] == [0.01, 0.02, 0.1]
    assert "momentum" not in opt.param_groups[0]
    assert set(opt.state[opt.param_groups[1]["params"][0]]) == {"velocity", "updates"}


@pytest.mark.parametrize("option", [False, True])
def test_it_equals_optimizers_of_their_own(option: bool) -> None:
    m, other = seeded(), seeded()
    opt = RULES.bind(m, compile=option)
    named = dict(other.named_parameters())
    own = [
        rule.bind([(n, named[n]) for n in members], compile=False)
        for rule, members in zip(RULES.rules(), MEMBERS)
    ]
    for _ in range(4):
        train(opt, m, 1)
        other.zero_grad()
        loss_of(other).backward()
        for each in own:
            each.step()
    for a, b in zip(parameters(m), parameters(other)):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_the_first_match_wins_and_the_rest_may_be_empty() -> None:
    opt = groups(
        nn.Linear(2, 2),
        group(is_matrix, optimizer=sgd(lr=1)),
        group("*", optimizer=sgd(lr=2)),
        group(optimizer=sgd(lr=3)),
    )
    assert [g["param_names"] for g in opt.param_groups] == [["weight"], ["bias"], []]


def test_named_parameters_do_as_well() -> None:
    m = Net()
    opt = groups(m.named_parameters(), group("norm.*", optimizer=sgd()), group(optimizer=adamw()))
    assert [len(g["params"]) for g in opt.param_groups] == [2, 3]


def test_groups_are_comparable_printable_and_hashable() -> None:
    same = groups(*RULES.selections)
    assert same == RULES
    assert hash(same) == hash(RULES)
    assert groups(*RULES.selections[1:]) != RULES
    rule = sgd(lr=1)
    assert repr(group("*.bias", is_matrix, optimizer=rule)) == (
        f"group('*.bias', is_matrix, optimizer={rule})"
    )
    lines = repr(groups(group(lambda n, p: True, optimizer=sgd())))
    assert lines.startswith("groups(group(the lambda of line ")


def test_one_scheduler_drives_all_groups() -> None:
    m = Net()
    opt = RULES.bind(m, compile=False)
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 0.5**k)
    train(opt, m, 1)
    scheduler.step()
    assert [g["lr"] for g in opt.param_groups] == [0.005, 0.01, 0.05]
    # A scheduler that cycles the momentum needs one in each group, and asks `defaults` for it.
    with pytest.raises(ValueError, match="must support momentum or beta1"):
        torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, 10)
    torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, 10, cycle_momentum=False)


def test_one_state_dict() -> None:
    m, other = seeded(), seeded()
    opt, again = RULES.bind(m, compile=False), RULES.bind(other, compile=False)
    train(opt, m, 2)
    file = io.BytesIO()
    torch.save([m.state_dict(), opt.state_dict()], file)
    file.seek(0)
    model, saved = torch.load(file)
    other.load_state_dict(model)
    again.load_state_dict(saved)
    train(opt, m, 2)
    train(again, other, 2)
    assert equal(parameters(m), parameters(other))


def test_copies_and_pickles_keep_their_rules() -> None:
    m = seeded()
    opt = RULES.bind(m, compile=False)
    train(opt, m, 1)
    for n, o in (copy.deepcopy((m, opt)), pickle.loads(pickle.dumps((m, opt)))):
        assert repr(o) == repr(opt)
        train(o, n, 2)
        assert o.state[n.embedding.weight]["updates"] == 3
        p = nn.Parameter(torch.ones(2))
        o.add_param_group({"params": [("more", p)], "optimizer": adamw(lr=1)})
        assert o.param_groups[-1]["rule"] == "adamw"


def test_a_further_group_says_its_rule() -> None:
    m = Net()
    opt = RULES.bind(m, compile=False)
    p = nn.Parameter(torch.ones(2))
    with pytest.raises(OptimizerError, match="several rules") as raised:
        opt.add_param_group({"params": [("more", p)]})
    assert "adamw(lr=1e-3)" in str(raised.value)
    with pytest.raises(OptimizerError, match="configured rule, not a `str`"):
        opt.add_param_group({"params": [("more", p)], "optimizer": "adamw"})
    with pytest.raises(OptimizerError, match="no hyperparameter `momentum`"):
        opt.add_param_group({"params": [("more", p)], "optimizer": adamw(), "momentum": 0.9})
    assert len(opt.param_groups) == 3
    opt.add_param_group({"params": [("more", p)], "optimizer": adamw(lr=0.5), "eps": 1e-3})
    assert (opt.param_groups[3]["lr"], opt.param_groups[3]["eps"]) == (0.5, 1e-3)
    p.grad = torch.ones(2)
    opt.step()
    assert opt.state[p]["updates"] == 1


def test_a_group_that_somebody_rebuilt_keeps_its_rule() -> None:
    m = Net()
    opt = RULES.bind(m, compile=False)
    opt.param_groups[1] = {**opt.param_groups[1], "lr": 0.7}
    train(opt, m, 1)
    assert [g["rule"] for g in opt.param_groups] == ["adamw", "momentum_sgd", "sgd"]
    assert opt.param_groups[1]["lr"] == 0.7


def test_a_rebuilt_group_keeps_its_schedule() -> None:
    m = Net()
    opt = groups(
        group("norm.*", optimizer=sgd(lr=lambda ctx: 0.1 / (1 + ctx.step))),
        group(optimizer=adamw()),
    ).bind(m, compile=False)
    opt.param_groups[0] = {k: v for k, v in opt.param_groups[0].items() if k != "lr"}
    train(opt, m, 2)
    assert opt.param_groups[0]["lr"] == 0.05


def test_torch_style_groups_may_have_rules_of_their_own() -> None:
    m = Net()
    opt = sgd(lr=0.1).bind(
        [
            {"params": m.hidden.named_parameters()},
            {"params": m.norm.named_parameters(prefix="norm"), "optimizer": adamw(lr=1e-3)},
        ],
        compile=False,
    )
    assert [g["rule"] for g in opt.param_groups] == ["sgd", "adamw"]
    train(opt, m, 1)


def test_the_functional_style() -> None:
    m = Net()
    opt = RULES.bind(m, compile=False)

    @fn
    def step(m: Mut[Net], opt: Mut[OptState[Net]]) -> None:
        _, g = value_and_grad(loss_of, m)
        update(mut(m), mut(opt), g)

    before = parameters(m)
    step(mut(m), mut(opt))
    assert not equal(before, parameters(m))
    with pytest.raises(MutationError, match=r"bound to another `Net`[\s\S]*`groups\(m, ...\)`"):
        step(mut(Net()), mut(opt))


WRONG: list[tuple[Callable[[Net], Any], str, str]] = [
    (lambda m: groups(m, group("*.bais", optimizer=adamw()), group(optimizer=sgd())), "'*.bais' chooses no parameter", "hidden.bias"),
    (lambda m: groups(m, group("*.bias", "normal.*", optimizer=adamw()), group(optimizer=sgd())), "'normal.*' chooses", "norm.weight"),
    (lambda m: groups(m, group(lambda n, p: p.ndim == 7, optimizer=adamw()), group(optimizer=sgd())), "the lambda of line", "choose among"),
    (lambda m: groups(nn.Linear(2, 2), group("*.bias", optimizer=sgd()), group(optimizer=sgd())), "'*.bias' chooses", "'*bias'"),
    (lambda m: groups(m, group("*.bias", optimizer=adamw())), "no group chooses the parameter `embedding.weight`", "group(optimizer=adamw(lr=3e-4))"),
    (lambda m: groups(m, group("embedding.*", optimizer=sgd()), group("head.*", optimizer=sgd()), group(optimizer=sgd())), "group 1 is empty: what 'head.*' chooses", "narrower group first"),
    (lambda m: groups(m, group(optimizer=sgd()), group("head.*", optimizer=sgd())), "others stand behind it", "put it last"),
    (lambda m: groups(m), "`groups` has no groups", "group(optimizer="),
    (lambda m: groups(m, sgd()), "this is a `Configured`", "group("),  # type: ignore[call-overload]
    (lambda m: groups(m.parameters(), group(optimizer=sgd())), "have no names", "model.named_parameters()"),
    (lambda m: groups([{"params": [m.norm.weight]}], group(optimizer=sgd())), "these are some already", '"optimizer": adamw'),
    (lambda m: group("x", optimizer=adamw), "`adamw` is not configured", "adamw(lr=...)"),  # type: ignore[arg-type]
    (lambda m: group("x", optimizer=adamw(m)), "not a `OptState`", "adamw(lr=3e-4)"),  # type: ignore[arg-type]
    (lambda m: group("x", adamw(), optimizer=sgd()), "given by name", "optimizer="),  # type: ignore[arg-type]
    (lambda m: group(nn.LayerNorm, optimizer=sgd()), "by patterns and functions", "lambda name, p"),  # type: ignore[arg-type]
    (lambda m: group(m.norm, optimizer=sgd()), "not by a `LayerNorm`", '"head.*"'),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message", "fix"), WRONG)
def test_what_does_not_fit_is_refused_in_words(
    make: Callable[[Net], Any], message: str, fix: str
) -> None:
    with pytest.raises(OptimizerError) as raised:
        make(Net())
    (found,) = raised.value.diagnostics  # not its text: that shows the line with the message here
    assert found.code == "E-OPT-005"
    assert message in found.message
    assert fix in str(found.fix)


def test_groups_that_are_not_bound_say_so() -> None:
    with pytest.raises(AttributeError, match="configured, but not bound to a model"):
        RULES.step()  # type: ignore[attr-defined]
    assert not hasattr(RULES, "nothing")
    bound: OptState[Net] = groups(Net(), *RULES.selections)
    assert isinstance(bound, torch.optim.Optimizer)
