"""Optimizers that torch has none of, as one would write them by hand on lists of tensors.

Each takes the parameters, and returns a function that makes a step. They use torch's `_foreach_`
functions as torch's own optimizers do: in place where that is possible, with few temporaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import torch
from torch import Tensor

Step = Callable[[], None]


def zeros(params: Sequence[Tensor]) -> list[Tensor]:
    """Return a state for each parameter."""
    return [torch.zeros_like(p, requires_grad=False) for p in params]


def gradients(params: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients, all of which are there."""
    return [p.grad for p in params if p.grad is not None]


def lion(params: Sequence[Tensor], lr: float = 1e-3) -> Step:
    """Chen et al. (2023), algorithm 2, with its authors' averages and no decay."""
    beta1, beta2 = 0.9, 0.99
    averages = zeros(params)

    @torch.no_grad()
    def step() -> None:
        grads = gradients(params)
        directions = torch._foreach_lerp(averages, grads, 1 - beta1)
        torch._foreach_sign_(directions)
        torch._foreach_add_(params, directions, alpha=-lr)
        torch._foreach_lerp_(averages, grads, 1 - beta2)

    return step


def adan(params: Sequence[Tensor], lr: float = 1e-3) -> Step:
    """Xie et al. (2022), algorithm 1, with its authors' averages and no decay."""
    beta1, beta2, beta3, eps = 0.98, 0.92, 0.99, 1e-8
    averages, changes, squares, before = (zeros(params) for _ in range(4))
    numbers = count(1)

    @torch.no_grad()
    def step() -> None:
        t, grads = next(numbers), gradients(params)
        if t == 1:
            torch._foreach_copy_(before, grads)
        torch._foreach_neg_(before)
        torch._foreach_add_(before, grads)  # how the gradients have changed
        torch._foreach_lerp_(averages, grads, 1 - beta1)
        torch._foreach_lerp_(changes, before, 1 - beta2)
        torch._foreach_mul_(before, beta2)
        torch._foreach_add_(before, grads)
        torch._foreach_mul_(squares, beta3)
        torch._foreach_addcmul_(squares, before, before, 1 - beta3)
        torch._foreach_copy_(before, grads)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, (1 - beta3**t) ** 0.5)
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(params, averages, roots, -lr / (1 - beta1**t))
        torch._foreach_addcdiv_(params, changes, roots, -lr * beta2 / (1 - beta2**t))

    return step


def fast_and_slow(params: Sequence[Tensor], lr: float = 1e-3) -> Step:
    """The user's own rule of this benchmark, with its defaults."""
    beta1, beta2, beta3, share, eps, decay = 0.9, 0.999, 0.9999, 5.0, 1e-8, 1e-2
    fast, slow, squares, largest, averages = (zeros(params) for _ in range(5))
    numbers = count(1)

    @torch.no_grad()
    def step() -> None:
        t, grads = next(numbers), gradients(params)
        torch._foreach_lerp_(fast, grads, 1 - beta1)
        torch._foreach_lerp_(slow, grads, 1 - beta3)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        torch._foreach_maximum_(largest, squares)
        roots = torch._foreach_sqrt(largest)
        torch._foreach_div_(roots, (1 - beta2**t) ** 0.5)
        torch._foreach_add_(roots, eps)
        torch._foreach_mul_(params, 1 - lr * decay)
        torch._foreach_addcdiv_(params, fast, roots, -lr / (1 - beta1**t))
        torch._foreach_addcdiv_(params, slow, roots, -lr * share)
        torch._foreach_lerp_(averages, params, 1 - beta3)

    return step
