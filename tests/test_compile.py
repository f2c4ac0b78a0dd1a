"""Decorated functions under `torch.compile(fullgraph=True)`: the same numbers, no recompiles."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from dslmut import Index, Model, Mut, fn, mut, value_and_grad


@pytest.fixture(autouse=True)
def _strict() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    torch._dynamo.reset()


class Mlp(Model):
    D: int = 6
    H: int = 5
    C: int = 4
    w1: Float[Tensor, "D H"]
    w2: Float[Tensor, "H C"]


@fn
def loss_of(m: Mlp, x: Float[Tensor, "b D"], y: Index[Tensor, "b -> C"]) -> Float[Tensor, ""]:
    return F.cross_entropy(torch.tanh(x @ m.w1) @ m.w2, y)


@fn
def train_step(
    m: Mut[Mlp], x: Float[Tensor, "b D"], y: Index[Tensor, "b -> C"], lr: float
) -> Float[Tensor, ""]:
    loss, g = value_and_grad(loss_of, m, x, y)
    m.w1 = m.w1 - lr * g.w1
    m.w2 -= lr * g.w2
    return loss


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_training_step(backend: str) -> None:
    m = Mlp.init(seed=0)
    n = copy.deepcopy(m)
    x, y = torch.randn(7, 6), torch.randint(0, 4, (7,))
    compiled = torch.compile(train_step, fullgraph=True, backend=backend)
    parameter = n.w1
    for _ in range(4):
        torch.testing.assert_close(compiled(mut(n), x, y, 0.5), train_step(mut(m), x, y, 0.5))
    torch.testing.assert_close(n.w1, m.w1)
    torch.testing.assert_close(n.w2, m.w2)
    assert n.w1 is parameter
    assert n.w1.requires_grad
    assert n.w1.grad_fn is None


def test_batch_norm_statistics_move() -> None:
    @fn
    def bn_loss(m: Mut[nn.Sequential], x: Tensor) -> Tensor:
        return (m(x) ** 2).mean()

    @fn
    def step(m: Mut[nn.Sequential], x: Tensor) -> Tensor:
        loss, g = value_and_grad(bn_loss, mut(m), x)
        first = m[0]
        first.weight = first.weight - 0.1 * g["0.weight"]
        return loss

    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    n = copy.deepcopy(m)
    x = torch.randn(5, 3)
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(mut(n), x), step(mut(m), x))
    for a, b in zip(m.state_dict().values(), n.state_dict().values()):
        torch.testing.assert_close(a, b)


def square(dtype: torch.dtype = torch.float32) -> nn.Module:
    m = nn.Module()
    m.register_buffer("a", torch.tensor([[1, 2], [3, 4]], dtype=dtype))
    m.register_buffer("b", torch.tensor([[5, 6], [7, 8]], dtype=dtype))
    return m


@fn
def swap(m: Mut[nn.Module]) -> None:
    m.a, m.b = m.b, m.a


@fn
def keep_old(m: Mut[nn.Module]) -> Tensor:
    old = m.a
    m.a = m.a + 1
    m.b = old
    return old


@fn
def transpose(m: Mut[nn.Module]) -> None:
    m.a = m.a.T


@fn
def shift(m: Mut[nn.Module]) -> None:
    m.a[1:] = m.a[:-1]
    m.b[0] += m.a[0]


@fn
def in_place(m: Mut[nn.Module]) -> Tensor:
    old, view = m.a, m.a.T
    for p in m.buffers():
        p.mul_(2)
    m.b.add_(old)
    return view + 0


@fn
def outer(m: Mut[nn.Module]) -> Tensor:
    old = m.a
    swap(mut(m))
    keep_old(mut(m))
    return old * 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("function", [swap, keep_old, transpose, shift, in_place, outer])
def test_values_are_those_of_eager_mode(
    function: Callable[..., object], backend: str, dtype: torch.dtype
) -> None:
    m, n = square(dtype), square(dtype)
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    for _ in range(2):
        a, b = function(mut(m)), compiled(mut(n))
        assert (a is None) is (b is None)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            assert torch.equal(a, b)
        assert torch.equal(m.a, n.a)
        assert torch.equal(m.b, n.b)


def test_gradients_flow_through_a_snapshot() -> None:
    @fn
    def f(m: Mut[nn.Module], x: Tensor) -> Tensor:
        old = m.w
        m.w = m.w * 0
        return (old * x).sum()

    m = nn.Module()
    m.w = nn.Parameter(torch.ones(3))
    x = torch.ones(3, requires_grad=True)
    torch.compile(f, fullgraph=True)(mut(m), x).backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    assert m.w.grad.tolist() == [1.0, 1.0, 1.0]
    assert not m.w.any()


def test_errors_are_carried_by_the_compilers() -> None:
    @fn
    def bad(m: Mut[nn.Module]) -> None:
        m.a = torch.zeros(2, 3)

    @fn
    def read(m: nn.Module) -> Tensor:
        return m.a * 2

    m = square()
    with pytest.raises(Exception, match="E1103 `swap` may change `m`"):
        torch.compile(swap, fullgraph=True, backend="eager")(m)
    with pytest.raises(Exception, match="E1101 `.*read` does not change `m`"):
        torch.compile(read, fullgraph=True, backend="eager")(mut(m))
    with pytest.raises(Exception, match="E0401 dimension 1 is 2 in `a` and 3 in the value"):
        torch.compile(bad, fullgraph=True, backend="eager")(mut(m))
    assert m.a.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_methods_and_plain_callees() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros(()))

        @fn
        def bump(self: Mut[Counter]) -> Tensor:
            self.n = self.n + 1
            return self.n * 1

    def helper(m: nn.Module) -> Tensor:
        return m.n * 10

    @fn
    def f(c: Mut[Counter]) -> Tensor:
        mut(c).bump()
        return helper(mut(c))

    c = Counter()
    compiled = torch.compile(f, fullgraph=True, backend="eager")
    assert [compiled(mut(c)).item() for _ in range(3)] == [10.0, 20.0, 30.0]


def test_a_gradient_inside_of_another_is_refused_in_words() -> None:
    def inner(m: nn.Linear, x: Tensor) -> Tensor:
        return m(x).square().mean()

    def penalised(m: nn.Linear, x: Tensor) -> Tensor:
        loss, g = value_and_grad(inner, m, x)
        return loss + g.norm()

    def step(m: nn.Linear, x: Tensor) -> Tensor:
        return value_and_grad(penalised, m, x)[0]

    m, x = nn.Linear(3, 2), torch.ones(4, 3)
    assert step(m, x).isfinite()
    with pytest.raises(Exception, match="E0701(.|\n)*which a compiler does not follow yet"):
        torch.compile(step, backend="eager", fullgraph=True)(m, x)
