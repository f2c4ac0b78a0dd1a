"""``eval_mode``: evaluation without changing a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(*models: nn.Module) -> Iterator[None]:
    """Put models into evaluation mode for a block, and give every module its own mode back.

    That is no change in the sense of ``@fn``, so that the model needs no ``Mut``.

    Args:
        models: Any modules.

    Example:
        >>> layer = nn.Dropout()
        >>> with eval_mode(layer):
        ...     layer.training
        False
        >>> layer.training
        True
    """
    modes = [(module, module.training) for model in models for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode
