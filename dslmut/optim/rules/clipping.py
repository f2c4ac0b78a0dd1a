"""Transforms that bound gradients or updates."""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.ranges import Range
from dslmut.optim.scheduling import schedule_value
from dslmut.optim.transforms import gradient_transform, update_transform

Limit: TypeAlias = Annotated[Hyper, Range(least=0, most=math.inf)]
"""An infinite one bounds nothing."""


@gradient_transform
def clip_by_global_norm(param: Tensor, grad: Tensor, ctx: Ctx, max_norm: Limit) -> Tensor:
    """Scale all gradients of a step together down to a norm of at most ``max_norm``.

    As ``torch.nn.utils.clip_grad_norm_`` before the step, with the norm of all gradients that are
    present, over all groups. It stands first in a chain.

    Source: Pascanu et al., "On the difficulty of training Recurrent Neural Networks" (2013).

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        max_norm: The largest Euclidean norm of all gradients together.
    """
    return _scaled_down(grad, ctx.grad_norm, schedule_value(max_norm, ctx))


@gradient_transform
def clip_by_norm(param: Tensor, grad: Tensor, ctx: Ctx, max_norm: Limit) -> Tensor:
    """Scale the gradient of each parameter down to a norm of at most ``max_norm``.

    As ``torch.nn.utils.clip_grad_norm_`` called for one parameter at a time.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        max_norm: The largest Euclidean norm of a parameter's gradient.
    """
    return _scaled_down(grad, torch.linalg.vector_norm(grad), schedule_value(max_norm, ctx))


def _scaled_down(grad: Tensor, norm: Tensor, limit: float) -> Tensor:
    """Return a gradient scaled as torch does it: by at most 1, with a little more than the norm."""
    return grad * torch.clamp(limit / (norm + 1e-6), max=1.0)


@gradient_transform
def clip_by_value(param: Tensor, grad: Tensor, ctx: Ctx, limit: Limit) -> Tensor:
    """Bring each element of the gradient between ``-limit`` and ``limit``.

    As ``torch.nn.utils.clip_grad_value_``.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        limit: The largest absolute value of an element.
    """
    limit = schedule_value(limit, ctx)
    return torch.clamp(grad, -limit, limit)


@gradient_transform
def adaptive_clip(
    param: Tensor, grad: Tensor, ctx: Ctx, clipping: Limit = 0.01, eps: Hyper = 1e-3
) -> Tensor:
    """Bound the norm of the gradient of each unit by a share of the norm of the unit itself.

    A unit is a row of a matrix, an output channel of a convolution, or a whole vector. Source:
    Brock et al., "High-Performance Large-Scale Image Recognition Without Normalization" (2021),
    equation 3.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        clipping: The largest ratio of the norms of gradient and unit.
        eps: What the norm of a unit counts at the least, so that zeros can be trained.
    """
    clipping, eps = schedule_value(clipping, ctx), schedule_value(eps, ctx)
    size, norm = _unit_norm(param), _unit_norm(grad)
    limit = clipping * torch.clamp(size, min=eps)
    return torch.where(norm > limit, grad * (limit / torch.clamp(norm, min=1e-6)), grad)


def _unit_norm(tensor: Tensor) -> Tensor:
    if tensor.ndim < 2:
        return torch.linalg.vector_norm(tensor)
    return torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.ndim)), keepdim=True)


@update_transform
def clip_update(param: Tensor, grad: Tensor, new: Tensor, ctx: Ctx, limit: Limit) -> Tensor:
    """Let no element of a parameter change by more than ``limit`` in a step.

    The clipping of Sophia, for any rule. The update has the learning rate in it already, so that
    the paper's bound ``rho`` is ``limit = lr * rho``, with the same schedule. Source: Liu et al.,
    "Sophia: A Scalable Stochastic Second-order Optimizer" (2023), algorithm 3.

    Args:
        param: The parameter.
        grad: The gradient that the rule saw.
        new: The new parameter that it gave.
        ctx: The step.
        limit: The largest absolute change of an element.
    """
    limit = schedule_value(limit, ctx)
    return param + torch.clamp(new - param, -limit, limit)
