"""``Model``: a module whose fields are declared in its class and made from one seed."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import dataclass_transform

from dslmut.functions.bodies import bad_declaration, check_body
from dslmut.functions.declarations import declarations, evaluate_annotations
from dslmut.functions.fields import set_field, tensor_field
from dslmut.functions.making import (
    FieldSpec,
    Initial,
    Making,
    fill,
    first_value,
    seeded,
)

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


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

    A subclass with an ``__init__`` of its own is an ordinary module: after ``super().__init__()``
    it assigns its fields, of which a declared tensor becomes the parameter or buffer that the
    class declares. Its ``init`` passes the arguments on.

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
        check_body(cls)

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
            if values or type(self).__init__ is Model.__init__:
                fill(self, values, None)

        def __setattr__(self, name, value):
            declared = declarations(type(self)).get(name)
            if declared is not None and _is_made(self, name):
                set_field(self, name, value)
            elif declared is not None and declared.is_tensor and type(value) is Tensor:
                first_value(self, name, declared, value)  # in an `__init__` of the class
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
            with seeded(seed, cls.__name__), torch.device(device) if device else nullcontext():
                return cls(*args, **given)
        if args:
            raise bad_declaration("`init` takes the seed alone by position", "give fields by name")
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        fill(model, given, Making(seed, dtype, device))
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


def _is_made(model: nn.Module, name: str) -> bool:
    made = "_parameters" in model.__dict__  # else torch says what is missing
    return made and (tensor_field(model, name) is not None or name in model.__dict__)


__all__ = ["FieldSpec", "Model", "buffer", "param"]
