"""``defstate`` and ``optimizer_update``: what a body keeps, and what it gives back."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from torch import Tensor

from dslmut.diagnostics.codes.optimizers import BadResult, BadState
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.model import Span
from dslmut.diagnostics.raising import user_span
from dslmut.functions.locate import heading, returning
from dslmut.optim import naming
from dslmut.optim.pairs import complex_layout
from dslmut.optim.recording import State
from dslmut.optim.signatures import told
from dslmut.optim.trace import Tracer, active

_RESERVED = re.compile(r"state\.\d+")


@overload
def defstate(name: str, init: Tensor, /) -> Tensor: ...
@overload
def defstate(init: Tensor, /) -> Tensor: ...
def defstate(*arguments: Any) -> Tensor:
    """Declare a state of the parameter, and return its current value.

    Args:
        arguments: A name and an initial value, or the initial value alone; unnamed states are
            called ``state.0``, ``state.1`` … in the order of their declaration. The initial
            value is a zero constant, of any shape and dtype: ``torch.zeros_like(param)``.

    Returns:
        The state's value before this update. It must not be changed in place.

    Raises:
        OptimizerError: E-OPT-003.
    """
    tracer = active()
    if tracer is None:
        raise BadState.raised(
            user_span(),
            "`defstate` is called outside of an optimizer's body",
            fix="call it in a function that is decorated with `@optimizer`, or in a helper of one",
        )
    named = len(arguments) == 2
    name, init = arguments if named else (_unnamed(tracer), arguments[0])
    _check_name(tracer, name, named)
    tracer.check_zero(name, init)
    own, seen = tracer.own(name), (tuple(init.shape), _dense(init), init.dtype)
    value = tracer.placeholder(_identifier(own), *seen)
    whole = tracer.subject.paired and seen[0] == tracer.subject.shape and complex_layout(*seen)
    tracer.recording.states.append((State(own, *(whole or seen)), value))
    return value


def _unnamed(tracer: Tracer) -> str:
    taken = [name for name in tracer.declared() if _RESERVED.fullmatch(name)]
    return f"state.{len(taken)}"


def _check_name(tracer: Tracer, name: Any, named: bool) -> None:
    if not isinstance(name, str) or not name:
        raise BadState.raised(
            user_span(),
            f"the name of a state is a string, and this is a `{type(name).__name__}`",
            fix='write `defstate("velocity", torch.zeros_like(param))`',
        )
    if named and (_RESERVED.fullmatch(name) or name in ("updates",)):
        raise BadState.raised(
            user_span(),
            f"the name `{name}` is taken: unnamed states are called `state.N`, and `updates` is the count of updates",
            fix="choose another name",
        )
    if any(s.name == tracer.own(name) for s, _ in tracer.recording.states):
        raise BadState.raised(
            user_span(),
            f"the state `{name}` is declared twice",
            fix="declare it once, and pass its value on",
        )


def _dense(init: Tensor) -> tuple[int, ...]:
    """Return strides that give each element a place of its own, in the order that *init* has."""
    order = sorted(range(init.ndim), key=lambda i: (-init.stride(i), i))
    strides, step = [0] * init.ndim, 1
    for i in reversed(order):
        strides[i] = step
        step *= max(init.shape[i], 1)
    return tuple(strides)


def _identifier(name: str) -> str:
    return "state_" + re.sub(r"\W", "_", name)


@dataclass(frozen=True, eq=False)
class Update:
    """What a body returns: the new parameter and the new states.

    Args:
        param: The new value of the parameter.
        pairs: Declared value and new value of states, in any order.
        states: The new values of states, by name.
        span: Where it was made.
    """

    param: Any
    pairs: tuple[Any, ...] = ()
    states: Mapping[str, Any] = field(default_factory=dict)
    span: Span | None = None


def _unlike(message: str, fix: str) -> DslmutError:
    return BadResult.raised(
        user_span(), message, fix=f"{fix}: what is new stands first, by position"
    )


@told(_unlike)
def optimizer_update(param: Tensor, /, *pairs: tuple[Tensor, Tensor], **states: Tensor) -> Update:
    """Return the new parameter, and each declared state exactly once.

    Args:
        param: The new value, of the parameter's shape.
        pairs: ``(declared value, new value)``: how a helper returns a state whose name it does
            not know, and how unnamed states are returned.
        states: New values by the states' names.

    Raises:
        OptimizerError: E-OPT-004, when the result is looked at.

    Example:
        A body ends in ``return optimizer_update(param - lr * v, velocity=v)``.
    """
    tracer = active()
    if tracer is not None:
        naming.note(tracer, sys._getframe(1))
    return Update(param, pairs, states, user_span())


def results(
    tracer: Tracer, update: Any, rule: Any, what: str = "parameter"
) -> tuple[Any, list[Any]]:
    """Return what a body gives and its new states in declaration order, all of them checked.

    Args:
        tracer: Which the body ran under.
        update: What it returned.
        rule: The function.
        what: What it gives: the new parameter, or a gradient.

    Raises:
        OptimizerError: E-OPT-004.
    """
    name = rule.__name__
    if not isinstance(update, Update):
        kind = "Tensor" if isinstance(update, Tensor) else type(update).__name__
        raise BadResult.raised(
            heading(rule) if update is None else returning(rule, "optimizer_update"),
            f"`{name}` returns a `{kind}` instead of an update",
            fix="end every path with `return optimizer_update(new_param, state=new_state)`",
        )
    declared = tracer.declared()
    found: dict[str, Any] = {}
    for pair in update.pairs:
        state, value = _pair(tracer, update, pair, declared)
        _put(update, found, state, value)
    for state, value in update.states.items():
        if state not in declared:
            raise _wrong(
                update,
                f"`{name}` declares no state `{state}`; it declares {_listed(declared)}",
                f'declare it: `{state} = defstate("{state}", torch.zeros_like(param))`',
            )
        _put(update, found, state, value)
    for state in declared:
        if state not in found:
            raise _wrong(
                update,
                f"the state `{state}` is not returned",
                f"write `optimizer_update(..., {state}=...)` with its new value"
                if state.isidentifier()
                else "return it as a pair: `optimizer_update(new, (declared, new_value))`",
            )
    for each, value, old in [
        (what, update.param, None),
        *((f"state `{s}`", found[s], declared[s]) for s in declared),
    ]:
        _check_value(tracer, update, each, value, old)
    return update.param, [found[s] for s in declared]


def _pair(
    tracer: Tracer, update: Update, pair: Any, declared: Mapping[str, Tensor]
) -> tuple[str, Any]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise _wrong(
            update,
            f"behind the new parameter come pairs, and this is a `{type(pair).__name__}`",
            "write `optimizer_update(new, (declared, new_value))`, or give the state by name",
        )
    for state, value in declared.items():
        if value is pair[0]:
            return state, pair[1]
    computed = isinstance(pair[0], Tensor)
    raise _wrong(
        update,
        "the first part of a pair is not a declared state"
        + (", but computed" if computed else f": it is a `{type(pair[0]).__name__}`"),
        "keep what `defstate` returned, and give that as the first part",
    )


def _put(update: Update, found: dict[str, Any], state: str, value: Any) -> None:
    if state in found:
        raise _wrong(update, f"the state `{state}` is returned twice", "return it once")
    found[state] = value


def _check_value(tracer: Tracer, update: Update, what: str, value: Any, old: Tensor | None) -> None:
    subject = tracer.subject
    shape = subject.shape if old is None else tuple(old.shape)
    dtype = subject.dtype if old is None else old.dtype
    if not isinstance(value, Tensor):
        raise _wrong(
            update,
            f"the new {what} is a `{type(value).__name__}`, not a tensor",
            "compute it from tensors",
        )
    if not tracer.knows(value):
        raise tracer.captured(value)
    if tuple(value.shape) != shape:
        raise _wrong(
            update,
            f"the new {what} has shape {list(value.shape)}, what it replaces {list(shape)}",
            _reshaping(tuple(value.shape), shape),
        )
    if _kind(value.dtype) > _kind(dtype):
        raise _wrong(
            update,
            f"the new {what} holds {value.dtype}, what it replaces {dtype}",
            "take `.real` of it" if value.is_complex() else f"write the cast: `.to({dtype})`",
        )


def _reshaping(shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Say what makes one shape of another."""
    if len(shape) == 2 and shape[::-1] == wanted:
        return "it is transposed: write `.T`"
    if math.prod(shape) == math.prod(wanted):
        return f"give it the shape: `.reshape({', '.join(map(str, wanted))})`"
    if len(shape) < len(wanted) and (not shape or math.prod(shape) < math.prod(wanted)):
        return "keep the dimensions when you reduce: `.sum(1, keepdim=True)`; nothing is broadcast into it"
    return "compute it in the same shape; nothing is broadcast into it"


def _kind(dtype: Any) -> int:
    """Order the kinds of numbers: bool, integer, real, complex."""
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if str(dtype) == "torch.bool" else 1


def _listed(declared: Mapping[str, Any]) -> str:
    return ", ".join(f"`{s}`" for s in declared) or "none"


def _wrong(update: Update, message: str, fix: str) -> Exception:
    return BadResult.raised(update.span, message, fix=fix)
