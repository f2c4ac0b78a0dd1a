"""Optimizers that are timed beside each other, each with its parameters: ours, torch's, and others'."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import Run


@dataclass(frozen=True)
class Side:
    """An optimizer with its parameters.

    Args:
        step: Makes a step with the present gradients.
        values: Returns the parameters.
        refresh: Is called when the gradients have changed in place.
        states: Returns those of each parameter, where they are known.
    """

    step: Run
    values: Callable[[], Sequence[Tensor]]
    refresh: Run = lambda: None
    states: Callable[[], Sequence[Mapping[str, Any]]] = lambda: ()


Make = Callable[[list[nn.Parameter]], Side]


def ours(rule: Any, compile: bool, **hyperparameters: Any) -> Make:
    """Return what binds a rule of this library."""

    def make(params: list[nn.Parameter]) -> Side:
        opt = rule(**hyperparameters).bind(params, compile=compile)
        return Side(opt.step, lambda: params, states=lambda: [opt.state[p] for p in params])

    return make


def of_torch(name: str, **options: Any) -> Make:
    """Return what makes an optimizer of torch."""

    def make(params: list[nn.Parameter]) -> Side:
        return Side(getattr(torch.optim, name)(params, **options).step, lambda: params)

    return make


def by_hand(reference: Callable[[list[nn.Parameter]], Run]) -> Make:
    """Return what makes a step that is written on lists of tensors."""
    return lambda params: Side(reference(params), lambda: params)


# -- AdamW of others, all with this library's defaults -------------------------------------------

ADAMW = {"eps": 1e-8, "weight_decay": 1e-2}


def compiled_torch(params: list[nn.Parameter]) -> Side:
    """Return torch's AdamW under `torch.compile`, with nothing in it that would compile again."""
    lr: Any = torch.tensor(1e-3)
    opt = torch.optim.AdamW(params, lr=lr, foreach=True, capturable=True, **ADAMW)
    return Side(torch.compile(lambda: opt.step()), lambda: params)


def heavyball(params: list[nn.Parameter]) -> Side:
    """Return HeavyBall's, which takes the gradients away at each step, and so gets them again."""
    from heavyball import AdamW  # pyright: ignore[reportMissingImports]

    opt = AdamW(params, lr=1e-3, betas=(0.9, 0.999), **ADAMW)
    grads = [p.grad for p in params]

    def step() -> None:
        for p, g in zip(params, grads):
            p.grad = g
        opt.step()

    return Side(step, lambda: params)


def optax(params: list[nn.Parameter]) -> Side:
    """Return optax's, as one compiled function that writes into the arrays that it is given."""
    import jax  # pyright: ignore[reportMissingImports]
    import optax as library  # pyright: ignore[reportMissingImports]

    rule = library.adamw(1e-3, b1=0.9, b2=0.999, **ADAMW)

    def arrays(tensors: Sequence[Tensor | None]) -> list[Any]:
        return [jax.numpy.array(t.detach().numpy()) for t in tensors if t is not None]

    def update(values: Any, state: Any, grads: Any) -> Any:
        updates, state = rule.update(grads, state, values)
        return library.apply_updates(values, updates), state

    compiled = jax.jit(update, donate_argnums=(0, 1))
    values = arrays(params)
    held: dict[str, Any] = {"values": values, "state": rule.init(values)}

    def refresh() -> None:
        held["grads"] = arrays([p.grad for p in params])

    def step() -> None:
        held["values"], held["state"] = compiled(held["values"], held["state"], held["grads"])
        jax.block_until_ready(held["values"])

    refresh()
    return Side(step, lambda: [torch.tensor(v.tolist()) for v in held["values"]], refresh)
