"""A language model in the shape of GPT-2, in plain torch: 148 tensors for twelve layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.tensors import POSITIONS, vocabulary

HEAD = 64
"""The width of one head of attention."""


class Block(nn.Module):
    """Attention and two linear maps, each behind a norm and added to what comes in.

    Args:
        width: Of the model.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // HEAD)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return what comes out, of the shape ``(batch, length, width)`` that comes in."""
        split = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """The whole model; the embedding of tokens is used again at its end.

    Args:
        width: Of the model.
        layers: How many blocks.
    """

    def __init__(self, width: int, layers: int = 12) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary(width), width)
        self.positions = nn.Embedding(POSITIONS, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Return a score for each token that may come next.

        Args:
            text: Numbers of tokens, of shape ``(batch, length)``.
        """
        places = torch.arange(text.shape[1], device=text.device)
        x = self.blocks(self.tokens(text) + self.positions(places))
        return self.norm(x) @ self.tokens.weight.T
