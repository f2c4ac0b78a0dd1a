"""Optimizers that torch does not have, from their papers, in plain torch.

Each formula takes the parameter, its gradient, a dictionary of states, the number of the update
from 1, and its hyperparameters; it returns the new parameter and writes the new states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

LOW = (torch.bfloat16, torch.float16)

Formula = Callable[..., Tensor]


class Reference:
    """Steps like an optimizer of torch, and computes by a formula.

    A parameter in a low precision is rounded once a step, and so are its states, but for those
    whose name begins with ``precise``.

    Args:
        formula: Of one parameter.
        params: The parameters.
        hyperparameters: Of the formula.
        exact: Whether it computes in float64, unless the parameter is in a low precision: then in
            float32. If not, it computes in the parameter's dtype, or in float32.
    """

    def __init__(
        self, formula: Formula, params: Sequence[Tensor], exact: bool, **hyperparameters: Any
    ) -> None:
        self.formula, self.params, self.hyperparameters = formula, params, hyperparameters
        self.exact = exact
        self.states: list[dict[str, Tensor]] = [{} for _ in params]
        self.updates = [0] * len(params)

    def step(self) -> None:
        for i, p in enumerate(self.params):
            if p.grad is None:
                continue
            self.updates[i] += 1
            state = self.states[i]
            wide = self.exact and p.dtype not in LOW
            dtype = torch.float64 if wide else torch.promote_types(p.dtype, torch.float32)
            own, grad = as_reals(p.detach()), as_reals(p.grad)
            new = self.formula(
                own.to(dtype), grad.to(dtype), state, self.updates[i], **self.hyperparameters
            )
            if p.dtype in LOW:
                rounded = {k: v for k, v in state.items() if not k.startswith("precise")}
                state.update({k: v.to(p.dtype).to(dtype) for k, v in rounded.items()})
            own.copy_(new)


def as_reals(x: Tensor) -> Tensor:
    """Return a complex tensor as pairs of reals, as torch's optimizers see it."""
    return torch.view_as_real(x) if x.is_complex() else x


def by(formula: Formula, exact: bool = True) -> Callable[..., Reference]:
    """Return what makes a reference of a formula."""
    return lambda params, **hyperparameters: Reference(formula, params, exact, **hyperparameters)


class Rounded:
    """An optimizer of torch that computes in float32, and rounds parameters and states once a step.

    Args:
        make: Makes it of parameters and hyperparameters.
        params: In a low precision.
        hyperparameters: Of the optimizer.
    """

    def __init__(
        self, make: Callable[..., Any], params: Sequence[Tensor], **hyperparameters: Any
    ) -> None:
        self.params = params
        self.wide = [p.detach().float().requires_grad_() for p in params]
        eps = hyperparameters.get("eps")
        if isinstance(eps, tuple) and eps[0] is None:  # Adafactor's goes by the parameter's dtype
            hyperparameters["eps"] = (torch.finfo(params[0].dtype).eps, eps[1])
        self.optimizer = make(self.wide, **hyperparameters)

    def step(self) -> None:
        for p, wide in zip(self.params, self.wide):
            wide.grad = None if p.grad is None else p.grad.float()
        self.optimizer.step()
        for p, wide in zip(self.params, self.wide):
            p.detach().copy_(wide.detach())
            wide.detach().copy_(p.detach())
            for name, value in self.optimizer.state[wide].items():
                if value is not None and name not in ("step", "mu_product"):
                    value.copy_(value.to(p.dtype))


class Fused:
    """torch's fused optimizer, on dense copies: it takes no heed of strides.

    Args:
        make: Makes it of parameters and hyperparameters.
        params: The parameters.
        hyperparameters: Of the optimizer.
    """

    def __init__(
        self, make: Callable[..., Any], params: Sequence[Tensor], **hyperparameters: Any
    ) -> None:
        self.params = params
        self.dense = [p.detach().contiguous().clone().requires_grad_() for p in params]
        self.optimizer = make(self.dense, fused=True, **hyperparameters)

    def step(self) -> None:
        for p, dense in zip(self.params, self.dense):
            dense.grad = None if p.grad is None else p.grad.contiguous()
        self.optimizer.step()
        for p, dense in zip(self.params, self.dense):
            p.detach().copy_(dense.detach())


# -- signs ---------------------------------------------------------------------------------------


def signum(p: Tensor, g: Tensor, s: dict, t: int, *, lr, momentum, weight_decay) -> Tensor:
    """Bernstein et al. (2018), algorithm 2: m = b m + (1 - b) g; x -= d (sign(m) + w x)."""
    s["m"] = momentum * s.get("m", 0 * p) + (1 - momentum) * g
    return p - lr * (torch.sign(s["m"]) + weight_decay * p)


def lion(p: Tensor, g: Tensor, s: dict, t: int, *, lr, betas, weight_decay) -> Tensor:
    """Chen et al. (2023), algorithm 2."""
    m = s.get("m", torch.zeros_like(p))
    c = betas[0] * m + (1 - betas[0]) * g
    s["m"] = betas[1] * m + (1 - betas[1]) * g
    return p - lr * (torch.sign(c) + weight_decay * p)


# -- momentum of gradients and of their differences ----------------------------------------------


def adan(p: Tensor, g: Tensor, s: dict, t: int, *, lr, betas, eps, weight_decay) -> Tensor:
    """Xie et al. (2022), algorithm 1 with its betas as 1 - b, and the authors' bias corrections."""
    b1, b2, b3 = (1 - b for b in betas)
    zero = torch.zeros_like(p)
    difference = g - s.get("g", g)
    s["m"] = (1 - b1) * s.get("m", zero) + b1 * g
    s["v"] = (1 - b2) * s.get("v", zero) + b2 * difference
    s["n"] = (1 - b3) * s.get("n", zero) + b3 * (g + (1 - b2) * difference).square()
    s["g"] = g
    m, v, n = (s[k] / (1 - (1 - b) ** t) for k, b in (("m", b1), ("v", b2), ("n", b3)))
    eta = lr / (torch.sqrt(n) + eps)
    return (p - eta * (m + (1 - b2) * v)) / (1 + lr * weight_decay)


# -- trust ratios --------------------------------------------------------------------------------


def lars(
    p: Tensor, g: Tensor, s: dict, t: int, *, lr, momentum, weight_decay, trust_coefficient, eps
) -> Tensor:
    """You et al. (2017), algorithm 1; the local rate is 1 where a norm is 0."""
    size, slope = math.sqrt(float((p * p).sum())), math.sqrt(float((g * g).sum()))
    local = 1.0
    if size and slope:
        local = trust_coefficient * size / (slope + weight_decay * size + eps)
    s["v"] = momentum * s.get("v", torch.zeros_like(p)) + lr * local * (g + weight_decay * p)
    return p - s["v"]


def lamb(p: Tensor, g: Tensor, s: dict, t: int, *, lr, betas, eps, weight_decay) -> Tensor:
    """You et al. (2020), algorithm 2; the ratio is 1 where a norm is 0."""
    s["m"] = betas[0] * s.get("m", torch.zeros_like(p)) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", torch.zeros_like(p)) + (1 - betas[1]) * g.square()
    m, v = s["m"] / (1 - betas[0] ** t), s["v"] / (1 - betas[1] ** t)
    r = m / (torch.sqrt(v) + eps) + weight_decay * p
    size, length = math.sqrt(float((p * p).sum())), math.sqrt(float((r * r).sum()))
    return p - lr * (size / length if size and length else 1.0) * r


# -- matrices ------------------------------------------------------------------------------------


def muon(
    p: Tensor, g: Tensor, s: dict, t: int, *, lr, weight_decay, momentum, nesterov,
    ns_coefficients, eps, ns_steps, adjust_lr_fn, batch_dims, ns_dtype,
) -> Tensor:  # fmt: skip
    """Jordan et al. (2024), matrix by matrix, without a transpose: by singular values.

    The iteration is a polynomial in the singular values alone, and leaves the vectors as they are.
    """
    s["m"] = momentum * s.get("m", torch.zeros_like(p)) + (1 - momentum) * g
    u = momentum * s["m"] + (1 - momentum) * g if nesterov else s["m"]
    count = math.prod(p.shape[:batch_dims])
    rows = p.shape[batch_dims]
    matrices = u.reshape(count, rows, math.prod(p.shape[batch_dims + 1 :]))
    new = []
    for m in matrices:
        left, values, right = torch.linalg.svd(m, full_matrices=False)
        x = values / max(math.sqrt(float((values * values).sum())), eps)
        for _ in range(ns_steps):
            a, b, c = ns_coefficients
            x = a * x + b * x**3 + c * x**5
        new.append(left @ torch.diag(x) @ right)
    columns = matrices.shape[-1]
    scale = math.sqrt(max(1.0, rows / columns)) if columns else 1.0
    if adjust_lr_fn == "match_rms_adamw":
        scale = 0.2 * math.sqrt(max(rows, columns))
    step = torch.stack(new).reshape(p.shape) if new else torch.zeros_like(p)
    return p - lr * weight_decay * p - lr * scale * step


def soap(
    p: Tensor, g: Tensor, s: dict, t: int, *, lr, betas, shampoo_beta, eps, weight_decay,
    precondition_frequency, max_precond_dim,
) -> Tensor:  # fmt: skip
    """Vyas et al. (2024), algorithms 3 and 4; the first update finds the bases and is no step.

    The bases of dimension i are ``q{i}``; the gradient is brought into them by one contraction.
    """
    dims = [i for i, n in enumerate(p.shape) if p.ndim > 1 and n <= max_precond_dim]
    old, turned, steps = "abcdef"[: p.ndim], list("abcdef"[: p.ndim]), t - 1
    for i in dims:
        turned[i] = turned[i].upper()
    bases = ",".join(f"{old[i]}{turned[i]}" for i in dims)
    comma = "," if dims else ""
    into = f"{old}{comma}{bases}->{''.join(turned)}"
    back = f"{''.join(turned)}{comma}{bases}->{old}"
    q = [s[f"precise_q{i}"] for i in dims] if steps else []
    if steps:
        s["m"] = betas[0] * s.get("m", torch.zeros_like(p)) + (1 - betas[0]) * g
        projected = torch.einsum(into, g, *q)
        s["v"] = betas[1] * s.get("v", torch.zeros_like(p)) + (1 - betas[1]) * projected.square()
        normed = torch.einsum(into, s["m"], *q) / (s["v"].sqrt() + eps)
        rate = lr * math.sqrt(1 - betas[1] ** steps) / (1 - betas[0] ** steps)
        p = p - rate * torch.einsum(back, normed, *q)
        p = p - lr * weight_decay * p
    for i in dims:
        unfolded = torch.movedim(g, i, 0).reshape(p.shape[i], -1)
        old_gram = s.get(f"precise_l{i}", g.new_zeros(p.shape[i], p.shape[i]))
        s[f"precise_l{i}"] = shampoo_beta * old_gram + (1 - shampoo_beta) * (unfolded @ unfolded.T)
        if not steps:
            s[f"precise_q{i}"] = torch.linalg.eigh(s[f"precise_l{i}"])[1].flip(-1)
        elif steps % precondition_frequency == 0:
            s[f"precise_q{i}"] = torch.linalg.qr(s[f"precise_l{i}"] @ s[f"precise_q{i}"])[0]
    return p
