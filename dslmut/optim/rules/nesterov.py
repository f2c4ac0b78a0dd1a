"""Adam with a look ahead."""

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


@optimizer(torch=TorchFormat(torch.optim.NAdam))
def nadam(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 2e-3,
    betas: tuple[Hyper, Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0.0,
    momentum_decay: Annotated[Hyper, Range(least=0)] = 4e-3,
    decoupled_weight_decay: bool = False,
    maximize: bool = False,
) -> Update:
    """Adam with Nesterov's momentum, as ``torch.optim.NAdam``.

    The state ``mu_product`` is one number, in float32 or better: the product of all momenta so
    far. It is torch's from the first update on; before that it is 0 and not read.

    Source: Dozat, "Incorporating Nesterov Momentum into Adam" (2016), in torch's form.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        betas: The shares of the first and the second moment that are kept.
        eps: Is added to the root of the second moment.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        momentum_decay: How slowly the momentum grows to ``betas[0]``; 0 keeps it at half of that.
        decoupled_weight_decay: Whether the parameter shrinks by ``lr * weight_decay`` instead.
        maximize: Whether the loss is to grow.
    """
    rates = schedule_values(ctx, lr, *betas, eps, weight_decay, momentum_decay)
    lr, beta1, beta2, eps, weight_decay, momentum_decay = rates
    penalty, shrinkage = (0.0, weight_decay) if decoupled_weight_decay else (weight_decay, 0.0)
    g = full_gradient(param, grad, penalty, maximize)
    m = beta1 * defstate("exp_avg", torch.zeros_like(param)) + (1 - beta1) * g
    v = beta2 * defstate("exp_avg_sq", torch.zeros_like(param)) + (1 - beta2) * (g * g)
    precise = torch.promote_types(param.dtype, torch.float32)
    mu_product = defstate("mu_product", torch.zeros((), dtype=precise, device=param.device))
    mu, ahead = (beta1 * (1 - 0.5 * 0.96 ** ((ctx.updates + i) * momentum_decay)) for i in (0, 1))
    product = torch.where(ctx.updates == 1, 1.0, mu_product) * mu
    step = (1 - mu) / (1 - product) * g + ahead / (1 - product * ahead) * m
    root = (v / (1 - beta2**ctx.updates)).sqrt() + eps
    new = (1 - lr * shrinkage) * param - lr * (step / root)
    update_diagnostics(param, grad, new)
    return optimizer_update(new, exp_avg=m, exp_avg_sq=v, mu_product=product)


@optimizer
def adan(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    betas: tuple[Hyper, Hyper, Hyper] = (0.98, 0.92, 0.99),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0.0,
) -> Update:
    """Adaptive Nesterov momentum: Adam on gradients and on how they change.

    At the first update the previous gradient is the gradient itself. The weight decay is
    decoupled, multiplied by the learning rate, and proximal: ``param / (1 + lr * weight_decay)``.

    Source: Xie et al., "Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep
    Models" (2022), algorithm 1, with the bias corrections of its authors' code.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        betas: The shares that are kept of the average gradient, the average change of gradients
            and the second moment; the paper writes 1 minus these.
        eps: Is added to the root of the second moment.
        weight_decay: See above.
    """
    lr, beta1, beta2, beta3, eps, decay = schedule_values(ctx, lr, *betas, eps, weight_decay)
    names = ("exp_avg", "exp_avg_diff", "exp_avg_sq", "pre_grad")
    exp_avg, exp_avg_diff, exp_avg_sq, before = (
        defstate(n, torch.zeros_like(param)) for n in names
    )
    change = torch.where(ctx.updates == 1, 0.0, grad - before)
    m = beta1 * exp_avg + (1 - beta1) * grad
    d = beta2 * exp_avg_diff + (1 - beta2) * change
    n = beta3 * exp_avg_sq + (1 - beta3) * (grad + beta2 * change) ** 2
    step = m / (1 - beta1**ctx.updates) + beta2 / (1 - beta2**ctx.updates) * d
    root = n.sqrt() / (1 - beta3**ctx.updates) ** 0.5 + eps
    new = (param - lr * (step / root)) / (1 + lr * decay)
    update_diagnostics(param, grad, new)
    return optimizer_update(new, exp_avg=m, exp_avg_diff=d, exp_avg_sq=n, pre_grad=grad)
