"""Annotations of arguments and results, evaluated: what a value has to fit, and for how long."""

from __future__ import annotations

import contextlib
import enum
import functools
import operator
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from dslmut.functions.spec import Spec
from dslmut.vocabulary import FRESH, MUT, Domain


class Mode(enum.Enum):
    """How long a verdict about a value holds."""

    STEADY = "as long as type and shape are the same"
    EACH = "for this value alone"
    NESTED = "for this value, and it binds dimensions of the call"


@dataclass(frozen=True)
class Slot:
    """One annotated argument, or the result.

    Args:
        name: Of the parameter, or ``return``.
        hint: What it has to fit, without ``Mut`` and domain.
        mode: How long a verdict holds.
        domain: What its elements index.
    """

    name: str
    hint: Any
    mode: Mode
    domain: str | None = None

    @property
    def shaped(self) -> bool:
        """Say whether the hint is an array annotation."""
        return hasattr(self.hint, "dim_str")


@dataclass
class Checks:
    """What a function's arguments and result have to fit, and which calls did.

    Attributes:
        seen: The keys of the calls that fitted, each with the sizes that it gives to domains.
    """

    arguments: tuple[Slot | None, ...]
    result: Slot | None
    seen: dict[tuple[object, ...], dict[str, int]] = field(default_factory=dict)

    @functools.cached_property
    def each(self) -> tuple[tuple[int, Slot], ...]:
        """The arguments whose values are looked at in every call."""
        return tuple(
            (i, s)
            for i, s in enumerate(self.arguments)
            if s is not None and (s.domain is not None or s.mode is Mode.EACH)
        )


def resolve(spec: Spec) -> Checks:
    """Evaluate the annotations of a function; what cannot be evaluated is not checked."""
    local = dict(spec.names)
    for name, cell in spec.cells.items():
        with contextlib.suppress(ValueError):  # not bound yet
            local[name] = cell.cell_contents
    slots = {n: _slot(n, a, spec.module, local) for n, a in spec.annotations.items()}
    result = slots.pop("return", None)
    spec.names, spec.cells = {}, {}
    return Checks(tuple(slots.values()), result)


def _slot(
    name: str, annotation: object, module: dict[str, object], local: Mapping[str, object]
) -> Slot | None:
    hint = annotation
    if isinstance(annotation, str):
        try:
            hint = eval(annotation, module, local)
        except Exception:  # a name under TYPE_CHECKING, or a typo that type checkers report
            return None
    return slot_of(name, hint)


def slot_of(name: str, hint: Any) -> Slot | None:
    """Return the check of one annotation, or None where it says nothing."""
    domain = None
    while typing.get_origin(hint) is typing.Annotated:
        metadata = hint.__metadata__
        domain = next((m.size for m in metadata if isinstance(m, Domain)), domain)
        inner = typing.get_args(hint)[0]
        if not any(m is MUT or m is FRESH or isinstance(m, Domain) for m in metadata):
            break
        hint = inner
    if isinstance(hint, typing.TypeVar):
        types = hint.__constraints__ or (hint.__bound__ or Any,)
        hint = functools.reduce(operator.or_, types)
    if hint is Any or hint is object or isinstance(hint, str | typing.ForwardRef):
        return None
    origin = typing.get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, torch.optim.Optimizer):
        hint = origin  # OptState[Mlp]: the argument is the type checkers' alone
    return Slot(name, hint, _mode(hint), domain)


def _mode(hint: Any) -> Mode:
    if hint is None or (isinstance(hint, type) and not typing.get_args(hint)):
        return Mode.STEADY
    return Mode.NESTED if _binds(hint) else Mode.EACH


def _binds(hint: Any) -> bool:
    return hasattr(hint, "dim_str") or any(map(_binds, typing.get_args(hint)))
