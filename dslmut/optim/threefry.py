"""Threefry: a generator that makes random bits of a key and a counter, and keeps nothing.

So the numbers of a parameter depend on what they are keyed by alone: not on what was drawn before,
on the order of parameters, on the device, or on whether the run was interrupted. It is written
with operators, for whatever has them: integers of Python, tensors, and nodes of a graph.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Words: TypeAlias = tuple[Any, Any]
"""Two words of 32 bits, in integers that hold at least 63."""

LOW = 0xFFFFFFFF
"""The bits of a word."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(key: Words, counter: Words) -> Words:
    """Return two random words: Threefry-2x32 with 20 rounds.

    Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).

    Args:
        key: What the sequence belongs to.
        counter: The number of the place in the sequence.

    Returns:
        Two words that pass for independent and uniform, also between neighbouring keys and places.

    Example:
        >>> [hex(w) for w in threefry((0, 0), (0, 0))]
        ['0x6b200159', '0x99ba4efe']
    """
    keys = (*key, key[0] ^ key[1] ^ _PARITY)
    a, b = (counter[0] + key[0]) & LOW, (counter[1] + key[1]) & LOW
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            a = (a + b) & LOW
            b = (((b << rotation) & LOW) | (b >> (32 - rotation))) ^ a
        a = (a + keys[(group + 1) % 3]) & LOW
        b = (b + keys[(group + 2) % 3] + (group + 1)) & LOW
    return a, b
