"""Setting a field: checked completely, then written in place into the tensor that is there."""

from __future__ import annotations

import difflib
from typing import Any

import torch
from torch import Tensor, nn

from dslmut.diagnostics.codes.fields import (
    KindDiffers,
    NoSuchField,
    NotAField,
)
from dslmut.diagnostics.wording import an, listed
from dslmut.functions.computed import inverse, parametrized, recomputed
from dslmut.functions.declarations import declarations
from dslmut.functions.fitting import Number, dtype_of, exact, fault, fitting, other_item, other_kind


def set_field(model: nn.Module, name: str, value: object) -> None:
    """Set a field of a model, as ``model.name = value`` does inside ``@fn``.

    A parameter or buffer is written in place under ``torch.no_grad()``: it stays the same object
    at the same address, so that optimizers and ``state_dict()`` refer to it as before. The value
    may overlap the field's own storage.

    Args:
        model: Any module.
        name: A parameter, a buffer, or a plain attribute that exists already.
        value: A tensor of the field's shape, dtype, device and layout; a Python number for a
            field without dimensions; for a plain attribute anything.

    Raises:
        FieldError: E0303, E0401, E0403, E0501, E0502 or E0901; nothing was changed then.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> set_field(layer, "bias", torch.zeros(2))
    """
    write_field(model, name, value, fresh=False)


def write_field(model: nn.Module, name: str, value: Any, fresh: bool) -> None:
    """Check a value, then set the field; ``fresh`` allows to replace a submodule."""
    field = tensor_field(model, name)
    if field is None:
        inner = model._modules.get("_orig_mod")  # torch.compile(model) stands for the model
        if inner is not None:
            write_field(inner, name, value, fresh)
        else:
            _write_other(model, name, value, fresh)
        return
    value = fitting(model, name, field, value)
    with torch.no_grad():
        field.copy_(apart_from(value, field))


def check_field(model: nn.Module, name: str, value: Any, fresh: bool = False) -> None:
    """Raise what setting the field would raise, and change nothing."""
    field = tensor_field(model, name)
    inner = model._modules.get("_orig_mod")
    if field is not None:
        fitting(model, name, field, value)
    elif inner is not None:
        check_field(inner, name, value, fresh)
    elif parametrized(model, name):
        inverse(model, name, value)
    else:
        _check_other(model, name, value, fresh)


def tensor_field(model: nn.Module, name: str) -> Tensor | None:
    """Return the parameter or buffer of that name."""
    field = model._parameters.get(name)
    return model._buffers.get(name) if field is None else field


def apart_from(value: Tensor, field: Tensor) -> Tensor:
    """Return a value that writing the field does not change while it is being read."""
    if torch.compiler.is_compiling():
        # Functionalised: the right side is complete before anything is written.
        return value
    if value is field or not _share_storage(value, field):
        return value
    return value.clone()


def _share_storage(a: Tensor, b: Tensor) -> bool:
    try:
        return a.untyped_storage()._cdata == b.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse tensors, and functorch's wrappers
        return bool(a._is_view() or b._is_view())


def _write_other(model: nn.Module, name: str, value: Any, fresh: bool) -> None:
    if parametrized(model, name):
        originals = inverse(model, name, value)
        with torch.no_grad():
            for original, new in originals:
                original.copy_(apart_from(new, original))
        return
    _check_other(model, name, value, fresh)
    if name in model._modules or isinstance(value, nn.Module):
        nn.Module.__setattr__(model, name, value)
    elif _has_its_own_way(model, name):
        setattr(model, name, value)
    else:
        object.__setattr__(model, name, value)


def _has_its_own_way(model: nn.Module, name: str) -> bool:
    """Say whether a class of the user's sees to assignments itself."""
    cls = type(model)
    return cls.__setattr__ is not nn.Module.__setattr__ and name not in declarations(cls)


def _check_other(model: nn.Module, name: str, value: Any, fresh: bool) -> None:
    if name in model._parameters or name in model._buffers:
        kind = "parameter" if name in model._parameters else "buffer"
        if value is not None:
            raise fault(
                KindDiffers,
                f"the {kind} `{name}` is None in this model, so that there is no tensor to write into",
                fix=f"make the model with a {kind} `{name}`",
            )
    elif name in model._modules or isinstance(value, nn.Module):
        _check_submodule(model, name, fresh)
    elif recomputed(model, name):
        raise _computed_before_forward(model, name)
    else:
        _check_plain(model, name, value)


def refuse_computed(model: nn.Module, name: str) -> None:
    """Refuse to write into a part of what is computed from other parameters: a mere copy of it.

    Raises:
        FieldError: E0303.
    """
    if parametrized(model, name):
        raise fault(
            NotAField,
            f"`{name}` is computed each time that it is read: this would change a mere copy of it",
            fix=f"assign it whole, `m.{name} = ...`, which goes through its parametrization",
        )
    if recomputed(model, name):
        raise _computed_before_forward(model, name)


def _computed_before_forward(model: nn.Module, name: str) -> Exception:
    sources = [f"`{n}`" for n in model._parameters if n.startswith(f"{name}_")]
    return fault(
        NotAField,
        f"`{name}` is computed from other parameters before each forward pass",
        fix=f"set what it is computed from, {' and '.join(sources)}, or use torch.nn.utils.parametrizations",
    )


def _check_submodule(model: nn.Module, name: str, fresh: bool) -> None:
    if fresh:
        return
    if name not in model._modules:
        raise _unknown(model, name)
    raise fault(
        NotAField,
        f"this replaces the submodule `{name}`",
        why="an optimizer that exists already would go on training the old parameters",
        fix=f"set the parameters of `{name}`, or build the model with the new part before its optimizer",
    )


def _check_plain(model: nn.Module, name: str, value: Any) -> None:
    declared = declarations(type(model)).get(name)
    if name not in model.__dict__ and declared is None and not hasattr(type(model), name):
        raise _unknown(model, name)
    if declared is not None and isinstance(declared.hint, type) and declared.hint in _SCALARS:
        wanted, given = declared.hint, type(value)
        if given is not wanted and not (wanted is float and given is int):
            raise fault(
                KindDiffers,
                f"`{name}` is declared `{wanted.__name__}`, the value {value!r} is {an(given.__name__)}",
                fix=f"write `{wanted.__name__}(value)`",
            )


_SCALARS = frozenset({int, float, bool, str, complex})


def _unknown(model: nn.Module, name: str) -> Exception:
    names = field_names(model)
    near = difflib.get_close_matches(name, names, n=1)
    fields = listed(n for n in names if n != "training")
    known = f"; its fields are {fields}" if fields and not near else ""
    return fault(
        NoSuchField,
        f"`{type(model).__name__}` declares no field `{name}`{known}",
        fix=f"write `{near[0]}`" if near else f"declare it in the class: `{name}: ...`",
    )


def field_names(model: nn.Module) -> list[str]:
    """Return the names of everything that can be assigned on a model."""
    own = [n for n in model.__dict__ if not n.startswith("_")]
    return [*model._parameters, *model._buffers, *model._modules, *declarations(type(model)), *own]


def write_item(field: Tensor, index: Any, value: Any) -> None:
    """Set a part of a field in place: a number fills it, a tensor has to have its shape.

    Raises:
        FieldError: E0401, E0403 or E0502; nothing was changed then.
    """
    value = fitting_item(field, index, value)
    with torch.no_grad():
        field[index] = apart_from(value, field) if isinstance(value, Tensor) else value


def fitting_item(field: Tensor, index: Any, value: Any) -> Any:
    """Return what to write into a part of a field.

    Raises:
        FieldError: E0401, E0403 or E0502.
    """
    if not isinstance(value, Tensor):
        if isinstance(value, Number) and exact(field.dtype, value):
            return value
        raise fault(
            KindDiffers,
            f"the field holds {dtype_of(field)}, the value is {an(type(value).__name__)}",
            fix="write the conversion, as in `int(value)` or `torch.as_tensor(value)`",
        )
    part = field.detach()[index]
    if value.shape != part.shape:
        raise other_item(part, value)
    if value.dtype is not field.dtype or value.device != field.device:
        raise other_kind("this item", field, value)
    return value
