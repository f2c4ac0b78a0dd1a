"""Arguments and results against their annotations (E0601), with jaxtyping and beartype.

A call costs a few attribute reads: its key, made of types, shapes and dtypes, is looked up among
those that were found to fit before. Only a new key is checked, and only a failure is explained.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from dslmut.functions.config import config
from dslmut.functions.declarations import bind, declarations, sizes_of
from dslmut.functions.explaining import Problem, explained
from dslmut.functions.reloading import keep_up
from dslmut.functions.slots import Checks, Mode, Slot, resolve
from dslmut.functions.spec import Spec

CACHE = 512
"""How many keys a function remembers; ever new shapes start again."""


Call = tuple[tuple[object, ...], tuple[Any, ...]]
"""One call that is under way, for the check of its result: its key and its arguments."""


def enter(spec: Spec, *values: Any) -> Call | None:
    """Check the annotated arguments of a call, in the order of ``spec.annotations``.

    Returns:
        The call; None in a compiler, with checks off, or if an argument does not fit: ``refused`` says which.
    """
    if is_compiling() or not config.checks:  # in this order: a compiler never sees the setting
        return None
    call = tuple([_key(v) for v in values]), values
    checks = spec.checks
    if checks is None or call[0] not in checks.seen:  # pyright: ignore[reportAttributeAccessIssue]
        code = sys._getframe(1).f_code
        if code is not spec.code:
            keep_up(spec, code)
        checks = spec.checks = spec.checks or resolve(spec)
    assert isinstance(checks, Checks)
    known = call[0] in checks.seen
    if (not known or checks.each) and _misfit(checks, call) is not None:
        return None
    if not known:
        _remember(checks, checks.arguments, call[0])
    return call


def refused(spec: Spec, *values: Any) -> None:
    """Explain which argument of a call does not fit.

    Raises:
        CheckError: E0601.
    """
    if is_compiling() or not config.checks:
        return
    assert isinstance(spec.checks, Checks)
    problem = _misfit(spec.checks, (tuple([_key(v) for v in values]), values))
    assert problem is not None
    raise explained(spec, problem, sys._getframe(1).f_back)


def _misfit(checks: Checks, call: Call) -> Problem | None:
    """Return the first argument that does not fit; of a known call, among those of each call."""
    key, values = call
    problem = _problem(checks.arguments, values) if key not in checks.seen else None
    for i, slot in checks.each:
        if problem is None and slot.mode is Mode.EACH and not _fits(values[i], slot):
            problem = Problem(slot, values[i])
        if problem is None and slot.domain is not None:
            problem = _stray(checks, slot, values[i], call)
    return problem


def leave(spec: Spec, call: Call | None, value: Any) -> Any:
    """Check the result of a call, and return it.

    Raises:
        CheckError: E0601.
    """
    if call is None:
        return value
    checks = spec.checks
    assert isinstance(checks, Checks)
    result = checks.result
    if result is None:
        return value
    key, problem = (*call[0], _key(value)), None
    if result.mode is Mode.EACH and not _fits(value, result):
        problem = Problem(result, value)
    elif key not in checks.seen:
        slots = (*checks.arguments, result)
        problem = _problem(slots, (*call[1], value))
        if problem is None:
            _remember(checks, slots, key)
    if problem is None and result.domain is not None:
        problem = _stray(checks, result, value, call)
    if problem is not None:
        raise explained(spec, problem, sys._getframe(1))
    return value


def _key(value: Any) -> object:
    """Return what a verdict about a value depends on."""
    kind = type(value)
    if isinstance(value, Tensor):
        return (kind, value.shape, value.dtype)
    if isinstance(value, nn.Module):
        tensors, scalars = _key_names(kind)
        if tensors or scalars:
            return (kind, *_shapes(value, tensors), *[value.__dict__.get(n) for n in scalars])
    return kind


def _shapes(model: nn.Module, names: tuple[str, ...]) -> list[object]:
    parameters, buffers = model._parameters, model._buffers
    found = [parameters.get(n) if n in parameters else buffers.get(n) for n in names]
    return [None if t is None else t.shape for t in found]


@functools.lru_cache(maxsize=1024)
def _key_names(cls: type[nn.Module]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a class whose shapes, and those whose numbers, bind dimensions."""
    fields = declarations(cls)
    tensors = tuple(n for n, d in fields.items() if d.is_tensor)
    return tensors, tuple(n for n, d in fields.items() if d.hint is int)


def _remember(checks: Checks, slots: tuple[Slot | None, ...], key: tuple[object, ...]) -> None:
    if not any(s is not None and s.mode is Mode.NESTED for s in slots):
        if len(checks.seen) >= CACHE:
            checks.seen.clear()
        checks.seen[key] = {}


def _problem(slots: tuple[Slot | None, ...], values: tuple[Any, ...]) -> Problem | None:
    """Check all with one binding of dimension names; return the first that does not fit."""
    sizes: dict[str, int] = {}
    binders: dict[str, str] = {}
    models = [v for v in values if isinstance(v, nn.Module) and declarations(type(v))]
    import jaxtyping

    with jaxtyping.jaxtyped("context"):  # pyright: ignore[reportGeneralTypeIssues]
        if len(models) == 1:
            _join_fields(models[0], sizes, binders)
        for slot, value in zip(slots, values):
            if slot is None:
                continue
            if not _fits(value, slot):
                return Problem(slot, value, sizes, binders)
            if slot.shaped and isinstance(value, Tensor):
                found = bind(tuple(slot.hint.dim_str.split()), tuple(value.shape))
                for dimension, size in found.items():
                    sizes.setdefault(dimension, size)
                    binders.setdefault(dimension, f"`{slot.name}`")
    return None


def _fits(value: Any, slot: Slot) -> bool:
    if isinstance(value, nn.Module):
        value = value._modules.get("_orig_mod") or value  # torch.compile(model)
    if slot.shaped:
        return isinstance(value, slot.hint)
    return _bearable()(value, slot.hint)


@functools.cache
def _bearable() -> Callable[[Any, Any], bool]:
    """Return beartype's check; it takes longer to import than all of ours, so that is put off."""
    from beartype import BeartypeConf
    from beartype.door import is_bearable
    from beartype.roar import BeartypeException

    numbers = BeartypeConf(is_pep484_tower=True)  # an int may be given for a float

    def bearable(value: Any, hint: Any) -> bool:
        try:
            return is_bearable(value, hint, conf=numbers)
        except BeartypeException:  # a hint that beartype does not know says nothing
            return True

    return bearable


def _join_fields(model: nn.Module, sizes: dict[str, int], binders: dict[str, str]) -> None:
    """Bind the dimension names of a model's declared fields, for the whole call."""
    import jaxtyping

    for name, declared in declarations(type(model)).items():
        value = getattr(model, name, None)
        if declared.dimensions is None or not isinstance(value, Tensor):
            continue
        # Shapes bind whatever the dtype: a model may have been cast since it was declared.
        shape: Any = jaxtyping.Shaped[Tensor, " ".join(declared.dimensions)]  # pyright: ignore
        isinstance(value, shape)
        for dimension, size in bind(declared.dimensions, tuple(value.shape)).items():
            sizes.setdefault(dimension, size)
            binders.setdefault(dimension, f"field `{name}`")


def _stray(checks: Checks, slot: Slot, value: Any, call: Call) -> Problem | None:
    """Check that an index tensor stays within its domain, whose size the call binds."""
    assert slot.domain is not None
    if not isinstance(value, Tensor):
        return None
    known = checks.seen.get(call[0], {})
    size = known.get(slot.domain)
    if size is None:
        size = int(slot.domain) if slot.domain.isdecimal() else _size(slot.domain, checks, call[1])
        if size is not None:
            known[slot.domain] = size
    if size is None or value.numel() == 0 or value.is_meta or _is_wrapped(value):
        return None
    if value.device.type != "cpu":
        # Without a sync: the device itself stops where this does not hold.
        torch._assert_async(  # pyright: ignore[reportPrivateImportUsage]
            ((value >= 0) & (value < size)).all()
        )
        return None
    low, high = (int(x) for x in torch.aminmax(value))
    if low >= 0 and high < size:
        return None
    return Problem(slot, value, outside=(size, low if low < 0 else high))


def _size(domain: str, checks: Checks, values: tuple[Any, ...]) -> int | None:
    """Return the size that this call gives to a dimension name."""
    for slot, value in zip(checks.arguments, values):
        if slot is not None and slot.shaped and isinstance(value, Tensor):
            found = bind(tuple(slot.hint.dim_str.split()), tuple(value.shape)).get(domain)
            if found is not None:
                return found
    models = [v for v in values if isinstance(v, nn.Module) and declarations(type(v))]
    return sizes_of(models[0]).get(domain) if len(models) == 1 else None


def _is_wrapped(value: Tensor) -> bool:
    """Say whether a tensor has no values to read: fake, or inside of ``vmap``."""
    return isinstance(value, torch._subclasses.FakeTensor) or torch._C._functorch.is_batchedtensor(  # pyright: ignore[reportAttributeAccessIssue]
        value
    )
