"""What to rewrite in a function, and the names that rewritten code uses."""

from __future__ import annotations

from dataclasses import dataclass

from dslmut.checking.facts import Facts, Signature
from dslmut.checking.source import Definition

RUNTIME, SPEC, CALL = "__dslmut__", "__dslmut_spec__", "__dslmut_call__"
"""The run time, what the function declares, and the call that is under way."""


@dataclass(frozen=True)
class Plan:
    """What to rewrite.

    Args:
        definition: The function.
        signature: What it declares.
        facts: What the walk over it found.
        checked: The names of the annotated parameters, if arguments are checked.
        returns: Whether the result is checked.
        untouched: The ``id`` of the functions inside that are decorated themselves.
    """

    definition: Definition
    signature: Signature
    facts: Facts
    checked: tuple[str, ...] = ()
    returns: bool = False
    untouched: frozenset[int] = frozenset()
