"""Adam and its family."""

from __future__ import annotations

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.define import optimizer
from dslmut.optim.interchange import TorchFormat
from dslmut.optim.reporting import update_diagnostics
from dslmut.optim.scheduling import schedule_value
from dslmut.optim.states import Update, defstate, optimizer_update


@optimizer(torch=TorchFormat(torch.optim.AdamW))
def adamw(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    betas: tuple[Hyper, Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-2,
) -> Update:
    """Adam with decoupled weight decay, which is multiplied by the learning rate as in torch.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        betas: The shares of the first and the second moment that are kept.
        eps: Is added to the root of the second moment.
        weight_decay: Per step, the parameter shrinks by ``lr * weight_decay``.
    """
    lr, eps, weight_decay = (schedule_value(h, ctx) for h in (lr, eps, weight_decay))
    beta1, beta2 = (schedule_value(b, ctx) for b in betas)
    exp_avg = defstate("exp_avg", torch.zeros_like(param))
    exp_avg_sq = defstate("exp_avg_sq", torch.zeros_like(param))
    m = beta1 * exp_avg + (1 - beta1) * grad
    v = beta2 * exp_avg_sq + (1 - beta2) * (grad * grad)
    root = v.sqrt() / (1 - beta2**ctx.updates) ** 0.5 + eps
    new = (1 - lr * weight_decay) * param - lr / (1 - beta1**ctx.updates) * (m / root)
    update_diagnostics(param, grad, new)
    return optimizer_update(new, exp_avg=m, exp_avg_sq=v)
