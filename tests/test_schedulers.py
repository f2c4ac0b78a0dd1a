"""Every scheduler of torch drives our optimizers as it drives torch's own, and nothing recompiles."""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler as torchs
from torch.optim.swa_utils import SWALR

from dslmut.optim import adamw, momentum_sgd, sgd
from dslmut.optim.schedules import cosine
from tests.strategies import no_compilation, work

X = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)
STEPS = 50


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()


def groups(m: nn.Sequential) -> list[dict[str, Any]]:
    return [{"params": list(m[0].parameters())}, {"params": list(m[2].parameters()), "lr": 0.02}]


def loss_at(m: nn.Module, step: int) -> Tensor:
    return ((m(X + math.sin(step)) - math.cos(step)) ** 2).mean()


RULES: dict[str, tuple[Callable[[nn.Sequential], Any], Callable[[nn.Sequential], Any]]] = {
    "momentum_sgd": (
        lambda m: momentum_sgd(lr=0.01, momentum=0.9).bind(groups(m), compile=False),
        lambda m: torch.optim.SGD(groups(m), lr=0.01, momentum=0.9),
    ),
    "adamw": (
        lambda m: adamw(lr=0.01, betas=(0.9, 0.99)).bind(groups(m), compile=False),
        lambda m: torch.optim.AdamW(groups(m), lr=0.01, betas=(0.9, 0.99)),
    ),
}


class Own(torchs.LRScheduler):
    """What people derive: it moves the weight decay as well."""

    def get_lr(self) -> Any:
        for group in self.optimizer.param_groups:
            group["weight_decay"] = 0.1 / (self.last_epoch + 1)
        return [0.02 / (self.last_epoch + 1)] * len(self.optimizer.param_groups)


Make = Callable[[Any], Any]
SCHEDULERS: dict[str, list[Make]] = {
    "LambdaLR": [
        lambda o: torchs.LambdaLR(o, lambda k: 0.95**k),
        lambda o: torchs.LambdaLR(o, [lambda k: 1 / (k + 1), lambda k: 0.9**k]),
    ],
    "MultiplicativeLR": [lambda o: torchs.MultiplicativeLR(o, lambda k: 0.95)],
    "StepLR": [lambda o: torchs.StepLR(o, 7, 0.5)],
    "MultiStepLR": [lambda o: torchs.MultiStepLR(o, [3, 11, 30], 0.5)],
    "ConstantLR": [lambda o: torchs.ConstantLR(o, 0.25, 7)],
    "LinearLR": [lambda o: torchs.LinearLR(o, 0.1, total_iters=20)],
    "ExponentialLR": [lambda o: torchs.ExponentialLR(o, 0.93)],
    "SequentialLR": [
        lambda o: torchs.SequentialLR(
            o, [torchs.LinearLR(o, 0.1, total_iters=5), torchs.CosineAnnealingLR(o, 40)], [5]
        )
    ],
    "CosineAnnealingLR": [lambda o: torchs.CosineAnnealingLR(o, 20, 1e-4)],
    "ChainedScheduler": [
        lambda o: torchs.ChainedScheduler(
            [torchs.ConstantLR(o, 0.1, 5), torchs.ExponentialLR(o, 0.9), torchs.StepLR(o, 9)]
        )
    ],
    "ReduceLROnPlateau": [
        lambda o: torchs.ReduceLROnPlateau(o, factor=0.5, patience=2, threshold=0.2),
        lambda o: torchs.ReduceLROnPlateau(o, patience=0, min_lr=[1e-4, 1e-3], cooldown=1),
    ],
    "CyclicLR": [
        lambda o: torchs.CyclicLR(o, 1e-3, 0.05, 6),
        lambda o: torchs.CyclicLR(o, [1e-3, 2e-3], [0.05, 0.02], 6, mode="exp_range", gamma=0.99),
        lambda o: torchs.CyclicLR(o, 1e-3, 0.05, 6, cycle_momentum=False),
    ],
    "CosineAnnealingWarmRestarts": [
        lambda o: torchs.CosineAnnealingWarmRestarts(o, 6, 2, 1e-4),
    ],
    "OneCycleLR": [
        lambda o: torchs.OneCycleLR(o, 0.05, total_steps=STEPS + 1),
        lambda o: torchs.OneCycleLR(o, [0.05, 0.02], epochs=3, steps_per_epoch=20, three_phase=True),
        lambda o: torchs.OneCycleLR(o, 0.05, total_steps=60, anneal_strategy="linear"),
        lambda o: torchs.OneCycleLR(o, 0.05, total_steps=60, cycle_momentum=False),
    ],
    "PolynomialLR": [lambda o: torchs.PolynomialLR(o, 30, 2.0)],
    "SWALR": [lambda o: SWALR(o, swa_lr=0.05, anneal_epochs=7)],
    "LRScheduler": [Own],
}  # fmt: skip
CASES = [
    pytest.param(rule, make, id=f"{rule}-{name}-{number}")
    for rule in RULES
    for name, makes in SCHEDULERS.items()
    for number, make in enumerate(makes)
]


def test_every_scheduler_of_torch_is_in_the_table() -> None:
    known = {n for n in torchs.__all__ if isinstance(getattr(torchs, n), type)}
    assert known <= set(SCHEDULERS)
    derived = {c.__name__ for c in torchs.LRScheduler.__subclasses__() if "torch" in c.__module__}
    assert derived - {"_LRScheduler"} <= set(SCHEDULERS)


def scheduled(
    m: nn.Module, opt: Any, scheduler: Any, steps: Iterator[int]
) -> list[list[tuple[Any, ...]]]:
    """Train, and return the numbers that each update used."""
    seen = []
    for step in steps:
        opt.zero_grad()
        loss = loss_at(m, step)
        loss.backward()
        seen.append(
            [
                (g["lr"], g["weight_decay"], g.get("momentum", 0.0), *g.get("betas", ()))
                for g in opt.param_groups
            ]
        )
        opt.step()
        if isinstance(scheduler, torchs.ReduceLROnPlateau):
            scheduler.step(loss.item())
        else:
            scheduler.step()
    return seen


def equal(a: nn.Module, b: nn.Module) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that torch's SequentialLR and ChainedScheduler give about themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize(("rule", "make"), CASES)
def test_a_scheduler_does_the_same_as_with_torchs_optimizer(rule: str, make: Make) -> None:
    seen, models = [], []
    for bind in RULES[rule]:
        m = net()
        opt = bind(m)
        with quiet():
            scheduler = make(opt)
            seen.append(scheduled(m, opt, scheduler, iter(range(STEPS))))
        models.append(m)
    ours, theirs = seen
    assert len({str(numbers) for numbers in theirs}) > 1, "the scheduler did something"
    for mine, other in zip(ours, theirs):
        for a, b in zip(mine, other):
            assert a == pytest.approx(b, rel=1e-12, abs=1e-18)
    equal(*models)


@pytest.mark.parametrize("make", [make for makes in SCHEDULERS.values() for make in makes])
def test_a_run_with_a_scheduler_can_be_resumed(make: Make) -> None:
    bind = RULES["adamw"][0]
    m = net()
    opt = bind(m)
    with quiet():
        scheduler = make(opt)
        scheduled(m, opt, scheduler, iter(range(8)))
        saved = copy.deepcopy((m.state_dict(), opt.state_dict(), scheduler.state_dict()))
        seen = scheduled(m, opt, scheduler, iter(range(8, 14)))
        n = net()
        again = bind(n)
        scheduler = make(again)
        for each, state in zip((n, again, scheduler), saved):
            each.load_state_dict(state)
        assert scheduled(n, again, scheduler, iter(range(8, 14))) == seen
    for p, q in zip(m.parameters(), n.parameters()):
        assert torch.equal(p, q)


# -- recompilation -------------------------------------------------------------------------------


COMPILED = {
    "quick": (adamw(lr=0.01, betas=(0.9, 0.99)), True),
    "torch.compile": (momentum_sgd(lr=0.01, weight_decay=0.1), {"fullgraph": True}),
}


@pytest.mark.parametrize(("rule", "option"), COMPILED.values(), ids=COMPILED)
def test_every_float_can_be_moved_at_every_step_without_a_compilation(
    rule: Any, option: Any
) -> None:
    """pytorch 120934, 163093, 130467 and 127699: neither lr nor betas nor weight decay recompile."""
    m, n = net(), net()
    opt = rule.bind(m, compile=option)
    kind = torch.optim.AdamW if "betas" in opt.param_groups[0] else torch.optim.SGD
    theirs = kind(n.parameters(), **rule.hyperparameters)
    names = [k for k, h in rule.definition.hyperparameters.items() if h.kind in (float, tuple)]
    assert len(names) == 4
    start = dict(opt.param_groups[0])
    before = work()
    scheduled(m, opt, Still(), iter(range(1)))
    assert work() != before, "the first step compiles, and the counters see it"
    scheduled(n, theirs, Still(), iter(range(1)))
    with no_compilation():
        for step in range(1, 201):
            for name in names:
                value, share = start[name], 1 - 0.01 * (step % 7)
                moved = tuple(v * share for v in value) if name == "betas" else value * share
                opt.param_groups[0][name] = theirs.param_groups[0][name] = moved
            scheduled(m, opt, Still(), iter([step]))
            scheduled(n, theirs, Still(), iter([step]))
    assert not any(isinstance(opt.param_groups[0][n], Tensor) for n in names)
    equal(m, n)


class Still:
    """A scheduler that does nothing."""

    def step(self) -> None:
        pass


def test_no_scheduler_of_torch_causes_a_compilation() -> None:
    m = net()
    opt = adamw(lr=0.01, betas=(0.9, 0.99)).bind(groups(m))
    scheduled(m, opt, Still(), iter(range(1)))
    start = [dict(g) for g in opt.param_groups]
    with no_compilation(), quiet():
        for make in itertools.chain(*SCHEDULERS.values()):
            for group, values in zip(opt.param_groups, start):
                for name in set(group) - set(values):
                    del group[name]
                group.update(lr=values["lr"], betas=values["betas"])
            scheduled(m, opt, make(opt), iter(range(20)))


def test_a_schedule_causes_no_compilation_either() -> None:
    m = net()
    opt = sgd(lr=cosine(0.1, steps=20), weight_decay=lambda ctx: max(0.1, 1 / ctx.updates)).bind(m)
    scheduled(m, opt, Still(), iter(range(1)))
    with no_compilation():
        scheduled(m, opt, Still(), iter(range(1, 30)))


# -- learning rates that are tensors -------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda lr, m: adamw(m, lr=lr), lambda lr, m: adamw(lr=lr).bind(m, compile=False),
    lambda lr, m: adamw([{"params": list(m.parameters()), "lr": lr}]),
])  # fmt: skip
def test_a_tensor_is_read_and_not_kept(make: Any) -> None:
    lr = torch.tensor(0.01)
    m = net()
    opt = make(lr, m)
    assert opt.param_groups[0]["lr"] == pytest.approx(0.01)
    scheduler = torchs.ExponentialLR(opt, 0.5)
    opt.step()
    scheduler.step()
    assert lr.item() == pytest.approx(0.01)
    assert opt.param_groups[0]["lr"] == pytest.approx(0.005)
    lr.fill_(7.0)
    opt.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": lr})
    lr.fill_(9.0)
    assert [g["lr"] for g in opt.param_groups] == pytest.approx([0.005, 7.0])


@pytest.mark.parametrize(
    "name", ["StepLR", "OneCycleLR", "CyclicLR", "ReduceLROnPlateau", "CosineAnnealingLR"]
)
def test_a_scheduler_fills_a_tensor_that_was_written_into_a_group(name: str) -> None:
    """torch writes into such a tensor in place, so that it is read anew at each step."""
    models, seen = [], []
    for bind in RULES["adamw"]:
        m = net()
        opt = bind(m)
        for group in opt.param_groups:
            group["lr"] = torch.tensor(group["lr"], dtype=torch.float64)
        with quiet():
            seen.append(scheduled(m, opt, SCHEDULERS[name][0](opt), iter(range(20))))
        models.append(m)
    equal(*models)
