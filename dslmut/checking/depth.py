"""Room for deeply nested texts: a sum of 500 terms is nested 500 times."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

DEPTH = 5000
"""How many calls deep the checker may go; ordinary programs may go 1000."""


@contextmanager
def room() -> Iterator[None]:
    """Let Python call more deeply for a block."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
