"""Why an argument or a result does not fit its annotation, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from dslmut.diagnostics.codes.values import ValueDoesNotFit
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.model import Label, Span
from dslmut.diagnostics.raising import user_span
from dslmut.diagnostics.wording import an
from dslmut.functions.declarations import bind
from dslmut.functions.slots import Slot
from dslmut.functions.spec import Spec


@dataclass(frozen=True)
class Problem:
    """What does not fit.

    Args:
        slot: The argument, or the result.
        value: What was given.
        sizes: Of the dimensions that the call has bound by then.
        binders: What bound each of them.
        outside: The size of the domain and the index that is outside of it, if that is what is wrong.
    """

    slot: Slot
    value: Any
    sizes: Mapping[str, int] = field(default_factory=dict)
    binders: Mapping[str, str] = field(default_factory=dict)
    outside: tuple[int, int] | None = None


def explained(spec: Spec, problem: Problem, frame: Any) -> DslmutError:
    """Return E0601 for a value, with the argument, the dimension and both sizes."""
    slot = problem.slot
    what = "the result" if slot.name == "return" else f"`{slot.name}`"
    reason, why = _reason(problem)
    return ValueDoesNotFit.error(
        [
            ValueDoesNotFit.at(
                user_span(frame),
                f"{what} {reason}",
                labels=declared_at(spec, slot),
                fix=_advice(problem, what),
                why=why,
            )
        ]
    )


def declared_at(spec: Spec, slot: Slot) -> list[Label]:
    """Return a label on the declaration of an argument."""
    place: Span | None = spec.places.get(slot.name)
    return [Label(place, "declared here")] if place is not None else []


_SHAPE = ValueDoesNotFit.why
_DOMAIN = "an index outside of its domain would read something else, or fail far from here"
_DTYPE = "a dtype that is cast by accident costs precision or time without an error"
_KIND = "a value of another kind would fail later, and far from here"


def _reason(problem: Problem) -> tuple[str, str]:
    """Return what does not fit, and why that matters."""
    slot, value = problem.slot, problem.value
    if problem.outside is not None:
        size, worst = problem.outside
        return f"holds 0 <= i < {slot.domain} = {size}, and contains {worst}", _DOMAIN
    if not slot.shaped:
        name, kind = _hint_name(slot.hint), an(type(value).__name__)
        if _is_outdated(problem):
            kind += f" made by an older definition of `{name}`"
        return f"is {kind}, declared `{name}`", _KIND
    text = slot.hint.dim_str
    if not isinstance(value, slot.hint.array_type):
        return f'is {an(type(value).__name__)}, declared a tensor of shape "{text}"', _KIND
    wanted = tuple(text.split())
    shape = f"[{', '.join(map(str, value.shape))}]"
    for dimension, size in bind(wanted, tuple(value.shape)).items():
        bound = problem.sizes.get(dimension)
        if bound is not None and bound != size:
            where = problem.binders.get(dimension, "the call")
            differs = f"`{dimension}` is {size} here and {bound} in {where}"
            return f'has shape {shape}, declared "{text}": {differs}', _SHAPE
    if not any(d.startswith("*") or "..." in d for d in wanted) and len(wanted) != value.ndim:
        count = f"{value.ndim} dimension{'s' * (value.ndim != 1)}"
        return f'has {count}, shape {shape}, declared {len(wanted)}: "{text}"', _SHAPE
    dtypes, name = slot.hint.dtypes, str(value.dtype).removeprefix("torch.")
    declared = _hint_name(slot.hint)
    if isinstance(dtypes, list | tuple) and name not in dtypes:
        return f"holds {name}, declared `{declared}`", _DTYPE
    return f"has shape {shape} and holds {name}, declared `{declared}`", _SHAPE


def _is_outdated(problem: Problem) -> bool:
    """Say whether a class was defined again, in a notebook for instance, after the value was made."""
    hint = problem.slot.hint
    return isinstance(hint, type) and any(
        (c.__module__, c.__qualname__) == (hint.__module__, hint.__qualname__)
        for c in type(problem.value).__mro__
    )


def _hint_name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)


def _advice(problem: Problem, what: str) -> str | None:
    if problem.outside is not None:
        return None
    if _is_outdated(problem):
        name = _hint_name(problem.slot.hint)
        return f"make {what} anew, with the `{name}` that is defined now"
    if problem.slot.shaped and isinstance(problem.value, Tensor):
        return f"pass {what} in the declared shape and dtype, or declare what it really is"
    return f"pass {what} as declared, or declare what it really is"
