"""What rewritten code calls. Every name here stands in the code that ``@fn`` makes."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import MethodType
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from dslmut.checking.entities import Passing
from dslmut.checking.knowledge import TENSOR_ATTRIBUTES
from dslmut.diagnostics.calling import Argument
from dslmut.diagnostics.codes.fields import NotAField
from dslmut.diagnostics.marking import Unmarked, missing_markers, spurious_argument
from dslmut.diagnostics.raising import user_span
from dslmut.functions.fields import (
    apart_from,
    check_field,
    fitting_item,
    refuse_computed,
    write_field,
    write_item,
)
from dslmut.functions.spec import Spec, spec_of
from dslmut.functions.values import enter, leave, refused
from dslmut.tokens import Token

__all__ = [
    "Token",
    "apart",
    "assign",
    "assign_item",
    "augment",
    "augment_item",
    "augmented",
    "bound",
    "callee",
    "check_item",
    "check_target",
    "enter",
    "in_place",
    "leave",
    "marked",
    "missing",
    "of_user",
    "refused",
    "slice",
    "snapshot",
    "snapshots",
    "spurious",
    "stored",
    "type",
]

type = type  # a user's module may have given the name another meaning
slice = slice

# -- markers -------------------------------------------------------------------------------------


def missing(spec: Spec, name: str, value: Any) -> Any:
    """Refuse an unmarked argument for a ``Mut`` parameter (E1103), where a marker is due."""
    if not _lacks_marker(spec, name, value):
        return value
    if torch.compiler.is_compiling():
        raise TypeError(
            f"E1103 `{spec.entity.name}` may change `{name}`, which was passed without `mut`"
        )
    called = sys._getframe(1)  # those after this one are still as they were passed
    names = _parameters(spec)
    later = names[names.index(name) + 1 :] if name in names else []
    given = {name: value, **{n: called.f_locals[n] for n in later if n in called.f_locals}}
    lacking = [n for n in given if n in spec.mut and _lacks_marker(spec, n, given[n])]
    unmarked = [_unmarked(spec, n, given[n]) for n in lacking]
    raise missing_markers(spec.entity.name, unmarked, _example(spec), called.f_back)


def _lacks_marker(spec: Spec, name: str, value: Any) -> bool:
    is_due = name not in spec.unmarked and not (value is None and name in spec.optional)
    return is_due and type(value) is not Token


def _unmarked(spec: Spec, name: str, value: Any) -> Unmarked:
    receiver = spec.marks_receiver and _parameters(spec)[0] == name
    return Unmarked(name, value, _position(spec, name), receiver, spec.places.get(name))


def _example(spec: Spec) -> str:
    """Return a call of the function with its markers, for code that only passes it on."""
    owner = "mut(x)." if spec.marks_receiver else "x." if spec.entity.method else ""
    function = spec.entity.name.rpartition(".")[2]
    arguments = []
    for p in (spec.entity.parameters or ())[spec.entity.method :]:
        written = f"mut({p.name})" if p.name in spec.mut else p.name
        stars = p.passing.value if p.passing in (Passing.STAR, Passing.DOUBLE_STAR) else ""
        named = f"{p.name}=" if p.passing is Passing.KEYWORD else stars
        arguments.append(f"{named}{written}")
    return f"{owner}{function}({', '.join(arguments)})"


def spurious(spec: Spec, **arguments: object) -> NoReturn:
    """Refuse a marked argument for a parameter without ``Mut`` (E1101)."""
    name = next(n for n, value in arguments.items() if type(value) is Token)
    if torch.compiler.is_compiling():
        raise TypeError(
            f"E1101 `{spec.entity.name}` does not change `{name}`, passed as `mut(...)`"
        )
    argument = Argument(name, arguments[name], _position(spec, name))
    raise spurious_argument(spec.entity.name, argument, sys._getframe(1).f_back)


def _parameters(spec: Spec) -> list[str]:
    return [p.name for p in spec.entity.parameters or ()]


def _position(spec: Spec, name: str) -> int | None:
    """Return the number of a parameter among the arguments of a call."""
    names = _parameters(spec)
    return names.index(name) - spec.entity.method if name in names else None


def callee(function: Any) -> Any:
    """Return a function that may be called with tokens: a plain one gets the objects."""
    if spec_of(function) is not None or _forward_takes_tokens(function):
        return function
    if function is functools.partial:
        return _partial
    return functools.partial(_without_tokens, function)


def _partial(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """``functools.partial``: it keeps the tokens for a function that takes them."""
    return functools.partial(callee(function), *args, **kwargs)


def _forward_takes_tokens(function: object) -> bool:
    return isinstance(function, nn.Module) and spec_of(type(function).forward) is not None


def _without_tokens(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return function(
        *[a._o if type(a) is Token else a for a in args],
        **{k: a._o if type(a) is Token else a for k, a in kwargs.items()},
    )


def bound(receiver: Any, name: str) -> Any:
    """Return the method of a marked receiver: ours gets the token, a foreign one the object."""
    return marked(getattr(receiver, name))


def marked(method: Any) -> Any:
    """Bind a method of ours to a token, as ``mut(m).method`` and ``super().method`` do."""
    spec = spec_of(method)
    if spec is not None and spec.marks_receiver and isinstance(method, MethodType):
        return functools.partial(method.__func__, Token(method.__self__))
    return callee(method)


def of_user(names: Any) -> Any:
    """Return what ``locals()`` or ``dir()`` gives, without the names that rewriting adds."""
    if isinstance(names, dict):
        return {k: v for k, v in names.items() if not str(k).startswith("__dslmut_")}
    if isinstance(names, list):
        return [n for n in names if not str(n).startswith("__dslmut_")]
    return names  # a function of the user's that is called like that


# -- assignments ---------------------------------------------------------------------------------


def assign(value: Any, owner: Any, name: str, fresh: bool = False) -> None:
    """``owner.name = value``: in place for a field of a model, an error for a value.

    Args:
        value: What is assigned.
        owner: Any object.
        name: The attribute.
        fresh: Whether the function made the owner itself, so that submodules may be replaced.
    """
    if isinstance(owner, nn.Module):
        write_field(owner, name, value, fresh)
    else:
        _refuse_values(owner, name)
        setattr(owner, name, value)


def check_target(value: Any, owner: Any, name: str, fresh: bool = False) -> None:
    """Raise what ``assign`` would raise, and change nothing."""
    if isinstance(owner, nn.Module):
        check_field(owner, name, value, fresh)
    else:
        _refuse_values(owner, name)


def check_item(value: Any, owner: Any, index: Any) -> None:
    """Raise what ``assign_item`` would raise, and change nothing."""
    if isinstance(owner, Tensor):
        fitting_item(owner, index, value)


def _refuse_values(owner: object, name: str) -> None:
    if isinstance(owner, Tensor) and name not in TENSOR_ATTRIBUTES:
        kind = "a tensor"
    elif isinstance(owner, torch.optim.Optimizer) and name != "param_groups":
        kind = "an optimizer state"
    else:
        return
    raise NotAField.raised(
        user_span(),
        f"`{name}` is assigned on {kind}, which has no such field",
        fix="compute a new value, or assign a field of the model that holds it",
    )


def stored(owner: Any, name: str) -> Any:
    """Return ``owner.name`` to be written into: the field itself, not what is computed from it."""
    if isinstance(owner, nn.Module):
        refuse_computed(owner, name)
    return getattr(owner, name)


_OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "+": (operator.add, operator.iadd),
    "-": (operator.sub, operator.isub),
    "*": (operator.mul, operator.imul),
    "/": (operator.truediv, operator.itruediv),
    "//": (operator.floordiv, operator.ifloordiv),
    "%": (operator.mod, operator.imod),
    "**": (operator.pow, operator.ipow),
    "@": (operator.matmul, operator.imatmul),
    "&": (operator.and_, operator.iand),
    "|": (operator.or_, operator.ior),
    "^": (operator.xor, operator.ixor),
    "<<": (operator.lshift, operator.ilshift),
    ">>": (operator.rshift, operator.irshift),
}


def augment(owner: Any, name: str, current: Any, value: Any, sign: str) -> None:
    """``owner.name += value``: a field gets the new value whole, so that its checks hold."""
    new, in_place_ = _OPERATORS[sign]
    if isinstance(owner, nn.Module) and isinstance(current, Tensor):
        assign(new(current, value), owner, name)
    else:
        assign(in_place_(current, value), owner, name)


def assign_item(value: Any, owner: Any, index: Any) -> None:
    """``m.f[index] = value``: in place, without autograd history, and never broadcast."""
    if isinstance(owner, Tensor):
        write_item(owner, index, value)
    else:
        owner[index] = value


def augment_item(owner: Any, index: Any, current: Any, value: Any, sign: str) -> None:
    """``m.f[index] += value``."""
    new, in_place_ = _OPERATORS[sign]
    if isinstance(owner, Tensor):
        write_item(owner, index, new(current, value))
    else:
        owner[index] = in_place_(current, value)


def augmented(current: Any, value: Any, sign: str) -> Any:
    """``w += value`` where *w* may be a field: in place, without autograd history."""
    in_place_ = _OPERATORS[sign][1]
    if not isinstance(current, Tensor):
        return in_place_(current, value)
    with _writing(current):
        return in_place_(current, _beside(current, value))


def in_place(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call what writes into a field of a model: that is no part of any differentiation."""
    # A compiler makes all arguments complete before anything is written.
    written = None if torch.compiler.is_compiling() else getattr(function, "__self__", None)
    if not isinstance(written, Tensor):
        with torch.no_grad():
            return function(*args, **kwargs)
    with _writing(written):
        return function(
            *[_beside(written, a) for a in args],
            **{k: _beside(written, a) for k, a in kwargs.items()},
        )


def _writing(tensor: Tensor) -> AbstractContextManager[object]:
    """Return the context to write in: what has a history of its own is no field, and keeps it."""
    if not torch.compiler.is_compiling():
        whole = tensor if tensor._base is None else tensor._base
        if not whole.is_leaf:
            return contextlib.nullcontext()
    return torch.no_grad()


def _beside(written: Tensor, value: Any) -> Any:
    """Return an argument as it is before the write, which torch refuses where memory overlaps."""
    return apart_from(value, written) if isinstance(value, Tensor) else value


# -- snapshots -----------------------------------------------------------------------------------


def snapshot(value: Any) -> Any:
    """Return the value that a field has now, which later changes of the field do not reach."""
    if not isinstance(value, Tensor):
        return value
    if torch.compiler.is_compiling():
        return _snapshot(value)
    return value.clone()


def snapshots(value: Any) -> Any:
    """Return what a function has given back, with the fields in it as they are now."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([snapshots(v) for v in value])
    if kind is dict:
        return {k: snapshots(v) for k, v in value.items()}
    return snapshot(value)


def apart(value: Any) -> Any:
    """Return a value that may share storage with a field, as it is written into one.

    Outside of a compiler the write itself looks whether it does.
    """
    return (
        _snapshot(value) if torch.compiler.is_compiling() and isinstance(value, Tensor) else value
    )


@torch.library.custom_op("dslmut::snapshot", mutates_args=())
def _snapshot(value: Tensor) -> Tensor:
    """Copy a tensor in a way that the compiler keeps: it drops a plain clone (upstream 198131)."""
    return value.clone()


@_snapshot.register_fake
def _(value: Tensor) -> Tensor:
    return torch.empty_like(value)


def _snapshot_backward(ctx: object, gradient: Tensor) -> Tensor:
    return gradient


_snapshot.register_autograd(_snapshot_backward)
