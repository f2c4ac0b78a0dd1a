"""Random numbers in updates: drawn by bodies, and for stochastic rounding."""

from __future__ import annotations

import copy
import io
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, Hyper, OptState, Update, optimizer, optimizer_update
from dslmut.diagnostics.exceptions import MissingError, OptimizerError
from dslmut.optim import adamw, chain, clip_by_norm, schedule_value, sgd
from dslmut.optim.randomwords import keyed, random_words
from dslmut.optim.threefry import threefry

ONES = 0xFFFFFFFF
Seen = dict[str, Tensor]


@optimizer
def drawing(param: Tensor, grad: Tensor, ctx: Ctx, *, normal: bool = False) -> Update:
    return optimizer_update(ctx.randn_like(param) if normal else ctx.rand_like(param))


@optimizer
def noisy(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
    noise = ctx.randn_like(grad) * ctx.rand_like(grad)
    return optimizer_update(param - schedule_value(lr, ctx) * (grad + noise))


def bound(rule: Any, parameters: Any, **options: Any) -> OptState[Any]:
    return rule.bind(parameters, **{"compile": False, **options})


def drawn(
    shape: tuple[int, ...], dtype: torch.dtype, normal: bool = False, **options: Any
) -> Tensor:
    p = nn.Parameter(torch.zeros(shape, dtype=dtype))
    opt = bound(drawing(normal=normal), [("w", p)], **options)
    p.grad = torch.zeros_like(p)
    opt.step()
    return p.detach()


def run(names: list[str], steps: int, rule: Any = None, **options: Any) -> Seen:
    ps = {n: nn.Parameter(torch.zeros(4, 3)) for n in names}
    opt = bound(rule or noisy(), list(ps.items()), **options)
    go(opt, list(ps.values()), steps)
    return {n: p.detach() for n, p in ps.items()}


def go(opt: Any, parameters: list[nn.Parameter], steps: int) -> None:
    for _ in range(steps):
        for p in parameters:
            p.grad = torch.full_like(p, 0.01)
        opt.step()


# -- the generator -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ONES, ONES), (ONES, ONES), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(key: Any, counter: Any, words: Any) -> None:
    assert threefry(key, counter) == words
    whole = [torch.tensor(x) for x in (*key, *counter)]
    found = threefry((whole[0], whole[1]), (whole[2], whole[3]))
    assert tuple(int(w) for w in found) == words


def test_all_that_decides_a_word_does() -> None:
    cases = [(s, d, p) for s in (0, 1, 2**24, 2**24 + 1, 2**40) for d in (-1, 0, 1, 255, 256, 600)
             for p in (0, 1, 2**32, 2**32 + 1)]  # fmt: skip
    found = {keyed((5, 6), s, d, p) for s, d, p in cases}
    assert len(found) == len(cases)


def test_words_are_those_of_python() -> None:
    key = torch.tensor([123456789, 4000000000])
    step = torch.tensor(2.0**24 + 7, dtype=torch.float64)
    for which in (0, 1):
        found = random_words(key, step, 3, [2, 3], which).flatten().tolist()
        words = [keyed((123456789, 4000000000), 2**24 + 7, 3, i)[which] for i in range(6)]
        assert found == words


# -- what is drawn -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_distributions(dtype: torch.dtype) -> None:
    u, z = drawn((200, 250), dtype).double(), drawn((200, 250), dtype, normal=True).double()
    assert u.min() >= 0
    assert u.max() <= 1  # the parameter is rounded
    assert abs(u.mean() - 0.5) < 0.005
    counts = torch.histc(u.float(), 10, 0, 1)
    assert ((counts - 5000).abs() < 350).all()
    assert abs(z.mean()) < 0.02
    assert abs(z.std() - 1) < 0.02
    assert abs((z**4).mean() - 3) < 0.2
    assert abs((z[:, 1:] * z[:, :-1]).mean()) < 0.02


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_uniform_numbers_that_are_low_on_purpose_are_below_one(dtype: torch.dtype) -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(ctx.rand_like(grad.to(dtype)).to(torch.float32))

    p = nn.Parameter(torch.zeros(20000))
    opt = bound(rule(), [p])
    p.grad = torch.zeros(20000)
    opt.step()
    assert 0.99 < p.max() < 1
    assert torch.equal(p.detach(), p.detach().to(dtype).float())


def test_compiled_draws_the_same_bits() -> None:
    shape = (7, 5, 3)
    assert torch.equal(drawn(shape, torch.float32), drawn(shape, torch.float32, compile=True))
    a, b = run(["a"], 3), run(["a"], 3, compile=True)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (0, 2), (1,)])
def test_few_or_no_elements(shape: tuple[int, ...]) -> None:
    assert drawn(shape, torch.float32).shape == shape
    assert drawn(shape, torch.bfloat16, rounding="stochastic").shape == shape


def test_the_layout_in_memory_does_not_matter() -> None:
    p = nn.Parameter(torch.zeros(5, 7).t())
    opt = bound(drawing(), [("w", p)])
    p.grad = torch.zeros(7, 5)
    opt.step()
    assert torch.equal(p.detach(), drawn((7, 5), torch.float32))


def test_seed_step_name_and_draw_decide() -> None:
    a = run(["a", "b"], 1, seed=1)
    assert not torch.equal(a["a"], a["b"])
    assert all(not torch.equal(a[n], run(["a", "b"], 1, seed=2)[n]) for n in a)
    first, second = run(["a"], 1)["a"], run(["a"], 2)["a"]
    assert not torch.equal(first, second - first)

    @optimizer
    def twice(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(ctx.rand_like(param) - ctx.rand_like(param))

    assert (run(["a"], 1, twice())["a"] != 0).all()


def test_order_and_company_do_not_decide() -> None:
    a, b = run(["a", "b", "c"], 4, seed=7), run(["c", "a", "x", "b"], 4, seed=7)
    assert all(torch.equal(a[n], b[n]) for n in a)


def test_the_global_generators_are_left_alone() -> None:
    before = torch.get_rng_state()
    run(["a"], 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_traced_or_compiled_again() -> None:
    ps = [nn.Parameter(torch.zeros(3)) for _ in range(6)]
    opt = bound(noisy(), [(f"p{i}", p) for i, p in enumerate(ps)])
    runner: Any = opt._runner
    go(opt, ps, 4)
    assert len(runner._programs) == 1
    assert len(runner.kernels) == 1


@pytest.mark.parametrize("how", ["state dict", "pickle", "deepcopy"])
def test_a_resumed_run_draws_what_an_uninterrupted_one_does(how: str) -> None:
    whole = run(["a", "b"], 6, seed=9)
    ps = {n: nn.Parameter(torch.zeros(4, 3)) for n in ("a", "b")}
    opt = bound(noisy(), list(ps.items()), seed=9)
    go(opt, list(ps.values()), 3)
    if how == "state dict":
        file = io.BytesIO()
        torch.save(opt.state_dict(), file)
        file.seek(0)
        ps = {n: nn.Parameter(ps[n].detach()) for n in ("b", "a")}
        opt = bound(noisy(), list(ps.items()))  # the seed is in the file
        opt.load_state_dict(torch.load(file))
        assert [g["seed"] for g in opt.param_groups] == [9]
    elif how == "pickle":
        opt, ps = pickle.loads(pickle.dumps((opt, ps)))
    else:
        opt, ps = copy.deepcopy((opt, ps))
    go(opt, list(ps.values()), 3)
    assert all(torch.equal(whole[n], ps[n].detach()) for n in whole)


def test_a_seed_in_a_group() -> None:
    ps = {n: nn.Parameter(torch.zeros(4, 3)) for n in ("a", "b")}
    opt = bound(noisy(), [{"params": [("a", ps["a"])], "seed": 3}, {"params": [("b", ps["b"])]}])
    go(opt, list(ps.values()), 1)
    assert torch.equal(ps["a"].detach(), run(["a"], 1, seed=3)["a"])
    assert torch.equal(ps["b"].detach(), run(["b"], 1)["b"])
    opt.param_groups[1]["seed"] = "x"
    before = ps["a"].detach().clone()
    with pytest.raises(OptimizerError, match="whole number"):
        opt.step()
    assert torch.equal(ps["a"].detach(), before)


def test_draws_in_a_chain() -> None:
    found = run(["a"], 2, chain(clip_by_norm(1e6), noisy()))["a"]
    assert torch.equal(found, run(["a"], 2)["a"])


# -- what is refused -----------------------------------------------------------------------------


def raised(make: Any) -> str:
    with pytest.raises((MissingError, OptimizerError)) as caught:
        make()
    (found,) = caught.value.diagnostics
    assert found.code in ("E-OPT-006", "E-OPT-011")  # of `ctx`, and of the run
    return f"{found.message} {found.fix}"


def test_a_schedule_draws_nothing() -> None:
    w = nn.Parameter(torch.zeros(3))

    def schedule(ctx: Ctx) -> Any:
        return ctx.rand_like(torch.zeros(()))

    def called(ctx: Ctx) -> Any:
        return float(ctx.step) + ctx.randn_like(torch.zeros(())).item()

    assert "in the body" in raised(lambda: bound(sgd(lr=schedule), [w]))
    assert "in the body" in raised(lambda: bound(sgd(lr=called), [w]))


def test_what_is_drawn_is_like_a_tensor_of_reals() -> None:
    def rule_with(what: Any) -> Any:
        @optimizer
        def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
            return optimizer_update(param - ctx.rand_like(what(param)))

        return lambda: bound(rule(), [nn.Parameter(torch.zeros(3))])

    assert "`int`" in raised(rule_with(lambda p: 3))
    assert "torch.bool" in raised(rule_with(lambda p: p > 0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 0.5}, "seed=1"),
        ({"seed": -1}, "whole number"),
        ({"seed": True}, "whole number"),
        ({"seed": 2**63}, "whole number"),
        ({"rounding": "stochastik"}, 'rounding="stochastic"'),
        ({"rounding": "neerest"}, 'rounding="nearest"'),
        ({"rounding": None}, "rounding="),
        ({"ctx": {"rand_like": 1.0}}, "another name"),
    ],
)
def test_options_that_do_not_fit(options: Any, words: str) -> None:
    assert words in raised(lambda: bound(sgd(), [nn.Parameter(torch.zeros(3))], **options))


# -- stochastic rounding -------------------------------------------------------------------------

LOW = [torch.bfloat16, torch.float16]


@optimizer
def storing(param: Tensor, grad: Tensor, ctx: Ctx, *, value: Hyper = 1.0) -> Update:
    return optimizer_update(torch.full_like(param, 1.0) * schedule_value(value, ctx))


def stored(value: float, dtype: torch.dtype, count: int = 20000, **options: Any) -> Tensor:
    p = nn.Parameter(torch.zeros(count, dtype=dtype))
    given = value if math.isfinite(value) else (lambda _: value)  # what no number may be
    opt = bound(storing(value=given), [("w", p)], **{"rounding": "stochastic", **options})
    p.grad = torch.zeros_like(p)
    opt.step()
    return p.detach()


def neighbours(value: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    near = torch.tensor(value).to(dtype)
    other = torch.nextafter(
        near, torch.full_like(near, torch.inf if float(near) < value else -torch.inf)
    )
    low, high = sorted([near, other], key=float)
    return low, high


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(
    "value", [1.001, -1.001, 1.0039, 1.9999, -3.14159, 1e-3, 7e-6, -1.1e-7, 3e-8, 40000.7, 2.0005]
)
def test_the_mean_is_right_and_only_neighbours_occur(dtype: torch.dtype, value: float) -> None:
    value = float(torch.tensor(value))
    found, (low, high) = stored(value, dtype), neighbours(value, dtype)
    assert ((found == low) | (found == high)).all()
    share = (value - float(low)) / (float(high) - float(low))
    error = 5 * (share * (1 - share) / len(found)) ** 0.5 + 1e-3
    assert abs((found == high).double().mean() - share) < error


@pytest.mark.parametrize("dtype", LOW)
def test_the_smallest_numbers(dtype: torch.dtype) -> None:
    digit = float(torch.finfo(dtype).smallest_normal) * float(torch.finfo(dtype).eps)
    for value in (0.25 * digit, -2.5 * digit, 9.75 * digit):
        value = float(torch.tensor(value))
        found = stored(value, dtype, rounding="stochastic").double()
        assert {round(x / digit) for x in found.unique().tolist()} <= {
            int(value // digit),
            int(value // digit) + 1,
        }
        assert abs(found.mean() - value) < 0.02 * digit


@pytest.mark.parametrize("dtype", LOW)
def test_what_is_exact_stays(dtype: torch.dtype) -> None:
    exact = [
        0.0,
        1.0,
        -1.5,
        float(torch.finfo(dtype).max),
        float(torch.finfo(dtype).smallest_normal),
    ]
    for value in [*exact, torch.inf, -torch.inf]:
        assert (stored(value, dtype, 500) == value).all()
    assert stored(torch.nan, dtype, 500).isnan().all()
    assert torch.signbit(stored(-0.0, dtype, 5)).all()


def test_compiled_rounding_is_bit_for_bit_the_same() -> None:
    for dtype in LOW:
        a, b = stored(1.003, dtype, 300), stored(1.003, dtype, 300, compile=True)
        assert torch.equal(a, b)
        assert len(a.unique()) == 2


def small_steps(names: list[str], **options: Any) -> tuple[dict[str, nn.Parameter], Any]:
    ps = {n: nn.Parameter(torch.ones(3, 50, dtype=torch.bfloat16)) for n in names}
    return ps, bound(sgd(lr=0.01), list(ps.items()), **options)


def test_small_updates_add_up() -> None:
    for rounding, moved in (("nearest", 0.0), ("stochastic", 0.05)):
        ps, opt = small_steps(["a"], rounding=rounding)
        for _ in range(100):
            ps["a"].grad = torch.full_like(ps["a"], 0.05)
            opt.step()
        assert abs((1 - ps["a"].float()).mean() - moved) < 0.006


def test_rounding_is_the_same_in_any_order_and_after_a_resume() -> None:
    first, opt = small_steps(["a", "b"], rounding="stochastic", seed=4)
    go(opt, list(first.values()), 8)
    second, opt = small_steps(["c", "b", "a"], rounding="stochastic", seed=4)
    go(opt, list(second.values()), 4)
    third, other = small_steps(["b", "a", "c"], rounding="stochastic")
    for n in third:
        third[n].data.copy_(second[n].data)
    other.load_state_dict(opt.state_dict())
    go(other, list(third.values()), 4)
    assert all(torch.equal(first[n].detach(), third[n].detach()) for n in first)
    assert not torch.equal(first["a"], first["b"])


def test_float32_parameters_are_not_rounded() -> None:
    for rounding in ("nearest", "stochastic"):
        opt = bound(adamw(), [("w", nn.Parameter(torch.zeros(3)))], rounding=rounding)
        assert "round_by_chance" not in opt.graph("w")
        assert "bfloat16" not in opt.graph("w")


# -- what rounding loses -------------------------------------------------------------------------


@pytest.mark.parametrize("compile", [False, True])
def test_updates_that_are_lost_are_reported(compile: bool) -> None:
    p = nn.Parameter(torch.ones(10, dtype=torch.bfloat16))
    opt = bound(sgd(lr=1.0), [("w", p)], compile=compile)
    p.grad = torch.tensor([1e-4] * 6 + [0.5] * 2 + [0.0] * 2, dtype=torch.bfloat16)
    opt.step(diagnostics=True)
    assert opt.diagnostics["rounded_away"]["w"] == pytest.approx(6 / 8)
    p.grad = torch.zeros_like(p)
    opt.step(diagnostics=True)
    assert opt.diagnostics["rounded_away"]["w"] == 0


def test_what_chance_loses_is_what_is_reported() -> None:
    p = nn.Parameter(torch.ones(4000, dtype=torch.bfloat16))
    opt = bound(sgd(lr=1.0), [("w", p)], rounding="stochastic")
    p.grad = torch.full_like(p, 2.0**-10)  # a quarter of the distance of two numbers below 1
    opt.step(diagnostics=True)
    kept = float((p == 1).float().mean())
    assert opt.diagnostics["rounded_away"]["w"] == pytest.approx(kept)
    assert abs(kept - 0.75) < 0.03


def test_it_is_reported_for_low_precision_alone() -> None:
    ps = [("a", nn.Parameter(torch.ones(3))), ("b", nn.Parameter(torch.ones(3).half()))]
    opt = bound(adamw(), ps)
    for _, p in ps:
        p.grad = torch.ones_like(p)
    opt.step(diagnostics=True)
    assert list(opt.diagnostics["rounded_away"]) == ["b"]
