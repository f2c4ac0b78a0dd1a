"""The fields of a ``Model``, made from its declaration, a seed, and what is given."""

from __future__ import annotations

import difflib
import functools
import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from dslmut.diagnostics.codes.fields import (
    DimensionDiffers,
    KindDiffers,
    RankDiffers,
)
from dslmut.diagnostics.raising import user_span
from dslmut.diagnostics.wording import an, listed
from dslmut.functions.bodies import bad_declaration, hidden_modules, holds_modules
from dslmut.functions.declarations import Declared, bind, declarations, sizes_of
from dslmut.functions.fitting import fitting

Initial: TypeAlias = float | Callable[..., Any]
"""A number to fill a field with, or a function like those of ``torch.nn.init``."""


@dataclass(frozen=True)
class FieldSpec:
    """What ``param(...)`` and ``buffer(...)`` say of a field.

    Args:
        initial: How it starts; None for the default of its shape.
        is_buffer: Whether it is a buffer or a parameter.
        requires_grad: Whether a parameter is trained.
        persistent: Whether a buffer is part of ``state_dict()``.
    """

    initial: Initial | None = None
    is_buffer: bool = False
    requires_grad: bool = True
    persistent: bool = True


class Making:
    """How ``init`` makes the fields that are not given."""

    def __init__(
        self, seed: int, dtype: torch.dtype | None, device: torch.device | str | None
    ) -> None:
        self.seed, self.dtype, self.device = seed, dtype, device

    def generator(self, name: str) -> torch.Generator:
        """Return a generator that depends on the seed and the field's name."""
        return torch.Generator().manual_seed(mixed(self.seed, name))


def mixed(seed: int, name: str) -> int:
    """Return the seed of one field, which differs from those of all others."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


@contextmanager
def seeded(seed: int, name: str) -> Iterator[None]:
    """Seed the global generators for a while, and put them back as they were."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(mixed(seed, name))
        yield


def fill(model: nn.Module, given: dict[str, Any], making: Making | None) -> None:
    """Give every declared field its value; nothing is registered before all of them fit."""
    cls: Any = type(model)
    fields = declarations(cls)
    _check_names(cls, fields, given)
    sizes = _sizes(cls, fields, given)
    scalars = {n: _scalar(cls, n, d, given, sizes) for n, d in fields.items() if _is_scalar(d)}
    made: dict[str, Tensor | nn.Module] = {}
    for name, declared in fields.items():
        if declared.is_tensor:
            made[name] = _tensor(cls, name, declared, given, sizes, making)
        elif name not in scalars:
            made[name] = _module(cls, name, declared, given, making)
    for name, value in scalars.items():
        object.__setattr__(model, name, value)
    for name, value in made.items():
        _register(model, name, fields[name], value)
    for name, value in made.items():
        if isinstance(value, Tensor):
            fitting(model, name, value, value)  # the domain of an index


def first_value(model: nn.Module, name: str, declared: Declared, value: Tensor) -> None:
    """Give a declared field its first value, where the class has an ``__init__`` of its own."""
    _register(model, name, declared, _given(name, declared, value, sizes_of(model)))


def _sizes(cls: Any, fields: Mapping[str, Declared], given: dict[str, Any]) -> dict[str, int]:
    """Return the sizes of the dimensions: what is given goes before the defaults of the class."""
    sizes = {n: v for n, v in given.items() if isinstance(v, int) and not isinstance(v, bool)}
    for name, value in given.items():
        if isinstance(value, Tensor) and name in fields:
            for dimension, size in bind(fields[name].dimensions or (), tuple(value.shape)).items():
                sizes.setdefault(dimension, size)
    for name, declared in fields.items():
        default = getattr(cls, name, None)
        if _is_scalar(declared) and isinstance(default, int) and not isinstance(default, bool):
            sizes.setdefault(name, default)
    return sizes


def _check_names(cls: Any, fields: Mapping[str, Declared], given: dict[str, Any]) -> None:
    dimensions = {d for f in fields.values() for d in f.dimensions or ()}
    dimensions |= {f.domain for f in fields.values() if f.domain is not None}
    for name, value in given.items():
        if name in fields or (name in dimensions and isinstance(value, int)):
            continue
        near = difflib.get_close_matches(name, [*fields, *dimensions], n=1)
        known = listed([*fields, *sorted(dimensions)])
        raise bad_declaration(
            f"`{cls.__name__}` declares neither a field nor a dimension `{name}`"
            + (f"; it has {known}" if known and not near else ""),
            f"write `{near[0]}`" if near else f"declare it in the class: `{name}: ...`",
        )


def _is_scalar(declared: Declared) -> bool:
    hint = declared.hint
    return not declared.is_tensor and not (isinstance(hint, type) and issubclass(hint, nn.Module))


def _scalar(
    cls: Any, name: str, declared: Declared, given: dict[str, Any], sizes: dict[str, int]
) -> Any:
    if name not in given:
        if name in sizes:
            return sizes[name]
        if isinstance(declared.hint, str):
            raise bad_declaration(
                f"the annotation of `{name}` cannot be evaluated: {declared.hint}",
                "import what it names in the module of the class, not under `TYPE_CHECKING` alone",
            )
        if not hasattr(cls, name):
            raise bad_declaration(
                f"the field `{name}` has no value", f"write `{cls.__name__}.init(..., {name}=...)`"
            )
        return getattr(cls, name)
    value, hint = given[name], declared.hint
    if holds_modules(value):
        raise hidden_modules(cls, name, isinstance(value, Mapping))
    fits = not isinstance(hint, type) or isinstance(value, hint)
    if not fits and not (hint is float and isinstance(value, int)):
        kind = getattr(hint, "__name__", hint)
        raise KindDiffers.raised(
            user_span(),
            f"`{name}` is declared `{kind}`, the value {value!r} is {an(type(value).__name__)}",
            fix=f"write `{kind}(value)`",
        )
    return value


def _tensor(
    cls: Any,
    name: str,
    declared: Declared,
    given: dict[str, Any],
    sizes: dict[str, int],
    making: Making | None,
) -> Tensor:
    """Return the tensor that a field starts with."""
    if name in given:
        return _given(name, declared, given[name], sizes)
    spec = cls._specs.get(name, FieldSpec())
    if making is None:
        raise bad_declaration(
            f"the field `{name}` has no value",
            f"give it: `{cls.__name__}({name}=...)`, or make initial values: `{cls.__name__}.init(seed=0)`",
        )
    shape = tuple(_size(cls, name, d, sizes) for d in declared.dimensions or ())
    tensor = torch.empty(shape, dtype=_dtype(declared, making.dtype))
    initial = 0.0 if spec.initial is None and spec.is_buffer else spec.initial
    _initialise(tensor, initial, making.generator(name))
    return tensor.to(making.device) if making.device is not None else tensor


def _given(name: str, declared: Declared, value: Any, sizes: dict[str, int]) -> Tensor:
    """Check a given tensor against the declaration, and copy it: the model owns its fields."""
    if not isinstance(value, Tensor):
        raise KindDiffers.raised(
            user_span(),
            f"`{name}` is a tensor, the value is {an(type(value).__name__)}",
            fix="write `torch.tensor(value)`",
        )
    wanted = declared.dimensions or ()
    text = " ".join(wanted)
    if not any("*" in d or "..." in d for d in wanted) and len(wanted) != value.ndim:
        raise RankDiffers.raised(
            user_span(),
            f'`{name}` is declared "{text}", the value has shape {list(value.shape)}',
            fix="give a value of the declared shape",
        )
    for dimension, size in bind(wanted, tuple(value.shape)).items():
        if sizes.get(dimension, size) != size:
            raise DimensionDiffers.raised(
                user_span(),
                f"dimension `{dimension}` is {sizes[dimension]} in this model and {size} in the value of `{name}`",
                fix="give values whose dimensions agree",
            )
    return value.detach().clone()


def _size(cls: Any, name: str, dimension: str, sizes: dict[str, int]) -> int:
    if dimension.isdecimal():
        return int(dimension)
    if dimension not in sizes:
        raise bad_declaration(
            f"nothing gives a size to the dimension `{dimension}` of `{name}`",
            f"declare `{dimension}: int = ...` in the class, or write `{cls.__name__}.init(..., {dimension}=...)`",
        )
    return sizes[dimension]


def _dtype(declared: Declared, wanted: torch.dtype | None) -> torch.dtype:
    """Return the dtype of a field: the declared one, or the default of its kind."""
    dtypes = getattr(declared.hint, "dtypes", ())
    names = list(dtypes) if isinstance(dtypes, list | tuple) else []
    default = wanted or torch.get_default_dtype()
    if len(names) == 1:
        return getattr(torch, names[0])
    if not names or str(default).removeprefix("torch.") in names:
        return default
    for candidate in ("int64", "bool", "complex64", "uint8", "float32"):
        if candidate in names:
            return getattr(torch, candidate)
    return getattr(torch, names[0])


def _initialise(tensor: Tensor, initial: Initial | None, generator: torch.Generator) -> None:
    with torch.no_grad():
        if initial is None:
            _default(tensor, generator)
        elif not callable(initial):
            tensor.fill_(initial)
        elif _takes_generator(initial):
            initial(tensor, generator=generator)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator.initial_seed())
                initial(tensor)


def _default(tensor: Tensor, generator: torch.Generator) -> None:
    """Fill matrices uniformly within 1 / sqrt(fan_in), like ``torch.nn.Linear``; others with zeros."""
    if tensor.ndim < 2 or not tensor.dtype.is_floating_point or tensor.numel() == 0:
        tensor.zero_()
        return
    bound = 1 / math.sqrt(math.prod(tensor.shape[:-1]))
    tensor.uniform_(-bound, bound, generator=generator)


@functools.lru_cache(maxsize=256)
def _takes_generator(function: Callable[..., Any]) -> bool:
    try:
        return "generator" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _module(
    cls: Any, name: str, declared: Declared, given: dict[str, Any], making: Making | None
) -> nn.Module:
    kind: Any = declared.hint
    if name in given:
        if not isinstance(given[name], kind):
            raise KindDiffers.raised(
                user_span(),
                f"`{name}` is declared `{kind.__name__}`, the value is {an(type(given[name]).__name__)}",
                fix=f"give {an(kind.__name__)}",
            )
        return given[name]
    if making is None:
        raise bad_declaration(
            f"the submodule `{name}` has no value", f"write `{cls.__name__}({name}=...)`"
        )
    seed = mixed(making.seed, name)
    if hasattr(kind, "_specs"):  # a Model, which makes its own fields from a seed
        return kind.init(seed, dtype=making.dtype, device=making.device)
    required = [
        p.name
        for p in inspect.signature(kind).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if required:
        raise bad_declaration(
            f"the submodule `{name}` cannot be made without arguments ({', '.join(required)})",
            f"give it: `{cls.__name__}.init(..., {name}={kind.__name__}(...))`",
        )
    with seeded(seed, name):
        return kind()


def _register(model: nn.Module, name: str, declared: Declared, value: Tensor | nn.Module) -> None:
    if isinstance(value, nn.Module):
        nn.Module.__setattr__(model, name, value)
        return
    specs: Any = getattr(type(model), "_specs", {})
    spec = specs.get(name)
    trains = _trains(declared, value)
    if spec.is_buffer if spec is not None else not trains:
        model.register_buffer(name, value, persistent=spec is None or spec.persistent)
    else:
        trains = trains and (spec is None or spec.requires_grad)
        model.register_parameter(name, nn.Parameter(value, requires_grad=trains))


def _trains(declared: Declared, value: Tensor) -> bool:
    return declared.domain is None and (value.dtype.is_floating_point or value.dtype.is_complex)
