"""Train a small network on scikit-learn's handwritten digits, with an optimizer of one's own."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from dslmut import (
    Ctx,
    Hyper,
    Index,
    Model,
    Mut,
    OptState,
    Update,
    defstate,
    fn,
    mut,
    optimizer,
    optimizer_update,
    update,
    value_and_grad,
)
from dslmut.optim import schedule_value, update_diagnostics


class Mlp(Model):
    D: int = 64
    H: int = 128
    C: int = 10
    w1: Float[Tensor, "D H"]
    b1: Float[Tensor, "H"]
    w2: Float[Tensor, "H C"]
    b2: Float[Tensor, "C"]

    def forward(self, x: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return torch.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2


@optimizer
def momentum_sgd(
    param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.01, momentum: float = 0.9
) -> Update:
    lr = schedule_value(lr, ctx)
    velocity = defstate("velocity", torch.zeros_like(param))
    v = momentum * velocity + grad
    new = param - lr * v
    update_diagnostics(param, grad, new)
    return optimizer_update(new, velocity=v)


@fn
def loss_of(m: Mlp, x: Float[Tensor, "b D"], y: Index[Tensor, "b -> C"]) -> Float[Tensor, ""]:
    return F.cross_entropy(m(x), y)


@fn
def train_step(
    m: Mut[Mlp], opt: Mut[OptState[Mlp]], x: Float[Tensor, "b D"], y: Index[Tensor, "b -> C"]
) -> Float[Tensor, ""]:
    loss, g = value_and_grad(loss_of, m, x, y)
    update(mut(m), mut(opt), g)
    return loss


def fit(m: Mlp, opt: OptState[Mlp], x: Tensor, y: Tensor, epochs: int) -> Iterator[Tensor]:
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(x)), 32):
            yield train_step(mut(m), mut(opt), x[batch], y[batch])


@fn
def accuracy(m: Mlp, x: Float[Tensor, "b D"], y: Index[Tensor, "b -> C"]) -> float:
    return (m(x).argmax(dim=1) == y).float().mean().item()
