"""The tensors that optimizers are timed on: their shapes, and parameters with gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]

WIDTHS = (64, 256, 768)
"""GPT-2's own is the last: 0.73, 10 and 124 million elements."""

POSITIONS = 1024
"""So long a text may be."""


def vocabulary(width: int) -> int:
    """Return how many tokens there are: GPT-2's, and fewer where they would be most of the model."""
    return 50257 if width >= WIDTHS[-1] else 1000


def layer(width: int) -> list[Shape]:
    """Return the twelve tensors of a layer: two norms, attention, and two linear maps."""
    w = width
    attention = [(3 * w, w), (3 * w,), (w, w), (w,)]
    return [(w,), (w,), *attention, (w,), (w,), (4 * w, w), (4 * w,), (w, 4 * w), (w,)]


def gpt2(width: int, layers: int = 12) -> list[Shape]:
    """Return the shapes of GPT-2's parameters at a width, 148 for twelve layers."""
    embeddings = [(vocabulary(width), width), (POSITIONS, width)]
    return [*embeddings, *layer(width) * layers, (width,), (width,)]


def hidden_matrices(shapes: Sequence[Shape]) -> list[int]:
    """Return where the matrices are that Muon is for: all but the two embeddings."""
    return [i for i, s in enumerate(shapes) if i > 1 and len(s) == 2]


def thirty(count: int) -> list[Shape]:
    """Return *count* small shapes, of which thirty are different: vectors and matrices."""
    kinds = [s for i in range(1, 16) for s in ((32 * i,), (16 * i, 48))]
    return [kinds[i % len(kinds)] for i in range(count)]


def elements(shapes: Sequence[Shape]) -> int:
    """Return how many elements tensors of these shapes have together."""
    return sum(math.prod(s) for s in shapes)


def random(shapes: Sequence[Shape], scale: float = 1.0) -> list[Tensor]:
    """Return tensors of these shapes, drawn from a normal distribution with a fixed seed."""
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(s, generator=generator) * scale for s in shapes]


def trained(values: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[nn.Parameter]:
    """Return parameters with copies of values, and with these very gradients."""
    found = [nn.Parameter(v.clone()) for v in values]
    for p, g in zip(found, gradients):
        p.grad = g
    return found
