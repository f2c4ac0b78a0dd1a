"""The standard optimizers against torch's: one row in one table is held to all of this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut.optim import adamw, momentum_sgd, sgd
from dslmut.optim.define import Configured, Optimizer

STEPS = 100


@dataclass(frozen=True)
class Row:
    """An optimizer, its reference, and hyperparameters to move from their defaults."""

    rule: Optimizer[Any]
    torch: Callable[..., torch.optim.Optimizer]
    moved: dict[str, Any]
    always: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> list[dict[str, Any]]:
        return [{"lr": 0.01}, *({"lr": 0.01, n: v} for n, v in self.moved.items())]


TABLE = [
    Row(sgd, torch.optim.SGD, {"lr": 0.003, "weight_decay": 0.1}),
    Row(
        momentum_sgd,
        torch.optim.SGD,
        {"momentum": 0.7, "dampening": 0.3, "weight_decay": 0.1, "nesterov": True},
        {"momentum": 0.9},
    ),
    Row(
        adamw,
        torch.optim.AdamW,
        {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3},
    ),
]
CASES = [(row, s) for row in TABLE for s in row.settings]
IDS = [f"{row.rule.__name__}-{'-'.join(s)}" for row, s in CASES]


def shapes(dtype: torch.dtype) -> dict[str, Tensor]:
    """Parameters of every shape and layout, with the same values each time."""
    g = torch.Generator().manual_seed(0)

    def random(*size: int) -> Tensor:
        return torch.randn(size, generator=g, dtype=torch.float64).to(dtype)

    return {
        "scalar": random(),
        "vector": random(7),
        "matrix": random(5, 3),
        "twin": random(5, 3),
        "transposed": random(3, 5).T,
        "conv": random(2, 3, 3, 3),
        "channels_last": random(2, 3, 3, 3).contiguous(memory_format=torch.channels_last),
        "empty": random(0, 4),
    }


def gradients(step: int, tensors: dict[str, Tensor], odd: bool) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(1000 + step)
    found = {}
    for i, (name, t) in enumerate(tensors.items()):
        value = torch.randn(t.shape, generator=g, dtype=torch.float64).to(t.dtype)
        if odd and t.ndim == 2 and step % 2:
            value = value.T.contiguous().T if step % 4 == 1 else value[:, :1].expand(t.shape)
        if odd and (step + i) % 5 == 0:
            continue  # no gradient in this step
        found[name] = value
    return found


def run(
    make: Callable[[list[Tensor]], torch.optim.Optimizer],
    dtype: torch.dtype,
    steps: int = STEPS,
    odd: bool = False,
) -> dict[str, Tensor]:
    tensors = {
        n: nn.Parameter(t.clone(memory_format=torch.preserve_format))
        for n, t in shapes(dtype).items()
    }
    opt = make(list(tensors.values()))
    for step in range(steps):
        opt.zero_grad()
        for name, gradient in gradients(step, tensors, odd).items():
            tensors[name].grad = gradient
        opt.step()
    return {n: t.detach() for n, t in tensors.items()}


def ours(row: Row, settings: dict[str, Any], **options: Any) -> Callable[[list[Tensor]], Any]:
    configured: Configured = row.rule(**settings)
    return lambda parameters: configured.bind(parameters, **options)


def theirs(row: Row, settings: dict[str, Any]) -> Callable[[list[Tensor]], Any]:
    return lambda parameters: row.torch(parameters, **{**row.always, **settings})


TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def close(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float) -> None:
    for name in a:
        torch.testing.assert_close(
            a[name], b[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("odd", [False, True], ids=["plain", "odd"])
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize(("row", "settings"), CASES, ids=IDS)
def test_equals_torch(row: Row, settings: dict[str, Any], dtype: torch.dtype, odd: bool) -> None:
    a = run(ours(row, settings, compile=False), dtype, odd=odd)
    b = run(theirs(row, settings), dtype, odd=odd)
    close(a, b, TOLERANCE[dtype])


@pytest.mark.parametrize("row", TABLE, ids=lambda r: r.rule.__name__)
def test_compiled_equals_torch(row: Row) -> None:
    settings = {"lr": 0.01, **{n: v for n, v in row.moved.items() if n not in ("lr", "nesterov")}}
    a = run(ours(row, settings), torch.float32, steps=100)
    close(a, run(theirs(row, settings), torch.float32, steps=100), 1e-5)


@pytest.mark.parametrize("row", TABLE, ids=lambda r: r.rule.__name__)
def test_compiled_equals_eager_with_odd_gradients(row: Row) -> None:
    settings = {"lr": 0.01}
    a = run(ours(row, settings), torch.float64, steps=8, odd=True)
    close(a, run(ours(row, settings, compile=False), torch.float64, steps=8, odd=True), 1e-14)


@pytest.mark.parametrize("row", TABLE, ids=lambda r: r.rule.__name__)
def test_low_precision_stays_close_to_float32(row: Row) -> None:
    a = run(ours(row, {"lr": 0.01}, compile=False), torch.bfloat16, steps=20)
    b = run(ours(row, {"lr": 0.01}, compile=False), torch.float32, steps=20)
    for name in a:
        assert a[name].dtype is torch.bfloat16
        torch.testing.assert_close(a[name].float(), b[name], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("row", TABLE, ids=lambda r: r.rule.__name__)
def test_defaults_are_torchs(row: Row) -> None:
    theirs_ = row.torch([torch.zeros(1, requires_grad=True)], **row.always).defaults
    for name, h in row.rule.hyperparameters.items():
        if name not in row.always:
            assert h.default == theirs_[name], name
