"""Ranges: which numbers a hyperparameter may be."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin


@dataclass(frozen=True)
class Range:
    """The numbers that a hyperparameter may be, as ``Annotated[Hyper, Range(least=0)]``.

    Not-a-number is in none, and an infinity only where it is a bound itself. The range is looked
    at where a number is given, written into a group, or loaded; what a schedule computes is not.

    Args:
        least: The smallest.
        above: A number that they are all larger than, instead of ``least``.
        most: The largest.
        below: A number that they are all smaller than, instead of ``most``.

    Raises:
        ValueError: For a range without a number in it, and for two bounds on one side.

    Example:
        >>> 1.0 in Range(least=0, below=1)
        False
        >>> float("inf") in Range(above=0, most=float("inf"))
        True
    """

    _: KW_ONLY
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    _first: float = field(init=False, repr=False, compare=False)
    _last: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if None not in (self.least, self.above) or None not in (self.most, self.below):
            raise ValueError(f"{self!r} has two bounds on one side")
        first, last = -sys.float_info.max, sys.float_info.max
        if self.least is not None:
            first = self.least
        elif self.above is not None:
            first = math.nextafter(self.above, math.inf)
        if self.most is not None:
            last = self.most
        elif self.below is not None:
            last = math.nextafter(self.below, -math.inf)
        if not first <= last:
            raise ValueError(f"there is no number in {self!r}")
        object.__setattr__(self, "_first", first)
        object.__setattr__(self, "_last", last)

    def __contains__(self, number: float) -> bool:
        return self._first <= number <= self._last

    def __repr__(self) -> str:
        named = ((n, getattr(self, n)) for n in ("least", "above", "most", "below"))
        return f"Range({', '.join(f'{n}={v!r}' for n, v in named if v is not None)})"

    def __str__(self) -> str:
        found = [
            f"at least {self.least:g}" if self.least not in (None, -math.inf) else "",
            f"above {self.above:g}" if self.above is not None else "",
            f"at most {self.most:g}" if self.most not in (None, math.inf) else "",
            f"below {self.below:g}" if self.below is not None else "",
        ]
        return " and ".join(filter(None, found)) or "a finite number"


Ranges: TypeAlias = "Range | tuple[Ranges, ...]"
"""One range for all numbers of a hyperparameter, or one for each part of a tuple."""

FINITE = Range()
NUMBERS = Range(least=-math.inf, most=math.inf)
_NOT_NEGATIVE = Range(least=0)
_BY_NAME = {
    "lr": _NOT_NEGATIVE,
    "eps": _NOT_NEGATIVE,
    "weight_decay": _NOT_NEGATIVE,
    "momentum": _NOT_NEGATIVE,
    "betas": Range(least=0, below=1),
}
"""The names that mean the same in every rule; an annotation goes before them."""


def bare(annotation: Any) -> Any:
    """Return an annotation without what ``Annotated`` adds to it."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def ranges_of(name: str, annotation: Any, default: Any) -> Ranges:
    """Return which numbers a hyperparameter may be.

    Args:
        name: Of the hyperparameter.
        annotation: With a ``Range``, or, for a tuple, with some for its parts.
        default: An infinite one says that infinities may be given.
    """
    infinite = any(map(math.isinf, _numbers(default)))
    usual = _BY_NAME.get(name, NUMBERS if infinite else FINITE)
    return _annotated(annotation, usual)


def _annotated(annotation: Any, usual: Range) -> Ranges:
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        usual = next((n for n in notes if isinstance(n, Range)), usual)
    found = tuple(_annotated(p, usual) for p in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):  # of a number and None
        return next((f for f in found if f != usual), usual)
    if get_origin(annotation) is not tuple or ... in get_args(annotation):
        return usual
    return usual if all(f == usual for f in found) else found


def outside(name: str, value: Any, ranges: Ranges) -> tuple[str, float, Range] | None:
    """Return the first number of a value that is out of its range: its name, itself, the range.

    Args:
        name: Of the hyperparameter.
        value: A number, or a tuple with some in it; anything else is in every range.
        ranges: Of the hyperparameter.
    """
    if isinstance(value, tuple):
        each = ranges if isinstance(ranges, tuple) else (ranges,) * len(value)
        found = (outside(f"{name}[{i}]", v, r) for i, (v, r) in enumerate(zip(value, each)))
        return next(filter(None, found), None)
    if type(value) not in (float, int) or isinstance(ranges, tuple) or value in ranges:
        return None
    return name, value, ranges


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, tuple | list):
        for part in value:
            yield from _numbers(part)
    elif type(value) is float:
        yield value
