"""The training step of ``digits`` with three mistakes, for the checker to find."""

from jaxtyping import Float
from torch import Tensor

from dslmut import Index, Mut, OptState, fn, mut, update, value_and_grad
from dslmut.examples.digits import Mlp, loss_of


@fn
def train_step(
    m: Mlp, opt: Mut[OptState[Mlp]], x: Float[Tensor, "b D"], y: Index[Tensor, "b -> C"]
) -> Float[Tensor, ""]:
    loss, g = value_and_grad(loss_of, m, x, y)
    m.b1 = m.b1 * 0.99
    update(m, mut(opt), g)
    x -= x.mean()
    return loss
