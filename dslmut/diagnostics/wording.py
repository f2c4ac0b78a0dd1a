"""Small pieces of English."""

from __future__ import annotations

from collections.abc import Iterable


def an(name: str) -> str:
    """Return the name of a type as code, with its article: an `Embedding`, an `SGD`, a `UNet`.

    Args:
        name: Of a type, or None's.
    """
    if name == "NoneType":
        return "`None`"
    bare = name.lstrip("_")
    if bare[:2].isupper():  # spelt letter by letter
        vowel = bare[0] in "AEFHILMNORSX"
    else:
        vowel = bare[:1].lower() in tuple("aeiou") and not bare.lower().startswith(_CONSONANT)
    return f"{'an' if vowel else 'a'} `{name}`"


_CONSONANT = ("uni", "use", "ut", "one", "eu")
"""Beginnings that are written with a vowel and not spoken with one."""


def listed(names: Iterable[str], most: int = 12) -> str:
    """Return names as code, with commas between them; of many the first ones and a count.

    Args:
        names: In the order to show; one that comes again is left out.
        most: How many are shown.
    """
    own = list(dict.fromkeys(names))
    shown = ", ".join(f"`{n}`" for n in own[:most])
    return shown if len(own) <= most else f"{shown} and {len(own) - most} more"
