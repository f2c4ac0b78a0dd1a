"""What is timed against what: rules, others that do the same, and the targets of their ratios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from benchmarks import foreach, sides
from benchmarks.sides import Make, by_hand, of_torch
from benchmarks.tensors import WIDTHS
from dslmut import Ctx, Update, defstate, optim, optimizer, optimizer_update


@optimizer
def fast_and_slow(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float, float] = (0.9, 0.999, 0.9999),
    share: float = 5.0,
    eps: float = 1e-8,
    decay: float = 1e-2,
) -> Update:
    """A user's own rule: AdamW with a slow moment, the largest squares, and averaged parameters.

    It reads three tensors more than AdamW, and writes three more.
    """
    names = ("fast", "slow", "squares", "largest", "average")
    fast, slow, squares, largest, average = (defstate(n, torch.zeros_like(param)) for n in names)
    m = betas[0] * fast + (1 - betas[0]) * grad
    s = betas[2] * slow + (1 - betas[2]) * grad
    v = betas[1] * squares + (1 - betas[1]) * (grad * grad)
    top = torch.maximum(largest, v)
    root = top.sqrt() / (1 - betas[1] ** ctx.updates) ** 0.5 + eps
    new = (1 - lr * decay) * param - lr * (m / (1 - betas[0] ** ctx.updates) + share * s) / root
    kept = betas[2] * average + (1 - betas[2]) * new
    return optimizer_update(new, fast=m, slow=s, squares=v, largest=top, average=kept)


@dataclass(frozen=True)
class Rival:
    """Somebody who does the same as a rule.

    Args:
        name: What is printed.
        make: Makes it.
        targets: For each width what the ratio is to be at most; None where nothing is promised.
        costly: Whether it needs a minute to compile.
        tolerance: How far a parameter may be from ours, over the largest distance that one has moved.
    """

    name: str
    make: Make
    targets: Mapping[int | None, float] = field(default_factory=dict)
    costly: bool = False
    tolerance: float = 5e-4


@dataclass(frozen=True)
class Row:
    """A rule, and those who do the same.

    Args:
        rule: Of this library, or written with it.
        rivals: In the order in which they are timed.
        hyperparameters: Of the rule, where they are not the defaults.
        elementwise: Whether its step is bound by the memory that it moves; if not, it is for
            hidden matrices, and timed where these are small.
    """

    rule: Any
    rivals: tuple[Rival, ...]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    elementwise: bool = True

    @property
    def name(self) -> str:
        return self.rule.__name__


def _everywhere(target: float) -> dict[int | None, float]:
    return dict.fromkeys(WIDTHS, target)


def _foreach(name: str, target: float, **options: Any) -> Rival:
    return Rival("foreach", of_torch(name, foreach=True, **options), _everywhere(target))


def _by_hand(reference: Any, target: float) -> Rival:
    return Rival("foreach", by_hand(reference), _everywhere(target))


def _installed() -> tuple[Rival, ...]:
    """Return the AdamW of other libraries that are there."""
    found = {
        # Its `eps` is the least that is divided by, which shows where a gradient is almost 0.
        "heavyball": Rival("HeavyBall", sides.heavyball, costly=True, tolerance=0.05),
        "optax": Rival("optax", sides.optax),
    }
    return tuple(rival for name, rival in found.items() if find_spec(name) is not None)


ADAMW = (
    Rival("fused", of_torch("AdamW", fused=True), dict(zip(WIDTHS, (0.6, 0.92, 1.03)))),
    _foreach("AdamW", 0.35),
    Rival("for-loop", of_torch("AdamW", foreach=False)),
    Rival("compiled", sides.compiled_torch, costly=True),
    *_installed(),
)

ROWS = (
    Row(optim.adamw, ADAMW),
    Row(optim.nadam, (_foreach("NAdam", 0.35),)),
    Row(optim.adagrad, (_foreach("Adagrad", 0.35),)),
    Row(optim.adan, (_by_hand(foreach.adan, 0.35),)),
    Row(optim.lion, (_by_hand(foreach.lion, 0.35),), {"lr": 1e-3}),
    Row(fast_and_slow, (_by_hand(foreach.fast_and_slow, 0.35),)),
    Row(optim.rmsprop, (_foreach("RMSprop", 0.45),)),
    Row(optim.momentum_sgd, (_foreach("SGD", 0.65, momentum=0.9),)),
    Row(optim.sgd, (_foreach("SGD", 0.95),)),
    Row(
        optim.muon,
        # torch's iterates in bfloat16.
        (Rival("torch", of_torch("Muon"), {64: 0.25, 256: 0.45}, tolerance=0.1),),
        {"ns_dtype": "float32"},
        elementwise=False,
    ),
)
