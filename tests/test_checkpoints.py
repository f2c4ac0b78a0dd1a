"""Saving and loading an optimizer: by name, bit for bit, completely or not at all."""

from __future__ import annotations

import copy
import inspect
import io
import json
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils._python_dispatch import TorchDispatchMode

from dslmut import (
    Ctx,
    Curriculum,
    Hyper,
    OptimizerError,
    OptState,
    Stage,
    Update,
    defstate,
    diagnostic,
    group,
    groups,
    optimizer,
    optimizer_update,
)
from dslmut.optim import adamw, momentum_sgd, rmsprop, schedule_value, sgd

X = torch.linspace(-1, 1, 15).reshape(5, 3)


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def eager(rule: Any, target: Any, **options: Any) -> OptState[Any]:
    return rule.bind(target, compile=False, **options)


def train(m: nn.Module, opt: torch.optim.Optimizer, steps: int, start: int = 0) -> None:
    for i in range(start, start + steps):
        opt.zero_grad()
        (m(X + i / 10) ** 2).mean().backward()
        opt.step()


def saved(opt: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state dict as a file gives it, under the defaults of `torch.load`."""
    buffer = io.BytesIO()
    torch.save(opt.state_dict(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def bits(value: Any) -> Any:
    """Return something that is equal only for the same bits: NaNs and signs of zero included."""
    if isinstance(value, Tensor):
        flat = value.detach().reshape(-1).contiguous()
        return value.dtype, tuple(value.shape), flat.view(torch.uint8).tolist()
    if isinstance(value, dict):
        return {k: bits(v) for k, v in value.items() if k != "params"}
    return [bits(v) for v in value] if isinstance(value, list | tuple) else value


def everything(opt: OptState[Any]) -> Any:
    """Return all that an optimizer has, for comparing: parameters, states, groups, diagnostics."""
    parameters = [p for g in opt.param_groups for p in g["params"]]
    states = [dict(opt.state[p]) for p in parameters]
    return bits([parameters, states, opt.param_groups, dict(opt.diagnostics)])


def same(m: nn.Module, n: nn.Module) -> bool:
    return all(bits(p) == bits(q) for p, q in zip(m.parameters(), n.parameters()))


# -- resuming ------------------------------------------------------------------------------------


@optimizer
def rich(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 0.05,
    share: Hyper = 0.9,
    signed: bool = False,
) -> Update:
    """Read everything that a rule may read."""
    lr, share = schedule_value(lr, ctx), schedule_value(share, ctx)
    mean = defstate("mean", torch.zeros_like(param, dtype=torch.float32))
    seen = defstate("seen", torch.zeros((), dtype=torch.int64))
    last = defstate(torch.zeros_like(param))
    m = share * mean + (1 - share) * grad.float()
    shift = m / (1 - 0.9**ctx.updates) + 0.1 * ctx["loss"] + 0.01 * ctx.stage_progress
    shift = shift.sign() if signed else shift + 0.1 * ctx.randn_like(m)
    diagnostic("size", m.norm())
    new = param - lr * shift.to(param.dtype) - 0.01 * last
    return optimizer_update(new, (last, grad), mean=m, seen=seen + 1)


def falling(ctx: Ctx) -> float:
    return 0.9 if ctx.step < 3 else 0.5 + 0.1 * ctx.stage + 0.01 * ctx.stage_step


class Run:
    """A run with all that may change: groups, frozen parameters, missing gradients, schedulers."""

    def __init__(self, step: int) -> None:
        torch.manual_seed(1)
        self.m = nn.ModuleDict(
            {"a": nn.Linear(3, 4), "b": nn.Linear(3, 4).bfloat16(), "late": nn.Linear(3, 4)}
        )
        curriculum = Curriculum([Stage("first", 4), Stage("second", 6)])
        rule = rich(share=falling)
        target = [{"params": self.named("a")}, {"params": self.named("b"), "lr": 0.02}]
        options: Any = {"curriculum": curriculum, "ctx": {"loss": 0.5}, "diagnostics_every": 3}
        options |= {"rounding": "stochastic", "seed": 7 if step == 0 else 0}  # the file has it
        self.opt = rule.bind(target, compile=False, skip_nonfinite=True, **options)
        self.scheduler = lr_scheduler.ExponentialLR(self.opt, 0.9)
        if step > 3:
            self.add()

    def named(self, part: str) -> list[tuple[str, nn.Parameter]]:
        return [(f"{part}.{n}", p) for n, p in self.m[part].named_parameters()]

    def add(self) -> None:
        self.opt.add_param_group({"params": self.named("late"), "signed": True, "initial_lr": 0.05})
        self.scheduler.base_lrs.append(0.05)

    def step(self, i: int) -> None:
        if i == 3:
            self.add()
        self.m["a"].bias.requires_grad_(i not in (2, 3, 6))
        generator = torch.Generator().manual_seed(i)
        for n, p in self.m.named_parameters():
            gradient = torch.randn(p.shape, generator=generator).to(p.dtype)
            absent = not p.requires_grad or (n == "b.weight" and i in (0, 1, 5))
            p.grad = None if absent else gradient
        if i == 7:  # this step is left out
            self.m["a"].weight.grad[0] = float("nan")
        self.opt.step(ctx={"loss": 0.1 * i} if i % 3 == 0 else None)
        self.scheduler.step()

    def file(self) -> bytes:
        buffer = io.BytesIO()
        parts = [self.m.state_dict(), self.opt.state_dict(), self.scheduler.state_dict()]
        torch.save(parts, buffer)
        return buffer.getvalue()

    def load(self, file: bytes) -> None:
        model, opt, scheduler = torch.load(io.BytesIO(file), weights_only=True)
        self.m.load_state_dict(model)
        self.opt.load_state_dict(opt)
        self.scheduler.load_state_dict(scheduler)


STEPS = 9


def whole_run() -> tuple[list[Any], list[bytes]]:
    """Return what a run has after each step, and its checkpoints before each."""
    run, seen, files = Run(0), [], []
    for i in range(STEPS):
        files.append(run.file())
        run.step(i)
        seen.append(everything(run.opt))
    return seen, files


@pytest.fixture(scope="module")
def whole() -> tuple[list[Any], list[bytes]]:
    return whole_run()


@pytest.mark.parametrize("at", range(STEPS))
def test_a_run_goes_on_bit_for_bit_from_any_step(
    at: int, whole: tuple[list[Any], list[bytes]]
) -> None:
    """pt 140900, optax 1036, optax 415: the progress is not lost; update k uses `schedule(k)`.

    With schedules, a scheduler, a curriculum, keys of `ctx`, diagnostics on every third step, a
    group that is added, a parameter that is frozen now and then, gradients that come and go, a
    step that is left out because of one that is not finite, random numbers, and rounding by chance.
    """
    seen, files = whole
    run = Run(at)
    run.load(files[at])
    assert [g["seed"] for g in run.opt.param_groups] == [7] * len(run.opt.param_groups)
    for i in range(at, STEPS):
        run.step(i)
        expected = seen[i]
        if i < 3 * ((at + 2) // 3):  # diagnostics of a step before the file are not in it
            expected = [*expected[:-1], {}]
        kept = 2 if i == 7 else 4  # a step that is left out does not show numbers of schedules
        assert everything(run.opt)[:kept] == expected[:kept], i


def test_a_compiled_run_goes_on_bit_for_bit() -> None:
    rule = sgd(lr=lambda ctx: 0.1 / ctx.updates, weight_decay=0.1)
    p = nn.Parameter(torch.linspace(-1, 1, 5))
    opt, values = rule.bind([p]), []
    for i in range(5):
        if i == 2:
            file, start = saved(opt), p.detach().clone()
        p.grad = torch.full((5,), 0.1 * i)
        opt.step()
        values.append(bits(p))
    with torch.no_grad():
        p.copy_(start)  # back to where it was
    q = nn.Parameter(start)
    again = rule.bind([q])
    for each, parameter in ((opt, p), (again, q)):
        each.load_state_dict(file)
        for i in range(2, 5):
            parameter.grad = torch.full((5,), 0.1 * i)
            each.step()
            assert bits(parameter) == values[i]


def test_update_k_uses_schedule_k_before_and_after() -> None:
    """pt 140900, optax 1036, optax 415, from 0."""
    asked: list[int] = []

    def lr(ctx: Ctx) -> float:
        asked.append(int(ctx.step))
        return [0.1, 0.2, 0.3, 0.4, 0.5, 0.6][int(ctx.step)]

    p = nn.Parameter(torch.zeros(1))
    opt = eager(sgd(lr=lr), [p])
    moved = []
    for k in range(5):
        if k == 2:
            file, opt = saved(opt), eager(sgd(lr=lr), [p])
            opt.load_state_dict(file)
        before = p.item()
        p.grad = torch.ones(1)
        opt.step()
        moved.append(round(before - p.item(), 5))
    assert moved == [0.1, 0.2, 0.3, 0.4, 0.5]


# -- values --------------------------------------------------------------------------------------

DTYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int8, torch.bool]


@optimizer
def dtypes(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
    declared = [defstate(f"s{i}", torch.zeros(2, dtype=d)) for i, d in enumerate(DTYPES)]
    return optimizer_update(param - grad, *((s, s) for s in declared))


def test_values_come_back_in_their_own_dtype() -> None:
    """pt 43706, ao 3314: a resume changed the states' dtypes to that of the parameter."""
    odd = [1 / 3, 1 / 3, 0.1, 2**53 + 1, -128, True]
    p = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    opt = eager(dtypes(), [("p", p)])
    for i, (dtype, value) in enumerate(zip(DTYPES, odd)):
        opt.state[p][f"s{i}"].copy_(torch.tensor([value, 0], dtype=dtype))
    opt.state[p]["s0"][1] = float("nan")
    opt.state[p]["s1"][1] = -0.0
    opt.state[p]["updates"] = 2**40 + 1
    q = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    again = eager(dtypes(), [("p", q)])
    again.load_state_dict(saved(opt))
    assert bits(dict(again.state[q])) == bits(dict(opt.state[p]))


def test_loaded_states_are_tensors_of_their_own() -> None:
    """Torch's share storage with the file, and with the optimizer that it came from."""
    m = net()
    opt = eager(momentum_sgd(lr=0.1), m)
    train(m, opt, 2)
    file = opt.state_dict()
    again = eager(momentum_sgd(lr=0.1), copy.deepcopy(m))
    again.load_state_dict(file)
    before = everything(again)
    train(m, opt, 1)
    assert everything(again) == before
    old, kept = opt.state_dict(), everything(opt)
    opt.load_state_dict(saved(again))  # does not write into what `old` holds
    opt.load_state_dict(old)
    assert everything(opt) == kept


def test_a_state_dict_shows_the_live_tensors() -> None:
    """As torch's does; what is written for torch does not."""
    m = net()
    opt = eager(momentum_sgd(lr=0.1), m)
    train(m, opt, 1)
    live, copied = opt.state_dict()["state"][0]["velocity"], opt.torch_state_dict()
    buffer = copied["state"][0]["momentum_buffer"]
    assert bits(live) == bits(buffer)
    train(m, opt, 1)
    assert bits(live) == bits(opt.state[m[0].weight]["velocity"]) != bits(buffer)


def test_a_model_of_another_precision_rounds_once() -> None:
    """A state that is declared like the parameter is rounded to it, another one keeps its dtype."""
    m = net()
    opt = eager(adamw(lr=0.1), m)
    train(m, opt, 2)
    n = net().bfloat16()
    again = eager(adamw(lr=0.1), n)
    again.load_state_dict(saved(opt))
    for p, q in zip(m.parameters(), n.parameters()):
        fine, coarse = opt.state[p]["exp_avg"], again.state[q]["exp_avg"]
        assert bits(coarse) == bits(fine.to(coarse.dtype))


def test_where_a_file_was_loaded_to() -> None:
    """`map_location`: states go to the parameter's device; those on meta have no values."""
    m = net()
    opt = eager(momentum_sgd(lr=0.1), m)
    train(m, opt, 1)
    buffer = io.BytesIO()
    torch.save(opt.state_dict(), buffer)
    buffer.seek(0)
    empty = torch.load(buffer, map_location="meta")
    before = everything(opt)
    with pytest.raises(OptimizerError, match="E-OPT-007(.|\n)*no values(.|\n)*map_location"):
        opt.load_state_dict(empty)
    assert everything(opt) == before


def test_a_model_on_the_meta_device_gets_its_states_when_it_exists() -> None:
    m = net()
    opt = eager(momentum_sgd(lr=0.1), m)
    train(m, opt, 2)
    with torch.device("meta"):
        n = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    again = eager(momentum_sgd(lr=0.1), n)
    with pytest.raises(OptimizerError, match="E-OPT-007(.|\n)*does not exist yet(.|\n)*to_empty"):
        again.load_state_dict(saved(opt))
    n.to_empty(device="cpu")
    n.load_state_dict(m.state_dict())
    again = eager(momentum_sgd(lr=0.1), n)
    again.load_state_dict(saved(opt))
    train(m, opt, 2)
    train(n, again, 2)
    assert same(m, n)


# -- names ---------------------------------------------------------------------------------------


def parts(m: nn.Sequential, *names: str) -> dict[str, Any]:
    return {"params": [(n, m.get_parameter(n)) for n in names]}


def follows(opt: OptState[Any], m: nn.Module, again: OptState[Any], n: nn.Module) -> bool:
    pairs = zip(m.parameters(), n.parameters())
    return all(bits(dict(opt.state[p])) == bits(dict(again.state[q])) for p, q in pairs)


ARRANGEMENTS: list[Callable[[nn.Sequential], Any]] = [
    lambda m: m,
    lambda m: list(m.named_parameters())[::-1],
    lambda m: [parts(m, "2.bias", "0.weight"), parts(m, "0.bias", "2.weight")],
    lambda m: [parts(m, "2.weight"), parts(m, "0.weight", "0.bias"), parts(m, "2.bias")],
]


@pytest.mark.parametrize("before", range(len(ARRANGEMENTS)))
@pytest.mark.parametrize("after", range(len(ARRANGEMENTS)))
def test_states_follow_names(before: int, after: int) -> None:
    """pt 1489, pt 3852: resumed with parameters in another order or in other groups."""
    m, n = net(), net()
    opt = eager(adamw(lr=0.1), ARRANGEMENTS[before](m))
    train(m, opt, 3)
    again = eager(adamw(lr=0.5), ARRANGEMENTS[after](n))
    again.load_state_dict(saved(opt))
    assert follows(opt, m, again, n)
    assert [g["lr"] for g in again.param_groups] == [0.1] * len(again.param_groups)
    assert [g["step"] for g in again.param_groups] == [3] * len(again.param_groups)


RENAMINGS = [
    ("module.", "", "n.removeprefix('module.')"),
    ("_orig_mod.", "", "n.removeprefix('_orig_mod.')"),
    ("", "model.", "'model.' + n"),
    ("encoder.", "enc.", "n.replace('encoder.', 'enc.')"),
]


@pytest.mark.parametrize(("old", "new", "code"), RENAMINGS)
def test_renamed_parameters_are_an_error_that_writes_the_renaming(
    old: str, new: str, code: str
) -> None:
    m, n = net(), net()
    opt = eager(momentum_sgd(lr=0.1), list(m.named_parameters(old.removesuffix("."))))
    train(m, opt, 2)
    again = eager(momentum_sgd(lr=0.1), list(n.named_parameters(new.removesuffix("."))))
    file, before = saved(opt), everything(again)
    with pytest.raises(OptimizerError) as e:
        again.load_state_dict(file)
    assert everything(again) == before
    assert f"`{old}0.weight`" in str(e.value)
    assert f"`{new}0.weight`" in str(e.value)
    assert f'`g["param_names"] = [{code} for n in g["param_names"]]`' in str(e.value)
    for g in file["param_groups"]:
        g["param_names"] = [eval(code, {"n": n}) for n in g["param_names"]]
    again.load_state_dict(file)
    assert follows(opt, m, again, n)


def test_a_hook_may_rename_and_leaves_the_file_as_it_is() -> None:
    m, n = net(), net()
    opt = eager(momentum_sgd(lr=0.1), list(m.named_parameters("module")))
    train(m, opt, 2)

    def rename(opt: torch.optim.Optimizer, file: dict[str, Any]) -> None:
        for g in file["param_groups"]:
            g["param_names"] = [n.removeprefix("module.") for n in g["param_names"]]

    again = eager(momentum_sgd(lr=0.1), n)
    again.register_load_state_dict_pre_hook(rename)
    file = saved(opt)
    again.load_state_dict(file)
    assert follows(opt, m, again, n)
    assert file["param_groups"][0]["param_names"][0] == "module.0.weight"


def two_rules(m: nn.Module, *patterns: str) -> OptState[Any]:
    chosen = group(*patterns, optimizer=adamw(lr=0.1))
    return groups(chosen, group(optimizer=momentum_sgd(lr=0.1))).bind(m, compile=False)


def test_a_parameter_that_moved_to_another_rule_is_named() -> None:
    m, n = net(), net()
    opt, again = two_rules(m, "*.bias"), two_rules(n, "0.*")
    train(m, opt, 2)
    before = everything(again)
    with pytest.raises(
        OptimizerError,
        match="E-OPT-007(.|\n)*`0.weight` were saved from `momentum_sgd`, and here it stands in a "
        "group of `adamw`",
    ):
        again.load_state_dict(saved(opt))
    assert everything(again) == before
    same_rules = two_rules(n, "*.bias")
    same_rules.load_state_dict(saved(opt))
    assert follows(opt, m, same_rules, n)


# -- files that do not fit -----------------------------------------------------------------------


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        m = net()
        opt = eager(momentum_sgd(lr=0.7), m)
        train(m, opt, 3)
        file = saved(opt)
        change(file)
        return file

    return make


def first(file: dict[str, Any]) -> dict[str, Any]:
    return file["param_groups"][0]


MISFITS: list[tuple[Callable[[], Any], str]] = [
    (lambda: saved(eager(adamw(lr=0.7), net())), "from `adamw`, and this is `momentum_sgd`"),
    (lambda: saved(eager(momentum_sgd(), nn.Linear(3, 2))), "states of `weight`, `bias`, which"),
    (lambda: [1, 2], "no state dict of an optimizer"),
    (changed(lambda f: f.pop("param_groups")), "no state dict of an optimizer"),
    (changed(lambda f: first(f).pop("params")), "a group of the file has no `params`"),
    (changed(lambda f: f.update(state=[])), "the `state` of the file is no dictionary"),
    (changed(lambda f: f["state"].update({9: {}})), "a state of 9, which stands in none"),
    (changed(lambda f: f["state"].update({0: 3})), "the state of 0 in the file is no dictionary"),
    (changed(lambda f: f["state"][3].update(velocity=X)), "`velocity` of `2.bias` has shape"),
    (changed(lambda f: f["state"][3].update(velocity=1.0)), "has shape float"),
    (changed(lambda f: f["state"][3].update(velocity=torch.ones(2) + 1j)), "torch.complex64"),
    (changed(lambda f: f["state"][1].update(updates=-1)), "number of updates of `0.bias` is -1"),
    (changed(lambda f: f["state"][1].update(updates="x")), "number of updates of `0.bias`"),
    (changed(lambda f: first(f).update(step=None)), "the number of steps, `step`, of a group is"),
    *[
        (
            changed(lambda f, seed=seed: first(f).update(seed=seed)),
            f"the seed of a group is {seed!r}",
        )
        for seed in ("x", -1, 0.5, True, None)
    ],
    (changed(lambda f: first(f).update(momentun=0.5)), "a hyperparameter `momentun`"),
    (changed(lambda f: first(f).update(lr="fast")), "`lr` of `momentum_sgd` is a number"),
    (changed(lambda f: first(f).update(nesterov=1.0)), "`nesterov` of `momentum_sgd` is True or"),
]


@pytest.mark.parametrize(("make", "message"), MISFITS, ids=[m for _, m in MISFITS])
def test_a_file_that_does_not_fit_changes_nothing(make: Callable[[], Any], message: str) -> None:
    m, n = net(), net()
    opt, twin = eager(momentum_sgd(lr=0.1), m), eager(momentum_sgd(lr=0.1), n)
    train(m, opt, 2)
    train(n, twin, 2)
    file, before = make(), everything(opt)
    tensors = [t for s in opt.state.values() for t in s.values() if isinstance(t, Tensor)]
    with pytest.raises(OptimizerError, match=f"E-OPT-00[27](.|\n)*{message}"):
        opt.load_state_dict(file)
    assert everything(opt) == before
    left = [t for s in opt.state.values() for t in s.values() if isinstance(t, Tensor)]
    assert all(a is b for a, b in zip(tensors, left))
    train(m, opt, 2)
    train(n, twin, 2)
    assert everything(opt) == everything(twin)


@pytest.mark.parametrize("rule", [adamw(), momentum_sgd(), sgd(), rmsprop()], ids=str)
def test_a_state_that_a_rule_does_not_declare_is_refused(rule: Any) -> None:
    """On none of its branches: `if weight_decay` does not let it in."""
    opt = eager(rule, net())
    file, before = saved(opt), everything(opt)
    file["state"][0]["extra"] = X
    with pytest.raises(OptimizerError, match="E-OPT-007(.|\n)*a state `extra` of `0.weight`"):
        opt.load_state_dict(file)
    assert everything(opt) == before


def test_a_renamed_state_is_an_error_with_its_new_name() -> None:
    m, n = net(), net()
    opt, again = eager(momentum_sgd(lr=0.1), m), eager(momentum_sgd(lr=0.1), n)
    train(m, opt, 2)
    file = saved(opt)
    for s in file["state"].values():
        s["speed"] = s.pop("velocity")
    with pytest.raises(OptimizerError, match='s\\["velocity"\\] = s.pop\\("speed"\\)'):
        again.load_state_dict(file)
    for s in file["state"].values():
        s["velocity"] = s.pop("speed")
    again.load_state_dict(file)
    assert follows(opt, m, again, n)


@optimizer
def in_phases(
    param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, share: Hyper = 0.0, slow: bool = True
) -> Update:
    """Have other states in the first steps, with a share, and as long as it is slow."""
    g, states = grad, {}
    if ctx.step < 2:
        states["warm"] = defstate("warm", torch.zeros_like(param)) + grad
        g = states["warm"]
        if slow:
            states["slow"] = defstate("slow", torch.zeros_like(param)) + 0.5 * grad
            g = states["slow"]
    elif share:
        states["shared"] = share * defstate("shared", torch.zeros_like(param)) + grad
        g = states["shared"]
    return optimizer_update(param - schedule_value(lr, ctx) * g, **states)


@pytest.mark.parametrize("at", [1, 2, 3, 5])
@pytest.mark.filterwarnings("ignore:dslmut. the file lacks `shared`:UserWarning")
def test_states_of_branches_that_are_left_are_kept(at: int) -> None:
    def go_on(m: nn.Module, opt: OptState[Any], steps: range) -> None:
        for i in steps:
            opt.param_groups[0].update(share=0.5 * (i == 3), slow=i < 1)
            train(m, opt, 1, i)

    m, n = net(), net()
    whole, half = eager(in_phases(), m), eager(in_phases(), n)
    go_on(m, whole, range(6))
    go_on(n, half, range(at))
    again = eager(in_phases(), n)
    again.load_state_dict(saved(half))
    assert bits(saved(again)["state"]) == bits(saved(half)["state"])
    go_on(n, again, range(at, 6))
    assert everything(again) == everything(whole)


def test_a_state_of_another_kind_of_number_is_refused() -> None:
    p = nn.Parameter(torch.zeros(2))
    opt = eager(dtypes(), [("p", p)])
    file = saved(opt)
    file["state"][0]["s3"] = torch.full((2,), 0.5)
    with pytest.raises(OptimizerError, match="E-OPT-007(.|\n)*`s3` of `p` holds torch.float32"):
        opt.load_state_dict(file)
    file["state"][0]["s3"] = torch.full((2,), 5, dtype=torch.int32)
    opt.load_state_dict(file)
    assert opt.state[p]["s3"].tolist() == [5, 5]
    assert opt.state[p]["s3"].dtype is torch.int64


def test_an_older_file_lacks_a_hyperparameter() -> None:
    """timm 2792, composer 3154: it keeps its value, and that is said."""
    make = changed(lambda f: first(f).pop("dampening"))
    opt = eager(momentum_sgd(lr=0.1, dampening=0.25), net())
    with pytest.warns(UserWarning, match="the file lacks dampening; the present values stay"):
        opt.load_state_dict(make())
    assert (opt.param_groups[0]["dampening"], opt.param_groups[0]["lr"]) == (0.25, 0.7)


def test_a_renamed_hyperparameter_is_an_error_with_its_new_name() -> None:
    file = changed(lambda f: first(f).update(damping=first(f).pop("dampening")))()
    opt = eager(momentum_sgd(lr=0.1), net())
    with pytest.raises(OptimizerError, match='g\\["dampening"\\] = g.pop\\("damping"\\)'):
        opt.load_state_dict(file)
    for g in file["param_groups"]:
        g["dampening"] = g.pop("damping")
    opt.load_state_dict(file)


def test_groups_that_were_joined_keep_what_they_agreed_on() -> None:
    m = net()
    two = [{**parts(m, "0.weight", "0.bias"), "lr": 0.5}, parts(m, "2.weight", "2.bias")]
    opt = eager(momentum_sgd(lr=0.25, momentum=0.75), two)
    train(m, opt, 2)
    one = eager(momentum_sgd(lr=0.1), net())
    with pytest.warns(UserWarning, match="other groups, which differ in lr; the present values"):
        one.load_state_dict(saved(opt))
    found = one.param_groups[0]
    assert (found["lr"], found["momentum"], found["step"]) == (0.1, 0.75, 2)


# -- what was reported of others -----------------------------------------------------------------


def test_no_gradient_in_the_first_steps() -> None:
    """pt 192202, accelerate 3971: its state was missing on save, and a load crashed."""
    m, n = net(), net()
    whole, half = eager(adamw(lr=0.1), m), eager(adamw(lr=0.1), n)

    def steps(m: nn.Module, opt: OptState[Any], which: range) -> None:
        for i in which:
            for name, p in m.named_parameters():
                absent = name.startswith("0") and i < 4
                p.grad = None if absent else torch.full_like(p, 0.1 * i + 0.1)
            opt.step()

    steps(m, whole, range(6))
    steps(n, half, range(2))
    again = eager(adamw(lr=0.1), n)
    file = saved(half)
    assert [file["state"][i]["updates"] for i in range(4)] == [0, 0, 2, 2]
    again.load_state_dict(file)
    steps(n, again, range(2, 6))
    assert same(m, n)


def test_files_load_under_the_defaults_whatever_the_schedules_are() -> None:
    """accelerate 3539, pt 163105: a function in the state dict made it unreadable."""
    opt = eager(adamw(lr=lambda ctx: 0.1, betas=(lambda ctx: 0.8, 0.9)), net())
    found = saved(opt)["param_groups"][0]
    assert (found["lr"], found["betas"]) == (0.1, (0.8, 0.9))


def test_copies_and_pickles_of_what_was_compiled() -> None:
    """pt 10906, accelerate 805: attributes were lost; then a load, a step and a new group."""
    m = nn.Linear(3, 4)
    opt = momentum_sgd(m, lr=0.1)
    train(m, opt, 2)
    n, again = copy.deepcopy((m, opt))
    again.load_state_dict(saved(opt))
    for model, each in ((m, opt), (n, again)):
        train(model, each, 2)
        each.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    assert same(m, n)
    assert bits(saved(opt)) == bits(saved(again))


def test_a_group_that_was_added_later_is_saved_and_resumed() -> None:
    """pt 53712, Lightning 8720: states, schedulers, save and resume go on."""
    m, n = net(), net()

    def made(m: nn.Sequential, both: bool) -> tuple[OptState[Any], Any]:
        opt = eager(adamw(lr=0.1), list(m[0].named_parameters("0")))
        scheduler = lr_scheduler.ExponentialLR(opt, 0.5)
        if both:
            add(m, opt, scheduler)
        return opt, scheduler

    def add(m: nn.Sequential, opt: OptState[Any], scheduler: Any) -> None:
        opt.add_param_group({"params": list(m[2].named_parameters("2")), "lr": 0.2})
        scheduler.base_lrs.append(0.2)

    def go_on(m: nn.Sequential, opt: OptState[Any], scheduler: Any) -> None:
        for i in range(2, 5):
            train(m, opt, 1, i)
            scheduler.step()

    first, scheduler = made(m, both=False)
    train(m, first, 2)
    add(m, first, scheduler)
    train(m, first, 1, 2)
    n.load_state_dict(m.state_dict())
    file = saved(first)
    late, _ = made(n, both=False)
    with pytest.raises(OptimizerError, match="E-OPT-007(.|\n)*states of `2.weight`, `2.bias`"):
        late.load_state_dict(file)
    second, other = made(n, both=True)
    second.load_state_dict(file)
    other.load_state_dict(scheduler.state_dict())
    go_on(m, first, scheduler)
    go_on(n, second, other)
    assert same(m, n)
    assert bits(saved(first)) == bits(saved(second))


@optimizer
def two_modes(
    param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, averaging: bool = False
) -> Update:
    mean = defstate("mean", torch.zeros_like(param))
    new = param - schedule_value(lr, ctx) * grad
    return optimizer_update(0.5 * (new + mean) if averaging else new, mean=new)


def test_the_mode_of_a_rule_is_saved() -> None:
    """kohya 1667: weights were in the wrong mode after a resume."""
    m = net()
    opt = eager(two_modes(), m)
    train(m, opt, 2)
    opt.param_groups[0]["averaging"] = True
    train(m, opt, 1, 2)
    n = copy.deepcopy(m)
    again = eager(two_modes(), n)
    again.load_state_dict(saved(opt))
    assert again.param_groups[0]["averaging"] is True
    train(m, opt, 2, 3)
    train(n, again, 2, 3)
    assert same(m, n)


def test_methods_take_what_the_base_class_takes() -> None:
    """dion 109: a renamed argument of `load_state_dict` broke the distributed checkpoints."""
    for name in ("state_dict", "load_state_dict", "add_param_group", "zero_grad"):
        ours = inspect.signature(getattr(OptState, name))
        theirs = inspect.signature(getattr(torch.optim.Optimizer, name))
        assert list(ours.parameters) == list(theirs.parameters), name
    assert list(inspect.signature(OptState.step).parameters)[:2] == ["self", "closure"]
    m = net()
    opt = eager(sgd(lr=0.1), m)
    opt.load_state_dict(state_dict=opt.state_dict())
    opt.step(closure=None)


class Held(TorchDispatchMode):
    """Measures the most memory that states take at once: the old ones and those that are made."""

    def __init__(self, old: Sequence[Tensor]) -> None:
        super().__init__()
        self.tensors = [(weakref.ref(t), t.nbytes) for t in old]
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        inputs = {id(a) for a in args if isinstance(a, Tensor)}
        if isinstance(found, Tensor) and id(found) not in inputs:
            self.tensors.append((weakref.ref(found), found.nbytes))
        self.most = max(self.most, sum(size for ref, size in self.tensors if ref() is not None))
        return found


def test_loading_needs_the_memory_of_one_parameter_more() -> None:
    """pt 97712, Megatron 4638: the peak of a load was twice the states."""
    ps = [nn.Parameter(torch.zeros(1000 * (i + 1))) for i in range(10)]
    opt = eager(adamw(lr=0.1), [(f"p{i}", p) for i, p in enumerate(ps)])
    file = saved(opt)
    states = [t for s in opt.state.values() for t in s.values() if isinstance(t, Tensor)]
    total = sum(t.nbytes for t in states)
    with Held(states) as held:
        del states
        opt.load_state_dict(file)
    assert total < held.most <= total + 2 * ps[-1].nbytes


def test_a_load_is_measured() -> None:
    """The measure above finds a copy of everything."""
    ps = [nn.Parameter(torch.zeros(1000 * (i + 1))) for i in range(10)]
    opt = eager(adamw(lr=0.1), ps)
    states = [t for s in opt.state.values() for t in s.values() if isinstance(t, Tensor)]
    with Held(states) as held:
        kept = [t.clone() for t in states]
    assert held.most == 2 * sum(t.nbytes for t in kept)


# -- flat files ----------------------------------------------------------------------------------


def test_flattened_as_for_safetensors() -> None:
    """A dictionary of tensors, and strings: what such a file holds."""
    m, n = net(), net()
    opt = eager(adamw(lr=0.1, betas=(0.8, 0.9)), m)
    train(m, opt, 3)
    file = opt.state_dict()
    names = [n for g in file["param_groups"] for n in g["param_names"]]
    tensors = {
        f"{names[i]}/{key}": value
        for i, state in file["state"].items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }
    counts = {names[i]: state["updates"] for i, state in file["state"].items()}
    metadata = {"groups": json.dumps(file["param_groups"]), "updates": json.dumps(counts)}
    assert all(isinstance(v, str) for v in metadata.values())

    read, counts = json.loads(metadata["groups"]), json.loads(metadata["updates"])
    states: dict[int, dict[str, Any]] = {i: {"updates": counts[n]} for i, n in enumerate(names)}
    for key, value in tensors.items():
        name, _, state = key.partition("/")
        states[names.index(name)][state] = value
    again = eager(adamw(lr=0.5), n)
    again.load_state_dict({"state": states, "param_groups": read})
    assert follows(opt, m, again, n)
    assert again.param_groups[0]["betas"] == (0.8, 0.9)


_NEW_PROCESS = """
import sys, torch
from torch import nn
from dslmut.optim import adamw

m = nn.Linear(3, 2).bfloat16()
rule = adamw(lr=lambda ctx: 0.1 / ctx.updates)
opt = rule.bind(m, rounding="stochastic", compile=False)
model, state = torch.load(sys.argv[1])
m.load_state_dict(model)
opt.load_state_dict(state)
for i in range(2, 5):
    for p in m.parameters():
        p.grad = torch.full_like(p, 0.1 * i)
    opt.step()
torch.save([m.state_dict(), opt.state_dict()], sys.argv[1])
"""


def test_a_run_goes_on_in_another_process(tmp_path: Any) -> None:
    """Random rounding, which does not depend on the process, included."""
    m = nn.Linear(3, 2).bfloat16()
    opt = eager(adamw(lr=lambda ctx: 0.1 / ctx.updates), m, rounding="stochastic", seed=3)
    for i in range(5):
        if i == 2:
            torch.save([m.state_dict(), opt.state_dict()], tmp_path / "run.pt")
        for p in m.parameters():
            p.grad = torch.full_like(p, 0.1 * i)
        opt.step()
    command = [sys.executable, "-c", _NEW_PROCESS, str(tmp_path / "run.pt")]
    subprocess.run(command, check=True, capture_output=True)
    model, state = torch.load(tmp_path / "run.pt")
    assert bits(model) == bits(dict(m.state_dict()))
    assert bits(state) == bits(opt.state_dict())
