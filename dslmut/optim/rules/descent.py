"""Gradient descent, plain and with momentum."""

from __future__ import annotations

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.define import optimizer
from dslmut.optim.interchange import TorchFormat, TorchState
from dslmut.optim.reporting import update_diagnostics
from dslmut.optim.rules.common import full_gradient, schedule_values
from dslmut.optim.states import Update, defstate, optimizer_update


@optimizer(torch=TorchFormat(torch.optim.SGD, step=None))
def sgd(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    weight_decay: Hyper = 0.0,
    maximize: bool = False,
) -> Update:
    """Stochastic gradient descent: ``param - lr * (grad + weight_decay * param)``.

    Source: ``torch.optim.SGD`` without momentum.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        maximize: Whether the loss is to grow.
    """
    lr, weight_decay = schedule_values(ctx, lr, weight_decay)
    new = param - lr * full_gradient(param, grad, weight_decay, maximize)
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
    maximize: bool = False,
) -> Update:
    """Gradient descent with momentum, as in ``torch.optim.SGD(momentum=...)``.

    The velocity is ``momentum * velocity + (1 - dampening) * grad``, and simply the gradient at
    the first update. While ``momentum`` is 0, the velocity is neither used nor changed. (Where it
    is 0 at first and the gradient is dampened, torch takes the gradient undampened once more, at
    the first update with momentum.)

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning"
    (2013), in torch's form, where the learning rate scales the velocity.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        momentum: The share of the velocity that is kept.
        dampening: What is taken off the gradient, from the second update on and with momentum.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        nesterov: Whether to look ahead by one step of momentum.
        maximize: Whether the loss is to grow.
    """
    rates = schedule_values(ctx, lr, momentum, dampening, weight_decay)
    lr, momentum, dampening, weight_decay = rates
    g = full_gradient(param, grad, weight_decay, maximize)
    velocity = defstate("velocity", torch.zeros_like(param))
    v, direction = velocity, g
    if momentum:
        v = momentum * velocity + torch.where(ctx.updates == 1, 1.0, 1 - dampening) * g
        direction = g + momentum * v if nesterov else v
    new = param - lr * direction
    update_diagnostics(param, grad, new)
    return optimizer_update(new, velocity=v)
