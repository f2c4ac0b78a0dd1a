"""Complex parameters: as pairs of reals where a rule works element by element, or refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, OptimizerError, OptState, Update, defstate, optimizer, optimizer_update
from dslmut.optim import (
    adadelta,
    adagrad,
    adam,
    adamax,
    adamw,
    chain,
    clip_by_global_norm,
    momentum_sgd,
    muon,
    nadam,
    radam,
    rmsprop,
    rprop,
    sgd,
)


def some(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def trained(make: Any, p: Tensor, steps: int, gradient: Any = some) -> tuple[Tensor, Any]:
    q = nn.Parameter(p.clone(memory_format=torch.preserve_format))
    opt = make([("w", q)])
    for i in range(steps):
        q.grad = gradient(*p.shape, seed=i + 1, dtype=p.dtype)
        opt.step()
    return q.detach(), opt


def close(a: Tensor, b: Tensor) -> None:
    assert a.dtype is b.dtype
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


SAME_AS_TORCH = [
    (sgd(lr=0.1, weight_decay=0.1), lambda ps: torch.optim.SGD(ps, lr=0.1, weight_decay=0.1)),
    (momentum_sgd(lr=0.1, nesterov=True), lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True)),
    (adamw(lr=0.1), lambda ps: torch.optim.AdamW(ps, lr=0.1)),
    (adam(lr=0.1, weight_decay=0.1), lambda ps: torch.optim.Adam(ps, lr=0.1, weight_decay=0.1)),
    (nadam(lr=0.1), lambda ps: torch.optim.NAdam(ps, lr=0.1)),
    (radam(lr=0.1), lambda ps: torch.optim.RAdam(ps, lr=0.1)),
    (adamax(lr=0.1), lambda ps: torch.optim.Adamax(ps, lr=0.1)),
    (adagrad(lr=0.1), lambda ps: torch.optim.Adagrad(ps, lr=0.1)),
    (adadelta(lr=0.1), lambda ps: torch.optim.Adadelta(ps, lr=0.1)),
    (rmsprop(lr=0.1), lambda ps: torch.optim.RMSprop(ps, lr=0.1)),
    (rprop(lr=0.1), lambda ps: torch.optim.Rprop(ps, lr=0.1)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(("rule", "torchs"), SAME_AS_TORCH)
def test_the_same_as_torch(rule: Any, torchs: Any, dtype: torch.dtype) -> None:
    ours, _ = trained(lambda ps: rule.bind(ps, compile=False), some(5, 3, dtype=dtype), 30)
    theirs, _ = trained(torchs, some(5, 3, dtype=dtype), 30)
    close(ours, theirs)


def test_compiled() -> None:
    ours, _ = trained(adamw(lr=0.1).bind, some(5, 3), 10)
    theirs, _ = trained(lambda ps: torch.optim.AdamW(ps, lr=0.1), some(5, 3), 10)
    close(ours, theirs)


def test_states_are_complex_as_in_torch() -> None:
    _, ours = trained(lambda ps: adamw(lr=0.1).bind(ps, compile=False), some(4, 2).t(), 5)
    _, theirs = trained(lambda ps: torch.optim.AdamW(ps, lr=0.1), some(4, 2).t(), 5)
    (a,), (b,) = ours.state.values(), theirs.state.values()
    for name in ("exp_avg", "exp_avg_sq"):
        close(a[name], b[name])
        assert a[name].stride() == b[name].stride()


def test_what_a_body_sees() -> None:
    seen: list[Any] = []

    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        m = defstate("m", torch.zeros_like(param, dtype=torch.float64))
        n = defstate("n", torch.zeros(()))
        seen.append((param.shape, param.dtype, grad.shape, m.shape))
        return optimizer_update(param - grad, m=m + grad, n=n + 1)

    new, opt = trained(lambda ps: rule().bind(ps, compile=False), some(3, 2), 1)
    assert seen[0] == ((3, 2, 2), torch.float32, (3, 2, 2), (3, 2, 2))
    assert torch.equal(new, some(3, 2) - some(3, 2, seed=1))
    (state,) = opt.state.values()
    assert state["m"].dtype is torch.complex128
    assert state["m"].shape == (3, 2)
    assert state["n"] == 1


LAYOUTS: dict[str, Any] = {
    "a number": some(3, 3)[0, 0].clone(),
    "empty": some(0, 3),
    "transposed": some(3, 4).t(),
    "strided": some(6, 4)[::2],
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_layouts(kind: str) -> None:
    p = LAYOUTS[kind]
    q = nn.Parameter(p)
    opt = momentum_sgd(lr=0.5).bind([q], compile=False)
    before, g = p.clone(), some(*p.shape, seed=1)
    for _ in range(2):
        q.grad = g
        opt.step()
    close(q.detach(), before - 0.5 * (g + 1.9 * g))


@pytest.mark.parametrize("compile", [False, True])
def test_conjugate_and_negative_gradients(compile: bool) -> None:
    p, r = nn.Parameter(some(4)), nn.Parameter(torch.zeros(4))
    opt = sgd(lr=1.0).bind([p, r], compile=compile)
    before, g = p.detach().clone(), some(4, seed=1)
    for i in range(2):  # the second gradient of each is laid out as the first, but for the bit
        p.grad = g.conj() if i else g.clone()
        r.grad = g.conj().imag if i else g.imag.contiguous()
        assert p.grad.is_conj() == r.grad.is_neg() == bool(i)
        opt.step()
    close(p.detach(), before - 2 * g.real)
    close(r.detach(), torch.zeros(4))


def test_real_gradients_of_a_complex_parameter() -> None:
    p = nn.Parameter(some(4))
    before = p.detach().clone()
    opt = sgd(lr=1.0).bind([p], compile=False)
    p.grad = torch.ones(4, dtype=torch.complex64)
    opt.step()
    close(p.detach(), before - 1)


def test_a_run_goes_on_from_a_checkpoint() -> None:
    whole, _ = trained(lambda ps: adamw(lr=0.1).bind(ps, compile=False), some(3), 6)
    half, opt = trained(lambda ps: adamw(lr=0.1).bind(ps, compile=False), some(3), 3)
    file = io.BytesIO()
    torch.save(opt.state_dict(), file)
    file.seek(0)
    q = nn.Parameter(half)
    again: OptState[Any] = adamw(lr=0.1).bind([("w", q)], compile=False)
    again.load_state_dict(torch.load(file))
    for i in range(3, 6):
        q.grad = some(3, seed=i + 1)
        again.step()
    assert torch.equal(q.detach(), whole)


def test_torchs_states_are_taken_over() -> None:
    half, theirs = trained(lambda ps: torch.optim.AdamW(ps, lr=0.1), some(3), 3)
    whole, _ = trained(lambda ps: torch.optim.AdamW(ps, lr=0.1), some(3), 6)
    q = nn.Parameter(half)
    ours: OptState[Any] = adamw(lr=0.1).bind([("w", q)], compile=False)
    ours.load_state_dict(theirs.state_dict())
    for i in range(3, 6):
        q.grad = some(3, seed=i + 1)
        ours.step()
    close(q.detach(), whole)


def test_the_norm_of_all_gradients_is_that_of_complex_numbers() -> None:
    rule = chain(clip_by_global_norm(1.0), sgd(lr=1.0))
    new, _ = trained(lambda ps: rule.bind(ps, compile=False), some(6), 1)
    g = some(6, seed=1)
    torch.testing.assert_close(
        new, some(6) - g / g.abs().square().sum().sqrt(), rtol=1e-4, atol=1e-5
    )


def test_norms_are_reported() -> None:
    p = nn.Parameter(some(6))
    opt = sgd(lr=1.0).bind([("w", p)], compile=False)
    p.grad, norm = some(6, seed=1), p.detach().norm().real.item()
    opt.step(diagnostics=True)
    assert opt.diagnostics["param_norm"]["w"] == pytest.approx(norm, rel=1e-5)


def test_draws_and_steps_that_are_left_out() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(param - grad + ctx.randn_like(param))

    p = nn.Parameter(some(2000))
    opt = rule().bind([("w", p)], compile=False, skip_nonfinite=True)
    before = p.detach().clone()
    p.grad = torch.full_like(p, complex(0, torch.inf))
    opt.step()
    assert opt.skipped == 1
    assert torch.equal(p.detach(), before)
    p.grad = torch.zeros_like(p)
    opt.step()
    noise = torch.view_as_real(p.detach() - before)
    assert abs(noise[:, 0].std() - 1) < 0.1
    assert abs((noise[:, 0] * noise[:, 1]).mean()) < 0.1


# -- what is refused -----------------------------------------------------------------------------


@optimizer
def by_rows(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
    return optimizer_update(param - grad / grad.norm())


@optimizer
def with_a_row(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
    row = defstate("row", torch.zeros(param.shape[:-1]))
    return optimizer_update(param - grad, row=row + grad.sum(-1))


@optimizer
def turned(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
    return optimizer_update(param - grad.flip(0))


@optimizer
def by_place(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
    return optimizer_update(param - grad * torch.arange(2.0))


@pytest.mark.parametrize(
    ("rule", "words"),
    [(by_rows(), "norm"), (with_a_row(), "sum"), (turned(), "flip"), (by_place(), "arange"), (muon(), "")],
)  # fmt: skip
def test_rules_that_mix_elements(rule: Any, words: str) -> None:
    p = nn.Parameter(some(3, 3))
    with pytest.raises(OptimizerError) as caught:
        rule.bind([("w", p)], compile=False)
    (found,) = caught.value.diagnostics
    assert found.code == "E-OPT-005"
    assert "complex" in found.message
    assert words in found.message
    rule.bind([("w", nn.Parameter(torch.zeros(3, 2)))], compile=False)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: some(3).conj(), "conjugate"),
        (lambda: some(3).conj().imag, "negative"),
        (lambda: some(3).to(torch.complex32), "complex32"),
    ],
)
def test_parameters_that_are_refused(make: Any, words: str) -> None:
    leaf = make().detach().requires_grad_()
    with pytest.raises(OptimizerError, match=f"E-OPT-005(.|\n)*{words}"):
        sgd().bind([leaf], compile=False)
