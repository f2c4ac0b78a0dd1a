"""Ready schedules: equal to torch's schedulers step for step, put together, printed, resumed."""

from __future__ import annotations

import copy
import doctest
import importlib
import inspect
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as torchs

from dslmut import Ctx, Curriculum, OptimizerError, OptState, Stage
from dslmut.optim import adamw, momentum_sgd, schedules, sgd
from dslmut.optim.expressions import calls
from dslmut.optim.schedules import (
    by_stage,
    constant,
    cosine,
    cosine_restarts,
    exponential,
    inverse_sqrt,
    join,
    linear,
    one_cycle,
    piecewise,
    polynomial,
    preview,
    stable_then_decay,
    staircase,
    warm_up,
)

LR = 0.3


def bound(rule: Any, **options: Any) -> OptState[Any]:
    return rule.bind([nn.Parameter(torch.ones(2))], compile=False, **options)


def step(opt: torch.optim.Optimizer) -> None:
    for group in opt.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    opt.step()


def followed(schedule: Any, steps: int, **options: Any) -> list[float]:
    """Return the learning rates that the updates use, by what they do to a parameter."""
    opt = bound(sgd(lr=schedule), **options)
    (p,) = opt.param_groups[0]["params"]
    p.data = torch.zeros(2, dtype=torch.float64)
    found = []
    for _ in range(steps):
        before = p[0].item()
        step(opt)
        shown = opt.param_groups[0]["lr"]
        assert before - p[0].item() == pytest.approx(shown, rel=1e-9, abs=1e-12)
        found.append(shown)
    return found


def stepped(make: Callable[[Any], Any], steps: int, key: str = "lr") -> list[float]:
    """Return what a scheduler of torch does to an optimizer of torch."""
    opt = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=LR, momentum=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's SequentialLR warns about itself
        scheduler = make(opt)
        found = []
        for _ in range(steps):
            found.append(opt.param_groups[0][key])
            step(opt)
            scheduler.step()
    return found


def same(found: list[float], expected: list[float]) -> None:
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-17)


def closing(opt: Any) -> Any:
    """Warm up, stay, and fall: what people build of torch's schedulers for WSD."""
    parts = [
        torchs.LinearLR(opt, 0.1, total_iters=5),
        torchs.ConstantLR(opt, 1.0, 1),
        torchs.LinearLR(opt, 1.0, 0.2, total_iters=8),
    ]
    return torchs.SequentialLR(opt, parts, [5, 20])


PAIRS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "constant": (constant(LR, factor=0.25, steps=7), lambda o: torchs.ConstantLR(o, 0.25, 7)),
    "linear": (linear(LR / 3, LR, steps=11), lambda o: torchs.LinearLR(o, 1 / 3, total_iters=11)),
    "linear down": (linear(LR, LR / 8, steps=9), lambda o: torchs.LinearLR(o, 1, 0.125, 9)),
    "cosine": (cosine(LR, steps=13), lambda o: torchs.CosineAnnealingLR(o, 13)),
    "cosine to a number": (cosine(LR, 0.01, steps=10), lambda o: torchs.CosineAnnealingLR(o, 10, 0.01)),
    "polynomial": (polynomial(LR, steps=12), lambda o: torchs.PolynomialLR(o, 12)),
    "polynomial, power 2.5": (polynomial(LR, power=2.5, steps=12), lambda o: torchs.PolynomialLR(o, 12, 2.5)),
    "exponential": (exponential(LR, factor=0.93), lambda o: torchs.ExponentialLR(o, 0.93)),
    "staircase": (staircase(LR, every=7, factor=0.5), lambda o: torchs.StepLR(o, 7, 0.5)),
    "piecewise": (piecewise(LR, at=[4, 9, 9, 21], factor=0.5), lambda o: torchs.MultiStepLR(o, [4, 9, 9, 21], 0.5)),
    "restarts": (cosine_restarts(LR, 0.01, steps=6), lambda o: torchs.CosineAnnealingWarmRestarts(o, 6, 1, 0.01)),
    "longer restarts": (cosine_restarts(LR, steps=3, factor=2), lambda o: torchs.CosineAnnealingWarmRestarts(o, 3, 2)),
    "thrice as long": (cosine_restarts(LR, steps=1, factor=3), lambda o: torchs.CosineAnnealingWarmRestarts(o, 1, 3)),
    "join": (
        join(linear(0.1 * LR, LR, steps=5), cosine(LR, steps=25), at=5),
        lambda o: torchs.SequentialLR(o, [torchs.LinearLR(o, 0.1, total_iters=5), torchs.CosineAnnealingLR(o, 25)], [5]),
    ),
    "join of three": (
        join(constant(LR / 2), exponential(LR, factor=0.9), staircase(LR, every=4, factor=0.5), at=[6, 15]),
        lambda o: torchs.SequentialLR(
            o, [torchs.ConstantLR(o, 0.5, 100), torchs.ExponentialLR(o, 0.9), torchs.StepLR(o, 4, 0.5)], [6, 15]
        ),
    ),
    "warm-up": (
        warm_up(polynomial(LR, power=2, steps=20), steps=4, start=0.1 * LR),
        lambda o: torchs.SequentialLR(o, [torchs.LinearLR(o, 0.1, total_iters=4), torchs.PolynomialLR(o, 20, 2.0)], [4]),
    ),
    "stable, then decay": (
        warm_up(stable_then_decay(LR, 0.2 * LR, decay=8, steps=23), steps=5, start=0.1 * LR), closing,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schedule", "make"), PAIRS.values(), ids=PAIRS)
def test_equal_to_torchs_scheduler_step_for_step_and_past_the_end(schedule: Any, make: Any) -> None:
    expected = stepped(make, 50)
    assert len(set(expected)) > 1
    same(preview(schedule, 50), expected)
    same(followed(schedule, 50), expected)


CYCLES = [
    {"shape": shape, "three_phases": three, "warm_up": share, "steps": steps}
    for shape in ("cosine", "linear")
    for three in (False, True)
    for share, steps in ((0.3, 50), (0.25, 20), (0.05, 50), (0.5, 21))
]


@pytest.mark.parametrize("given", CYCLES, ids=lambda g: "-".join(map(str, g.values())))
def test_one_cycle_is_torchs_in_every_form(given: Any) -> None:
    steps = given["steps"]
    theirs = {
        "total_steps": steps,
        "pct_start": given["warm_up"],
        "anneal_strategy": {"cosine": "cos", "linear": "linear"}[given["shape"]],
        "three_phase": given["three_phases"],
    }

    def make(opt: Any) -> Any:
        return torchs.OneCycleLR(opt, 0.5, **theirs)

    schedule = one_cycle(0.5, **given)
    momentum = one_cycle(0.85, start=0.95, end=0.95, **given)
    same(preview(schedule, steps), stepped(make, steps))
    same(followed(schedule, steps), stepped(make, steps))
    same(preview(momentum, steps), stepped(make, steps, "momentum"))
    assert preview(schedule, steps + 9)[steps:] == [preview(schedule, steps)[-1]] * 9


def test_one_cycle_with_a_warm_up_of_one_step_begins_at_the_peak() -> None:
    assert preview(one_cycle(1.0, warm_up=0.05, steps=20), 1) == [1.0]
    assert preview(one_cycle(1.0, warm_up=0.0, start=0.5, end=0.0, shape="linear", steps=2), 2)[
        1
    ] == pytest.approx(0.0)


ALL: dict[str, Any] = {
    **{name: pair[0] for name, pair in PAIRS.items()},
    "one cycle": one_cycle(0.5, steps=20),
    "inverse square root": warm_up(inverse_sqrt(0.5, steps=4), steps=4),
    "by stage": by_stage({"a": linear(0.0, 0.5), "b": cosine(0.5)}),
    "square root": stable_then_decay(0.5, decay=4, shape="sqrt", steps=9),
    "half a wave": stable_then_decay(0.5, decay=0.5, shape="cosine"),
    "shares": join(0.1, exponential(0.2, factor=0.9), 0.3, at=[0.25, 0.5]),
}
RUN = Curriculum([Stage("a", 6), Stage("b", 10)])


@pytest.mark.parametrize("schedule", ALL.values(), ids=ALL)
def test_traced_printed_compared_and_pickled(schedule: Any) -> None:
    opt = bound(sgd(lr=schedule), curriculum=RUN)
    assert opt._runner is not None
    (known,) = opt._runner.schedules._expressions.values()
    assert not calls([known[1]]), "it is computed in the scalar program, without a call"
    same(followed(schedule, 20, curriculum=RUN), preview(schedule, 20, curriculum=RUN))
    again = eval(repr(schedule), {n: getattr(schedules, n) for n in schedules.__all__})
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert pickle.loads(pickle.dumps(schedule)) == copy.deepcopy(schedule) == schedule
    assert sgd(lr=again) == sgd(lr=schedule)
    assert repr(schedule) in repr(sgd(lr=schedule))
    with pytest.raises((AttributeError, TypeError)):
        schedule.start = 3.0


def test_every_schedule_is_tried_above() -> None:
    def parts(schedule: Any) -> set[str]:
        inner = [getattr(schedule, "then", None), *getattr(schedule, "pieces", ())]
        found = {type(schedule).__name__}
        for piece in inner:
            found |= parts(piece[1] if isinstance(piece, tuple) else piece) if piece else set()
        return found

    tried = set().union(*map(parts, ALL.values()))
    assert {n for n in schedules.__all__ if n != "preview"} <= tried


@pytest.mark.parametrize("name", ["base", "cycles", "decays", "joining", "previewing"])
def test_the_examples_in_the_docstrings(name: str) -> None:
    module = importlib.import_module(f"dslmut.optim.schedules.{name}")
    names = {**{n: getattr(schedules, n) for n in schedules.__all__}, "Curriculum": Curriculum}
    result = doctest.testmod(module, extraglobs={**names, "Stage": Stage})
    assert result.failed == 0
    own = [n for n in schedules.__all__ if getattr(schedules, n).__module__ == module.__name__]
    assert result.attempted >= len(own)
    for n in own:
        assert ">>> " in (inspect.getdoc(getattr(schedules, n)) or ""), n


# -- lengths and parts ---------------------------------------------------------------------------


def test_a_schedule_without_steps_goes_over_the_curriculum() -> None:
    for make in (cosine, polynomial, stable_then_decay, one_cycle):
        assert preview(make(0.5), curriculum=40) == preview(make(0.5, steps=40), 40)
    assert preview(linear(0.0, 1.0), curriculum=4) == [0.0, 0.25, 0.5, 0.75]
    same(followed(cosine(0.5), 12, curriculum=10), [*preview(cosine(0.5, steps=10), 11), 0.0])


def test_pieces_go_over_what_is_theirs() -> None:
    rest = warm_up(cosine(1.0), steps=10)
    assert preview(rest, curriculum=40) == preview(warm_up(cosine(1.0, steps=30), steps=10), 40)
    assert preview(warm_up(cosine(1.0), steps=0.25), curriculum=40) == preview(rest, curriculum=40)
    nested = join(0.0, warm_up(linear(1.0, 0.0), steps=2), at=4)
    assert preview(nested, curriculum=10) == [0, 0, 0, 0, 0, 0.5, 1.0, 0.75, 0.5, 0.25]
    assert preview(join(linear(0.0, 1.0), linear(1.0, 0.0), at=4), curriculum=8) == [
        0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25,
    ]  # fmt: skip


@pytest.mark.parametrize("own", [
    lambda ctx: 1.0 - ctx.progress, lambda ctx: max(1.0 - ctx.progress, 0.0),
    lambda ctx: [1.0, 0.75, 0.5, 0.25][ctx.step] if ctx.step < 4 else 0.0,
    lambda ctx: torch.clamp(torch.tensor(1.0) * (1 - ctx.step / ctx.total_steps), min=0.0),
])  # fmt: skip
def test_schedules_of_ones_own_can_be_joined(own: Any) -> None:
    expected = [0.5, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    schedule = join(0.5, own, at=2)
    assert preview(schedule, 7, curriculum=6) == pytest.approx(expected)
    assert followed(schedule, 7, curriculum=6) == pytest.approx(expected)
    assert preview(warm_up(own, steps=2), 7, curriculum=6)[:4] == pytest.approx([0, 0.5, 1, 0.75])
    assert preview(by_stage({"a": 0.5, "b": own}), 16, curriculum=RUN)[5:7] == [0.5, 1.0]


def test_a_piece_sees_the_keys_that_are_declared_when_bound() -> None:
    schedule = join(0.1, warm_up(lambda ctx: 0.5 * ctx.scale, steps=2), at=1)
    opt = bound(sgd(lr=schedule), ctx={"scale": 1.0})
    found = []
    for scale in (3.0, 1.0, 2.0, 4.0):
        for p in opt.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        opt.step(ctx={"scale": scale})
        found.append(opt.param_groups[0]["lr"])
    assert found == pytest.approx([0.1, 0.0, 0.5, 2.0])


def test_stages_have_schedules_of_their_own() -> None:
    run = Curriculum([Stage("warm up", 4), Stage("short", 4), Stage("long", 8)])
    schedule = by_stage({"long": cosine(1.0), "warm up": linear(0.0, 1.0), "short": 1.0})
    expected = [0.0, 0.25, 0.5, 0.75, *[1.0] * 4, *preview(cosine(1.0, steps=8), 8)]
    assert preview(schedule, curriculum=run) == expected
    same(followed(schedule, 16, curriculum=run), expected)


def test_the_stages_are_constants_of_a_trace() -> None:
    seen = []

    def own(ctx: Ctx) -> float:
        seen.append((ctx.total_steps, [s.name for s in ctx.stages]))
        return 0.1 / ctx.stages[0].steps * ctx.updates

    followed(own, 3, curriculum=RUN)
    assert set(map(str, seen)) == {"(16, ['a', 'b'])"}


def test_schedules_of_other_hyperparameters() -> None:
    decay = linear(0.0, 0.1, steps=4)
    momentum = one_cycle(0.85, start=0.95, end=0.95, steps=8)
    opt = bound(momentum_sgd(lr=cosine(0.1, steps=8), momentum=momentum, weight_decay=decay))
    q = nn.Parameter(torch.ones(2))
    theirs = torch.optim.SGD([q], lr=0.1, momentum=0.9)
    for k in range(8):
        theirs.param_groups[0].update(
            lr=preview(cosine(0.1, steps=8), 8)[k],
            momentum=preview(momentum, 8)[k],
            weight_decay=preview(decay, 8)[k],
        )
        step(opt)
        step(theirs)
    torch.testing.assert_close(opt.param_groups[0]["params"][0], q)
    betas = (one_cycle(0.85, start=0.95, end=0.95, steps=8), 0.999)
    opt = bound(adamw(betas=betas))
    step(opt)
    assert opt.param_groups[0]["betas"] == (0.95, 0.999)


# -- resuming ------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ALL.values(), ids=ALL)
def test_a_resumed_run_goes_on_where_it_was(schedule: Any) -> None:
    """pytorch 140900, optax 1036 and 415: update k uses schedule(k), before and after a resume."""
    numbers = preview(schedule, 9, curriculum=RUN)
    opt = bound(sgd(lr=schedule), curriculum=RUN)
    for _ in range(4):
        step(opt)
    saved = copy.deepcopy(opt.state_dict())
    again = bound(sgd(lr=schedule), curriculum=RUN)
    again.param_groups[0]["params"][0].data = opt.param_groups[0]["params"][0].data.clone()
    again.load_state_dict(saved)
    assert again.param_groups[0]["lr"] == opt.param_groups[0]["lr"] == pytest.approx(numbers[3])
    for each in (opt, again, *copy.deepcopy([opt])):
        for k in range(4, 9):
            step(each)
            assert each.param_groups[0]["lr"] == pytest.approx(numbers[k], rel=1e-12, abs=1e-17)
    a, b = (o.param_groups[0]["params"][0] for o in (opt, again))
    assert torch.equal(a, b)


# -- mistakes ------------------------------------------------------------------------------------

BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: cosine(1.0, steps=0), "`cosine`: `steps` is a number of steps, at least 1, not 0"),
    (lambda: cosine(1.0, steps=-3), "not -3"),
    (lambda: cosine(1.0, steps=2.5), "not 2.5"),  # pyright: ignore
    (lambda: cosine(1.0, steps=True), "not True"),
    (lambda: cosine(math.nan), "`start` is a number, not nan"),
    (lambda: cosine("a"), "`start` is a number, not 'a'"),  # pyright: ignore
    (lambda: linear(1.0, math.inf), "`end` is a number, not inf"),
    (lambda: polynomial(1.0, power=0), "`power` is above 0"),
    (lambda: staircase(1.0, every=0), "`every` is a number of steps"),
    (lambda: piecewise(1.0, at=[0.5]), "`at` are numbers of steps"),  # pyright: ignore
    (lambda: inverse_sqrt(1.0, steps=None), "not None"),  # pyright: ignore
    (lambda: cosine_restarts(1.0, steps=4, factor=0), "`factor` is a number of steps"),
    (lambda: one_cycle(1.0, warm_up=1.5), "between 0 and 1, not 1.5"),
    (lambda: one_cycle(1.0, warm_up=0.6, three_phases=True), "0.5 with three phases"),
    (lambda: one_cycle(1.0, shape="cos"), '"cosine" or "linear"'),  # pyright: ignore
    (lambda: stable_then_decay(1.0, decay=20, steps=10), "is 20 steps, and there are 10 in all"),
    (lambda: stable_then_decay(1.0, decay=0), "or a share of all"),
    (lambda: stable_then_decay(1.0, shape="step"), "one of linear, cosine, sqrt"),  # pyright: ignore
    (lambda: warm_up(1.0, steps=-1), "not -1"),
    (lambda: warm_up("a", steps=1), "put together of numbers and schedules"),  # pyright: ignore
    (lambda: warm_up(lambda: 1.0, steps=1), "put together of numbers and schedules"),  # pyright: ignore
    (lambda: join(1.0, 2.0, at=[1, 2]), "2 pieces have 1 borders, and `at` has 2"),
    (lambda: join(1.0, 2.0, 3.0, at=[5, 5]), "`at` rises"),
    (lambda: join(1.0, 2.0, at=0), "`at` is a number of steps"),
    (lambda: by_stage({}), "a schedule for each stage"),
    (lambda: preview(cosine(1.0)), "how many steps it shall show"),
]


@pytest.mark.parametrize(("make", "words"), BAD)
def test_arguments_that_do_not_fit(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(OptimizerError, match="E-OPT-009") as caught:
        make()
    (d,) = caught.value.diagnostics
    assert words in d.message
    assert d.span is not None
    assert d.span.path == __file__


@pytest.mark.parametrize(("schedule", "run", "words"), [
    (cosine(1.0), None, "no number of steps, and there is no curriculum"),
    (warm_up(1.0, steps=0.1), None, "a share of all steps"),
    (warm_up(cosine(1.0), steps=500), 100, "`steps` is 500 steps, and there are 100 in all"),
    (stable_then_decay(1.0, decay=500), 100, "`decay` is 500 steps"),
    (join(1.0, 2.0, at=500), 100, "`at` is 500 steps"),
    (join(1.0, 2.0, 3.0, at=[50, 0.4]), 100, "`at` rises"),
    (by_stage({"a": 1.0}), None, "no curriculum whose stages"),
    (by_stage({"a": 1.0, "bb": 1.0}), RUN, "its stages are a, bb, those of the curriculum a, b"),
    (by_stage({"a": 1.0}), RUN, "its stages are a, those of the curriculum a, b"),
])  # fmt: skip
def test_schedules_that_do_not_fit_the_run_are_found_when_it_is_bound(
    schedule: Any, run: Any, words: str
) -> None:
    with pytest.raises(OptimizerError, match="E-OPT-009") as caught:
        bound(sgd(lr=schedule), curriculum=run)
    assert words in caught.value.diagnostics[0].message


def test_the_nearest_stage_is_named() -> None:
    with pytest.raises(OptimizerError, match="write `warm up` for `warmup`"):
        preview(
            by_stage({"warmup": 1.0, "b": 2.0}),
            curriculum=Curriculum([Stage("warm up", 2), Stage("b", 2)]),
        )


def test_numbers_of_any_kind_are_arguments() -> None:
    assert (
        cosine(np.float32(0.5), steps=4)
        == cosine(torch.tensor(0.5), steps=4)
        == cosine(0.5, steps=4)
    )  # pyright: ignore
    assert join(1, np.float64(0.5), at=2) == join(1.0, 0.5, at=[2])


def test_a_scheduler_of_torch_on_a_schedule_is_an_error() -> None:
    opt = bound(sgd(lr=cosine(0.5, steps=8)))
    scheduler = torchs.ExponentialLR(opt, 0.5)
    step(opt)
    scheduler.step()
    with pytest.raises(OptimizerError, match="E-OPT-008"):
        step(opt)
