"""`OptState` in scripts that were written for torch's optimizers: what they do, it does too."""

from __future__ import annotations

import copy
import inspect
import io
import math
import pickle
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._pytree import tree_flatten

from dslmut import Curriculum, OptimizerError, OptState, optim
from dslmut.optim import adamw, momentum_sgd, sgd

X = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()


def loss_at(m: nn.Module, step: int) -> Tensor:
    return ((m(X + math.sin(step)) - math.cos(step)) ** 2).mean()


def train(m: nn.Module, opt: torch.optim.Optimizer, steps: int, start: int = 0) -> None:
    for i in range(start, start + steps):
        opt.zero_grad()
        loss_at(m, i).backward()
        opt.step()


def equal(a: nn.Module, b: nn.Module) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


def snapshot(*values: Any) -> list[Any]:
    """Return all parts of values, tensors as lists, so that they can be compared."""
    parts = tree_flatten(copy.deepcopy(values))[0]
    return [p.tolist() if isinstance(p, Tensor) else p for p in parts]


Bind = Callable[[Any], Any]
PAIRS: dict[str, tuple[Bind, Bind]] = {
    "sgd": (
        lambda p: sgd(lr=0.05, weight_decay=0.01).bind(p, compile=False),
        lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.01),
    ),
    "momentum_sgd": (
        lambda p: momentum_sgd(lr=0.05, momentum=0.8).bind(p, compile=False),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8),
    ),
    "adamw": (
        lambda p: adamw(lr=0.02, betas=(0.8, 0.95)).bind(p, compile=False),
        lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.95)),
    ),
}
pairs = pytest.mark.parametrize("rule", PAIRS)


def both(rule: str, script: Callable[[nn.Sequential, Bind], Any]) -> list[Any]:
    """Run a script with our optimizer and with torch's, and compare the models."""
    models, results = [], []
    for bind in PAIRS[rule]:
        m = net()
        results.append(script(m, bind))
        models.append(m)
    equal(*models)
    return results


# -- scripts -------------------------------------------------------------------------------------


@pairs
def test_gradients_are_accumulated_clipped_and_zeroed(rule: str) -> None:
    def script(m: nn.Sequential, bind: Bind) -> list[float]:
        opt, norms = bind(m.parameters()), []
        for i in range(12):
            loss_at(m, i).backward()
            if i % 3 == 0:
                norms.append(nn.utils.clip_grad_norm_(m.parameters(), 0.1).item())
            if i % 4 == 1:
                nn.utils.clip_grad_value_(m.parameters(), 0.05)
            opt.step()
            if i % 2:
                opt.zero_grad(set_to_none=i % 4 == 1)
        return norms

    ours, theirs = both(rule, script)
    assert ours == pytest.approx(theirs)
    assert max(theirs) > 0.1, "something was clipped"


@pairs
def test_closures_are_called_once_first_with_gradients_and_their_loss_comes_back(rule: str) -> None:
    """Adan 11, Lightning 2785."""

    def script(m: nn.Sequential, bind: Bind) -> list[Any]:
        opt, seen = bind(m.parameters()), []
        for i in range(5):

            def closure(i: int = i) -> Tensor:
                opt.zero_grad()
                loss = loss_at(m, i)
                loss.backward()
                assert torch.is_grad_enabled()
                seen.append(loss.item())
                return loss

            with torch.set_grad_enabled(i % 2 == 0):
                result = opt.step(closure) if i % 2 else opt.step(closure=closure)
            seen.append(result.item())
            assert opt.step() is None
        return seen

    ours, theirs = both(rule, script)
    assert ours == pytest.approx(theirs)
    assert len(ours) == 10


def test_a_closure_that_fails_changes_nothing() -> None:
    m = net()
    opt = adamw(lr=0.1).bind(m, compile=False)
    train(m, opt, 1)
    before = snapshot(m.state_dict(), opt.state_dict())

    def closure() -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        opt.step(closure)
    assert snapshot(m.state_dict(), opt.state_dict()) == before


@pairs
def test_grad_scaler(rule: str) -> None:
    """pytorch 67590, accelerate 4243: a step with infinite gradients counts for nothing."""

    def script(m: nn.Sequential, bind: Bind) -> list[Any]:
        opt, seen = bind(m.parameters()), []
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
        for i in range(9):
            opt.zero_grad()
            scaler.scale(loss_at(m, i)).backward()
            if i in (0, 4):
                m[0].weight.grad[0, 0] = math.inf  # pyright: ignore
            if i % 2:
                scaler.unscale_(opt)
                nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            before = m[0].weight.detach().clone()
            scaler.step(opt)
            scaler.update()
            seen.append((torch.equal(before, m[0].weight), scaler.get_scale()))
        return seen

    ours, theirs = both(rule, script)
    assert ours == theirs
    assert [skipped for skipped, _ in ours].count(True) == 2


def test_what_a_skipped_step_leaves_alone() -> None:
    m = net()
    opt = adamw(lr=lambda ctx: 0.1 / (1 + ctx.step)).bind(m, compile=False, diagnostics_every=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    train(m, opt, 1)
    before = snapshot(opt.state_dict(), opt.diagnostics)
    opt.zero_grad()
    scaler.scale(loss_at(m, 1)).backward()
    m[0].weight.grad.fill_(math.nan)  # pyright: ignore
    scaler.step(opt)
    assert snapshot(opt.state_dict(), opt.diagnostics) == before


@pairs
def test_gradients_that_come_and_go_and_frozen_layers(rule: str) -> None:
    def script(m: nn.Sequential, bind: Bind) -> None:
        m[0].requires_grad_(False)
        opt = bind(m.parameters())
        for i in range(20):
            opt.zero_grad()
            if i == 5:
                m[0].weight.requires_grad_(True)  # pyright: ignore
            if i == 9:
                m[0].requires_grad_(True)
            if i == 14:
                m[2].weight.requires_grad_(False)  # pyright: ignore
            loss_at(m, i).backward()
            for k, p in enumerate(m.parameters()):
                if (i + k) % 4 == 0:
                    p.grad = None
            opt.step()

    both(rule, script)


@pairs
def test_a_group_without_gradients_is_skipped(rule: str) -> None:
    """schedule_free 18, shampoo 149."""

    def script(m: nn.Sequential, bind: Bind) -> Any:
        opt = bind([{"params": m[0].parameters()}, {"params": m[2].parameters(), "lr": 0.01}])
        for i in range(4):
            opt.zero_grad()
            loss_at(m, i).backward()
            for p in m[2].parameters():
                p.grad = None
            opt.step()
        return opt

    ours, _ = both(rule, script)
    unused = ours.param_groups[1]["params"]
    assert all(ours.state[p]["updates"] == 0 for p in unused)


def test_a_parameter_that_left_does_not_disturb() -> None:
    """Its state is kept, in case that it comes back; torch's optimizers cannot be saved then."""
    m = net()
    opt = momentum_sgd(lr=0.1).bind(m, compile=False)
    train(m, opt, 2)
    names, gone = opt.param_groups[0]["param_names"], m[0].weight
    opt.param_groups[0]["params"].pop(0)
    names.pop(0)
    train(m, opt, 1)
    assert len(opt.state_dict()["state"]) == 3
    assert opt.state[gone]["updates"] == 2
    opt.param_groups[0]["params"].append(gone)
    names.append("0.weight")
    train(m, opt, 1)
    assert opt.state[gone]["updates"] == 3
    assert len(opt.state_dict()["state"]) == 4


def test_no_gradients_at_all() -> None:
    m = net()
    opt = adamw(lr=0.1).bind(m, compile=False)
    before = snapshot(m.state_dict())
    opt.step()
    assert snapshot(m.state_dict()) == before


@pairs
def test_tied_parameters_are_updated_once(rule: str) -> None:
    """pytorch 40967, APOLLO 4."""

    def script(m: nn.Sequential, bind: Bind) -> Any:
        m[2].weight = m[0].weight
        opt = bind(m.named_parameters() if rule == "sgd" else m.parameters())
        train(m, opt, 6)
        return opt

    ours, _ = both(rule, script)
    assert len(ours.param_groups[0]["params"]) == 3
    m = net()
    m[2].weight = m[0].weight
    opt = sgd(m, lr=0.1)
    assert opt.param_groups[0]["param_names"] == ["0.weight", "0.bias", "2.bias"]


@pairs
def test_new_groups_in_the_middle_of_a_run(rule: str) -> None:
    """pytorch 53712, Lightning 8720: states, schedulers, saving and resuming go on."""

    def script(m: nn.Sequential, bind: Bind) -> Any:
        opt = bind(m[0].parameters())
        scheduler = lr_scheduler.ExponentialLR(opt, 0.9)
        for i in range(12):
            if i == 4:
                opt.add_param_group({"params": [m[2].weight], "lr": 0.04, "initial_lr": 0.04})
            if i == 7:
                opt.add_param_group({"params": m[2].bias})
            train(m, opt, 1, i)
            scheduler.step()
        again = bind([{"params": list(g["params"])} for g in opt.param_groups])
        again.load_state_dict(copy.deepcopy(opt.state_dict()))
        train(m, again, 3, 12)
        return [g["lr"] for g in again.param_groups]

    ours, theirs = both(rule, script)
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_zero_grad_and_hooks_and_the_rest_of_the_interface() -> None:
    m, seen = net(), []
    opt = adamw(lr=0.1).bind(m, compile=False)
    handles = [
        opt.register_step_pre_hook(lambda o, args, kwargs: seen.append("pre")),
        opt.register_step_post_hook(lambda o, args, kwargs: seen.append("post")),
        register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append("all pre")),
        register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("all post")),
        opt.register_state_dict_pre_hook(lambda o: seen.append("saving")),
        opt.register_state_dict_post_hook(lambda o, state: seen.append("saved")),
        opt.register_load_state_dict_pre_hook(lambda o, state: seen.append("loading")),
        opt.register_load_state_dict_post_hook(lambda o: seen.append("loaded")),
    ]
    train(m, opt, 1)
    opt.load_state_dict(opt.state_dict())
    for handle in handles:
        handle.remove()
    train(m, opt, 1)
    assert seen == ["all pre", "pre", "post", "all post", "saving", "saved", "loading", "loaded"]
    opt.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in m.parameters())
    opt.zero_grad()
    assert all(p.grad is None for p in m.parameters())


def test_a_hook_may_change_the_arguments_of_a_step() -> None:
    m = net()
    opt = sgd(lr=lambda ctx: ctx.scale).bind(m, ctx={"scale": 0.0}, compile=False)
    opt.register_step_pre_hook(lambda o, args, kwargs: (args, {**kwargs, "ctx": {"scale": 0.5}}))
    loss_at(m, 0).backward()
    before = m[0].weight.detach().clone()
    opt.step()
    torch.testing.assert_close(m[0].weight, before - 0.5 * m[0].weight.grad)  # pyright: ignore


def test_signatures_are_those_of_the_base_class() -> None:
    """dion 109: a renamed argument breaks torch.distributed.checkpoint."""
    for name in ("load_state_dict", "state_dict", "zero_grad", "add_param_group"):
        ours, base = (
            inspect.signature(getattr(c, name)) for c in (OptState, torch.optim.Optimizer)
        )
        assert list(ours.parameters) == list(base.parameters), name
    step = list(inspect.signature(OptState.step).parameters.values())
    assert [p.name for p in step[:2]] == ["self", "closure"]
    assert all(p.kind is p.KEYWORD_ONLY for p in step[2:])


def test_step_stays_a_bound_method() -> None:
    """torchtune 2681: schedulers want one, also after a step was compiled."""
    m = net()
    opt = sgd(lr=0.1).bind(m, compile=False)
    compiled = torch.compile(opt.step, backend="eager")
    loss_at(m, 0).backward()
    before = m[0].weight.detach().clone()
    compiled()
    torch.testing.assert_close(m[0].weight, before - 0.1 * m[0].weight.grad)  # pyright: ignore
    assert inspect.ismethod(opt.step)
    lr_scheduler.StepLR(opt, 1)


def test_a_wrapper_that_shares_the_attributes() -> None:
    """What Lightning does: a class of its own over ours, with the same dictionary."""

    class Wrapper:
        def __init__(self, optimizer: Any) -> None:
            own = {k: v for k, v in optimizer.__dict__.items() if k != "step"}
            self.__dict__.update(own)
            kind = type(optimizer)
            self.__class__ = type(f"Wrapped{kind.__name__}", (Wrapper, kind), {})  # pyright: ignore
            self.optimizer = optimizer

        def step(self, closure: Any = None) -> Any:
            return self.optimizer.step(closure)

    m, n = net(), net()
    inner = momentum_sgd(lr=0.1).bind(m, compile=False)
    opt: Any = Wrapper(inner)
    assert isinstance(opt, OptState)
    scheduler = lr_scheduler.StepLR(inner, 2)
    for i in range(5):
        train(m, opt, 1, i)
        scheduler.step()
    reference = torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9)
    scheduler = lr_scheduler.StepLR(reference, 2)
    for i in range(5):
        train(n, reference, 1, i)
        scheduler.step()
    equal(m, n)
    opt.load_state_dict(opt.state_dict())


# -- copies --------------------------------------------------------------------------------------


def _copied(pair: Any) -> Any:
    return copy.deepcopy(pair)


def _pickled(pair: Any) -> Any:
    return pickle.loads(pickle.dumps(pair))


def _saved(pair: Any) -> Any:
    file = io.BytesIO()
    torch.save(pair, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("way", [_copied, _pickled, _saved])
@pairs
def test_copies_go_on(rule: str, way: Any) -> None:
    """pytorch 10906, accelerate 805: a copy steps, takes groups, and is not the original."""

    def script(m: nn.Sequential, bind: Bind) -> Any:
        opt = bind([{"params": m[0].parameters()}, {"params": [m[2].weight], "lr": 0.01}])
        scheduler = lr_scheduler.StepLR(opt, 1, 0.9)
        train(m, opt, 3)
        scheduler.step()
        n, again = way((m, opt))
        again.add_param_group({"params": [n[2].bias]})
        scheduler = lr_scheduler.StepLR(again, 1, 0.9)
        for i in range(3, 6):
            train(n, again, 1, i)
            scheduler.step()
        train(m, opt, 1, 3)
        return n

    equal(*both(rule, script))


def test_a_copy_keeps_the_options_of_the_run() -> None:
    run = Curriculum(steps=10)
    m = net()
    opt = adamw(lr=_falling).bind(m, curriculum=run, diagnostics_every=2, compile=False)
    train(m, opt, 3)
    for way in (_copied, _pickled, _saved):
        n, again = way((m, opt))
        assert (again._options.curriculum, again._options.diagnostics_every) == (run, 2)
        train(n, again, 2, 3)
        assert again.param_groups[0]["lr"] == pytest.approx(0.1 * 0.6)
    train(m, opt, 2, 3)
    equal(m, n)


def _falling(ctx: Any) -> Any:
    return 0.1 * (1 - ctx.progress)


def _in_another_process(sent: Any, answer: Any) -> None:
    m, opt = pickle.loads(sent)
    train(m, opt, 2, 2)
    answer.send(pickle.dumps({n: p.tolist() for n, p in m.state_dict().items()}))


def test_a_spawned_process_goes_on() -> None:
    m = net()
    opt = adamw(lr=_falling).bind(m, curriculum=10, compile=False)
    train(m, opt, 2)
    context = torch.multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_in_another_process, args=(pickle.dumps((m, opt)), theirs))
    process.start()
    assert mine.poll(120), "the process answers"
    found = pickle.loads(mine.recv())
    process.join()
    train(m, opt, 2, 2)
    assert {n: p.tolist() for n, p in m.state_dict().items()} == found


# -- scripts made at random ----------------------------------------------------------------------


class Script:
    """Does to an optimizer what scripts do, chosen by a generator of random numbers."""

    def __init__(self, seed: int, bind: Bind) -> None:
        self.random, self.bind, self.model, self.at = random.Random(seed), bind, net(), 0
        layers = [self.model[0], self.model[2]]
        self.opt = bind([{"params": list(x.parameters())} for x in layers])
        self.spare = [
            nn.Parameter(torch.full((3,), 0.5 + k, dtype=torch.float64)) for k in range(3)
        ]

    def run(self, steps: int) -> None:
        actions = [n for n in sorted(dir(self)) if n.startswith("do_")]
        for _ in range(steps):
            if self.random.random() < 0.5:
                getattr(self, self.random.choice(actions))()
            self.step()

    def parameters(self) -> list[Any]:
        return [p for g in self.opt.param_groups for p in g["params"]]

    def step(self, keep: float = 1.0) -> None:
        if self.random.random() < 0.8:
            self.opt.zero_grad(set_to_none=self.random.random() < 0.7)
        extra = sum(((p - math.sin(self.at)) ** 2).sum() for p in self.spare if p.requires_grad)
        (loss_at(self.model, self.at) + extra).backward()
        self.at += 1
        for p in self.parameters():
            if self.random.random() > keep:
                p.grad = None
        self.opt.step()

    def group(self) -> Any:
        return self.random.choice(self.opt.param_groups)

    def do_lose_gradients(self) -> None:
        self.step(keep=0.5)

    def do_numbers(self) -> None:
        group = self.group()
        group["lr"] = self.random.choice([0.01, 0.02, 0.05])
        if "weight_decay" in group:
            group["weight_decay"] = self.random.choice([0.0, 0.02])
        if "betas" in group:
            group["betas"] = (self.random.choice([0.7, 0.9]), 0.95)
        elif group.get("momentum"):
            group["momentum"] = self.random.choice([0.7, 0.9])

    def do_freeze(self) -> None:
        p = self.random.choice(self.parameters())
        p.requires_grad_(not p.requires_grad)
        p.grad = None
        if not any(q.requires_grad for q in self.model.parameters()):
            p.requires_grad_(True)

    def do_add_a_group(self) -> None:
        free = [p for p in self.spare if not any(p is q for q in self.parameters())]
        if free:
            self.opt.add_param_group({"params": [free[0]], "lr": 0.03})

    def do_turn_groups_around(self) -> None:
        self.opt.param_groups.reverse()

    def do_move_a_parameter(self) -> None:
        source, target = self.group(), self.group()
        if len(source["params"]) > 1:
            target["params"].append(source["params"].pop())

    def do_replace_a_parameter(self) -> None:
        layer = self.random.choice([self.model[0], self.model[2]])
        old = layer.bias
        layer.bias = nn.Parameter(old.detach().clone())
        if not isinstance(self.opt, OptState):
            self.opt.state.pop(old, None)  # or else torch cannot save its state any more
        for group in self.opt.param_groups:
            for k, p in enumerate(group["params"]):
                if p is old:
                    group["params"][k] = layer.bias

    def do_new_data(self) -> None:
        p = self.random.choice(self.parameters())
        p.data = p.data.clone() * 0.9

    def do_copy(self) -> None:
        self.model, self.opt, self.spare = copy.deepcopy((self.model, self.opt, self.spare))

    def do_pickle(self) -> None:
        self.model, self.opt, self.spare = pickle.loads(
            pickle.dumps((self.model, self.opt, self.spare))
        )

    def do_load_its_own_state(self) -> None:
        self.opt.load_state_dict(copy.deepcopy(self.opt.state_dict()))

    def do_bind_anew(self) -> None:
        groups = [{"params": list(g["params"])} for g in self.opt.param_groups]
        again = self.bind(groups)
        again.load_state_dict(copy.deepcopy(self.opt.state_dict()))
        self.opt = again

    def do_scheduler(self) -> None:
        scheduler = lr_scheduler.ExponentialLR(self.opt, 0.98)
        for _ in range(self.random.randint(1, 4)):
            self.step()
            scheduler.step()


@pytest.mark.parametrize("seed", range(10))
@pairs
def test_scripts_made_at_random(rule: str, seed: int) -> None:
    ours, theirs = (Script(seed, bind) for bind in PAIRS[rule])
    for script in (ours, theirs):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the file", UserWarning)
            script.run(25)
    equal(ours.model, theirs.model)
    for p, q in zip(ours.spare, theirs.spare):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-10)


OTHERS = {"adam": "Adam", "radam": "RAdam", "adamax": "Adamax", "adagrad": "Adagrad", "adadelta": "Adadelta",
          "rmsprop": "RMSprop", "rprop": "Rprop"}  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rule", OTHERS)
def test_scripts_made_at_random_with_the_other_optimizers(rule: str, seed: int) -> None:
    ours = Script(seed, lambda p: getattr(optim, rule)(lr=0.01).bind(p, compile=False))
    theirs = Script(seed, lambda p: getattr(torch.optim, OTHERS[rule])(p, lr=0.01))
    for script in (ours, theirs):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the file", UserWarning)
            script.run(25)
    equal(ours.model, theirs.model)


# -- names that are wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "words"), [
    ({"diagnostic_every": 3}, "write `diagnostics_every=...`"),
    ({"curiculum": 3}, "write `curriculum=...`"),
    ({"lr": 3}, r"it is a hyperparameter: write `adamw\(lr=...\).bind\(model\)`"),
    ({"colour": 3}, "leave it out"),
])  # fmt: skip
def test_misspelt_options_of_a_run(given: Any, words: str) -> None:
    with pytest.raises(OptimizerError, match=f"E-OPT-011(.|\n)*{words}"):
        adamw(lr=0.1).bind(net(), **given)
    with pytest.raises(OptimizerError, match="E-OPT-002(.|\n)*bind\\(model, diagnostics_every="):
        adamw(net(), diagnostic_every=3)
