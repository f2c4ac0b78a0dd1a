"""``Model``: a module whose fields are declared in its class and made from one seed."""

from __future__ import annotations

import difflib
import functools
import hashlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, Self, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import dataclass_transform

from dslmut.diagnostics.codes.fields import (
    BadDeclaration,
    DimensionDiffers,
    KindDiffers,
    RankDiffers,
)
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.functions.declarations import Declared, bind, declarations, evaluate_annotations
from dslmut.functions.fields import fitting, set_field, tensor_field

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

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


def param(initial: Initial | None = None, *, requires_grad: bool = True) -> Any:
    """Declare how a parameter of a ``Model`` starts.

    Args:
        initial: A number to fill it with, or a function of ``torch.nn.init``, which gets the
            tensor and, if it takes one, a ``generator``: ``nn.init.xavier_uniform_``. By default
            matrices are uniform within ``1 / sqrt(fan_in)``, where the fan-in is the product of
            all dimensions but the last, and everything else is zero.
        requires_grad: False freezes it.

    Example:
        >>> class Line(Model):
        ...     D: int = 3
        ...     w: Float[Tensor, "D"] = param(nn.init.normal_)
    """
    return FieldSpec(initial, requires_grad=requires_grad)


def buffer(initial: Initial | None = None, *, persistent: bool = True) -> Any:
    """Declare a tensor of a ``Model`` that is not trained.

    Args:
        initial: As for ``param``; zeros by default.
        persistent: Whether it is part of ``state_dict()``.
    """
    return FieldSpec(initial, is_buffer=True, persistent=persistent)


class _HasForward(Protocol[P, R_co]):
    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


@dataclass_transform(kw_only_default=True, field_specifiers=(param, buffer))
class Model(nn.Module):
    """A module whose class declares its fields.

    An annotation declares a field: ``Float[Tensor, "D H"]`` a parameter, ``Int[Tensor, "n"]``,
    ``Bool[Tensor, "n"]`` or ``Index[Tensor, "n -> C"]`` a buffer, a module class a submodule, and
    a plain type such as ``int`` a host scalar, which also gives a dimension of that name its
    size. ``Mlp.init(seed=0)`` makes one with initial values, ``Mlp(w1=..., ...)`` one whose
    tensors are all given. Assigning a declared field writes it in place, as in ``@fn``.

    A subclass with an ``__init__`` of its own is an ordinary module, whose ``init`` passes its
    arguments on.

    Raises:
        FieldError: E0902 where a field lacks a value, E0401, E0403 or E0502 where one does not fit.

    Example:
        >>> class Line(Model):
        ...     D: int = 3
        ...     w: Float[Tensor, "D"] = param(nn.init.normal_)
        ...     b: Float[Tensor, ""]
        >>> Line.init(seed=0, D=5).w.shape
        torch.Size([5])
    """

    _specs: ClassVar[dict[str, FieldSpec]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {n: v for n, v in vars(cls).items() if isinstance(v, FieldSpec)}
        cls._specs = {**cls._specs, **own}
        for name in own:
            delattr(cls, name)  # it would hide the parameter of that name
        evaluate_annotations(cls, sys._getframe(1).f_locals)
        for name in inspect.get_annotations(cls):
            if hasattr(nn.Module, name):
                raise _bad(
                    f"a field of `{cls.__name__}` is called `{name}`, as a method of every torch module is",
                    f"choose another name: `{name}_: ...`",
                )

    if TYPE_CHECKING:
        # Hides nn.Module's own, which accept any name; misspelt fields are then errors.
        __getattr__: None  # pyright: ignore[reportIncompatibleMethodOverride]
        __setattr__: None  # pyright: ignore[reportIncompatibleMethodOverride]

        def __call__(self: _HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
            """Call ``forward``, with its signature."""
            ...

    else:

        def __init__(self, **values):
            super().__init__()
            _fill(self, values, None)

        def __setattr__(self, name, value):
            if name in declarations(type(self)) and _is_made(self, name):
                set_field(self, name, value)
            else:
                super().__setattr__(name, value)

    @classmethod
    def init(
        cls,
        seed: int,
        *args: Any,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        **given: Any,
    ) -> Self:
        """Make a model with initial values that depend on the seed and the fields' names alone.

        The global random number generator is not touched, and adding a field changes no other.

        Args:
            seed: Any integer.
            args: For a class with an ``__init__`` of its own: its arguments.
            dtype: Of the fields declared ``Float``; the default dtype if not given.
            device: To make the fields on.
            given: Sizes of dimensions, host scalars, and fields whose values are known.

        Raises:
            FieldError: E0902 for a name that is no field and no dimension, and for a dimension
                whose size nobody gives.
        """
        if cls.__init__ is not Model.__init__:
            with _seeded(seed, cls.__name__), torch.device(device) if device else nullcontext():
                return cls(*args, **given)
        if args:
            raise _bad("`init` takes the seed alone by position", "give fields by name")
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        _fill(model, given, _Making(seed, dtype, device))
        return model

    def extra_repr(self) -> str:
        """Show the declared tensors with their dimensions."""
        fields = declarations(type(self))
        shapes = (
            f"{n}: {list(t.shape)}"
            for n in fields
            if isinstance(t := tensor_field(self, n), Tensor)
        )
        return ", ".join(shapes)


class _Making:
    """How ``init`` makes the fields that are not given."""

    def __init__(
        self, seed: int, dtype: torch.dtype | None, device: torch.device | str | None
    ) -> None:
        self.seed, self.dtype, self.device = seed, dtype, device

    def generator(self, name: str) -> torch.Generator:
        """Return a generator that depends on the seed and the field's name."""
        return torch.Generator().manual_seed(_mixed(self.seed, name))


def _mixed(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


@contextmanager
def _seeded(seed: int, name: str) -> Iterator[None]:
    """Seed the global generators for a while, and put them back as they were."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(_mixed(seed, name))
        yield


def _is_made(model: nn.Module, name: str) -> bool:
    return tensor_field(model, name) is not None or name in model.__dict__


# -- making the fields ---------------------------------------------------------------------------


def _fill(model: Model, given: dict[str, Any], making: _Making | None) -> None:
    """Give every declared field its value; nothing is registered before all of them fit."""
    cls = type(model)
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


def _sizes(
    cls: type[Model], fields: Mapping[str, Declared], given: dict[str, Any]
) -> dict[str, int]:
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


def _check_names(cls: type[Model], fields: Mapping[str, Declared], given: dict[str, Any]) -> None:
    dimensions = {d for f in fields.values() for d in f.dimensions or ()}
    dimensions |= {f.domain for f in fields.values() if f.domain is not None}
    for name, value in given.items():
        if name in fields or (name in dimensions and isinstance(value, int)):
            continue
        near = difflib.get_close_matches(name, [*fields, *dimensions], n=1)
        raise _bad(
            f"`{cls.__name__}` declares neither a field nor a dimension `{name}`",
            f"write `{near[0]}`" if near else f"declare it in the class: `{name}: ...`",
        )


def _is_scalar(declared: Declared) -> bool:
    hint = declared.hint
    return not declared.is_tensor and not (isinstance(hint, type) and issubclass(hint, nn.Module))


def _scalar(
    cls: type[Model], name: str, declared: Declared, given: dict[str, Any], sizes: dict[str, int]
) -> Any:
    if name not in given:
        if name in sizes:
            return sizes[name]
        if isinstance(declared.hint, str):
            raise _bad(
                f"the annotation of `{name}` cannot be evaluated: {declared.hint}",
                "import what it names in the module of the class, not under `TYPE_CHECKING` alone",
            )
        if not hasattr(cls, name):
            raise _bad(
                f"the field `{name}` has no value", f"write `{cls.__name__}.init(..., {name}=...)`"
            )
        return getattr(cls, name)
    value, hint = given[name], declared.hint
    fits = not isinstance(hint, type) or isinstance(value, hint)
    if not fits and not (hint is float and isinstance(value, int)):
        kind = getattr(hint, "__name__", hint)
        raise KindDiffers.raised(
            user_span(),
            f"`{name}` is declared `{kind}`, the value {value!r} is a `{type(value).__name__}`",
            fix=f"write `{kind}(value)`",
        )
    return value


def _tensor(
    cls: type[Model],
    name: str,
    declared: Declared,
    given: dict[str, Any],
    sizes: dict[str, int],
    making: _Making | None,
) -> Tensor:
    """Return the tensor that a field starts with."""
    if name in given:
        return _given(name, declared, given[name], sizes)
    spec = cls._specs.get(name, FieldSpec())
    if making is None:
        raise _bad(
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
            f"`{name}` is a tensor, the value is a `{type(value).__name__}`",
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


def _size(cls: type[Model], name: str, dimension: str, sizes: dict[str, int]) -> int:
    if dimension.isdecimal():
        return int(dimension)
    if dimension not in sizes:
        raise _bad(
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
    cls: type[Model], name: str, declared: Declared, given: dict[str, Any], making: _Making | None
) -> nn.Module:
    kind: Any = declared.hint
    if name in given:
        if not isinstance(given[name], kind):
            raise KindDiffers.raised(
                user_span(),
                f"`{name}` is declared `{kind.__name__}`, the value is a `{type(given[name]).__name__}`",
                fix=f"give a `{kind.__name__}`",
            )
        return given[name]
    if making is None:
        raise _bad(f"the submodule `{name}` has no value", f"write `{cls.__name__}({name}=...)`")
    seed = _mixed(making.seed, name)
    if issubclass(kind, Model):
        return kind.init(seed, dtype=making.dtype, device=making.device)
    required = [
        p.name
        for p in inspect.signature(kind).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if required:
        raise _bad(
            f"the submodule `{name}` cannot be made without arguments ({', '.join(required)})",
            f"give it: `{cls.__name__}.init(..., {name}={kind.__name__}(...))`",
        )
    with _seeded(seed, name):
        return kind()


def _register(model: Model, name: str, declared: Declared, value: Tensor | nn.Module) -> None:
    if isinstance(value, nn.Module):
        nn.Module.__setattr__(model, name, value)
        return
    spec = type(model)._specs.get(name)
    trains = _trains(declared, value)
    if spec.is_buffer if spec is not None else not trains:
        model.register_buffer(name, value, persistent=spec is None or spec.persistent)
    else:
        trains = trains and (spec is None or spec.requires_grad)
        model.register_parameter(name, nn.Parameter(value, requires_grad=trains))


def _trains(declared: Declared, value: Tensor) -> bool:
    return declared.domain is None and (value.dtype.is_floating_point or value.dtype.is_complex)


def _bad(message: str, fix: str) -> DslmutError:
    return BadDeclaration.raised(user_span(), message, fix=fix)


@contextmanager
def eval_mode(*models: nn.Module) -> Iterator[None]:
    """Put models into evaluation mode for a block, and give every module its own mode back.

    That is no change in the sense of ``@fn``, so that the model needs no ``Mut``.

    Args:
        models: Any modules.

    Example:
        >>> layer = nn.Dropout()
        >>> with eval_mode(layer):
        ...     layer.training
        False
        >>> layer.training
        True
    """
    modes = [(module, module.training) for model in models for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode


__all__ = ["Model", "buffer", "eval_mode", "param"]
