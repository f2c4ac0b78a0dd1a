"""Transforms that change the direction of gradients or updates."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.ranges import Range
from dslmut.optim.scheduling import schedule_value
from dslmut.optim.transforms import gradient_transform, update_transform


@gradient_transform
def centralised(param: Tensor, grad: Tensor, ctx: Ctx) -> Tensor:
    """Take the mean off the gradient of each row of a matrix, or output channel of a convolution.

    Vectors and numbers stay as they are. Source: Yong et al., "Gradient Centralization: A New
    Optimization Technique for Deep Neural Networks" (2020), equation 1.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
    """
    if grad.ndim < 2:
        return grad
    return grad - grad.mean(dim=tuple(range(1, grad.ndim)), keepdim=True)


@update_transform
def cautious(
    param: Tensor,
    grad: Tensor,
    new: Tensor,
    ctx: Ctx,
    least: Annotated[Hyper, Range(above=0)] = 1e-3,
) -> Tensor:
    """Leave out the elements of an update that the present gradient speaks against.

    The others are scaled up by the inverse of their share. The whole update is masked, decoupled
    weight decay included, for a transform sees only what the rule made of the parameter. Source:
    Liang et al., "Cautious Optimizers: Improving Training with One Line of Code" (2024),
    algorithm 1, with the bound on the share from the authors' program.

    Args:
        param: The parameter.
        grad: The gradient that the rule saw.
        new: The new parameter that it gave.
        ctx: The step.
        least: What the share counts at the least, so that a few elements are not scaled too far.
    """
    step = param - new
    agrees = (step * grad > 0).to(step.dtype)
    return param - step * (agrees / agrees.mean().clamp(min=schedule_value(least, ctx)))
