"""Why an argument or a result does not fit its annotation, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dslmut.diagnostics.codes.values import ValueDoesNotFit
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.model import Label, Span
from dslmut.diagnostics.raising import user_span
from dslmut.functions.declarations import bind
from dslmut.functions.slots import Slot
from dslmut.functions.spec import Spec


@dataclass(frozen=True)
class Problem:
    """What does not fit: the argument, and why, in words."""

    slot: Slot
    value: Any
    sizes: Mapping[str, int]
    binders: Mapping[str, str]


def explained(spec: Spec, problem: Problem, frame: Any) -> DslmutError:
    """Return E0601 for a value, with the argument, the dimension and both sizes."""
    slot = problem.slot
    what = "the result" if slot.name == "return" else f"`{slot.name}`"
    message = f"{what} {_reason(problem)}"
    return ValueDoesNotFit.error(
        [
            ValueDoesNotFit.at(
                user_span(frame),
                message,
                labels=declared_at(spec, slot),
                fix=_advice(problem, what),
            )
        ]
    )


def declared_at(spec: Spec, slot: Slot) -> list[Label]:
    """Return a label on the declaration of an argument."""
    place: Span | None = spec.places.get(slot.name)
    return [Label(place, "declared here")] if place is not None else []


def _reason(problem: Problem) -> str:
    slot, value = problem.slot, problem.value
    if not slot.shaped:
        return f"is a `{type(value).__name__}`, declared `{_hint_name(slot.hint)}`"
    if not isinstance(value, slot.hint.array_type):
        return f'is a `{type(value).__name__}`, declared a tensor of shape "{slot.hint.dim_str}"'
    wanted = tuple(slot.hint.dim_str.split())
    shape = f"[{', '.join(map(str, value.shape))}]"
    for dimension, size in bind(wanted, tuple(value.shape)).items():
        bound = problem.sizes.get(dimension)
        if bound is not None and bound != size:
            where = problem.binders.get(dimension, "the call")
            return f'has shape {shape}, declared "{slot.hint.dim_str}": `{dimension}` is {size} here and {bound} in {where}'
    if not any(d.startswith("*") or "..." in d for d in wanted) and len(wanted) != value.ndim:
        return f'has {value.ndim} dimensions, shape {shape}, declared {len(wanted)}: "{slot.hint.dim_str}"'
    dtypes = slot.hint.dtypes
    name = str(value.dtype).removeprefix("torch.")
    if isinstance(dtypes, list | tuple) and name not in dtypes:
        return f"holds {name}, declared `{_hint_name(slot.hint)}`"
    return f"has shape {shape} and holds {name}, declared `{_hint_name(slot.hint)}`"


def _hint_name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)


def _advice(problem: Problem, what: str) -> str:
    if problem.slot.shaped and isinstance(problem.value, Tensor):
        return f"pass {what} in the declared shape and dtype, or declare what it really is"
    return f"pass {what} as declared, or declare what it really is"
