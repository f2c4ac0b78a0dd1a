"""`value_and_grad` against hand-written `backward`, run-time checks on.

Run: python -m benchmarks.bench_gradients
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from benchmarks.measure import alternating, arguments, report
from dslmut import Index, Model, fn, value_and_grad


class Mlp(Model):
    D: int = 64
    H: int = 128
    C: int = 10
    w1: Float[Tensor, "D H"]
    b1: Float[Tensor, "H"]
    w2: Float[Tensor, "H C"]
    b2: Float[Tensor, "C"]


def plain_loss(m: Mlp, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(torch.relu(x @ m.w1 + m.b1) @ m.w2 + m.b2, y)


@fn
def loss_of(m: Mlp, x: Float[Tensor, "b D"], y: Index[Tensor, "b -> C"]) -> Float[Tensor, ""]:
    return F.cross_entropy(torch.relu(x @ m.w1 + m.b1) @ m.w2 + m.b2, y)


@fn
def step(m: Mlp, x: Float[Tensor, "b D"], y: Index[Tensor, "b -> C"]) -> Float[Tensor, ""]:
    loss, _ = value_and_grad(loss_of, m, x, y)
    return loss


def pair(m: Mlp, batch: int) -> dict[str, Callable[[], object]]:
    x, y = torch.randn(batch, m.D), torch.randint(0, m.C, (batch,))
    parameters = list(m.parameters())

    def backward() -> None:
        for p in parameters:
            p.grad = None
        plain_loss(m, x, y).backward()

    return {"backward": backward, "value_and_grad in @fn": lambda: step(m, x, y)}


def main() -> None:
    options = arguments(__doc__)
    rounds = 2 if options.toy else 21
    rows = []
    sizes = {"small MLP, batch 64": (Mlp.init(seed=0), 64, 300)}
    if not options.toy:
        sizes["a step of 10 ms"] = (Mlp.init(seed=0, D=256, H=2048), 400, 15)
    for name, (m, batch, calls) in sizes.items():
        found = alternating(pair(m, batch), rounds, 5 if options.toy else calls)
        plain, ours = found["backward"], found["value_and_grad in @fn"]
        rows.append((name, plain, ours, ours / plain))
    report("loss and gradients", ("model", "backward, us", "ours, us", "ratio"), rows, options)


if __name__ == "__main__":
    main()
