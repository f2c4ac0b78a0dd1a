"""Steps that go by signs."""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.define import optimizer
from dslmut.optim.interchange import TorchFormat
from dslmut.optim.ranges import Range
from dslmut.optim.reporting import update_diagnostics
from dslmut.optim.rules.common import schedule_values
from dslmut.optim.states import Update, defstate, optimizer_update

Shrinking: TypeAlias = Annotated[Hyper, Range(above=0, below=1)]
Growing: TypeAlias = Annotated[Hyper, Range(above=1)]


@optimizer(torch=TorchFormat(torch.optim.Rprop))
def rprop(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-2,
    etas: tuple[Shrinking, Growing] = (0.5, 1.2),
    step_sizes: Annotated[tuple[Hyper, Hyper], Range(least=0, most=math.inf)] = (1e-6, 50.0),
    maximize: bool = False,
) -> Update:
    """Resilient backpropagation, as ``torch.optim.Rprop``.

    The state ``step_size`` is torch's from the first update on; before that it is 0 and not read.

    Source: Riedmiller and Braun, "A direct adaptive method for faster backpropagation learning:
    the RPROP algorithm" (1993), in torch's form, without stepping back.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The step size of each element at the first update; not read afterwards.
        etas: What a step size is multiplied by where the gradient changed its sign, and where it
            kept it.
        step_sizes: The smallest and the largest step size.
        maximize: Whether the loss is to grow.
    """
    lr, shrinking, growing, least, most = schedule_values(ctx, lr, *etas, *step_sizes)
    g = -grad if maximize else grad
    prev = defstate("prev", torch.zeros_like(param))
    step_size = defstate("step_size", torch.zeros_like(param))
    size, agreement = torch.where(ctx.updates == 1, lr, step_size), g * prev
    smaller = torch.where(agreement < 0, shrinking * size, size)
    size = torch.where(agreement > 0, growing * size, smaller).clamp(least, most)
    g = torch.where(agreement < 0, 0.0, g)
    new = param - g.sign() * size
    update_diagnostics(param, grad, new)
    return optimizer_update(new, prev=g, step_size=size)


@optimizer
def signum(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-4,
    momentum: Hyper = 0.9,
    weight_decay: Hyper = 0.0,
) -> Update:
    """Descent by the sign of the average gradient; with ``momentum=0`` that is signSGD.

    The weight decay is decoupled, and multiplied by the learning rate.

    Source: Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems" (2018),
    algorithm 2.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate: what each element moves by.
        momentum: The share of the average gradient that is kept.
        weight_decay: Per step, the parameter shrinks by ``lr * weight_decay``.
    """
    lr, momentum, weight_decay = schedule_values(ctx, lr, momentum, weight_decay)
    m = momentum * defstate("exp_avg", torch.zeros_like(param)) + (1 - momentum) * grad
    new = (1 - lr * weight_decay) * param - lr * m.sign()
    update_diagnostics(param, grad, new)
    return optimizer_update(new, exp_avg=m)


@optimizer
def lion(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-4,
    betas: tuple[Hyper, Hyper] = (0.9, 0.99),
    weight_decay: Hyper = 0.0,
) -> Update:
    """Evolved sign momentum: the sign of one average of the gradients, while another is kept.

    The weight decay is decoupled, and multiplied by the learning rate.

    Source: Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023), algorithm 2, with
    the defaults of its authors' code.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate: what each element moves by.
        betas: The shares of the average gradient that are kept for the step, and for later.
        weight_decay: Per step, the parameter shrinks by ``lr * weight_decay``.
    """
    lr, beta1, beta2, weight_decay = schedule_values(ctx, lr, *betas, weight_decay)
    exp_avg = defstate("exp_avg", torch.zeros_like(param))
    direction = (beta1 * exp_avg + (1 - beta1) * grad).sign()
    new = (1 - lr * weight_decay) * param - lr * direction
    update_diagnostics(param, grad, new)
    return optimizer_update(new, exp_avg=beta2 * exp_avg + (1 - beta2) * grad)
