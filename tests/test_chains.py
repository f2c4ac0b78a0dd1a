"""Transforms and chains: what they compute, how they are put together, named, saved and refused."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dslmut.optim as library
from dslmut import (
    Configured,
    Ctx,
    Hyper,
    OptimizerError,
    OptState,
    Update,
    defstate,
    diagnostic,
    group,
    groups,
    optimizer,
    optimizer_update,
)
from dslmut.optim import (
    adamw,
    adaptive_clip,
    cautious,
    centralised,
    chain,
    clip_by_norm,
    clip_by_value,
    clip_update,
    gradient_transform,
    momentum_sgd,
    schedule_value,
    sgd,
    transformed,
    update_transform,
)
from dslmut.optim.define import Optimizer

RULES = [n for n in library.__all__ if isinstance(getattr(library, n), Optimizer)]
RULES.remove("soap")  # its first bases depend on each bit of a gradient that lacks a direction


def parameters(dtype: torch.dtype = torch.float64, least: int = 0) -> list[nn.Parameter]:
    """Return parameters of all kinds, with so many dimensions at least."""
    draw = torch.Generator().manual_seed(0)
    shapes = [s for s in [(4, 3), (2, 3, 2, 2), (5,), ()] if len(s) >= least]
    return [nn.Parameter(torch.randn(s, generator=draw, dtype=dtype)) for s in shapes]


def gradients(like: list[nn.Parameter], step: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(100 + step)
    return [torch.randn(p.shape, generator=draw, dtype=torch.float64).to(p.dtype) for p in like]


def bound(configured: Configured, target: Any, **options: Any) -> OptState[Any]:
    return configured.bind(target, compile=False, **options)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# -- what each of them computes ------------------------------------------------------------------


def norm_clipped(p: Tensor, g: Tensor) -> Tensor:
    size = sum(x * x for x in g.flatten().tolist()) ** 0.5
    return g * min(1.0, 0.7 / (size + 1e-6))


def value_clipped(p: Tensor, g: Tensor) -> Tensor:
    return torch.tensor(
        [min(max(x, -0.3), 0.3) for x in g.flatten().tolist()], dtype=torch.float64
    ).view_as(g)


def rows(t: Tensor) -> list[Tensor]:
    return list(t) if t.ndim > 1 else [t]


def together(parts: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(parts).view_as(like) if like.ndim > 1 else parts[0]


def agc(p: Tensor, g: Tensor) -> Tensor:
    found = []
    for unit, row in zip(rows(p), rows(g)):
        limit = 0.2 * max(float(unit.square().sum()) ** 0.5, 1e-3)
        size = float(row.square().sum()) ** 0.5
        found.append(row * limit / size if size > limit else row)
    return together(found, g)


def centred(p: Tensor, g: Tensor) -> Tensor:
    return together([r - r.sum() / r.numel() for r in rows(g)], g) if g.ndim > 1 else g


def masked(p: Tensor, g: Tensor, new: Tensor) -> Tensor:
    step = (p - new).flatten().tolist()
    keeps = [s * x > 0 for s, x in zip(step, g.flatten().tolist())]
    share = max(sum(keeps) / len(keeps), 1e-3)
    moved = [s / share if keep else 0.0 for s, keep in zip(step, keeps)]
    return p - torch.tensor(moved, dtype=torch.float64).view_as(p)


def bounded(p: Tensor, g: Tensor, new: Tensor) -> Tensor:
    moved = [min(max(x, -0.002), 0.002) for x in (new - p).flatten().tolist()]
    return p + torch.tensor(moved, dtype=torch.float64).view_as(p)


BEFORE = [
    (clip_by_norm(0.7), norm_clipped),
    (clip_by_value(0.3), value_clipped),
    (adaptive_clip(0.2), agc),
    (centralised(), centred),
]
BEHIND = [(cautious(), masked), (clip_update(0.002), bounded)]


def compare(
    rule: Configured, before: list[Any], behind: list[Any], steps: int, tolerance: float = 1e-12
) -> None:
    """Hold a chain to its rule alone, fed and followed by references of the transforms."""
    made = chain(*(t for t, _ in before), rule, *(t for t, _ in behind))
    least = 2 if rule.definition is library.muon else 0
    ours, alone = parameters(least=least), parameters(least=least)
    chained, plain = bound(made, ours), bound(rule, alone)
    for step in range(steps):
        for p, q, g in zip(ours, alone, gradients(ours, step)):
            p.grad, q.grad = g.clone(), g
            q.data.copy_(p.data)
            for _, reference in before:
                q.grad = reference(q.data, q.grad)
        old = [p.detach().clone() for p in ours]
        chained.step()
        plain.step()
        for p, q, start in zip(ours, alone, old):
            expected = q.detach()
            for _, reference in behind:
                expected = reference(start, q.grad, expected)
            close(p.detach(), expected, tolerance)
            for name, value in plain.state[q].items():
                if isinstance(value, Tensor):
                    close(chained.state[p][name], value, tolerance)


@pytest.mark.parametrize("part", BEFORE, ids=lambda part: part[0].definition.__name__)
def test_a_gradient_transform_equals_its_reference(part: Any) -> None:
    compare(momentum_sgd(lr=0.1), [part], [], 20)


@pytest.mark.parametrize("part", BEHIND, ids=lambda part: part[0].definition.__name__)
def test_an_update_transform_equals_its_reference(part: Any) -> None:
    compare(adamw(lr=3e-3), [], [part], 20, 1e-10)


@optimizer
def keeping(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
    defstate("seen", torch.zeros_like(param))
    return optimizer_update(param, seen=grad)


@pytest.mark.parametrize("name", RULES)
def test_transforms_compose_with_every_rule(name: str) -> None:
    """The rule is fed the very bits that the transforms give, for some rules amplify any rounding."""
    rule = getattr(library, name)()
    before, behind = [t for t, _ in BEFORE], [t for t, _ in BEHIND]
    ours, alone, fed = (parameters()[:2] for _ in range(3))  # some rules take matrices alone
    chained, plain = bound(chain(*before, rule, *behind), ours), bound(rule, alone)
    feed = bound(chain(*before, keeping()), fed)
    for step in range(3):
        old = [p.detach().clone() for p in ours]
        for p, q, r, g in zip(ours, alone, fed, gradients(ours, step)):
            q.data.copy_(p.data)
            r.data.copy_(p.data)
            p.grad, r.grad = g.clone(), g
        feed.step()
        for q, r in zip(alone, fed):
            q.grad = feed.state[r]["seen"].clone()
        chained.step()
        plain.step()
        for p, q, start in zip(ours, alone, old):
            assert q.grad is not None
            expected = q.detach()
            for _, reference in BEHIND:
                expected = reference(start, q.grad, expected)
            close(p.detach(), expected, 1e-9)
            for state, value in plain.state[q].items():
                assert torch.equal(torch.as_tensor(chained.state[p][state]), torch.as_tensor(value))


def test_value_clipping_is_torchs() -> None:
    ours, theirs = parameters(), parameters()
    opt, other = bound(chain(clip_by_value(0.3), sgd(lr=0.1)), ours), torch.optim.SGD(theirs, 0.1)
    for step in range(5):
        for p, q, g in zip(ours, theirs, gradients(ours, step)):
            p.grad, q.grad = g.clone(), g
        torch.nn.utils.clip_grad_value_(theirs, 0.3)
        opt.step()
        other.step()
    for p, q in zip(ours, theirs):
        close(p.detach(), q.detach())


# -- writing one ---------------------------------------------------------------------------------


@gradient_transform
def averaged(param: Tensor, grad: Tensor, ctx: Ctx, share: Hyper = 0.5) -> Update:
    """Average."""
    share = schedule_value(share, ctx)
    mean = defstate("mean", torch.zeros_like(grad))
    new = share * mean + (1 - share) * grad
    diagnostic("size", new.norm())
    return transformed(new, mean=new)


@update_transform
def counted(param: Tensor, grad: Tensor, new: Tensor, ctx: Ctx, *, factor: float = 1.0) -> Update:
    unnamed = defstate(torch.zeros_like(param))
    return transformed(param + factor * (new - param), (unnamed, unnamed + 1))


def test_states_and_diagnostics_of_transforms_have_names_of_their_own() -> None:
    made = chain(averaged(0.5), averaged(0.25), adamw(lr=0.1), counted(), counted(factor=0.5))
    ours = parameters()
    opt = bound(made, [(f"p{i}", p) for i, p in enumerate(ours)], diagnostics_every=1)
    first, second = torch.zeros(5).double(), torch.zeros(5).double()
    for step in range(3):
        for p, g in zip(ours, gradients(ours, step)):
            p.grad = g
        first = 0.5 * first + 0.5 * ours[2].grad  # pyright: ignore
        second = 0.25 * second + 0.75 * first
        opt.step()
    state = opt.state[ours[2]]
    assert list(state) == [
        "averaged.mean", "averaged_2.mean", "exp_avg", "exp_avg_sq", "counted.state.0",
        "counted_2.state.0", "updates",
    ]  # fmt: skip
    close(state["averaged.mean"], first)
    close(state["averaged_2.mean"], second)
    assert state["counted.state.0"].tolist() == [3.0] * 5
    assert opt.diagnostics["averaged.size"]["p2"] == pytest.approx(float(first.norm()))
    assert opt.diagnostics["averaged_2.size"]["p2"] == pytest.approx(float(second.norm()))
    assert opt.diagnostics["grad_norm"]["p2"] == pytest.approx(float(second.norm()))


def test_definitions_of_transforms_show_what_they_are() -> None:
    assert averaged.__name__ == "averaged"
    assert averaged.__doc__ == "Average."
    assert repr(averaged) == "<gradient transform averaged(share=0.5)>"
    assert repr(counted) == "<parameter transform counted(factor=1.0)>"
    assert repr(averaged(0.25)) == "averaged(share=0.25)"
    assert averaged(0.5) == averaged() == averaged(share=0.5) != averaged(0.25)
    assert hash(averaged(0.5)) == hash(averaged())
    assert pickle.loads(pickle.dumps(averaged(0.25))) == averaged(0.25)


@pytest.mark.parametrize(
    ("decorate", "text", "message"),
    [
        (gradient_transform, "def f(param, grad): ...", "takes param, grad"),
        (gradient_transform, "def f(param, grad, ctx, **k): ...", "name each hyperparameter"),
        (update_transform, "def f(param, grad, ctx): ...", "param, grad, new, ctx"),
        (update_transform, "def f(param, grad, new, ctx, x=[]): ...", None),
        (gradient_transform, "f = 3", "not a int"),
    ],
)
def test_signatures_of_transforms(decorate: Any, text: str, message: str | None) -> None:
    scope: dict[str, Any] = {}
    exec(text, scope)
    if message is None:
        assert decorate(scope["f"])().hyperparameters == {"x": ()}
        return
    with pytest.raises(OptimizerError, match=f"E-OPT-001(.|\n)*{message}"):
        decorate(scope["f"])


def test_results_of_transforms_are_checked() -> None:
    def nothing(param: Tensor, grad: Tensor, ctx: Ctx) -> Any:
        return {}.get("grad")

    def another_shape(param: Tensor, grad: Tensor, ctx: Ctx) -> Tensor:
        return grad.sum()

    def forgets(param: Tensor, grad: Tensor, ctx: Ctx) -> Tensor:
        defstate("mean", torch.zeros_like(grad))
        return grad

    def foreign(param: Tensor, grad: Tensor, ctx: Ctx) -> Tensor:
        return transformed(grad, exp_avg=grad)  # pyright: ignore[reportReturnType]

    def in_place(param: Tensor, grad: Tensor, ctx: Ctx) -> Tensor:
        return grad.mul_(2)

    for body, message in [
        (nothing, "E-OPT-004(.|\n)*`nothing` returns a `NoneType`(.|\n)*return transformed\\("),
        (another_shape, "E-OPT-004(.|\n)*the new gradient has shape \\[\\]"),
        (forgets, "E-OPT-004(.|\n)*the state `mean` is not returned"),
        (foreign, "E-OPT-004(.|\n)*`foreign` declares no state `exp_avg`"),
        (in_place, "E-OPT-020"),
    ]:
        with pytest.raises(OptimizerError, match=message):
            bound(chain(gradient_transform(body)(), adamw()), nn.Linear(3, 2))


# -- chains --------------------------------------------------------------------------------------


def test_a_chain_is_configured_like_any_other_optimizer() -> None:
    made = chain(clip_by_norm(1.0), sgd(lr=0.1), cautious())
    rule = repr(sgd(lr=0.1))
    assert repr(made) == f"chain(clip_by_norm(max_norm=1.0), {rule}, cautious(least=0.001))"
    assert made == chain(clip_by_norm(1.0), sgd(lr=0.1), cautious())
    assert hash(made) == hash(chain(clip_by_norm(1.0), sgd(lr=0.1), cautious()))
    assert made == chain(chain(clip_by_norm(1.0), sgd(lr=0.1)), cautious())
    assert made != chain(clip_by_norm(2.0), sgd(lr=0.1), cautious())
    assert made != chain(clip_by_norm(1.0), sgd(lr=0.1))
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
    with pytest.raises(AttributeError):
        made.definition = None  # pyright: ignore
    opt = bound(made, nn.Linear(3, 2))
    assert isinstance(opt, torch.optim.Optimizer)
    assert "chain(clip_by_norm(max_norm=1.0), sgd(" in repr(opt)


def test_hyperparameters_of_all_parts_can_change_between_steps() -> None:
    ours, theirs = parameters(), parameters()
    made = chain(clip_by_value(lambda ctx: 1.0 / (ctx.step + 1)), sgd(lr=0.1))
    groups = [
        {"params": ours[:2]},
        {"params": ours[2:], "lr": 0.2},
    ]
    opt = bound(made, groups)
    assert opt.param_groups[0]["clip_by_value.limit"] == 1.0
    torch.optim.lr_scheduler.StepLR(opt, 1)
    for step in range(4):
        lrs = [0.1 if i < 2 else 0.2 for i in range(4)]
        if step == 2:
            opt.param_groups[0]["lr"] = 0.5
        if step >= 2:
            lrs[:2] = [0.5, 0.5]
        for p, q, g, lr in zip(ours, theirs, gradients(ours, step), lrs):
            p.grad = g
            q.data -= lr * g.clamp(-1 / (step + 1), 1 / (step + 1))
        opt.step()
    for p, q in zip(ours, theirs):
        close(p.detach(), q.detach())


def test_misspelt_hyperparameters_of_a_chain_are_found() -> None:
    made = chain(clip_by_norm(1.0), sgd(lr=0.1))
    with pytest.raises(OptimizerError, match=r'E-OPT-002(.|\n)*write `"clip_by_norm.max_norm"`'):
        bound(made, [{"params": parameters(), "max_norm": 2.0}])
    with pytest.raises(OptimizerError, match=r"E-OPT-002(.|\n)*write `weight_decay=...`"):
        bound(made, [{"params": parameters(), "weight_decy": 2.0}])
    opt = bound(made, parameters())
    opt.param_groups[0]["clip_by_norm.max_norm"] = "much"
    with pytest.raises(OptimizerError, match="`clip_by_norm.max_norm` of `chain"):
        for p in opt.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        opt.step()


def test_a_chain_is_saved_and_resumed_as_one(tmp_path: Any) -> None:
    made = chain(averaged(), adamw(lr=0.1), counted(factor=0.5))

    def run(opt: OptState[Any], ours: list[nn.Parameter], steps: range) -> None:
        for step in steps:
            for p, g in zip(ours, gradients(ours, step)):
                p.grad = g
            opt.step()

    ours = parameters()
    opt = bound(made, ours)
    run(opt, ours, range(3))
    file = io.BytesIO()
    torch.save(opt.state_dict(), file)
    resumed = [nn.Parameter(p.detach().clone()) for p in ours]
    again = bound(made, resumed)
    file.seek(0)
    again.load_state_dict(torch.load(file))
    both = copy.deepcopy((opt, ours))
    run(opt, ours, range(3, 6))
    run(again, resumed, range(3, 6))
    run(*both, range(3, 6))
    for p, q, r in zip(ours, resumed, both[1]):
        assert torch.equal(p, q)
        assert torch.equal(p, r)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: chain(), "the chain has no rule"),
        (lambda: chain(centralised()), "the chain has no rule"),
        (lambda: chain(sgd(), adamw()), "two rules, `sgd` and `adamw`"),
        (lambda: chain(chain(cautious(), sgd())), "`cautious` changes the finished update"),
        (lambda: chain(sgd(), centralised()), "put it before the rule: `chain\\(centralised"),
        (lambda: chain(centralised, sgd()), "`centralised` is not configured"),  # pyright: ignore
        (lambda: chain(centralised(), sgd), "`sgd` is not configured"),  # pyright: ignore
        (lambda: chain([sgd()]), "`list` is neither a transform nor a rule"),  # pyright: ignore
        (lambda: chain(abs, sgd()), "decorate the function"),  # pyright: ignore
        (lambda: chain(sgd(nn.Linear(1, 1))), "is bound to parameters already"),  # pyright: ignore
        (lambda: chain(torch.optim.SGD(nn.Linear(1, 1).parameters())), "`SGD` is bound"),  # pyright: ignore
    ],
)
def test_what_is_no_chain(make: Callable[[], object], message: str) -> None:
    with pytest.raises(OptimizerError, match=f"E-OPT-010(.|\n)*{message}"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: clip_by_norm(), "needs `max_norm`"),  # pyright: ignore
        (lambda: clip_by_norm(max_nrm=1.0), "write `max_norm=...`"),  # pyright: ignore
        (lambda: clip_by_norm(1.0, 2.0), "by position, and got 2"),  # pyright: ignore
        (lambda: clip_by_norm(1.0, max_norm=2.0), "by position and by name"),  # pyright: ignore
        (lambda: clip_by_norm("much"), "a number or a schedule, not 'much'"),  # pyright: ignore
        (lambda: counted(0.5), "takes 0 hyperparameters by position"),  # pyright: ignore
    ],
)
def test_bad_hyperparameters_of_transforms(make: Callable[[], object], message: str) -> None:
    with pytest.raises(OptimizerError, match=f"E-OPT-002(.|\n)*{message}"):
        make()


def test_a_chain_that_is_not_bound_says_how() -> None:
    with pytest.raises(
        OptimizerError, match="this `chain\\(sgd\\)`(.|\n)*bind it: `.bind\\(model\\)`"
    ):
        chain(sgd()).step()  # pyright: ignore


def test_a_chain_compiles_to_the_same_numbers() -> None:
    made = chain(averaged(), clip_by_norm(1.0), momentum_sgd(lr=0.1), cautious())
    ours, theirs = parameters(torch.float32)[:1], parameters(torch.float32)[:1]
    compiled, plain = made.bind(ours), bound(made, theirs)
    for step in range(4):
        for p, q, g in zip(ours, theirs, gradients(ours, step)):
            p.grad, q.grad = g.clone(), g
        compiled.step()
        plain.step()
    close(ours[0].detach(), theirs[0].detach(), 1e-6)
    assert optimizer_update is not transformed


def test_a_chain_is_the_rule_of_a_group() -> None:
    model = nn.Linear(3, 2)
    clipped = group("weight", optimizer=chain(clip_by_value(0.5), sgd(lr=1.0)))
    opt = bound(groups(clipped, group(optimizer=sgd(lr=1.0))), model)
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    opt.step()
    close(model.weight.detach(), before[0] - 0.5, 1e-6)
    close(model.bias.detach(), before[1] - 1.0, 1e-6)
    assert [g["rule"] for g in opt.param_groups] == ["chain(clip_by_value, sgd)", "sgd"]
