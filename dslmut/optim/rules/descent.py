"""Gradient descent, plain and with momentum."""

from __future__ import annotations

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.define import optimizer
from dslmut.optim.interchange import TorchFormat, TorchState
from dslmut.optim.reporting import update_diagnostics
from dslmut.optim.scheduling import schedule_value
from dslmut.optim.states import Update, defstate, optimizer_update


@optimizer(torch=TorchFormat(torch.optim.SGD, step=None))
def sgd(
    param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 1e-3, weight_decay: Hyper = 0.0
) -> Update:
    """Stochastic gradient descent: ``param - lr * (grad + weight_decay * param)``.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
    """
    lr, weight_decay = schedule_value(lr, ctx), schedule_value(weight_decay, ctx)
    if weight_decay:
        grad = grad + weight_decay * param
    new = param - lr * grad
    update_diagnostics(param, grad, new)
    return optimizer_update(new)


_VELOCITY = TorchState("momentum_buffer", optional=True)


@optimizer(torch=TorchFormat(torch.optim.SGD, states={"velocity": _VELOCITY}, step=None))
def momentum_sgd(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    momentum: Hyper = 0.9,
    dampening: Hyper = 0.0,
    weight_decay: Hyper = 0.0,
    nesterov: bool = False,
) -> Update:
    """Gradient descent with momentum, as in ``torch.optim.SGD(momentum=...)``.

    The velocity is ``momentum * velocity + (1 - dampening) * grad``, and simply the gradient at
    the first update. Source: Sutskever et al., "On the importance of initialization and momentum
    in deep learning" (2013), in torch's form, where the learning rate scales the velocity.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        momentum: The share of the velocity that is kept.
        dampening: What is taken off the gradient, from the second update on and with momentum.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        nesterov: Whether to look ahead by one step of momentum.
    """
    lr, momentum = schedule_value(lr, ctx), schedule_value(momentum, ctx)
    dampening, weight_decay = schedule_value(dampening, ctx), schedule_value(weight_decay, ctx)
    velocity = defstate("velocity", torch.zeros_like(param))
    if weight_decay:
        grad = grad + weight_decay * param
    undamped = (ctx.updates == 1) | (momentum == 0)
    taken = 1 - torch.where(undamped, 0.0, dampening)
    v = momentum * velocity + taken * grad
    new = param - lr * (grad + momentum * v if nesterov else v)
    update_diagnostics(param, grad, new)
    return optimizer_update(new, velocity=v)
