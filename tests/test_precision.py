"""Parameters and states of a low precision: computed in float32, and rounded once a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, Hyper, OptState, Update, defstate, optimizer, optimizer_update
from dslmut.optim import adamw, momentum_sgd, sgd

LOW = [torch.bfloat16, torch.float16]


def some(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def trained(
    make: Callable[[list[nn.Parameter]], Any], dtype: torch.dtype, steps: int, *shape: int
) -> tuple[Tensor, Any]:
    p = nn.Parameter(some(*shape).to(dtype))
    opt = make([p])
    for i in range(steps):
        p.grad = some(*shape, seed=i + 1, scale=0.1).to(dtype)
        opt.step()
    return p.detach(), opt


def one_step(rule: Any, p: Tensor, g: Tensor, **options: Any) -> tuple[Tensor, OptState[Any]]:
    q = p.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    q.grad = g
    opt = rule.bind([("w", q)], **{"compile": False, **options})
    opt.step()
    return q.detach(), opt


def close(a: Tensor, b: Tensor, share: float = 0.06) -> None:
    """Check that most elements are the same, and that the others are neighbours, or nearly."""
    assert a.dtype is b.dtype
    assert torch.isfinite(a).all()
    digits = torch.finfo(a.dtype).eps
    assert (a != b).float().mean() <= share
    assert ((a.float() - b.float()).abs() <= 3 * digits * b.float().abs().clamp(min=0.1)).all()


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# -- the same as torch's fused kernels -----------------------------------------------------------


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("settings", [{}, {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.8, 0.99)}])
def test_adamw_is_the_fused_one(dtype: torch.dtype, settings: Any) -> None:
    ours, opt = trained(lambda ps: adamw(**settings).bind(ps, compile=False), dtype, 200, 32, 32)
    fused, torchs = trained(
        lambda ps: torch.optim.AdamW(ps, fused=True, **settings), dtype, 200, 32, 32
    )
    close(ours, fused)
    (own,), (theirs,) = opt.state.values(), torchs.state.values()
    for name in ("exp_avg", "exp_avg_sq"):
        close(own[name], theirs[name])


@pytest.mark.parametrize("dtype", LOW)
def test_momentum_is_the_formula_in_float32(dtype: torch.dtype) -> None:
    # torch's fused SGD leaves parameters of a low precision as they are on CPU (2.13).
    rule = momentum_sgd(lr=0.05, momentum=0.9, weight_decay=0.01)
    ours, _ = trained(lambda ps: rule.bind(ps, compile=False), dtype, 200, 32)
    p, v = some(32).to(dtype), torch.zeros(32, dtype=dtype)
    for i in range(200):
        g = some(32, seed=i + 1, scale=0.1).to(dtype).float() + 0.01 * p.float()
        velocity = 0.9 * v.float() + g
        p, v = (p.float() - 0.05 * velocity).to(dtype), velocity.to(dtype)
    close(ours, p)


@pytest.mark.parametrize("dtype", LOW)
def test_compiled_is_bit_for_bit_what_plain_operations_give(dtype: torch.dtype) -> None:
    plain, a = trained(lambda ps: adamw(lr=0.01).bind(ps, compile=False), dtype, 50, 8, 8)
    compiled, b = trained(lambda ps: adamw(lr=0.01).bind(ps), dtype, 50, 8, 8)
    assert torch.equal(plain, compiled)
    for own, other in zip(a.state.values(), b.state.values()):
        assert torch.equal(own["exp_avg_sq"], other["exp_avg_sq"])


def test_squares_and_eps_of_float16_do_not_underflow() -> None:
    p, g = some(16).half(), torch.full((16,), 1e-4, dtype=torch.float16)
    new, _ = one_step(adamw(lr=0.01, weight_decay=0.0), p, g)
    close(new, (p.float() - 0.01).half(), share=0.2)


# -- one rounding --------------------------------------------------------------------------------


@optimizer
def with_wide_state(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
    m = defstate("m", torch.zeros_like(param, dtype=torch.float32))
    new = 0.9 * m + grad
    return optimizer_update(param - 0.1 * new, m=new)


@pytest.mark.parametrize("dtype", LOW)
def test_a_state_in_float32(dtype: torch.dtype) -> None:
    ours, opt = trained(lambda ps: with_wide_state().bind(ps, compile=False), dtype, 20, 6, 5)
    p, m = some(6, 5).to(dtype), torch.zeros(6, 5)
    for i in range(20):
        m = 0.9 * m + some(6, 5, seed=i + 1, scale=0.1).to(dtype).float()
        p = (p.float() - 0.1 * m).to(dtype)
    assert torch.equal(ours, p)
    (state,) = opt.state.values()
    assert state["m"].dtype is torch.float32
    assert torch.equal(state["m"], m)


def test_a_low_state_of_a_float32_parameter() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        m = defstate("m", torch.zeros_like(param, dtype=torch.bfloat16))
        new = 0.9 * m + 0.1 * grad
        return optimizer_update(param - new, m=new)

    ours, opt = trained(lambda ps: rule().bind(ps, compile=False), torch.float32, 10, 7)
    p, m = some(7), torch.zeros(7, dtype=torch.bfloat16)
    for i in range(10):
        new = 0.9 * m.float() + 0.1 * some(7, seed=i + 1, scale=0.1)
        p, m = p - new, new.bfloat16()
    assert torch.equal(ours, p)
    (state,) = opt.state.values()
    assert torch.equal(state["m"], m)


def test_a_body_sees_the_declared_dtypes() -> None:
    seen = set()

    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        m = defstate("m", torch.zeros_like(param))
        seen.update({param.dtype, grad.dtype, m.dtype, (param + m).dtype})
        return optimizer_update(param - grad, m=m)

    one_step(rule(), some(3).bfloat16(), some(3).bfloat16())
    assert seen == {torch.bfloat16}


# -- what stays in the low precision -------------------------------------------------------------


@optimizer
def rounding_twice(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.3) -> Update:
    middle = (param - 0.3 * grad).to(param.dtype)
    return optimizer_update(middle * 1.7)


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("dtype", LOW)
def test_a_cast_that_is_written_is_kept(dtype: torch.dtype, compile: bool) -> None:
    p, g = some(300).to(dtype), some(300, seed=1).to(dtype)
    new, _ = one_step(rounding_twice(), p, g, compile=compile)
    middle = (p.float() - 0.3 * g.float()).to(dtype)
    assert torch.equal(new, (middle.float() * 1.7).to(dtype))


@pytest.mark.parametrize(
    "cast",
    [
        lambda x: x.bfloat16(),
        lambda x: x.to(torch.bfloat16),
        lambda x: x.to(dtype=torch.bfloat16),
        lambda x: x.to("cpu", torch.bfloat16),
        lambda x: x.type_as(x),
        lambda x: x.to(torch.zeros_like(x)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_products_of_matrices_that_are_cast_stay_low(cast: Any, dtype: torch.dtype) -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        x = cast(grad)
        return optimizer_update(param - 0.1 * (x @ x.T @ x))

    p, g = some(9, 9).to(dtype), some(9, 9, seed=1).to(dtype)
    new, _ = one_step(rule(), p, g)
    x = cast(g)
    assert torch.equal(new, (p.float() - (0.1 * (x @ x.T @ x)).float()).to(dtype))


def test_only_a_dtype_makes_a_cast() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        middle = (param - 0.3 * grad).to("cpu").to(memory_format=torch.contiguous_format)
        return optimizer_update(middle * 1.7)

    p, g = some(300).bfloat16(), some(300, seed=1).bfloat16()
    new, _ = one_step(rule(), p, g)
    assert torch.equal(new, ((p.float() - 0.3 * g.float()) * 1.7).bfloat16())


@pytest.mark.parametrize("dtype", LOW)
def test_bits_are_those_of_the_declared_dtype(dtype: torch.dtype) -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        size = (param.view(torch.int16) & 0x7FFF).view(param.dtype)
        return optimizer_update(size - torch.nextafter(grad, grad + 1))

    p, g = some(40).to(dtype), some(40, seed=1).to(dtype)
    new, _ = one_step(rule(), p, g)
    after = torch.nextafter(g, (g.float() + 1).to(dtype))
    assert torch.equal(new, (p.abs().float() - after.float()).to(dtype))


def test_bits_that_are_changed_in_place() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        size = param.clone()
        size.view(torch.int16).bitwise_and_(0x7FFF)
        return optimizer_update(size - grad)

    p, g = some(40).bfloat16(), some(40, seed=1).bfloat16()
    new, _ = one_step(rule(), p, g)
    assert torch.equal(new, p.abs() - g)


def test_sums_in_place_are_sums_in_float32() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        total, other = torch.zeros_like(param), torch.zeros(param.shape, dtype=param.dtype)
        for _ in range(20):
            total += 1.01 * grad
            other.add_(grad, alpha=1.01)
        return optimizer_update(param - total + 0.5 * other)

    p, g = some(50).bfloat16(), some(50, seed=1).bfloat16()
    new, _ = one_step(rule(), p, g)
    total = torch.zeros(50)
    for _ in range(20):
        total += 1.01 * g.float()
    torch.testing.assert_close(new, (p.float() - 0.5 * total).bfloat16(), rtol=2**-8, atol=1e-3)
    assert (new == (p.float() - 0.5 * total).bfloat16()).float().mean() > 0.9


def test_operations_with_several_results() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        a, b = (0.3 * grad).chunk(2)
        top, _ = (param * 1.1).sort()
        return optimizer_update(top - torch.cat([b, a]))

    p, g = some(8).bfloat16(), some(8, seed=1).bfloat16()
    new, _ = one_step(rule(), p, g)
    a, b = (0.3 * g.float()).chunk(2)
    assert torch.equal(new, ((p.float() * 1.1).sort()[0] - torch.cat([b, a])).bfloat16())


# -- what does not change ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_graph_of_other_parameters_is_as_recorded(dtype: torch.dtype) -> None:
    opt = sgd(lr=0.1).bind([("w", nn.Parameter(some(2, 3).to(dtype)))], compile=False)
    update, _, _ = opt.graph("w").partition("diagnostics")
    assert "\n  new = param - lr * grad\n" in update
    assert ".to(" not in update


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_default_dtype_changes_no_number(dtype: torch.dtype, default: torch.dtype) -> None:
    gradients = [some(5, seed=i, scale=0.1).to(dtype) for i in range(300)]

    def run() -> dict[str, Any]:
        p = nn.Parameter(torch.ones(5, dtype=dtype))
        opt = adamw(lr=0.01).bind([p], compile=False)
        for p.grad in gradients:
            opt.step()
        return {**opt.state[p], "p": p.detach()}

    expected = run()
    with default_dtype(default):
        found = run()
    assert found.pop("updates") == expected.pop("updates") == 300
    assert all(torch.equal(found[n], expected[n]) for n in expected)


LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "a single number": (lambda x: x[0, 0].clone(), lambda g: g[0, 0]),
    "empty": (lambda x: x[:0].clone(), lambda g: g[:0]),
    "transposed": (lambda x: x.t(), lambda g: g.t().contiguous()),
    "expanded gradient": (lambda x: x, lambda g: g[:1].expand(6, 4)),
    "strided": (lambda x: x[::2], lambda g: g[:3]),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_layouts(kind: str) -> None:
    of_param, of_grad = LAYOUTS[kind]
    p, g = of_param(some(6, 4).bfloat16()), of_grad(some(6, 4, seed=1).bfloat16())
    new, opt = one_step(with_wide_state(), p, g)
    assert new.stride() == p.clone(memory_format=torch.preserve_format).stride()
    assert torch.equal(new, (p.float() - 0.1 * g.float()).bfloat16())
    (state,) = opt.state.values()
    assert torch.equal(state["m"], g.float())
