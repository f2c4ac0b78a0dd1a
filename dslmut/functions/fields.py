"""Setting a field: checked completely, then written in place into the tensor that is there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from dslmut.diagnostics.codes.base import Code
from dslmut.diagnostics.codes.fields import (
    DimensionDiffers,
    KindDiffers,
    NoSuchField,
    NotAField,
    OutsideDomain,
    RankDiffers,
)
from dslmut.diagnostics.raising import user_span
from dslmut.functions.declarations import declarations, sizes_of

Number = int | float | complex


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
        field.copy_(_apart(value, field))


def check_field(model: nn.Module, name: str, value: Any, fresh: bool = False) -> None:
    """Raise what setting the field would raise, and change nothing."""
    field = tensor_field(model, name)
    inner = model._modules.get("_orig_mod")
    if field is not None:
        fitting(model, name, field, value)
    elif inner is not None:
        check_field(inner, name, value, fresh)
    elif _parametrized(model, name):
        _inverse(model, name, value)
    else:
        _check_other(model, name, value, fresh)


def tensor_field(model: nn.Module, name: str) -> Tensor | None:
    """Return the parameter or buffer of that name."""
    field = model._parameters.get(name)
    return model._buffers.get(name) if field is None else field


def _apart(value: Tensor, field: Tensor) -> Tensor:
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


# -- does a value fit? ---------------------------------------------------------------------------


def fitting(model: nn.Module, name: str, field: Tensor, value: Any) -> Tensor:
    """Return the tensor to write into a field.

    Raises:
        FieldError: E0401, E0403, E0501 or E0502.
    """
    if not isinstance(value, Tensor):
        value = _number(model, name, field, value)
    elif value.shape != field.shape:
        raise _other_shape(model, name, field, value)
    elif (
        value.dtype is not field.dtype
        or value.device != field.device
        or value.layout is not field.layout
    ):
        raise _other_kind(name, field, value)
    if not torch.compiler.is_compiling():
        declared = declarations(type(model)).get(name)
        if declared is not None and declared.domain is not None:
            _check_domain(model, name, declared.domain, value)
    return value


def _number(model: nn.Module, name: str, field: Tensor, value: Any) -> Tensor:
    """Turn a Python number into a value for a field without dimensions."""
    if not isinstance(value, Number):
        advice = (
            "write `torch.as_tensor(value)`" if hasattr(value, "__array__") else "assign a tensor"
        )
        raise _fault(
            KindDiffers,
            f"`{name}` is a tensor, the value is a `{type(value).__name__}`",
            fix=advice,
        )
    if field.ndim:
        raise _fault(
            RankDiffers,
            f"`{name}` has {_shape(model, name, field)}, the value is a number",
            fix=f"write `torch.full_like(m.{name}, {value})`",
        )
    if not _exact(field.dtype, value):
        raise _fault(
            KindDiffers,
            f"`{name}` holds {_dtype(field)}, the value {value!r} is a `{type(value).__name__}`",
            fix="write the conversion, as in `int(value)` or `round(value)`",
        )
    return torch.tensor(value, dtype=field.dtype, device=field.device)


def _exact(dtype: torch.dtype, value: Number) -> bool:
    """Say whether a number is of the kind that a dtype holds, and within its range."""
    if dtype is torch.bool:
        return isinstance(value, bool)
    if dtype.is_complex:
        return True
    if dtype.is_floating_point:
        return not isinstance(value, complex)
    info = torch.iinfo(dtype)
    return isinstance(value, int) and not isinstance(value, bool) and info.min <= value <= info.max


def _other_shape(model: nn.Module, name: str, field: Tensor, value: Tensor) -> Exception:
    if value.ndim != field.ndim:
        return _fault(
            RankDiffers,
            f"`{name}` has {_shape(model, name, field)}, the value has shape {_sizes(value.shape)}",
            fix="make the value in the shape of the field; nothing is broadcast into it",
        )
    names = _names(model, name, field)
    differing = [
        f"{_dimension(names, i)} is {field.shape[i]} in `{name}` and {value.shape[i]} in the value"
        for i in range(field.ndim)
        if field.shape[i] != value.shape[i]
    ]
    turned = field.ndim == 2 and value.shape == field.shape[::-1]
    return _fault(
        DimensionDiffers,
        "; ".join(differing),
        fix="write `value.T`"
        if turned
        else "make the value in the shape of the field; nothing is broadcast into it",
    )


def _other_kind(name: str, field: Tensor, value: Tensor) -> Exception:
    if value.dtype is not field.dtype:
        message = f"`{name}` holds {_dtype(field)}, the value {_dtype(value)}"
        fix = f"write the cast: `value.to(m.{name}.dtype)`"
    elif value.device != field.device:
        message = f"`{name}` is on {field.device}, the value on {value.device}"
        fix = f"write the copy: `value.to(m.{name}.device)`"
    else:
        message = f"`{name}` has layout {field.layout}, the value {value.layout}"
        fix = "write the conversion: `value.to_dense()` or `value.to_sparse()`"
    return _fault(KindDiffers, message, fix=fix)


def _check_domain(model: nn.Module, name: str, domain: str, value: Tensor) -> None:
    size = int(domain) if domain.isdecimal() else sizes_of(model).get(domain)
    if size is None or value.numel() == 0 or value.is_meta:
        return
    low, high = (int(x) for x in torch.aminmax(value))
    if low < 0 or high >= size:
        worst = low if low < 0 else high
        raise _fault(
            OutsideDomain,
            f"`{name}` holds 0 <= i < {domain} = {size}, the value contains {worst}",
            fix=f"write `value.clamp(0, {size - 1})` if that is meant, or enlarge `{domain}`",
        )


# -- what is no tensor ---------------------------------------------------------------------------


def _write_other(model: nn.Module, name: str, value: Any, fresh: bool) -> None:
    if _parametrized(model, name):
        originals = _inverse(model, name, value)
        with torch.no_grad():
            for original, new in originals:
                original.copy_(_apart(new, original))
        return
    _check_other(model, name, value, fresh)
    if name in model._modules or isinstance(value, nn.Module):
        nn.Module.__setattr__(model, name, value)
    else:
        object.__setattr__(model, name, value)


def _check_other(model: nn.Module, name: str, value: Any, fresh: bool) -> None:
    if name in model._parameters or name in model._buffers:
        kind = "parameter" if name in model._parameters else "buffer"
        if value is not None:
            raise _fault(
                KindDiffers,
                f"the {kind} `{name}` is None in this model, so that there is no tensor to write into",
                fix=f"make the model with a {kind} `{name}`",
            )
    elif name in model._modules or isinstance(value, nn.Module):
        _check_submodule(model, name, fresh)
    elif _recomputed(model, name):
        raise _fault(
            NotAField,
            f"`{name}` is computed from other parameters before each forward pass",
            fix=f"set the parameters that it is computed from, such as `{name}_g` and `{name}_v`, "
            "or use torch.nn.utils.parametrizations",
        )
    else:
        _check_plain(model, name, value)


def _check_submodule(model: nn.Module, name: str, fresh: bool) -> None:
    if fresh:
        return
    if name not in model._modules:
        raise _unknown(model, name)
    raise _fault(
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
            raise _fault(
                KindDiffers,
                f"`{name}` is declared `{wanted.__name__}`, the value {value!r} is a `{given.__name__}`",
                fix=f"write `{wanted.__name__}(value)`",
            )


_SCALARS = frozenset({int, float, bool, str, complex})


def _unknown(model: nn.Module, name: str) -> Exception:
    near = difflib.get_close_matches(name, field_names(model), n=1)
    kind = type(model).__name__
    return _fault(
        NoSuchField,
        f"`{kind}` declares no field `{name}`",
        fix=f"write `{near[0]}`" if near else f"declare it in the class: `{name}: ...`",
    )


def field_names(model: nn.Module) -> list[str]:
    """Return the names of everything that can be assigned on a model."""
    own = [n for n in model.__dict__ if not n.startswith("_")]
    return [*model._parameters, *model._buffers, *model._modules, *declarations(type(model)), *own]


# -- computed fields -----------------------------------------------------------------------------


def _parametrized(model: nn.Module, name: str) -> bool:
    return "parametrizations" in model._modules and parametrize.is_parametrized(model, name)


def _inverse(model: nn.Module, name: str, value: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors that a parametrized field is computed from, each with its new value."""
    parametrizations: Any = model.parametrizations
    chain = parametrizations[name]
    with torch.no_grad():
        value = fitting(model, name, _computed(chain), value)
        for step in reversed(chain):
            if not hasattr(step, "right_inverse"):
                raise _fault(
                    NotAField,
                    f"`{name}` is computed by `{type(step).__name__}`, which has no `right_inverse`",
                    fix=f"set `m.parametrizations.{name}.original`, or give the parametrization a `right_inverse`",
                )
            value = step.right_inverse(value)
    if chain.is_tensor:
        return [(chain.original, value)]
    return [(getattr(chain, f"original{i}"), v) for i, v in enumerate(value)]


def _computed(chain: nn.Module) -> Tensor:
    """Compute a parametrized field; in training mode some, as spectral norm, would write buffers."""
    copies = {n: b.clone() for n, b in chain.named_buffers()}
    return torch.func.functional_call(chain, copies, ())


def _recomputed(model: nn.Module, name: str) -> bool:
    """Say whether an old-style ``weight_norm`` or ``spectral_norm`` overwrites an attribute."""
    hooks = model._forward_pre_hooks.values()
    return any(
        getattr(h, "name", None) == name and type(h).__module__.startswith("torch.nn.utils")
        for h in hooks
    )


# -- items ---------------------------------------------------------------------------------------


def write_item(field: Tensor, index: Any, value: Any) -> None:
    """Set a part of a field in place: a number fills it, a tensor has to have its shape.

    Raises:
        FieldError: E0401, E0403 or E0502; nothing was changed then.
    """
    if isinstance(value, Tensor):
        part = field.detach()[index]
        if value.shape != part.shape:
            raise _other_item(part, value)
        if value.dtype is not field.dtype or value.device != field.device:
            raise _other_kind("this item", field, value)
        value = _apart(value, field)
    elif not (isinstance(value, Number) and _exact(field.dtype, value)):
        raise _fault(
            KindDiffers,
            f"the field holds {_dtype(field)}, the value is a `{type(value).__name__}`",
            fix="write the conversion, as in `int(value)` or `torch.as_tensor(value)`",
        )
    with torch.no_grad():
        field[index] = value  # pyright: ignore[reportArgumentType]


def _other_item(part: Tensor, value: Tensor) -> Exception:
    code = RankDiffers if value.ndim != part.ndim else DimensionDiffers
    return _fault(
        code,
        f"this item has shape {_sizes(part.shape)}, the value {_sizes(value.shape)}",
        fix="make the value in the shape of the item; nothing is broadcast into it",
    )


# -- errors and their words --------------------------------------------------------------------------


def _fault(
    code: type[Code], message: str, *, fix: str | None = None, why: str | None = None
) -> Exception:
    """Return the error of a code; to a compiler one that it can carry, with the same words."""
    if torch.compiler.is_compiling():
        return ValueError(f"{code.code} {message}")
    return code.raised(user_span(), message, fix=fix, why=why)


def _names(model: nn.Module, name: str, field: Tensor) -> tuple[str, ...] | None:
    if torch.compiler.is_compiling():
        return None
    declared = declarations(type(model)).get(name)
    dimensions = declared.dimensions if declared is not None else None
    return dimensions if dimensions is not None and len(dimensions) == field.ndim else None


def _dimension(names: tuple[str, ...] | None, i: int) -> str:
    return f"dimension `{names[i]}`" if names else f"dimension {i}"


def _shape(model: nn.Module, name: str, field: Tensor) -> str:
    names = _names(model, name, field)
    declared = f', declared "{" ".join(names)}"' if names else ""
    return f"shape {_sizes(field.shape)}{declared}"


def _sizes(shape: Iterable[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
