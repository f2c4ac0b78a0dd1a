"""What the checker remembers of the functions that others call."""

from __future__ import annotations

from dataclasses import dataclass, field

from dslmut.checking.entities import Type
from dslmut.checking.source import FunctionNode


@dataclass
class Memory:
    """What is known of the functions that are called, each of which is read once.

    Attributes:
        known: Their summaries: by the tree of the function, and by the types of its parameters.
        reading: The functions that are being read now, each of which is called by the one before.
    """

    known: dict[FunctionNode, dict[tuple[Type, ...], object]] = field(default_factory=dict)
    reading: list[object] = field(default_factory=list)
