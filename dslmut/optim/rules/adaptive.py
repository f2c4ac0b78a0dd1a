"""Adam and its family."""

from __future__ import annotations

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.define import optimizer
from dslmut.optim.interchange import TorchFormat
from dslmut.optim.reporting import update_diagnostics
from dslmut.optim.rules.common import full_gradient, schedule_values
from dslmut.optim.states import Update, defstate, optimizer_update


def _moments(
    g: Tensor, ctx: Ctx, beta1: float, beta2: float, eps: float, amsgrad: bool
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Return Adam's first moment, the root that it is divided by, and the new states."""
    m = beta1 * defstate("exp_avg", torch.zeros_like(g)) + (1 - beta1) * g
    v = beta2 * defstate("exp_avg_sq", torch.zeros_like(g)) + (1 - beta2) * (g * g)
    states = {"exp_avg": m, "exp_avg_sq": v}
    if amsgrad:
        v = torch.maximum(defstate("max_exp_avg_sq", torch.zeros_like(g)), v)
        states["max_exp_avg_sq"] = v
    return m, v.sqrt() / (1 - beta2**ctx.updates) ** 0.5 + eps, states


@optimizer(torch=TorchFormat(torch.optim.Adam))
def adam(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    betas: tuple[Hyper, Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0.0,
    amsgrad: bool = False,
    maximize: bool = False,
    decoupled_weight_decay: bool = False,
) -> Update:
    """Adam, as in ``torch.optim.Adam``.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015), algorithm 1; Reddi
    et al., "On the Convergence of Adam and Beyond" (2018), for ``amsgrad``.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        betas: The shares of the first and the second moment that are kept.
        eps: Is added to the root of the second moment.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        amsgrad: Whether to divide by the largest second moment so far, a state of its own.
        maximize: Whether the loss is to grow.
        decoupled_weight_decay: Whether the parameter shrinks by ``lr * weight_decay`` instead.
    """
    lr, beta1, beta2, eps, weight_decay = schedule_values(ctx, lr, *betas, eps, weight_decay)
    penalty, shrinkage = (0.0, weight_decay) if decoupled_weight_decay else (weight_decay, 0.0)
    g = full_gradient(param, grad, penalty, maximize)
    m, root, states = _moments(g, ctx, beta1, beta2, eps, amsgrad)
    new = (1 - lr * shrinkage) * param - lr / (1 - beta1**ctx.updates) * (m / root)
    update_diagnostics(param, grad, new)
    return optimizer_update(new, **states)


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
    amsgrad: bool = False,
    maximize: bool = False,
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
        amsgrad: Whether to divide by the largest second moment so far, a state of its own.
        maximize: Whether the loss is to grow.
    """
    lr, beta1, beta2, eps, weight_decay = schedule_values(ctx, lr, *betas, eps, weight_decay)
    g = -grad if maximize else grad
    m, root, states = _moments(g, ctx, beta1, beta2, eps, amsgrad)
    new = (1 - lr * weight_decay) * param - lr / (1 - beta1**ctx.updates) * (m / root)
    update_diagnostics(param, grad, new)
    return optimizer_update(new, **states)


@optimizer(torch=TorchFormat(torch.optim.Adamax))
def adamax(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 2e-3,
    betas: tuple[Hyper, Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0.0,
    maximize: bool = False,
) -> Update:
    """Adam with the largest gradient in place of the second moment, as ``torch.optim.Adamax``.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015), algorithm 2, with
    torch's ``eps``.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        betas: The shares of the first moment and of the norm that are kept.
        eps: Is added to the gradient's absolute value.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        maximize: Whether the loss is to grow.
    """
    lr, beta1, beta2, eps, weight_decay = schedule_values(ctx, lr, *betas, eps, weight_decay)
    g = full_gradient(param, grad, weight_decay, maximize)
    m = beta1 * defstate("exp_avg", torch.zeros_like(param)) + (1 - beta1) * g
    u = torch.maximum(beta2 * defstate("exp_inf", torch.zeros_like(param)), g.abs() + eps)
    new = param - lr / (1 - beta1**ctx.updates) * (m / u)
    update_diagnostics(param, grad, new)
    return optimizer_update(new, exp_avg=m, exp_inf=u)


@optimizer(torch=TorchFormat(torch.optim.RAdam))
def radam(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    betas: tuple[Hyper, Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0.0,
    decoupled_weight_decay: bool = False,
    maximize: bool = False,
) -> Update:
    """Rectified Adam, as ``torch.optim.RAdam``: the second moment counts once it can be trusted.

    Source: Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond" (2020),
    algorithm 2, with torch's ``eps``.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        betas: The shares of the first and the second moment that are kept.
        eps: Is added to the root of the second moment.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        decoupled_weight_decay: Whether the parameter shrinks by ``lr * weight_decay`` instead.
        maximize: Whether the loss is to grow.
    """
    lr, beta1, beta2, eps, weight_decay = schedule_values(ctx, lr, *betas, eps, weight_decay)
    penalty, shrinkage = (0.0, weight_decay) if decoupled_weight_decay else (weight_decay, 0.0)
    g = full_gradient(param, grad, penalty, maximize)
    m = beta1 * defstate("exp_avg", torch.zeros_like(param)) + (1 - beta1) * g
    v = beta2 * defstate("exp_avg_sq", torch.zeros_like(param)) + (1 - beta2) * (g * g)
    corrected, longest = 1 - beta2**ctx.updates, 2 / (1 - beta2) - 1
    length = longest - 2 * ctx.updates * beta2**ctx.updates / corrected
    variance = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    adaptive = (variance * corrected) ** 0.5 / (v.sqrt() + eps)
    step = lr / (1 - beta1**ctx.updates) * torch.where(length > 5, m * adaptive, m)
    new = (1 - lr * shrinkage) * param - step
    update_diagnostics(param, grad, new)
    return optimizer_update(new, exp_avg=m, exp_avg_sq=v)
