"""Steps divided by the root of gathered squares: Adagrad and what came of it."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.define import optimizer
from dslmut.optim.interchange import TorchFormat
from dslmut.optim.ranges import Range
from dslmut.optim.reporting import update_diagnostics
from dslmut.optim.rules.common import full_gradient, schedule_values
from dslmut.optim.states import Update, defstate, optimizer_update


@optimizer(torch=TorchFormat(torch.optim.Adagrad))
def adagrad(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-2,
    lr_decay: Annotated[Hyper, Range(least=0)] = 0.0,
    weight_decay: Hyper = 0.0,
    initial_accumulator_value: Annotated[float, Range(least=0)] = 0.0,
    eps: Hyper = 1e-10,
    maximize: bool = False,
) -> Update:
    """Adagrad, as ``torch.optim.Adagrad``.

    The state ``sum`` is torch's from the first update on; before that it is 0 and not read.

    Source: Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and
    Stochastic Optimization" (2011), the diagonal form.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        lr_decay: The learning rate is divided by ``1 + (updates - 1) * lr_decay``.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        initial_accumulator_value: Where the sum of squares starts.
        eps: Is added to the root of the sum of squares.
        maximize: Whether the loss is to grow.
    """
    lr, lr_decay, weight_decay, eps = schedule_values(ctx, lr, lr_decay, weight_decay, eps)
    g = full_gradient(param, grad, weight_decay, maximize)
    squares = defstate("sum", torch.zeros_like(param))
    total = torch.where(ctx.updates == 1, initial_accumulator_value, squares) + g * g
    new = param - lr / (1 + (ctx.updates - 1) * lr_decay) * (g / (total.sqrt() + eps))
    update_diagnostics(param, grad, new)
    return optimizer_update(new, sum=total)


@optimizer(torch=TorchFormat(torch.optim.Adadelta))
def adadelta(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1.0,
    rho: Annotated[Hyper, Range(least=0, most=1)] = 0.9,
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 0.0,
    maximize: bool = False,
) -> Update:
    """Adadelta, as ``torch.optim.Adadelta``.

    Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method" (2012), algorithm 1.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: What the step is multiplied by.
        rho: The shares of both averages of squares that are kept.
        eps: Is added to both averages before their roots are taken.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        maximize: Whether the loss is to grow.
    """
    lr, rho, eps, weight_decay = schedule_values(ctx, lr, rho, eps, weight_decay)
    g = full_gradient(param, grad, weight_decay, maximize)
    acc_delta = defstate("acc_delta", torch.zeros_like(param))
    squares = rho * defstate("square_avg", torch.zeros_like(param)) + (1 - rho) * (g * g)
    delta = (acc_delta + eps).sqrt() / (squares + eps).sqrt() * g
    new = param - lr * delta
    update_diagnostics(param, grad, new)
    moved = rho * acc_delta + (1 - rho) * (delta * delta)
    return optimizer_update(new, square_avg=squares, acc_delta=moved)


@optimizer(torch=TorchFormat(torch.optim.RMSprop))
def rmsprop(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-2,
    alpha: Annotated[Hyper, Range(least=0)] = 0.99,
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0.0,
    momentum: Hyper = 0.0,
    centered: bool = False,
    maximize: bool = False,
) -> Update:
    """RMSprop, as ``torch.optim.RMSprop``.

    There is a state ``grad_avg`` if it is centered, and a ``momentum_buffer`` while ``momentum``
    is not 0.

    Source: Hinton, "Neural Networks for Machine Learning" (2012), lecture 6; Graves, "Generating
    Sequences With Recurrent Neural Networks" (2013), for ``centered``.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        alpha: The shares of the averages that are kept.
        eps: Is added to the root of the average of squares.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        momentum: The share of the buffer of steps that is kept.
        centered: Whether to divide by the deviation of the gradients instead of their size.
        maximize: Whether the loss is to grow.
    """
    rates = schedule_values(ctx, lr, alpha, eps, weight_decay, momentum)
    lr, alpha, eps, weight_decay, momentum = rates
    g = full_gradient(param, grad, weight_decay, maximize)
    squares = alpha * defstate("square_avg", torch.zeros_like(param)) + (1 - alpha) * (g * g)
    states, variance = {"square_avg": squares}, squares
    if centered:
        mean = alpha * defstate("grad_avg", torch.zeros_like(param)) + (1 - alpha) * g
        states["grad_avg"], variance = mean, squares - mean * mean
    step = g / (variance.sqrt() + eps)
    if momentum:
        step = momentum * defstate("momentum_buffer", torch.zeros_like(param)) + step
        states["momentum_buffer"] = step
    new = param - lr * step
    update_diagnostics(param, grad, new)
    return optimizer_update(new, **states)
