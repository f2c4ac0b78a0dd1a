"""Arithmetic in the dtypes that a graph has, also where autocasting is on."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def exact() -> Iterator[None]:
    """Compute in the dtypes that the graph has, also where autocasting is on."""
    on = [kind for kind in _kinds() if torch.is_autocast_enabled(kind)]
    with ExitStack() as stack:
        for kind in on:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@functools.cache
def _kinds() -> list[str]:
    """Return the kinds of devices of this process that can autocast: its host, and one other."""
    found = torch.accelerator.current_accelerator()
    kinds = ["cpu", *([found.type] if found is not None else [])]
    return [kind for kind in kinds if torch.amp.is_autocast_available(kind)]
