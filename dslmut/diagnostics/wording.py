"""Small pieces of English."""

from __future__ import annotations


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
