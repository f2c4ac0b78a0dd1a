"""Python's search for cycles of garbage, where it takes long and finds nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cycles of garbage rarely in this block.

    Where trees and graphs are built, which are needed to the end, looking for garbage takes a
    quarter of the time or more.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 500_000) if before[0] else 0, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
