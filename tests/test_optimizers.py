"""`@optimizer`: definitions, configuration, tracing, states and results."""

from __future__ import annotations

import itertools
import math
import random
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Configured,
    Ctx,
    Curriculum,
    Hyper,
    OptimizerError,
    OptState,
    Stage,
    Update,
    defstate,
    diagnostic,
    metric,
    optimizer,
    optimizer_update,
    record,
)
from dslmut.optim import adamw, momentum_sgd, schedule_value, sgd, update_diagnostics


def linear() -> nn.Linear:
    return nn.Linear(3, 2)


def bound(rule: Any, target: Any = None, **options: Any) -> OptState[nn.Module]:
    """Bind without compiling: these tests are about what is traced."""
    configured = rule() if not isinstance(rule, Configured) else rule
    return configured.bind(linear() if target is None else target, compile=False, **options)


def stepped(opt: OptState[Any], steps: int = 1, value: float = 1.0) -> list[Tensor]:
    for _ in range(steps):
        for group in opt.param_groups:
            for p in group["params"]:
                p.grad = torch.full_like(p, value)
        opt.step()
    return [p.detach() for g in opt.param_groups for p in g["params"]]


# -- definitions ---------------------------------------------------------------------------------


@optimizer
def descent(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
    """Go down."""
    return optimizer_update(param - schedule_value(lr, ctx) * grad)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(param, grad, *, lr=0.1):\n    return optimizer_update(param)", "takes param, grad"),
        (
            "def f(param, grad, ctx, lr=0.1):\n    return optimizer_update(param)",
            "`\\(param, grad, ctx, \\*, lr\\)`",
        ),
        (
            "def f(param, grad, ctx, **k):\n    return optimizer_update(param)",
            "name each hyperparameter",
        ),
        (
            "def f(param, grad, ctx, *, params=1):\n    return optimizer_update(param)",
            "a key `params` of its own",
        ),
    ],
)
def test_other_signatures_are_refused_at_decoration(load, text: str, message: str) -> None:
    head = "from dslmut import optimizer, optimizer_update\n@optimizer\n"
    with pytest.raises(OptimizerError, match=f"E-OPT-001(.|\n)*{message}") as caught:
        load(head + text + "\n")
    assert "def f(" in str(caught.value)
    with pytest.raises(OptimizerError, match="E-OPT-001(.|\n)*not a int"):
        optimizer(3)  # pyright: ignore


HEAD = "import torch\nfrom dslmut import *\n@optimizer\ndef f(param, grad, ctx, *, lr=0.1):\n"


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        (
            "    metric('a', grad.norm())\n    return optimizer_update(param)",
            "E-CONTRACT-011",
            "metric('a'",
        ),
        (
            "    a = defstate('a', torch.zeros_like(param))\n"
            "    b = defstate('a', torch.zeros_like(param))\n"
            "    return optimizer_update(param, a=b)",
            "E-OPT-003",
            "b = defstate(",
        ),
        (
            "    a = defstate('a', torch.zeros_like(param))\n    return optimizer_update(param - grad)",
            "E-OPT-004",
            "return optimizer_update(",
        ),
        ("    return param - grad, None", "E-OPT-004", "return param - grad, None"),
        (
            "    if param.ndim:\n        return optimizer_update(param)\n    return None",
            "E-OPT-004",
            "return None",
        ),
    ],
)
def test_what_the_source_shows_is_said_at_decoration(load, body: str, code: str, line: str) -> None:
    with pytest.raises(OptimizerError) as caught:
        load(HEAD + body + "\n")
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert line in str(caught.value)


def test_a_definition_shows_its_rule() -> None:
    assert descent.__name__ == "descent"
    assert descent.__doc__ == "Go down."
    assert repr(descent) == "<optimizer descent(lr=0.1)>"
    assert repr(adamw).startswith("<optimizer adamw(lr=0.001, betas=(0.9, 0.999)")


# -- configuration -------------------------------------------------------------------------------


def test_configured_is_comparable_printable_and_immutable() -> None:
    assert repr(momentum_sgd(lr=0.05)) == (
        "momentum_sgd(lr=0.05, momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False, "
        "maximize=False)"
    )
    assert descent(lr=0.5) == descent(lr=0.5)
    assert descent(lr=0.5) != descent(lr=0.6)
    assert hash(descent(lr=0.5)) == hash(descent(lr=0.5))
    assert descent(lr=1) == descent(lr=1.0)
    with pytest.raises(AttributeError):
        descent().definition = None  # pyright: ignore


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: adamw(weight_decy=0.1),
            "no hyperparameter `weight_decy`(.|\n)*write `weight_decay=...`",
        ),
        (lambda: adamw(linear(), learning_rate=0.1), "it has lr, betas, eps, weight_decay"),
        (lambda: adamw(lr="fast"), "a number or a schedule, not 'fast'"),
        (lambda: adamw(betas=0.9), "`betas` of `adamw` is 2 numbers"),
        (lambda: adamw(betas=(0.9, 0.99, 0.999)), "2 numbers"),
        (lambda: adamw(lr=torch.ones(2)), "a number or a schedule"),
        (lambda: adamw(linear(), 0.1), "hyperparameters are given by name"),
        (lambda: needy(linear()), "needs `lr`, which has no default"),
        (
            lambda: adamw([{"params": [torch.zeros(1, requires_grad=True)], "lrr": 1}]),
            "write `lr=...`",
        ),
        (lambda: adamw([{"params": [torch.zeros(1, requires_grad=True)], "lr": "x"}]), "not 'x'"),
    ],
)
def test_bad_hyperparameters(make: Callable[[], object], message: str) -> None:
    with pytest.raises(OptimizerError, match=f"E-OPT-002(.|\n)*{message}") as caught:
        make()
    assert isinstance(caught.value, ValueError)


@optimizer
def needy(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper) -> Update:
    return optimizer_update(param - lr * grad)


def test_numbers_become_floats_and_tensors_are_read() -> None:
    assert sgd(weight_decay=0).hyperparameters["weight_decay"] == 0.0
    assert isinstance(sgd(weight_decay=0).hyperparameters["weight_decay"], float)
    lr = torch.tensor(0.25)
    opt = bound(sgd(lr=lr))
    lr.fill_(7)
    assert opt.param_groups[0]["lr"] == 0.25
    assert momentum_sgd(nesterov=True).hyperparameters["nesterov"] is True


# -- binding -------------------------------------------------------------------------------------


def test_what_it_can_be_bound_to() -> None:
    m = linear()
    for opt in (
        descent(m, lr=0.5),
        descent(lr=0.5).bind(m),
        descent(m.parameters(), lr=0.5),
        descent(m.named_parameters(), lr=0.5),
        descent([{"params": [m.weight]}, {"params": m.bias, "lr": 0.25}], lr=0.5),
        descent([{"params": [("weight", m.weight)], "lr": 0.5}, {"params": [("bias", m.bias)]}]),
    ):
        assert isinstance(opt, OptState)
        assert isinstance(opt, torch.optim.Optimizer)
        assert [p for g in opt.param_groups for p in g["params"]] == [m.weight, m.bias]
        assert opt.param_groups[0]["lr"] == 0.5
    assert descent(m).param_groups[0]["param_names"] == ["weight", "bias"]
    assert "Linear" in repr(descent(m))


def wrapper() -> nn.Parameter:
    """Return a parameter that is one by tensors inside, as sharded and quantized ones are."""
    ragged = [torch.ones(2), torch.ones(3)]
    return nn.Parameter(torch.nested.nested_tensor(ragged, layout=torch.jagged))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: descent(nn.ReLU()), "`ReLU` has no parameters"),
        (lambda: descent([]), "an iterator can be used only once"),
        (lambda: descent(torch.zeros(1, requires_grad=True)), "`\\[tensor\\]`"),
        (lambda: descent(3), "this is a `int`"),
        (lambda: descent(["w"]), "a `str` stands among the parameters"),
        (lambda: descent([torch.zeros(2, requires_grad=True) * 2]), "was computed from others"),
        (lambda: descent([W, W]), "is given twice"),
        (lambda: descent([{"params": [W]}, {"params": [W]}]), "is given twice"),
        (lambda: descent([torch.zeros(1).expand(3).requires_grad_()]), "is expanded"),
        (lambda: descent([torch.zeros(3, dtype=torch.int64)]), "holds torch.int64"),
        (lambda: descent([{"lr": 0.1}]), "a group has no `params`"),
        (
            lambda: descent([torch.eye(3).to_sparse().requires_grad_()]),
            "has the layout torch.sparse",
        ),
        (lambda: descent([wrapper()]), "is a `NestedTensor`, which holds other tensors"),
    ],
)
def test_what_it_cannot_be_bound_to(make: Callable[[], object], message: str) -> None:
    with pytest.raises(OptimizerError) as raised:
        make()
    (found,) = raised.value.diagnostics  # not its text: that shows the line with the message here
    assert found.code == "E-OPT-005"
    assert re.search(message, f"{found.message} {found.fix}")


W = torch.zeros(2, requires_grad=True)


# -- bodies --------------------------------------------------------------------------------------


def test_bodies_are_ordinary_python() -> None:
    power = 2

    def helper(value: Tensor, *, times: int) -> Tensor:
        for _ in range(times):
            value = value * 0.5
        return value

    @optimizer
    def odd(
        param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, order: int = 1, name: str = "a"
    ) -> Update:
        if param.ndim == 2 and param.shape[0] < param.shape[1]:
            grad = (grad.T @ grad).sum() * torch.ones_like(grad)
        kinds = [grad**k for k in range(1, order + 1)]
        grad = sum(kinds[1:], kinds[0]) * (2 if name == "a" else 1)
        return optimizer_update(param - lr * helper(grad, times=power))

    m = linear()
    before = m.weight.clone()
    stepped(bound(odd(order=2), m))
    gram = torch.ones(3, 2) @ torch.ones(2, 3)
    g = gram.sum()
    torch.testing.assert_close(m.weight, before - 0.1 * (g + g**2) * 2 / 4)


def test_each_parameter_may_choose_by_name_and_number() -> None:
    seen = []

    @optimizer
    def named(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        seen.append((ctx.name, ctx.index, ctx.group))
        return optimizer_update(param - lr * grad * (2.0 if ctx.name == "bias" else 1.0))

    m = linear()
    weight, bias = m.weight.clone(), m.bias.clone()
    stepped(bound(named, m))
    torch.testing.assert_close(m.weight, weight - 0.1)
    torch.testing.assert_close(m.bias, bias - 0.2)
    assert set(seen) == {("weight", 0, 0), ("bias", 1, 0)}


def test_equal_parameters_are_traced_once() -> None:
    calls = []

    @optimizer
    def counted(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        calls.append(tuple(param.shape))
        return optimizer_update(param - lr * grad)

    m = nn.Sequential(*[nn.Linear(3, 3) for _ in range(5)])
    stepped(bound(counted, m), 3)
    assert sorted(calls) == [(3,)] * 2 + [(3, 3)] * 2, (
        "each kind is traced once, and once more to compare"
    )


def test_states_by_name_by_pair_and_unnamed() -> None:
    def moment(value: Tensor, beta: float) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        m = defstate(torch.zeros_like(value))
        new = beta * m + value
        return new, (m, new)

    @optimizer
    def many(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        count = defstate("count", torch.zeros((), dtype=torch.int64))
        moments = [moment(grad, b) for b in (0.5, 0.25)]
        total = moments[0][0] + moments[1][0]
        return optimizer_update(param - total, *(pair for _, pair in moments), count=count + 1)

    m = linear()
    opt = bound(many, m)
    assert list(opt.state[m.weight]) == ["count", "state.0", "state.1", "updates"]
    stepped(opt, 2)
    state = opt.state[m.weight]
    assert state["count"].item() == 2
    assert state["count"].dtype is torch.int64
    assert (state["state.0"] == 1.5).all()
    assert (state["state.1"] == 1.25).all()
    assert state["updates"] == 2


def test_states_have_their_own_shape_dtype_and_memory_format() -> None:
    @optimizer
    def factored(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        row = defstate("row", param.new_zeros(param.shape[0]))
        full = defstate("full", torch.zeros_like(param, dtype=torch.float64))
        new_row = row + (grad.sum(1) if grad.ndim == 2 else grad)
        return optimizer_update(param - grad, row=new_row, full=full + grad)

    p = nn.Parameter(torch.zeros(3, 2).T)
    opt = bound(factored, [p])
    assert opt.state[p]["row"].shape == (2,)
    assert opt.state[p]["full"].dtype is torch.float64
    assert opt.state[p]["full"].stride() == p.stride()
    stepped(opt)
    assert opt.state[p]["row"].tolist() == [3.0, 3.0]


ZEROS: list[Callable[[Tensor], Tensor]] = [
    lambda p: torch.zeros_like(p),
    lambda p: torch.zeros(p.shape),
    lambda p: p.new_zeros(p.shape),
    lambda p: torch.full_like(p, 0),
    lambda p: torch.full(p.shape, 0.0),
    lambda p: p.new_full(p.shape, 0.0),
    lambda p: torch.zeros_like(p, dtype=torch.bfloat16),
    lambda p: torch.zeros(p.shape).to(torch.float64),
    lambda p: torch.zeros(p.numel()).reshape(p.shape),
    lambda p: torch.zeros(p.numel()).view(p.shape),
    lambda p: torch.zeros(tuple(reversed(p.shape))).T,
    lambda p: torch.zeros(tuple(reversed(p.shape))).permute(1, 0).contiguous(),
    lambda p: torch.zeros(1, *p.shape).squeeze(0),
    lambda p: torch.zeros(p.shape).unsqueeze(0).squeeze(),
    lambda p: torch.zeros(p.shape[0], 1).expand(p.shape),
    lambda p: torch.zeros(()).broadcast_to(p.shape),
    lambda p: torch.zeros_like(p) if p.ndim == 2 else torch.zeros(1),
]


@pytest.mark.parametrize("make", range(len(ZEROS)))
def test_zero_constants_by_how_they_are_made(make: int) -> None:
    @optimizer
    def kept(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        s = defstate("s", ZEROS[make](param))
        return optimizer_update(param - grad, s=s + 1)

    p = nn.Parameter(torch.ones(3, 2))
    opt = bound(kept, [p])
    assert not opt.state[p]["s"].any()
    stepped(opt, 2)
    assert (opt.state[p]["s"] == 2).all()
    assert opt.state[p]["s"].shape == (3, 2)


NOT_ZEROS: list[tuple[Callable[[Tensor], Any], str]] = [
    (lambda p: p * 0, "computed by `mul`"),
    (lambda p: p - p, "computed by `sub`"),
    (lambda p: torch.zeros(3) + torch.zeros(3), "computed by `add`"),
    (lambda p: torch.empty(3).zero_(), "filled in place"),
    (lambda p: torch.zeros(3).add_(1), "filled in place"),
    (lambda p: torch.zeros(3).mul_(0), "filled in place"),
    (lambda p: torch.tensor(0.0), "computed by"),
    (lambda p: torch.ones_like(p), "computed by `ones_like`"),
    (lambda p: torch.full_like(p, 0.5), "computed by `full_like`"),
    (lambda p: p, "it is the parameter itself"),
    (lambda p: torch.zeros_like(p).abs(), "computed by `abs`"),
    (lambda p: 0.0, "it is a `float`"),
    (lambda p: None, "it is a `NoneType`"),
]


@pytest.mark.parametrize(("make", "message"), NOT_ZEROS)
def test_other_starts_are_refused(make: Callable[[Tensor], Any], message: str) -> None:
    @optimizer
    def kept(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        s = defstate("s", make(param))
        return optimizer_update(param - grad, s=s)

    with pytest.raises(OptimizerError, match=f"E-OPT-003(.|\n)*{message}") as caught:
        bound(kept)
    (d,) = caught.value.diagnostics
    assert d.span is not None
    assert d.span.path == __file__
    assert "s = defstate" in str(caught.value)


def test_names_of_states() -> None:
    def body(name: Any) -> Any:
        @optimizer
        def kept(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
            s = defstate(name, torch.zeros_like(param))
            return optimizer_update(param - grad, (s, s))

        return kept

    for bad in ("state.0", "state.12", "updates", "", 3):
        with pytest.raises(OptimizerError, match="E-OPT-003"):
            bound(body(bad))
    bound(body("state.x"))

    @optimizer
    def twice(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        for _ in range(2):
            s = defstate("s", torch.zeros_like(param))
        return optimizer_update(param - grad, s=s)

    with pytest.raises(OptimizerError, match="E-OPT-003(.|\n)*declared twice"):
        bound(twice)
    with pytest.raises(OptimizerError, match="E-OPT-003(.|\n)*outside of an optimizer's body"):
        defstate("s", torch.zeros(3))


RESULTS: list[tuple[Callable[..., Any], str]] = [
    (lambda p, g, a, b: p - g, "returns a `Tensor`"),
    (lambda p, g, a, b: None, "returns a `NoneType`"),
    (lambda p, g, a, b: optimizer_update(p, a=a), "the state `b` is not returned"),
    (
        lambda p, g, a, b: optimizer_update(p, a=a, b=b, c=b),
        "declares no state `c`; it declares `a`, `b`",
    ),
    (lambda p, g, a, b: optimizer_update(p, (a, a), a=a, b=b), "`a` is returned twice"),
    (lambda p, g, a, b: optimizer_update(p, (a + 1, a), b=b), "but computed"),
    (lambda p, g, a, b: optimizer_update(p, (3, a), b=b), "it is a `int`"),
    (lambda p, g, a, b: optimizer_update(p, a, b=b), "come pairs, and this is a `"),
    (lambda p, g, a, b: optimizer_update(p.sum(), a=a, b=b), "new parameter has shape \\[\\]"),
    (lambda p, g, a, b: optimizer_update(p, a=a[:1], b=b), "new state `a` has shape"),
    (lambda p, g, a, b: optimizer_update(p, a=a, b=g.sum()), "new state `b` holds torch.float32"),
    (lambda p, g, a, b: optimizer_update(p + 1j, a=a, b=b), "new parameter holds torch.complex64"),
    (lambda p, g, a, b: optimizer_update(1.0, a=a, b=b), "is a `float`, not a tensor"),
]


@pytest.mark.parametrize(("make", "message"), RESULTS)
def test_results_that_do_not_fit(make: Callable[..., Any], message: str) -> None:
    @optimizer
    def wrong(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        a = defstate("a", torch.zeros_like(param))
        b = defstate("b", torch.zeros((), dtype=torch.int64))
        return make(param, grad, a, b)

    with pytest.raises(OptimizerError, match=f"E-OPT-004(.|\n)*{message}"):
        bound(wrong)


def test_results_are_rounded_once_to_the_declared_precision() -> None:
    @optimizer
    def wide(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        s = defstate("s", torch.zeros_like(param))
        return optimizer_update(param.double() - grad, s=s.double() + 1 / 3)

    p = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    opt = bound(wide, [p])
    stepped(opt)
    assert p.dtype is torch.bfloat16
    assert opt.state[p]["s"].dtype is torch.bfloat16
    assert opt.state[p]["s"][0] == torch.tensor(1 / 3, dtype=torch.bfloat16)


IMPURE: list[tuple[str, Callable[..., Any], str]] = [
    ("E-OPT-020", lambda p, g, lr: p.sub_(g), "`sub_` writes into the parameter"),
    ("E-OPT-020", lambda p, g, lr: g.mul_(2) + p, "`mul_`"),
    ("E-OPT-020", lambda p, g, lr: p.view(-1).zero_() and p, "`zero_`"),
    ("E-OPT-020", lambda p, g, lr: torch.add(p, g, out=p), "`add"),
    ("E-OPT-020", lambda p, g, lr: torch._foreach_add_([p], [g]) or p, "_foreach_add_"),
    ("E-OPT-020", lambda p, g, lr: p.data.add_(1) and p, "`add_`"),
    ("E-OPT-021", lambda p, g, lr: p if g.norm() > 1 else g, "torch.where"),
    ("E-OPT-021", lambda p, g, lr: p if (g > 0).all() else g, "torch.where"),
    ("E-OPT-022", lambda p, g, lr: p - g.norm().item(), "no value yet"),
    ("E-OPT-022", lambda p, g, lr: p - float(g.norm()), "no value yet"),
    ("E-OPT-022", lambda p, g, lr: p - g.tolist()[0], "no value yet"),
    ("E-OPT-022", lambda p, g, lr: print(f"{g}") or p, "diagnostic\\(name, value\\)"),
    ("E-OPT-022", lambda p, g, lr: p - math.sqrt(lr) * g, "`x \\*\\* 0.5`"),
    ("E-OPT-022", lambda p, g, lr: p - float(lr) * g, "needs the number of `lr`"),
    ("E-OPT-023", lambda p, g, lr: p - np.sign(g), "in `torch`"),
    ("E-OPT-023", lambda p, g, lr: p - torch.from_numpy(g.numpy()), "in `torch`"),
    ("E-OPT-024", lambda p, g, lr: p - torch.randn_like(p), "`randn_like`"),
    ("E-OPT-024", lambda p, g, lr: p - torch.rand(2), "`rand`"),
    ("E-OPT-024", lambda p, g, lr: nn.functional.dropout(p), "`"),
    ("E-OPT-025", lambda p, g, lr: p - CAPTURED * g, "shape \\[2\\]"),
    ("E-OPT-025", lambda p, g, lr: p - torch.stack([CAPTURED, CAPTURED])[0], "shape \\[2\\]"),
    ("E-OPT-024", lambda p, g, lr: p - random.random() * g, "global generator"),
    ("E-OPT-024", lambda p, g, lr: p - float(np.random.rand()) * g, "global generator"),
    ("E-OPT-024", lambda p, g, lr: torch.manual_seed(3) and p, "global generator"),
    ("E-OPT-026", lambda p, g, lr: p - next(COUNTER) * g, "traced again"),
    ("E-CONTRACT-011", lambda p, g, lr: metric("a", g.norm()) or p, "write `diagnostic"),
]
CAPTURED = torch.ones(2)
COUNTER = itertools.count()


@pytest.mark.parametrize(("code", "make", "message"), IMPURE)
def test_impure_bodies_are_refused_at_binding(
    code: str, make: Callable[..., Any], message: str
) -> None:
    @optimizer
    def impure(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        return optimizer_update(make(param, grad, lr))

    p = nn.Parameter(torch.ones(2))
    with pytest.raises(OptimizerError, match=f"{code}(.|\n)*{message}") as caught:
        bound(impure, [p])
    (d,) = caught.value.diagnostics
    assert d.span is not None
    assert d.span.path == __file__
    assert p.tolist() == [1.0, 1.0]


def test_local_tensors_may_be_changed_in_place() -> None:
    @optimizer
    def local(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        d = grad.abs().add_(1)
        d.mul_(lr)
        d[0] = 0.0
        scale = torch.tensor([2.0, 3.0])
        return optimizer_update(param - d * scale * torch.tensor(0.5))

    p = nn.Parameter(torch.ones(2))
    stepped(bound(local, [p]))
    torch.testing.assert_close(p.detach(), torch.tensor([1.0, 1.0 - 0.2 * 3 * 0.5]))


def test_other_errors_say_which_parameter() -> None:
    @optimizer
    def broken(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(param @ grad)

    with pytest.raises(RuntimeError) as caught:
        bound(broken)
    assert any("tracing `broken` for the parameter `weight`" in n for n in caught.value.__notes__)


# -- scalars, schedules, ctx ---------------------------------------------------------------------


def test_arithmetic_on_hyperparameters_happens_on_the_host() -> None:
    @optimizer
    def scalars(
        param: Tensor,
        grad: Tensor,
        ctx: Ctx,
        *,
        lr: Hyper = 0.1,
        betas: tuple[float, float] = (0.5, 0.9),
    ) -> Update:
        a = (1 - betas[0] ** ctx.updates) * 2 / (1 + ctx.step) - betas[1] // 0.4 + 7 % 4
        b = torch.sqrt(lr) + torch.exp(-lr) + lr**0.5 + abs(-lr) + torch.clamp(lr, 0.2, 3.0)
        c = torch.where(ctx.step >= 1, 1.0, 2.0) + torch.maximum(lr, betas[0])
        return optimizer_update(param - (a + b) * grad + c)

    p = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    opt = bound(scalars, [p])
    stepped(opt, 3)
    expected = 0.0
    for step in range(3):
        a = (1 - 0.5 ** (step + 1)) * 2 / (1 + step) - 0.9 // 0.4 + 7 % 4
        b = math.sqrt(0.1) + math.exp(-0.1) + 0.1**0.5 + 0.1 + 0.2
        expected += -(a + b) + (1.0 if step >= 1 else 2.0) + 0.5
    torch.testing.assert_close(p.detach(), torch.full((3,), expected, dtype=torch.float64))
    assert "sqrt" not in opt.graph("0").replace("sqrt(lr)", "")


def test_division_by_zero_on_the_host_is_infinite() -> None:
    @optimizer
    def odd(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.0) -> Update:
        return optimizer_update(param + grad / lr * 0 + torch.where(1 / lr > 5, 1.0, 0.0))

    p = nn.Parameter(torch.zeros(1))
    stepped(bound(odd, [p]))
    assert math.isnan(p.item())

    @optimizer
    def power(param: Tensor, grad: Tensor, ctx: Ctx, *, base: Hyper = -2.0) -> Update:
        return optimizer_update(param + torch.clamp(1e308 * 10**3 * abs(base), max=5.0) * grad)

    q = nn.Parameter(torch.zeros(1))
    stepped(bound(power, [q]))
    assert q.item() == 5.0


def test_changing_a_number_traces_nothing_anew() -> None:
    calls = []

    @optimizer
    def counted(
        param: Tensor,
        grad: Tensor,
        ctx: Ctx,
        *,
        lr: Hyper = 0.1,
        betas: tuple[float, float] = (0.9, 0.99),
    ) -> Update:
        calls.append(1)
        return optimizer_update(param - lr * betas[0] * grad)

    p = nn.Parameter(torch.zeros(2))
    opt = bound(counted, [p])
    before = len(calls)
    for i in range(20):
        opt.param_groups[0]["lr"] = 0.1 + i
        opt.param_groups[0]["betas"] = (0.5 + i / 50, 0.9)
        stepped(opt)
    assert len(calls) == before
    torch.testing.assert_close(
        p.detach(), torch.full((2,), -sum((0.1 + i) * (0.5 + i / 50) for i in range(20)))
    )


def test_a_branch_specialises_on_its_outcome() -> None:
    calls = []

    @optimizer
    def branching(
        param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, weight_decay: Hyper = 0.0
    ) -> Update:
        calls.append(bool(weight_decay))
        if weight_decay:
            grad = grad + weight_decay * param
        return optimizer_update(param - lr * grad)

    p = nn.Parameter(torch.ones(2))
    opt = bound(branching, [p])
    for decay in (0.0, 0.5, 0.0, 0.7, 0.5, 0.0):
        p.data.fill_(1.0)
        opt.param_groups[0]["weight_decay"] = decay
        stepped(opt)
        torch.testing.assert_close(p.detach(), torch.full((2,), 1 - 0.1 * (1 + decay)))
    assert calls == [False, False, True, True]


def test_fixed_hyperparameters_specialise() -> None:
    p = nn.Parameter(torch.ones(2))
    opt = bound(momentum_sgd(lr=0.1, nesterov=False), [p])
    stepped(opt)
    opt.param_groups[0]["nesterov"] = True
    stepped(opt)
    q = nn.Parameter(torch.ones(2))
    reference = torch.optim.SGD([q], lr=0.1, momentum=0.9)
    for nesterov in (False, True):
        reference.param_groups[0]["nesterov"] = nesterov
        q.grad = torch.ones(2)
        reference.step()
    torch.testing.assert_close(p, q)


SCHEDULES: list[Callable[[Ctx], Any]] = [
    lambda ctx: 0.5 / ctx.updates,
    lambda ctx: 0.5 * (1 - ctx["step"] / 10),
    lambda ctx: 0.5 * torch.cos(ctx.step / 3),
    lambda ctx: 0.5 * math.cos(ctx.step / 3),
    lambda ctx: min(0.5, 0.1 * ctx.updates),
    lambda ctx: 0.5 if ctx.step < 2 else 0.1,
    lambda ctx: [0.5, 0.4, 0.3, 0.2, 0.1][int(ctx.step)],
    lambda ctx: torch.tensor(0.5) * (ctx.step + 1),
    lambda ctx: 0.25,
]


def plain_number(schedule: Callable[[Ctx], Any], step: int) -> float:
    numbers = {
        "step": torch.tensor(float(step), dtype=torch.float64),
        "updates": torch.tensor(step + 1.0),
    }
    return float(schedule(Ctx(numbers.get, ())))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules(schedule: Callable[[Ctx], Any]) -> None:
    p = nn.Parameter(torch.zeros(2))
    opt = bound(descent(lr=schedule), [p])
    expected = 0.0
    for step in range(5):
        number = plain_number(schedule, step)
        stepped(opt)
        assert opt.param_groups[0]["lr"] == pytest.approx(number)
        expected -= number
        torch.testing.assert_close(p.detach(), torch.full((2,), expected))


def test_a_schedule_for_one_of_several_numbers() -> None:
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    opt = bound(adamw(lr=0.1, betas=(lambda ctx: 0.5 + 0.1 * ctx.step, 0.99)), [p])
    reference = torch.optim.AdamW([q], lr=0.1)
    for step in range(1):
        reference.param_groups[0]["betas"] = (0.5 + 0.1 * step, 0.99)
        q.grad = torch.ones(2)
        reference.step()
        stepped(opt)
    torch.testing.assert_close(p, q)


def test_progress_is_counted_from_a_curriculum() -> None:
    seen: list[tuple[Any, ...]] = []

    def schedule(ctx: Ctx) -> float:
        seen.append((ctx.progress, ctx.stage, ctx.stage_step, ctx.stage_progress, ctx.total_steps))
        return 0.5 if float(ctx.progress) < 0.5 else 0.1

    stages = Curriculum([Stage("short", 2), Stage("full", 2)])
    opt = bound(descent(lr=schedule), [nn.Parameter(torch.zeros(1))], curriculum=stages)
    seen.clear()
    stepped(opt, 5)
    floats = [s for s in seen if isinstance(s[0], float)]
    assert (0.25, 0, 1, 0.5, 4) in floats
    assert (0.5, 1, 0, 0.0, 4) in floats
    assert (1.0, 1, 2, 1.0, 4) in floats
    with pytest.raises(OptimizerError, match="E-OPT-006(.|\n)*Curriculum\\(steps=10_000\\)"):
        bound(descent(lr=lambda ctx: ctx.progress))
    with pytest.raises(OptimizerError, match="E-OPT-006(.|\n)*write `ctx.step`"):
        bound(descent(lr=lambda ctx: ctx.stepp))
    for bad in (lambda: Curriculum(), lambda: Curriculum([]), lambda: Curriculum(steps=0)):
        with pytest.raises(OptimizerError, match="E-OPT-011"):
            bad()


def test_keys_of_ones_own() -> None:
    @optimizer
    def driven(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(param - ctx.loss * grad)

    p = nn.Parameter(torch.zeros(1))
    opt = driven().bind([p], ctx={"loss": 2.0}, compile=False)
    p.grad = torch.ones(1)
    opt.step()
    opt.step(ctx={"loss": 5.0})
    assert p.item() == -7.0
    with pytest.raises(OptimizerError, match="E-OPT-006(.|\n)*`los` is no declared key"):
        opt.step(ctx={"los": 5.0})
    assert p.item() == -7.0


def test_a_number_written_over_a_schedule_is_an_error() -> None:
    p = nn.Parameter(torch.zeros(1))
    opt = bound(descent(lr=lambda ctx: 0.5), [p])
    opt.param_groups[0]["lr"] = 0.5
    stepped(opt)
    opt.param_groups[0]["lr"] = 0.7
    with pytest.raises(OptimizerError, match="E-OPT-008(.|\n)*`lr` of group 0 follows a schedule"):
        stepped(opt)
    assert p.item() == -0.5
    assert opt.state[p]["updates"] == 1


# -- diagnostics ---------------------------------------------------------------------------------


def test_diagnostics_on_demand() -> None:
    m = linear()
    opt = bound(momentum_sgd(lr=0.5), m)
    stepped(opt)
    assert opt.diagnostics == {}
    before = m.weight.detach().clone()
    for p in m.parameters():
        p.grad = torch.ones_like(p)
    opt.step(diagnostics=True)
    seen = opt.diagnostics
    assert list(seen) == ["param_norm", "grad_norm", "update_norm", "update_ratio"]
    assert list(seen["param_norm"]) == ["weight", "bias"]
    assert seen["param_norm"]["weight"] == pytest.approx(before.norm().item())
    assert seen["grad_norm"]["weight"] == pytest.approx(6**0.5)
    update = (m.weight.detach() - before).norm().item()
    assert seen["update_norm"]["weight"] == pytest.approx(update)
    assert seen["update_ratio"]["weight"] == pytest.approx(update / before.norm().item())
    stepped(opt)
    assert opt.diagnostics == seen


def test_diagnostics_every_so_often() -> None:
    @optimizer
    def reporting(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        diagnostic("step", ctx.step * 1.0)
        diagnostic("seven", 7)
        diagnostic("largest", grad.abs().max())
        return optimizer_update(param - lr * grad)

    opt = bound(reporting, [nn.Parameter(torch.zeros(2))], diagnostics_every=3)
    for step in range(7):
        stepped(opt, value=step)
        last = step // 3 * 3
        assert opt.diagnostics == {"step": {"0": last}, "seven": {"0": 7.0}, "largest": {"0": last}}


def test_diagnostics_and_metrics_in_the_others_place() -> None:
    with pytest.raises(OptimizerError, match="E-CONTRACT-011(.|\n)*write `metric"):
        diagnostic("a", 1.0)

    @optimizer
    def many(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        diagnostic("g", grad)
        return optimizer_update(param)

    with pytest.raises(OptimizerError, match="has shape \\[2, 3\\]"):
        bound(many)

    @optimizer
    def twice(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        update_diagnostics(param, grad, param)
        update_diagnostics(param, grad, param)
        return optimizer_update(param)

    with pytest.raises(OptimizerError, match="reported twice"):
        bound(twice)


def test_metrics_go_to_the_enclosing_records() -> None:
    metric("lost", 1.0)
    with record() as outer:
        metric("loss", torch.tensor(0.5))
        with record() as inner:
            metric("loss", 0.25)
    assert dict(outer) == {"loss": [0.5, 0.25]}
    assert dict(inner) == {"loss": [0.25]}
    assert len(outer) == 1


def test_a_project_may_lie_in_a_folder_called_torch(tmp_path: Path) -> None:
    file = tmp_path / "torch" / "train.py"
    file.parent.mkdir()
    file.write_text("from dslmut.optim import sgd\nsgd(learning=1.0)\n")
    with pytest.raises(OptimizerError) as caught:
        runpy.run_path(str(file))
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert (span.path, span.start.line) == (str(file), 2)
