"""Rules that see a parameter as a matrix."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.define import optimizer
from dslmut.optim.interchange import TorchFormat
from dslmut.optim.ranges import Range
from dslmut.optim.reporting import update_diagnostics
from dslmut.optim.rules.common import schedule_values
from dslmut.optim.states import Update, defstate, optimizer_update


@optimizer(torch=TorchFormat(torch.optim.Muon, step=None))
def muon(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 1e-3,
    weight_decay: Hyper = 0.1,
    momentum: Hyper = 0.95,
    nesterov: bool = True,
    ns_coefficients: tuple[Hyper, Hyper, Hyper] = (3.4445, -4.775, 2.0315),
    eps: Hyper = 1e-7,
    ns_steps: Annotated[int, Range(least=0, below=100)] = 5,
    adjust_lr_fn: str | None = None,
    ns_dtype: str = "bfloat16",
    batch_dims: Annotated[int, Range(least=0)] = 0,
) -> Update:
    """Momentum whose singular values are all brought near 1, as in ``torch.optim.Muon``.

    It is for the hidden matrices of a network: embeddings, heads, biases and norms belong to
    another rule. A convolution's weight is the matrix of its outputs by all the rest. The weight
    decay is decoupled, and multiplied by ``lr`` as it is given.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024); Liu
    et al., "Muon is Scalable for LLM Training" (2025), for ``match_rms_adamw``.

    Args:
        param: The parameter, with two dimensions or more.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        weight_decay: Per step, the parameter shrinks by ``lr * weight_decay``.
        momentum: The share of the average gradient that is kept.
        nesterov: Whether to look ahead by one step of momentum.
        ns_coefficients: Of x, x^3 and x^5 in the Newton-Schulz iteration.
        eps: The smallest norm that the momentum is divided by.
        ns_steps: The number of iterations.
        adjust_lr_fn: ``"original"`` or None multiplies the step of a matrix with more rows than
            columns by ``sqrt(rows / columns)``; ``"match_rms_adamw"`` multiplies that of any
            matrix by ``0.2 * sqrt(max(rows, columns))``.
        ns_dtype: In which dtype it iterates: torch's ``"bfloat16"``, whose steps are within 2% of
            those in ``"float32"``, or ``"float64"``.
        batch_dims: So many first dimensions of a parameter count matrices that are stacked.

    Raises:
        OptimizerError: E-OPT-028 for a parameter that is no matrix, another ``adjust_lr_fn`` or
            ``ns_dtype``.
    """
    lr, weight_decay, momentum = schedule_values(ctx, lr, weight_decay, momentum)
    eps, *coefficients = schedule_values(ctx, eps, *ns_coefficients)
    m = momentum * defstate("momentum_buffer", torch.zeros_like(param)) + (1 - momentum) * grad
    ahead = momentum * m + (1 - momentum) * grad if nesterov else m
    matrix = as_matrices(ahead, batch_dims)
    direction = orthogonalized(cast(matrix, ns_dtype), coefficients, ns_steps, eps)
    adjusted = lr * adjustment(adjust_lr_fn, *matrix.shape[-2:])
    new = (1 - lr * weight_decay) * param - adjusted * direction.reshape(param.shape)
    update_diagnostics(param, grad, new)
    return optimizer_update(new, momentum_buffer=m)


def as_matrices(x: Tensor, batch_dims: int) -> Tensor:
    """Return a tensor as matrices, behind the dimensions that count them.

    Args:
        x: Of shape ``(*batch, rows, *rest)``.
        batch_dims: How many dimensions ``batch`` has.

    Returns:
        A tensor of shape ``(*batch, rows, product of rest)``.
    """
    if x.ndim < batch_dims + 2:
        counted = f" behind {batch_dims} that count them" if batch_dims else ""
        raise ValueError(
            f"it updates matrices alone, of two dimensions or more{counted}; for a whole model write "
            "`groups(model, *muon_groups(model, muon=muon(lr=0.02), adamw=adamw(lr=3e-4)))`"
        )
    return x.flatten(batch_dims + 1)


def cast(matrix: Tensor, dtype: str) -> Tensor:
    """Return a matrix in the dtype to iterate in, by a cast in any case.

    What a body computes from a bfloat16 parameter is computed in float32, unless it casts.
    """
    if dtype not in ("bfloat16", "float32", "float64"):
        raise ValueError(f'`ns_dtype` is "bfloat16", "float32" or "float64", not {dtype!r}')
    return matrix.to(getattr(torch, dtype), copy=True)


RESTART = 3
"""After so many iterations on Gram matrices alone the next one is computed from the matrix itself.

What rounding leaves of a small singular value is squared in the Gram matrix, and grows with each
iteration: in float32 three of them are as exact as three on the matrix, four lose a digit, five two.
"""


def orthogonalized(matrix: Tensor, coefficients: list[float], steps: int, eps: float) -> Tensor:
    """Return a matrix with its singular vectors, and singular values near 1.

    An iteration multiplies the matrix by a polynomial P of its Gram matrix G, whose sides are the
    shorter one. P G P is the Gram matrix of the product, so that the next iterations need no more
    than G, and all of them come to one factor. That takes fewer operations if one side is more than
    half as long again as the other.

    Args:
        matrix: Matrices of shape ``(*batch, rows, columns)``, in the dtype to compute in.
        coefficients: Of x, x^3 and x^5 in the iteration.
        steps: How often it is iterated.
        eps: The smallest norm that a matrix is divided by.
    """
    short, long = sorted(matrix.shape[-2:])
    tall = short < matrix.shape[-2]
    exact = matrix.dtype is not torch.bfloat16
    at_once = RESTART if exact and 2 * long > 3 * short else 1
    x = matrix / torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True).clamp(min=eps)
    for done in range(0, steps, at_once):
        gram = x.mT @ x if tall else x @ x.mT
        factor = iterated(gram, coefficients, min(at_once, steps - done))
        x = x @ factor if tall else factor @ x
    return x


def iterated(gram: Tensor, coefficients: list[float], steps: int) -> Tensor:
    """Return what some iterations multiply a matrix by.

    Args:
        gram: The matrix times its own transpose, of shape ``(*batch, n, n)``.
        coefficients: Of x, x^3 and x^5 in the iteration.
        steps: How many iterations, at least one.
    """
    factor = last = polynomial(gram, coefficients)
    for _ in range(steps - 1):
        gram = last @ gram @ last
        last = polynomial(gram, coefficients)
        factor = last @ factor
    return factor


def polynomial(gram: Tensor, coefficients: list[float]) -> Tensor:
    """Return what one iteration multiplies a matrix with this Gram matrix by."""
    a, b, c = coefficients
    rest = b * gram + c * (gram @ gram)
    place = torch.arange(gram.shape[-1], dtype=torch.int32, device=gram.device)
    # `a * torch.eye(n)` would be the same, and a compiled loop for it take five times as long.
    return torch.where(place[:, None] == place, rest + a, rest)


def adjustment(how: str | None, rows: int, columns: int) -> float:
    """Return what the learning rate is multiplied by for a matrix of this shape."""
    if how == "match_rms_adamw":
        return 0.2 * max(rows, columns) ** 0.5
    if how not in (None, "original"):
        raise ValueError(f'`adjust_lr_fn` is "original" or "match_rms_adamw", not {how!r}')
    return max(1.0, rows / max(columns, 1)) ** 0.5


@optimizer
def soap(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 3e-3,
    betas: tuple[Hyper, Hyper] = (0.95, 0.95),
    shampoo_beta: Annotated[Hyper, Range(least=0, below=1)] = 0.95,
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-2,
    precondition_frequency: Annotated[int, Range(least=1)] = 10,
    max_precond_dim: Annotated[int, Range(least=0)] = 10000,
) -> Update:
    """Adam in the eigenbases of Shampoo's preconditioners.

    Each dimension of a parameter with two or more has two states: ``gram.N``, the average of the
    gradient's products with itself along it, and ``basis.N``, its eigenvectors, which are
    corrected by one step of power iteration now and then. The first update only finds these, and
    leaves the parameter as it is. The weight decay is decoupled, and multiplied by ``lr``.

    Source: Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam" (2024), algorithms 3
    and 4, with the defaults and the first step of its authors' code.

    Args:
        param: The parameter.
        grad: Its gradient.
        ctx: The step.
        lr: The learning rate.
        betas: The shares of the first and the second moment that are kept.
        shampoo_beta: The share of ``gram`` that is kept.
        eps: Is added to the root of the second moment.
        weight_decay: Per step, the parameter shrinks by ``lr * weight_decay``.
        precondition_frequency: After so many updates the bases are corrected.
        max_precond_dim: A dimension that is larger has no basis, and is taken as it is.
    """
    rates = schedule_values(ctx, lr, *betas, shampoo_beta, eps, weight_decay)
    lr, beta1, beta2, shampoo_beta, eps, weight_decay = rates
    exp_avg, exp_avg_sq = (defstate(n, torch.zeros_like(param)) for n in ("exp_avg", "exp_avg_sq"))
    g = grad.to(torch.promote_types(grad.dtype, torch.float32))
    t = ctx.updates - 1
    bases, states = eigenbases(g, t, shampoo_beta, precondition_frequency, max_precond_dim)
    m = beta1 * exp_avg + (1 - beta1) * g
    v = beta2 * exp_avg_sq + (1 - beta2) * rotated(g, bases) ** 2
    step = rotated(rotated(m, bases) / (v.sqrt() + eps), [b if b is None else b.mT for b in bases])
    corrected = (1 - beta2**t) ** 0.5 / (1 - beta1**t)
    new = (1 - lr * weight_decay) * (param - lr * corrected * step)
    if t == 0:
        new, m, v = param, exp_avg, exp_avg_sq
    update_diagnostics(param, grad, new)
    return optimizer_update(new, (exp_avg, m), (exp_avg_sq, v), *states)


def eigenbases(
    grad: Tensor, t: float, share: float, frequency: int, largest: int
) -> tuple[list[Tensor | None], list[tuple[Tensor, Tensor]]]:
    """Return the basis of each dimension at this update, and the states behind them with new values.

    Args:
        grad: The gradient.
        t: Number of the update, from 0.
        share: The share of the average products that is kept.
        frequency: After so many updates the bases are corrected.
        largest: A larger dimension has no basis.
    """
    bases: list[Tensor | None] = []
    states: list[tuple[Tensor, Tensor]] = []
    for i, n in enumerate(grad.shape):
        if grad.ndim < 2 or n > largest:
            bases.append(None)
            continue
        gram = defstate(f"gram.{i}", grad.new_zeros((n, n)))
        basis = defstate(f"basis.{i}", grad.new_zeros((n, n)))
        rows = grad.movedim(i, 0).flatten(1)
        average = share * gram + (1 - share) * (rows @ rows.mT)
        bases.append(basis)
        states += [(gram, average), (basis, next_basis(basis, average, t, frequency))]
    return bases, states


def next_basis(basis: Tensor, gram: Tensor, t: float, frequency: int) -> Tensor:
    """Return the basis for the next update; the branches make a graph each, two in the long run."""
    if t == 0:
        return torch.linalg.eigh(gram).eigenvectors.flip(-1)
    return torch.linalg.qr(gram @ basis).Q if t % frequency == 0 else basis


def rotated(x: Tensor, bases: list[Tensor | None]) -> Tensor:
    """Return a tensor with each dimension in its basis; dimensions without one stay as they are."""
    for basis in bases:
        first_to_last = x.movedim(0, -1)
        x = first_to_last if basis is None else first_to_last @ basis
    return x
