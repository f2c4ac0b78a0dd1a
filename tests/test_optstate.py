"""`OptState` as a `torch.optim.Optimizer`, in scripts that exist and in the functional style."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from dslmut import (
    CheckError,
    Ctx,
    Hyper,
    MutationError,
    OptimizerError,
    OptState,
    Update,
    defstate,
    mut,
    optimizer,
    optimizer_update,
    update,
    value_and_grad,
)
from dslmut.optim import adamw, compiling, momentum_sgd, sgd


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


X = torch.linspace(-1, 1, 15).reshape(5, 3)


def loss_of(m: nn.Module, x: Tensor) -> Tensor:
    return (m(x) ** 2).mean()


def eager(rule: Any, target: Any, **options: Any) -> OptState[Any]:
    return rule.bind(target, compile=False, **options)


def train(m: nn.Module, opt: torch.optim.Optimizer, steps: int, start: int = 0) -> None:
    for i in range(start, start + steps):
        opt.zero_grad()
        loss_of(m, X + i / 10).backward()
        opt.step()


def equal(a: nn.Module, b: nn.Module) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")


# -- drop-in -------------------------------------------------------------------------------------


def test_an_existing_script() -> None:
    a, b = net(), net()
    train(a, eager(adamw(lr=0.01), a.parameters()), 10)
    train(b, torch.optim.AdamW(b.parameters(), lr=0.01), 10)
    equal(a, b)


def test_the_functional_style_gives_the_same() -> None:
    a, b = net(), net()
    opt = eager(momentum_sgd(lr=0.05), a)
    for i in range(5):
        loss, g = value_and_grad(loss_of, a, X + i / 10)
        update(mut(a), mut(opt), g)
        assert loss.grad_fn is None
    train(b, torch.optim.SGD(b.parameters(), lr=0.05, momentum=0.9), 5)
    equal(a, b)
    assert all(p.grad is None for p in a.parameters())


def test_closures() -> None:
    m, calls = net(), []
    opt = eager(sgd(lr=0.1), m)

    def closure() -> Tensor:
        calls.append(torch.is_grad_enabled())
        opt.zero_grad()
        loss = loss_of(m, X)
        loss.backward()
        return loss

    before = loss_of(m, X).item()
    assert opt.step(closure).item() == pytest.approx(before)
    assert calls == [True]
    assert loss_of(m, X).item() < before


@pytest.mark.parametrize(
    "make",
    [
        lambda o: lr_scheduler.StepLR(o, 2, gamma=0.5),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
        lambda o: lr_scheduler.LinearLR(o, total_iters=5),
        lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
        lambda o: lr_scheduler.LambdaLR(o, lambda e: 1 / (e + 1)),
    ],
)
def test_torchs_schedulers(make: Any) -> None:
    a, b = net(), net()
    pairs = [
        (a, eager(adamw(lr=0.01, betas=(0.9, 0.99)), a)),
        (b, torch.optim.AdamW(b.parameters(), lr=0.01, betas=(0.9, 0.99))),
    ]
    for m, opt in pairs:
        scheduler = make(opt)
        for i in range(12):
            train(m, opt, 1, i)
            scheduler.step()
    assert pairs[0][1].param_groups[0]["lr"] == pairs[1][1].param_groups[0]["lr"]
    assert pairs[0][1].param_groups[0]["betas"] == tuple(pairs[1][1].param_groups[0]["betas"])
    equal(a, b)


def test_a_scheduler_may_follow_the_functional_style() -> None:
    m = net()
    opt = eager(sgd(lr=0.1), m)
    scheduler = lr_scheduler.StepLR(opt, 1, gamma=0.5)
    for _ in range(3):
        _, g = value_and_grad(loss_of, m, X)
        update(mut(m), mut(opt), g)
        scheduler.step()
    assert opt.param_groups[0]["lr"] == pytest.approx(0.0125)


def test_grad_scaler_skips_a_step_with_infinite_gradients() -> None:
    m = net()
    opt = eager(adamw(lr=0.1), m)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = [p.detach().clone() for p in m.parameters()]
    for bad in (True, False):
        opt.zero_grad()
        scaler.scale(loss_of(m, X)).backward()
        if bad:
            m[0].weight.grad[0] = float("inf")
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        same = all(torch.equal(p, q) for p, q in zip(before, m.parameters()))
        assert same is bad
    assert opt.state[m[0].weight]["updates"] == 1


def test_hooks() -> None:
    m, seen = net(), []
    opt = eager(sgd(lr=0.1), m)
    opt.register_step_pre_hook(lambda *_: seen.append("pre"))
    opt.register_step_post_hook(lambda *_: seen.append("post"))
    train(m, opt, 1)
    _, g = value_and_grad(loss_of, m, X)
    update(mut(m), mut(opt), g)
    assert seen == ["pre", "post", "pre", "post"]


def test_names_are_for_all_groups_or_for_none() -> None:
    a, b = net(), torch.zeros(1, requires_grad=True)
    opt = eager(sgd(lr=0.1), a)
    opt.add_param_group({"params": [b]})
    assert opt.param_groups[1]["param_names"] == ["group1.0"]
    unnamed = eager(sgd(lr=0.1), a.parameters())
    with pytest.raises(OptimizerError, match="E-OPT-005(.|\n)*this group has names"):
        unnamed.add_param_group({"params": [("b", b)]})


def test_groups_have_their_own_numbers() -> None:
    a, b = net(), net()

    def groups(m: nn.Sequential) -> list[dict[str, Any]]:
        return [{"params": m[0].parameters(), "lr": 0.5}, {"params": list(m[2].parameters())}]

    train(a, eager(momentum_sgd(lr=0.1), groups(a)), 4)
    train(b, torch.optim.SGD(groups(b), lr=0.1, momentum=0.9), 4)
    equal(a, b)


def test_add_param_group_after_the_start() -> None:
    a, b = net(), net()
    pairs = [
        (a, eager(momentum_sgd(lr=0.1), a[0].parameters())),
        (b, torch.optim.SGD(b[0].parameters(), lr=0.1, momentum=0.9)),
    ]
    for m, opt in pairs:
        train(m, opt, 2)
        opt.add_param_group({"params": m[2].parameters(), "lr": 0.05})
        train(m, opt, 3, 2)
    equal(a, b)
    opt = pairs[0][1]
    count = len(opt.param_groups)
    for bad, code in [
        ({"params": a[2].parameters()}, "E-OPT-005"),
        ({"params": [torch.zeros(1, requires_grad=True)], "lrr": 1}, "E-OPT-002"),
        ({"params": [torch.zeros(1, dtype=torch.int64)]}, "E-OPT-005"),
    ]:
        with pytest.raises(OptimizerError, match=code):
            opt.add_param_group(bad)
        assert len(opt.param_groups) == count
    train(a, opt, 1)


def test_groups_may_be_edited() -> None:
    a, b = net(), net()
    for m, make in (
        (a, lambda g: eager(sgd(lr=0.1), g)),
        (b, lambda g: torch.optim.SGD(g, lr=0.1)),
    ):
        first = {"params": [m[0].weight], "lr": 0.5}
        opt = make([first, {"params": [m[2].weight], "lr": 0.25}])
        train(m, opt, 1)
        opt.param_groups.reverse()
        train(m, opt, 1)
        del opt.param_groups[1]
        train(m, opt, 1)
        opt.param_groups[0]["params"].append(m[0].bias)
        train(m, opt, 1)
        opt.param_groups.append({**opt.param_groups[0], "params": [m[2].bias]})
        train(m, opt, 1)
    equal(a, b)


def test_schedules_stay_with_their_groups() -> None:
    p, q = (nn.Parameter(torch.zeros(1)) for _ in range(2))
    opt = eager(sgd(lr=0.1), [{"params": [p], "lr": lambda ctx: 1.0}, {"params": [q], "lr": 0.5}])
    opt.param_groups.reverse()
    for each in (p, q):
        each.grad = torch.ones(1)
    opt.step()
    assert (p.item(), q.item()) == (-1.0, -0.5)
    del opt.param_groups[1]
    opt.step()
    assert (p.item(), q.item()) == (-1.0, -1.0)
    again = copy.deepcopy(opt)
    assert again.param_groups[0].schedules == {}


def test_a_renamed_parameter_is_traced_anew() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(param - (1.0 if ctx.name == "a" else 100.0) * grad)

    p, q = (nn.Parameter(torch.zeros(1)) for _ in range(2))
    opt = eager(rule(), [("a", p), ("b", q)])
    for key in ("params", "param_names"):
        opt.param_groups[0][key].pop(0)
    q.grad = torch.ones(1)
    opt.step()
    assert q.item() == -100


def test_a_group_that_is_added_goes_on_from_the_present_step() -> None:
    p, q = (nn.Parameter(torch.zeros(1)) for _ in range(2))
    opt = eager(sgd(lr=lambda ctx: 0.1 * ctx.step), [p])
    for each in (p, q):
        each.grad = torch.ones(1)
    for _ in range(3):
        opt.step()
    opt.add_param_group({"params": [q]})
    opt.step()
    assert q.item() == pytest.approx(-0.3)


def test_a_failed_group_leaves_nothing() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        if param.ndim == 1:
            raise ZeroDivisionError
        return optimizer_update(param - grad)

    m = nn.Linear(2, 2)
    opt = eager(rule(), [m.weight])
    with pytest.raises(ZeroDivisionError):
        opt.add_param_group({"params": [m.bias]})
    assert len(opt.param_groups) == 1
    m.weight.grad = torch.ones(2, 2)
    opt.step()


def test_a_failed_step_changes_nothing() -> None:
    p = nn.Parameter(torch.zeros(3))
    opt = eager(sgd(lr=lambda ctx: ctx.scale), [p], ctx={"scale": 1.0})
    p.grad = torch.ones(3).to_sparse()
    with pytest.raises(OptimizerError, match="E-OPT-005"):
        opt.step(ctx={"scale": 5.0})
    p.grad = torch.ones(3)
    with pytest.raises(OptimizerError, match="E-OPT-011"):
        opt.step(ctx={"scale": "a"})
    opt.step()
    assert p.tolist() == [-1, -1, -1]
    assert opt.param_groups[0]["step"] == 1


def test_a_copy_keeps_the_keys_of_ctx() -> None:
    p = nn.Parameter(torch.zeros(1))
    opt = eager(sgd(lr=lambda ctx: ctx.scale), [p], ctx={"scale": 1.0})
    p.grad = torch.ones(1)
    opt.step(ctx={"scale": 3.0})
    again = copy.deepcopy(opt)
    (q,) = again.param_groups[0]["params"]
    q.grad = torch.ones(1)
    again.step()
    assert q.item() == -6


@pytest.mark.parametrize(("target", "words"), [
    ({nn.Parameter(torch.ones(1))}, "a set of parameters"), ({"params": []}, "a dictionary"),
    ([{"lr": 0.1}], "has no `params`"), (nn.ReLU(), "has no parameters"),
    ([{"params": [nn.Parameter(torch.ones(1))], "capturable": True}], "no hyperparameter `capturable`"),
])  # fmt: skip
def test_targets_that_do_not_fit(target: Any, words: str) -> None:
    with pytest.raises(OptimizerError, match=words):
        eager(sgd(lr=0.1), target)


def test_autocast_and_other_modes_do_not_reach_the_update() -> None:
    results = []
    for modes in (False, True):
        with torch.inference_mode(modes), torch.device("meta" if modes else "cpu"):
            p = nn.Parameter(torch.eye(3, device="cpu") * 1.001, requires_grad=True)

            @optimizer
            def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
                old = defstate("old", torch.zeros_like(param))
                return optimizer_update(param - param @ grad, old=old + param @ param)

            with torch.autocast("cpu", enabled=modes):
                opt = eager(rule(), [p])
                p.grad = torch.full((3, 3), 0.1001, device="cpu")
                opt.step()
        results.append((p.detach().clone(), opt.state[p]["old"].clone()))
    assert all(map(torch.equal, *results))
    if not opt.state[p]["old"].is_inference():
        opt.state[p]["old"].add_(1)


def test_gradients_come_and_go() -> None:
    a, b = net(), net()
    pairs = [
        (a, eager(adamw(lr=0.01), a)),
        (b, torch.optim.AdamW(b.parameters(), lr=0.01)),
    ]
    for m, opt in pairs:
        for i in range(8):
            opt.zero_grad()
            loss_of(m, X + i).backward()
            for j, p in enumerate(m.parameters()):
                if (i + j) % 3 == 0:
                    p.grad = None
            opt.step()
    equal(a, b)
    counts = [pairs[0][1].state[p]["updates"] for p in a.parameters()]
    assert counts == [5, 6, 5, 5]


def test_frozen_parameters_get_states_when_they_need_them() -> None:
    m = net()
    m[0].requires_grad_(False)
    opt = eager(adamw(lr=0.01), m)
    assert len(opt.state[m[0].weight]) == 0
    train(m, opt, 2)
    m[0].requires_grad_(True)
    train(m, opt, 2)
    assert opt.state[m[0].weight]["updates"] == 2
    assert opt.state[m[2].weight]["updates"] == 4


def test_replaced_parameters_in_a_group() -> None:
    m = net()
    opt = eager(momentum_sgd(lr=0.1), m)
    train(m, opt, 1)
    m[2].bias = nn.Parameter(torch.zeros(2))
    opt.param_groups[0]["params"][3] = m[2].bias
    train(m, opt, 2)
    assert opt.state[m[2].bias]["updates"] == 2
    assert m[2].bias.any()


def test_parameters_that_move_or_change_their_type() -> None:
    m = net()
    opt = eager(sgd(lr=0.1), m)
    train(m, opt, 1)
    m.to(torch.float64)
    opt.zero_grad()
    loss_of(m, X.double()).backward()
    before = m[0].weight.detach().clone()
    opt.step()
    torch.testing.assert_close(m[0].weight, before - 0.1 * m[0].weight.grad)


def test_tied_parameters_are_updated_once() -> None:
    m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    m[1].weight = m[0].weight
    opt = eager(sgd(lr=0.1), m)
    before = m[0].weight.detach().clone()
    loss_of(m, X).backward()
    opt.step()
    torch.testing.assert_close(m[0].weight, before - 0.1 * m[0].weight.grad)


def test_sparse_gradients_are_refused_before_anything_changed() -> None:
    m = nn.ModuleDict({"l": nn.Linear(2, 2), "e": nn.Embedding(4, 2, sparse=True)})
    opt = eager(sgd(lr=0.1), m)
    m["l"](m["e"](torch.tensor([0, 1]))).sum().backward()
    before = copy.deepcopy(m.state_dict())
    with pytest.raises(OptimizerError, match="E-OPT-005(.|\n)*`e.weight`(.|\n)*sparse=False"):
        opt.step()
    assert all(torch.equal(a, b) for a, b in zip(before.values(), m.state_dict().values()))


def test_meta_and_lazy_parameters_wait_for_the_first_step() -> None:
    lazy = nn.Sequential(nn.LazyLinear(2))
    opt = eager(adamw(lr=0.1), lazy)
    lazy(X).sum().backward()
    opt.step()
    assert opt.state[lazy[0].weight]["updates"] == 1
    with torch.device("meta"):
        meta = nn.Linear(3, 2)
    assert eager(adamw(lr=0.1), meta).state[meta.weight] == {}


# -- copies --------------------------------------------------------------------------------------


def test_deepcopy_and_pickle() -> None:
    m = net()
    opt = eager(adamw(lr=0.01), m)
    train(m, opt, 2)
    n, again = copy.deepcopy((m, opt))
    assert again.param_groups[0]["params"][0] is n[0].weight
    data = pickle.dumps((m, opt))
    o, third = pickle.loads(data)
    for model, each in ((m, opt), (n, again), (o, third)):
        train(model, each, 3, 2)
        each.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
    equal(m, n)
    equal(m, o)
    assert third.graph("0.weight") == opt.graph("0.weight")


# -- checkpoints ---------------------------------------------------------------------------------


def saved(opt: torch.optim.Optimizer) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(opt.state_dict(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def test_a_resumed_run_equals_an_uninterrupted_one() -> None:
    def schedule(ctx: Ctx) -> float:
        return 0.1 / ctx.updates + 0.01 * ctx.progress

    rule = adamw(lr=schedule)
    a, b = net(), net()
    whole = eager(rule, a, curriculum=20)
    train(a, whole, 9)
    first = eager(rule, b, curriculum=20)
    train(b, first, 4)
    c = net()
    c.load_state_dict(b.state_dict())
    second = eager(rule, c, curriculum=20)
    second.load_state_dict(saved(first))
    train(c, second, 5, 4)
    for p, q in zip(a.parameters(), c.parameters()):
        assert torch.equal(p, q)
    assert second.param_groups[0]["step"] == 9
    assert second.state[c[0].weight]["updates"] == 9


def test_state_dicts_have_torchs_layout_and_names() -> None:
    opt = eager(momentum_sgd(lr=0.1), net())
    found = opt.state_dict()
    assert found["param_groups"][0]["param_names"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert found["param_groups"][0]["params"] == [0, 1, 2, 3]
    assert sorted(found["state"][0]) == ["updates", "velocity"]


def test_loading_goes_by_name() -> None:
    m = net()
    opt = eager(momentum_sgd(lr=0.1), m)
    train(m, opt, 3)
    n = net()
    turned = eager(momentum_sgd(lr=0.1), reversed(list(n.named_parameters())))
    turned.load_state_dict(saved(opt))
    regrouped = eager(
        momentum_sgd(lr=0.1),
        [
            {"params": list(n[2].named_parameters("2"))},
            {"params": list(n[0].named_parameters("0"))},
        ],
    )
    regrouped.load_state_dict(saved(opt))
    for other in (turned, regrouped):
        for (_, p), (_, q) in zip(m.named_parameters(), n.named_parameters()):
            assert torch.equal(opt.state[p]["velocity"], other.state[q]["velocity"])
            assert other.state[q]["updates"] == 3
        assert other.param_groups[0]["step"] == 3


def test_without_names_loading_goes_by_position() -> None:
    m, n = net(), net()
    opt = eager(momentum_sgd(lr=0.1), m.parameters())
    train(m, opt, 3)
    again = eager(momentum_sgd(lr=0.2), n.parameters())
    again.load_state_dict(saved(opt))
    assert again.param_groups[0]["lr"] == 0.1
    assert torch.equal(opt.state[m[0].weight]["velocity"], again.state[n[0].weight]["velocity"])


def test_values_keep_their_dtype_and_get_storage_of_their_own() -> None:
    @optimizer
    def mixed(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        fine = defstate("fine", torch.zeros_like(param, dtype=torch.float32))
        count = defstate("count", torch.zeros((), dtype=torch.int64))
        flag = defstate("flag", torch.zeros((), dtype=torch.bool))
        return optimizer_update(
            param - grad, fine=fine + 1 / 3, count=count + 1001, flag=torch.logical_not(flag)
        )

    p = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    opt = eager(mixed(), [("p", p)])
    p.grad = torch.zeros_like(p)
    opt.step()
    q = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    again = eager(mixed(), [("p", q)])
    file = opt.state_dict()
    again.load_state_dict(file)
    for name in ("fine", "count", "flag"):
        a, b = opt.state[p][name], again.state[q][name]
        assert a.dtype is b.dtype
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()
    assert again.state[q]["count"].item() == 1001


def test_what_a_file_lacks_starts_at_zeros_with_a_warning() -> None:
    m = net()
    opt = eager(momentum_sgd(lr=0.1), m)
    train(m, opt, 2)
    file = saved(opt)
    del file["state"][0]["velocity"]
    n = net()
    again = eager(momentum_sgd(lr=0.1), n)
    with pytest.warns(UserWarning, match="the file lacks `velocity` of `0.weight`"):
        again.load_state_dict(file)
    assert not again.state[n[0].weight]["velocity"].any()
    assert again.state[n[2].weight]["velocity"].any()
    wider = nn.Sequential(*net(), nn.Linear(2, 2))
    more = eager(momentum_sgd(lr=0.1), wider)
    with pytest.warns(UserWarning, match="no states of `3.weight`, `3.bias`"):
        more.load_state_dict(saved(opt))


def trained(kind: Any) -> torch.optim.Optimizer:
    m = net()
    opt = kind(m.named_parameters(), lr=0.1)
    train(m, opt, 1)
    return opt


def edited(change: Any) -> dict[str, Any]:
    file = saved(eager(momentum_sgd(lr=0.7), net()))
    change(file)
    return file


def test_a_hyperparameter_that_does_not_fit_is_not_loaded() -> None:
    opt = eager(momentum_sgd(lr=0.1), net())
    file = edited(lambda f: f["param_groups"][0].update(lr="x"))
    with pytest.raises(OptimizerError, match="E-OPT-002"):
        opt.load_state_dict(file)
    assert opt.param_groups[0]["lr"] == 0.1


def test_what_a_file_lacks_of_hyperparameters_stays_with_a_warning() -> None:
    opt = eager(momentum_sgd(lr=0.1, dampening=0.5), net())
    with pytest.warns(UserWarning, match="lacks dampening"):
        opt.load_state_dict(edited(lambda f: f["param_groups"][0].pop("dampening")))
    assert opt.param_groups[0]["dampening"] == 0.5
    assert opt.param_groups[0]["lr"] == 0.7


def test_loading_into_other_groups() -> None:
    m = net()
    parts = [list(m[0].named_parameters("0")), list(m[2].named_parameters("2"))]
    two = [{"params": parts[0], "lr": 0.5}, {"params": parts[1], "lr": 0.25}]
    opt = eager(momentum_sgd(lr=0.1), two)
    train(m, opt, 2)
    turned = eager(momentum_sgd(lr=0.1), [{"params": parts[1]}, {"params": parts[0]}])
    turned.load_state_dict(saved(opt))
    assert [g["lr"] for g in turned.param_groups] == [0.25, 0.5]
    for p in m.parameters():
        assert torch.equal(turned.state[p]["velocity"], opt.state[p]["velocity"])
    one = eager(momentum_sgd(lr=0.1), m)
    with pytest.warns(UserWarning, match="other groups"):
        one.load_state_dict(saved(opt))
    assert one.param_groups[0]["lr"] == 0.1
    assert one.param_groups[0]["step"] == 2


def test_names_that_two_parameters_have_are_refused() -> None:
    a, b = nn.Linear(1, 1), nn.Linear(1, 1)
    groups = [{"params": a.named_parameters()}, {"params": b.named_parameters()}]
    with pytest.raises(OptimizerError, match="E-OPT-005(.|\n)*two parameters are called `weight`"):
        eager(sgd(lr=0.1), groups)
    opt = eager(sgd(lr=0.1), a)
    with pytest.raises(OptimizerError, match="two parameters are called"):
        opt.add_param_group({"params": b.named_parameters()})
    assert len(opt.param_groups) == 1


def test_files_that_do_not_fit_change_nothing() -> None:
    m = net()
    opt = eager(momentum_sgd(lr=0.1), m)
    train(m, opt, 2)
    other = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    files = [
        (
            saved(eager(adamw(lr=0.7), net())),
            "saved from `adamw`, and this is `momentum_sgd`",
        ),
        (
            saved(eager(momentum_sgd(lr=0.7), other)),
            "`velocity` of `0.weight` has shape \\[5, 3\\]",
        ),
        (saved(eager(momentum_sgd(lr=0.7), nn.Linear(3, 2))), "states of `weight`, `bias`, which"),
        (
            saved(trained(torch.optim.Adam)),
            "another optimizer than `torch.optim.SGD`(.|\n)*has no `betas`",
        ),
        (
            edited(lambda f: f["param_groups"][0].update(momentun=0.5)),
            "a hyperparameter `momentun`",
        ),
        (edited(lambda f: f.pop("state")), "no state dict"),
        (
            edited(
                lambda f: f["state"][0].update(velocity=torch.ones(4, 3, dtype=torch.complex64))
            ),
            "complex",
        ),
        (
            saved(eager(momentum_sgd(lr=0.7), nn.Linear(3, 2).parameters())),
            "there are no names to go by",
        ),
    ]
    before = copy.deepcopy(opt.state_dict())
    for file, message in files:
        with pytest.raises(OptimizerError, match=f"E-OPT-007(.|\n)*{message}"):
            opt.load_state_dict(file)
        after = opt.state_dict()
        assert after["param_groups"] == before["param_groups"]
        for i, state in before["state"].items():
            assert torch.equal(after["state"][i]["velocity"], state["velocity"])


def test_load_hooks() -> None:
    seen = []
    opt = eager(momentum_sgd(lr=0.1), net())
    opt.register_load_state_dict_pre_hook(lambda o, s: seen.append("pre"))
    opt.register_load_state_dict_post_hook(lambda o: seen.append("post"))
    opt.load_state_dict(opt.state_dict())
    assert seen == ["pre", "post"]


# -- update --------------------------------------------------------------------------------------


def test_update_needs_its_markers() -> None:
    m = net()
    opt = eager(sgd(lr=0.1), m)
    _, g = value_and_grad(loss_of, m, X)
    with pytest.raises(
        CheckError, match="E1103(.|\n)*write `update\\(mut\\(m\\), mut\\(opt\\), g\\)`"
    ):
        update(m, mut(opt), g)
    with pytest.raises(CheckError, match="E1103(.|\n)*`opt`"):
        update(mut(m), opt, g)


def test_update_of_another_model() -> None:
    m, n = net(), net()
    opt = eager(sgd(lr=0.1), m)
    _, g = value_and_grad(loss_of, m, X)
    _, h = value_and_grad(loss_of, n, X)
    stranger = eager(sgd(lr=0.1), n)
    for arguments, message in [
        ((mut(m), mut(opt), h), "another model than this `Sequential`"),
        ((mut(n), mut(opt), h), "bound to another `Sequential`"),
        ((mut(m), mut(stranger), g), "bound to another"),
        ((mut(m), mut(opt), {"w": 1}), "this is a `dict`"),
        ((mut(m), mut(opt), m), "this is a `Sequential`"),
    ]:
        with pytest.raises(MutationError, match=f"E0702(.|\n)*{message}"):
            update(*arguments)
    equal(m, n)


def test_update_skips_what_the_loss_does_not_reach() -> None:
    m = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)})
    opt = eager(adamw(lr=0.1), m)
    _, g = value_and_grad(lambda m, x: m["a"](x).sum(), m, X)
    before = m["b"].weight.detach().clone()
    update(mut(m), mut(opt), g)
    assert torch.equal(m["b"].weight, before)
    assert opt.state[m["b"].weight]["updates"] == 0


def test_a_part_of_a_model_may_be_trained() -> None:
    m = net()
    opt = eager(sgd(lr=0.1), m)
    before = m[0].weight.detach().clone()
    part = m[2]
    _, g = value_and_grad(lambda p, x: p(x).sum(), part, torch.ones(2, 4))
    update(mut(part), mut(opt), g)
    assert torch.equal(m[0].weight, before)


# -- compiled ------------------------------------------------------------------------------------


def test_nothing_is_compiled_after_the_first_step() -> None:
    m = net()
    opt = adamw(m, lr=0.1)
    scheduler = lr_scheduler.OneCycleLR(opt, 0.1, total_steps=40)
    train(m, opt, 1)
    kernels = len(opt._runner.kernels)
    torch._dynamo.utils.counters.clear()
    for i in range(30):
        train(m, opt, 1, i)
        scheduler.step()
        opt.param_groups[0]["weight_decay"] = 0.01 * i
    assert len(opt._runner.kernels) == kernels
    assert not torch._dynamo.utils.counters["inductor"]


@pytest.mark.parametrize("option", [True, {}, {"backend": "aot_eager"}], ids=str)
def test_states_that_take_each_others_or_the_parameters_value(option: Any) -> None:
    """Writes must not change what another write still reads; a compiler drops plain clones."""

    @optimizer
    def exchanging(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        previous = defstate("previous", torch.zeros_like(param))
        older = defstate("older", torch.zeros_like(param))
        flipped = defstate("flipped", torch.zeros_like(param))
        new = param - lr * grad + 0 * older
        return optimizer_update(
            new, previous=param, older=previous, flipped=param.flip(0) + flipped * 0
        )

    p = nn.Parameter(torch.arange(6.0).reshape(3, 2))
    q = nn.Parameter(torch.arange(6.0).reshape(3, 2))
    compiled, plain = exchanging().bind([p], compile=option), eager(exchanging(), [q])
    for _ in range(4):
        p.grad = q.grad = torch.ones(3, 2)
        compiled.step()
        plain.step()
        torch.testing.assert_close(p, q)
        for name in ("previous", "older", "flipped"):
            torch.testing.assert_close(compiled.state[p][name], plain.state[q][name])
    torch.testing.assert_close(q.detach(), torch.arange(6.0).reshape(3, 2) - 0.4)
    torch.testing.assert_close(plain.state[q]["older"], torch.arange(6.0).reshape(3, 2) - 0.2)


def test_version_counters_move_so_that_an_old_graph_is_found_out() -> None:
    m = net()
    opt = sgd(m, lr=0.1)
    loss = loss_of(m, X)
    loss.backward(retain_graph=True)
    opt.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_parameter_stays_the_same_object() -> None:
    m = net()
    addresses = [p.data_ptr() for p in m.parameters()]
    parameters = list(m.parameters())
    train(m, adamw(m, lr=0.1), 2)
    assert [p.data_ptr() for p in m.parameters()] == addresses
    assert all(a is b for a, b in zip(parameters, m.parameters()))
    assert all(p.is_leaf and p.requires_grad for p in m.parameters())


def test_without_a_compiler_it_says_so_once_and_computes_the_same(monkeypatch) -> None:
    monkeypatch.setattr(compiling, "missing_compiler", lambda device: "there is no C++ compiler")
    a, b = net(), net()
    with pytest.warns(RuntimeWarning, match="`momentum_sgd` runs uncompiled(.|\n)*no C\\+\\+") as w:
        opt = momentum_sgd(a, lr=0.1)
    train(a, opt, 3)
    assert len(w) == 1
    assert w[0].filename == __file__
    train(b, torch.optim.SGD(b.parameters(), lr=0.1, momentum=0.9), 3)
    equal(a, b)


def test_a_kernel_that_cannot_be_compiled_runs_uncompiled(monkeypatch) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("no Python.h")

    monkeypatch.setattr(compiling, "_quick", broken)
    a, b = net(), net()
    opt = momentum_sgd(a, lr=0.1)
    with pytest.warns(RuntimeWarning, match="runs uncompiled(.|\n)*no Python.h"):
        train(a, opt, 3)
    train(b, torch.optim.SGD(b.parameters(), lr=0.1, momentum=0.9), 3)
    equal(a, b)


# -- what must not be left behind ----------------------------------------------------------------


@pytest.mark.parametrize("option", [True, False])
def test_a_compiler_around_the_step(option: bool) -> None:
    a, b = net(), net()
    ours = adamw(lr=0.01).bind(a, compile=option)
    torchs = torch.optim.AdamW(b.parameters(), lr=0.01)
    compiled = torch.compile(lambda: ours.step(), backend="eager")
    for i in range(3):
        for m in (a, b):
            m.zero_grad()
            loss_of(m, X + i / 10).backward()
        compiled()
        torchs.step()
    equal(a, b)


def test_a_refused_file_leaves_no_key() -> None:
    donor = eager(momentum_sgd(lr=0.5), net())
    lr_scheduler.ExponentialLR(donor, 0.9)
    file = saved(donor)
    file["state"][0]["velocity"] = torch.zeros(7)
    opt = eager(momentum_sgd(lr=0.1), net())
    before = copy.deepcopy(opt.state_dict()["param_groups"])
    with pytest.raises(OptimizerError, match="E-OPT-007"):
        opt.load_state_dict(file)
    assert opt.state_dict()["param_groups"] == before


def test_a_file_at_whose_step_a_schedule_fails_changes_nothing() -> None:
    def lr(ctx: Ctx) -> float:
        return [0.1, 0.2][ctx.step]

    m = net()
    donor = eager(momentum_sgd(lr=0.1), m)
    train(m, donor, 3)
    opt = eager(momentum_sgd(lr=lr), net())
    with pytest.raises(IndexError):
        opt.load_state_dict(saved(donor))
    assert opt.param_groups[0]["step"] == 0
    assert all(not s["velocity"].any() for s in opt.state.values())


def test_a_refused_step_shows_the_number_that_holds() -> None:
    p = nn.Parameter(torch.zeros(3))
    opt = eager(sgd(lr=lambda ctx: ctx.scale), [p], ctx={"scale": 1.0})
    p.grad = torch.ones(3).to_sparse()
    with pytest.raises(OptimizerError, match="E-OPT-005"):
        opt.step(ctx={"scale": 5.0})
    assert opt.param_groups[0]["lr"] == 1.0


def test_a_refused_group_leaves_no_states() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        v = defstate("v", torch.zeros_like(param))
        if param.ndim == 1:
            raise ZeroDivisionError
        return optimizer_update(param - grad, v=v)

    opt = eager(rule(), [nn.Parameter(torch.ones(3, 3))])
    group = {"params": [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))]}
    with pytest.raises(ZeroDivisionError):
        opt.add_param_group(group)
    assert len(opt.state) == 1
    assert len(opt.state_dict()["state"]) == 1


def test_keys_of_ones_own_are_kept() -> None:
    opt = eager(adamw(lr=0.5), net())
    opt.param_groups[0]["lr_scale"] = 0.5
    file = saved(opt)
    opt.param_groups[0]["lr_scale"] = 1.0
    opt.load_state_dict(file)
    assert opt.param_groups[0]["lr_scale"] == 0.5


def test_frozen_parameters_get_no_states_from_a_file_without_any() -> None:
    m = net()
    m[0].requires_grad_(False)
    opt = eager(adamw(lr=0.1), m)
    opt.load_state_dict(saved(opt))
    assert [len(opt.state[p]) for p in m.parameters()] == [0, 0, 3, 3]


def test_one_gradient_of_several_parameters_is_planned_once() -> None:
    ps = [nn.Parameter(torch.ones(4)) for _ in range(3)]
    opt = eager(sgd(lr=0.1), ps)
    for p in ps:
        p.grad = torch.ones(4) if p is ps[0] else ps[0].grad
    opt.step()
    assert opt._runner is not None
    before = {k: list(v) for k, v in opt._runner._steps.items()}
    opt.step()
    assert {k: list(v) for k, v in opt._runner._steps.items()} == before
    assert all(torch.allclose(p, torch.full((4,), 0.8)) for p in ps)


def test_a_number_over_a_schedule_is_found_before_a_group_is_added() -> None:
    opt = eager(sgd(lr=lambda ctx: 0.1), [nn.Parameter(torch.ones(1))])
    opt.param_groups[0]["lr"] = 0.7
    with pytest.raises(OptimizerError, match="E-OPT-008"):
        opt.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    assert len(opt.param_groups) == 1
