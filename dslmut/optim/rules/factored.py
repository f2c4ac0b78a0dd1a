"""Second moments of matrices that are kept as rows and columns."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.define import optimizer
from dslmut.optim.interchange import TorchFormat
from dslmut.optim.ranges import Range
from dslmut.optim.reporting import update_diagnostics
from dslmut.optim.rules.common import schedule_values
from dslmut.optim.states import Update, defstate, optimizer_update


@optimizer(torch=TorchFormat(torch.optim.Adafactor))
def adafactor(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-2,
    beta2_decay: Annotated[Hyper, Range(most=0)] = -0.8,
    eps: tuple[Hyper | None, Hyper] = (None, 1e-3),
    d: Annotated[Hyper, Range(least=1, most=math.inf)] = 1.0,
    weight_decay: Hyper = 0.0,
    maximize: bool = False,
) -> Update:
    """Adafactor, as ``torch.optim.Adafactor``.

    A parameter of two or more dimensions has the states ``row_var`` and ``col_var``, the mean
    squares over its last and over its second last dimension; others have ``variance``. At the
    first update the states are those of the gradient alone. The weight decay is decoupled, and
    multiplied by ``lr`` as it is given.

    Source: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost"
    (2018), algorithm 6, in torch's form.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate, at most ``1 / sqrt(updates)``, relative to the parameter's size.
        beta2_decay: The new gradient has the share ``updates ** beta2_decay`` in the states.
        eps: The smallest root of a second moment, None for the precision of the parameter's
            dtype; and the smallest size that a parameter is taken to have.
        d: Where the root mean square of an update is larger, the update is scaled down to it.
        weight_decay: Per step, the parameter shrinks by ``lr * weight_decay``.
        maximize: Whether the loss is to grow.
    """
    least = torch.finfo(param.dtype).eps if eps[0] is None else eps[0]
    rates = schedule_values(ctx, lr, beta2_decay, least, eps[1], d, weight_decay)
    lr, beta2_decay, least, smallest, d, weight_decay = rates
    g = -grad if maximize else grad
    variance, states = second_moment(g, ctx.updates**beta2_decay, least)
    update = variance.clamp(min=least * least).rsqrt() * g
    size = root_mean_square(param).clamp(min=smallest) * torch.clamp(ctx.updates**-0.5, max=lr)
    scale = size / (root_mean_square(update) / d).clamp(min=1.0)
    new = (1 - lr * weight_decay) * param - scale * update
    update_diagnostics(param, grad, new)
    return optimizer_update(new, *states)


def second_moment(
    grad: Tensor, share: float, least: float
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Return the second moment of the gradients, and the states that it is made of with new values.

    Args:
        grad: The gradient.
        share: Its share in the states.
        least: The smallest mean of the rows' moments, by which the product is divided.
    """
    if grad.ndim < 2:
        variance = defstate("variance", torch.zeros_like(grad))
        new = torch.lerp(variance, grad * grad, share)
        return new, [(variance, new)]
    *batch, rows, columns = grad.shape
    row_var = defstate("row_var", grad.new_zeros((*batch, rows, 1)))
    col_var = defstate("col_var", grad.new_zeros((*batch, 1, columns)))
    row = torch.lerp(row_var, (grad * grad).mean(-1, keepdim=True), share)
    col = torch.lerp(col_var, (grad * grad).mean(-2, keepdim=True), share)
    product = row * col / row.mean(-2, keepdim=True).clamp(min=least)
    return product, [(row_var, row), (col_var, col)]


def root_mean_square(x: Tensor) -> Tensor:
    """Return the root of the mean of a tensor's squares."""
    return (x * x).mean().sqrt()
