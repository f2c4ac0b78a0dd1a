"""A line of source as a terminal shows it: what stands for each character, and how wide that is."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

TAB = "    "
LONGEST = 160
"""How many characters of a line are shown; of a longer one a part, around what is underlined."""
BEFORE = 40
"""How many of them stand before what is underlined."""

_JOINER = "\u200d"
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Line:
    """A line, or the part of it that is shown.

    Args:
        pieces: What stands for each character, and how many cells that takes.
        first: The column of the first piece.
    """

    pieces: Sequence[tuple[str, int]]
    first: int = 0

    @classmethod
    def of(cls, text: str, around: int) -> Line:
        """Lay out a line; of a long one the part around a column, with ellipses for the rest."""
        if len(text) <= LONGEST:
            return cls(_pieces(text))
        begin = min(max(0, around - BEFORE), len(text) - LONGEST)
        pieces = _pieces(text[begin : begin + LONGEST])
        before = [_ELLIPSIS] if begin else []
        after = [_ELLIPSIS] if begin + LONGEST < len(text) else []
        return cls([*before, *pieces, *after], begin - len(before))

    @property
    def text(self) -> str:
        """Return what to print."""
        return "".join(piece for piece, _ in self.pieces)

    def cells(self, start: int, stop: int | None) -> tuple[int, int]:
        """Return where a range of columns begins, in cells, and how many it takes: one at least.

        Args:
            start: The first column; what is past the end, or cut off, is at the edge.
            stop: The column after the last one; None for the end of the line.
        """
        pieces = self.pieces
        edge = len(pieces) - (1 if pieces and pieces[-1] is _ELLIPSIS else 0)
        begin = min(max(start - self.first, 0), edge)
        end = len(pieces) if stop is None else min(max(stop - self.first, 0), len(pieces))
        width = sum(w for _, w in pieces[begin:end])
        return sum(w for _, w in pieces[:begin]), max(1, width)


_ELLIPSIS = ("…", 1)


def _pieces(text: str) -> list[tuple[str, int]]:
    if text.isascii() and text.isprintable():
        return [(c, 1) for c in text]
    found = [_piece(c) for c in text]
    for i, character in enumerate(text[:-1]):
        if character == _JOINER:  # a family of emoji takes the cells of one
            found[i + 1] = (found[i + 1][0], 0)
    return found


@functools.lru_cache(maxsize=1024)
def _piece(character: str) -> tuple[str, int]:
    """Return what stands for a character: never anything that moves the cursor or reorders."""
    import unicodedata

    if character == "\t":
        return TAB, len(TAB)
    if character < " ":  # a picture of it: ␌ for a form feed
        return chr(0x2400 + ord(character)), 1
    category = unicodedata.category(character)
    if character in _REORDERING or category in ("Cc", "Cs", "Zl", "Zp"):
        return "\N{REPLACEMENT CHARACTER}", 1
    if category in ("Mn", "Me", "Cf") or _is_modifier(character):
        return character, 0
    return character, 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _is_modifier(character: str) -> bool:
    """Say whether a character changes the one before it: a skin tone, a Korean vowel or final."""
    return "\U0001f3fb" <= character <= "\U0001f3ff" or "\u1160" <= character <= "\u11ff"
