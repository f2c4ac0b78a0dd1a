"""A renaming of parameters: found by comparing their names, and written as code that makes it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence

_Edit = tuple[str, str]

_EDITS, _PAIRS = 12, 40
"""So many replacements, or pairs of names, are written at most."""


def renaming(lost: Sequence[str], missing: Sequence[str], kept: Collection[str]) -> str:
    """Return an expression of ``n`` that makes old names new ones, and leaves the others alone.

    Args:
        lost: The old names, in order.
        missing: The names that may be the new ones, in order.
        kept: Names that are right as they are.
    """
    names, goal = [*lost, *kept], set(missing)
    for code in _guesses(lost, missing):
        new = [eval(code, {"n": n}) for n in names]  # what is written is what was tried
        renamed, same = new[: len(lost)], new[len(lost) :]
        if len(set(renamed)) == len(lost) and set(renamed) <= goal and same == [*kept]:
            return code
    pairs = _pairs(lost, missing) if len(lost) <= _PAIRS else {}
    return f"{pairs or 'new_names'}.get(n, n)"


def _guesses(lost: Sequence[str], missing: Sequence[str]) -> Iterator[str]:
    """Yield expressions of ``n`` that turn at least one old name into a new one."""
    old = lost[0]
    for new in missing:
        if old.endswith(new):
            yield f"n.removeprefix({old[: -len(new)]!r})"
        if new.endswith(old):
            yield f"{new[: -len(old)]!r} + n"
    edits = _replacements(lost, missing)
    if len(edits) == 1 or 0 < len(edits) < len(lost):  # else pairs of names say it better
        yield f"n{''.join(f'.replace({a!r}, {b!r})' for a, b in edits)}"


def _replacements(lost: Sequence[str], missing: Sequence[str]) -> list[_Edit]:
    """Return replacements that, one after the other, turn each old name into a new one."""
    found: list[_Edit] = []
    goal, names = set(missing), list(lost)
    while len(found) < _EDITS:
        open_names = [n for n in names if n not in goal]
        if not open_names:
            return found
        free = [n for n in missing if n not in set(names)]
        near = difflib.get_close_matches(open_names[0], free, n=1, cutoff=0.0)
        edits = _edits(open_names[0], near[0]) if near else []
        if not edits:
            return []
        for before, after in edits:
            names = [n.replace(before, after) for n in names]
        found += edits
    return []


def _edits(old: str, new: str) -> list[_Edit]:
    """Return how one name becomes another: its parts that are replaced, with the dot at their side."""
    a, b = old.split("."), new.split(".")
    found = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if kind == "insert" and i < len(a):  # in front of what follows
            j, m = i + 1, m + 1
        elif kind == "insert":
            i, k = i - 1, k - 1
        before, after = ".".join(a[i:j]), ".".join(b[k:m])
        if j < len(a):
            found.append((f"{before}.", f"{after}." if after else ""))
        elif i:
            found.append((f".{before}", f".{after}" if after else ""))
        else:
            found.append((before, after))
    return found


def _pairs(lost: Sequence[str], missing: Sequence[str]) -> dict[str, str]:
    """Return the nearest new name of each old one, each of them once."""
    free, found = list(missing), {}
    for name in lost:
        near = difflib.get_close_matches(name, free, n=1, cutoff=0.0)
        if near:
            found[name] = near[0]
            free.remove(near[0])
    return found
