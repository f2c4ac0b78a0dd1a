"""What several rules begin with."""

from __future__ import annotations

from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.scheduling import schedule_value


def schedule_values(ctx: Ctx, *values: Hyper) -> tuple[float, ...]:
    """Return the numbers that several hyperparameters have at this step, in their order.

    Args:
        ctx: The context of the body.
        values: Numbers and schedules.
    """
    return tuple(schedule_value(v, ctx) for v in values)


def full_gradient(param: Tensor, grad: Tensor, weight_decay: float, maximize: bool) -> Tensor:
    """Return the gradient of what is minimized: the loss or its negative, and a penalty.

    Args:
        param: The parameter.
        grad: The gradient of the loss.
        weight_decay: The factor of the penalty ``weight_decay / 2 * |param|^2``.
        maximize: Whether the loss is to grow.
    """
    grad = -grad if maximize else grad
    return grad + weight_decay * param if weight_decay else grad
