"""Steps in proportion to the parameter's own size, for large batches."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.define import optimizer
from dslmut.optim.ranges import Range
from dslmut.optim.reporting import update_diagnostics
from dslmut.optim.rules.common import schedule_values
from dslmut.optim.states import Update, defstate, optimizer_update


@optimizer
def lars(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1.0,
    momentum: Hyper = 0.9,
    weight_decay: Hyper = 5e-4,
    trust_coefficient: Annotated[Hyper, Range(least=0)] = 1e-3,
    eps: Hyper = 0.0,
) -> Update:
    """Layer-wise adaptive rate scaling: momentum, with a learning rate for each parameter.

    That rate is ``trust_coefficient * |param| / (|grad| + weight_decay * |param| + eps)``, and 1
    where the parameter or its gradient is all zeros. The learning rate stands within the
    velocity, so that a change of it acts on new gradients alone.

    Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks" (2017),
    algorithm 1.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The global learning rate.
        momentum: The share of the velocity that is kept.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        trust_coefficient: By what part of its size a parameter moves at most.
        eps: Is added to the denominator.
    """
    lr, momentum, eps = schedule_values(ctx, lr, momentum, eps)
    weight_decay, trust = schedule_values(ctx, weight_decay, trust_coefficient)
    size, slope = torch.linalg.vector_norm(param), torch.linalg.vector_norm(grad)
    local = trust * size / (slope + weight_decay * size + eps)
    local = torch.where((size > 0) & (slope > 0), local, 1.0)
    velocity = defstate("velocity", torch.zeros_like(param))
    v = momentum * velocity + lr * local * (grad + weight_decay * param)
    new = param - v
    update_diagnostics(param, grad, new)
    return optimizer_update(new, velocity=v)


@optimizer
def lamb(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    betas: tuple[Hyper, Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 1e-2,
) -> Update:
    """Adam whose step, weight decay included, has the length ``lr * |param|``.

    Where the parameter or the step is all zeros, the step is taken as it is. So the weight decay
    is part of the step, and multiplied by the learning rate and the ratio of those lengths.

    Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes"
    (2020), algorithm 2, with the identity for its function of the parameter's length.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        betas: The shares of the first and the second moment that are kept.
        eps: Is added to the root of the second moment.
        weight_decay: What part of the parameter is added to Adam's step.
    """
    lr, beta1, beta2, eps, weight_decay = schedule_values(ctx, lr, *betas, eps, weight_decay)
    m = beta1 * defstate("exp_avg", torch.zeros_like(param)) + (1 - beta1) * grad
    v = beta2 * defstate("exp_avg_sq", torch.zeros_like(param)) + (1 - beta2) * (grad * grad)
    root = (v / (1 - beta2**ctx.updates)).sqrt() + eps
    step = m / (1 - beta1**ctx.updates) / root + weight_decay * param
    size, length = torch.linalg.vector_norm(param), torch.linalg.vector_norm(step)
    ratio = torch.where((size > 0) & (length > 0), size / length, 1.0)
    new = param - lr * ratio * step
    update_diagnostics(param, grad, new)
    return optimizer_update(new, exp_avg=m, exp_avg_sq=v)
