"""Does a value fit a tensor field? Shape, dtype, device, layout and domain, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dslmut.diagnostics.codes.base import Code
from dslmut.diagnostics.codes.fields import (
    DimensionDiffers,
    KindDiffers,
    OutsideDomain,
    RankDiffers,
)
from dslmut.diagnostics.raising import user_span
from dslmut.diagnostics.wording import an
from dslmut.functions.declarations import declarations, sizes_of

Number = int | float | complex


def fitting(model: nn.Module, name: str, field: Tensor, value: Any) -> Tensor:
    """Return the tensor to write into a field.

    Raises:
        FieldError: E0401, E0403, E0501 or E0502.
    """
    if not torch.compiler.is_compiling():
        _check_writable(name, field)
    if not isinstance(value, Tensor):
        value = _number(model, name, field, value)
    elif value.shape != field.shape:
        raise _other_shape(model, name, field, value)
    elif (
        value.dtype is not field.dtype
        or value.device != field.device
        or value.layout is not field.layout
    ):
        raise other_kind(name, field, value)
    if not torch.compiler.is_compiling():
        declared = declarations(type(model)).get(name)
        if declared is not None and declared.domain is not None:
            _check_domain(model, name, declared.domain, value)
    return value


def _check_writable(name: str, field: Tensor) -> None:
    """Refuse what torch would refuse halfway, when other fields have been set already."""
    if is_lazy(field):
        raise fault(
            KindDiffers,
            f"`{name}` has no shape yet: it gets one when the model is called for the first time",
            fix="call the model once before, or make it with all sizes",
        )
    if field.is_inference() and not torch.is_inference_mode_enabled():
        raise fault(
            KindDiffers,
            f"`{name}` was made in inference mode, and can be changed in inference mode only",
            fix="make the model outside of `torch.inference_mode()`, or change it inside",
        )
    strides = field.stride() if field.layout is torch.strided else ()
    if 0 in strides and any(size > 1 and not step for size, step in zip(field.shape, strides)):
        raise fault(
            KindDiffers,
            f"`{name}` is an expanded tensor, whose elements are the same in memory",
            fix="register it with `.contiguous()`",
        )


def _number(model: nn.Module, name: str, field: Tensor, value: Any) -> Tensor:
    """Turn a Python number into a value for a field without dimensions."""
    if not isinstance(value, Number):
        advice = (
            "write `torch.as_tensor(value)`" if hasattr(value, "__array__") else "assign a tensor"
        )
        raise fault(
            KindDiffers,
            f"`{name}` is a tensor, the value is {an(type(value).__name__)}",
            fix=advice,
        )
    if field.ndim:
        raise fault(
            RankDiffers,
            f"`{name}` has {_shape(model, name, field)}, the value is a number",
            fix=f"write `torch.full_like(m.{name}, {value})`",
        )
    if not exact(field.dtype, value):
        raise fault(
            KindDiffers,
            f"`{name}` holds {dtype_of(field)}, the value {value!r} is {an(type(value).__name__)}",
            fix="write the conversion, as in `int(value)` or `round(value)`",
        )
    return torch.tensor(value, dtype=field.dtype, device=field.device)


def exact(dtype: torch.dtype, value: Number) -> bool:
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
        return fault(
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
    return fault(
        DimensionDiffers,
        "; ".join(differing),
        fix="write `value.T`"
        if turned
        else "make the value in the shape of the field; nothing is broadcast into it",
    )


def other_kind(name: str, field: Tensor, value: Tensor) -> Exception:
    """Return E0502 for a tensor of another dtype, device or layout."""
    if value.dtype is not field.dtype:
        message = f"`{name}` holds {dtype_of(field)}, the value {dtype_of(value)}"
        fix = f"write the cast: `value.to(m.{name}.dtype)`"
    elif value.device != field.device:
        message = f"`{name}` is on {field.device}, the value on {value.device}"
        fix = f"write the copy: `value.to(m.{name}.device)`"
    else:
        message = f"`{name}` has layout {field.layout}, the value {value.layout}"
        fix = "write the conversion: `value.to_dense()` or `value.to_sparse()`"
    return fault(KindDiffers, message, fix=fix)


def _check_domain(model: nn.Module, name: str, domain: str, value: Tensor) -> None:
    size = int(domain) if domain.isdecimal() else sizes_of(model).get(domain)
    if size is None or value.numel() == 0 or value.is_meta:
        return
    low, high = (int(x) for x in torch.aminmax(value))
    if low < 0 or high >= size:
        worst = low if low < 0 else high
        raise fault(
            OutsideDomain,
            f"`{name}` holds 0 <= i < {domain} = {size}, the value contains {worst}",
            fix=f"write `value.clamp(0, {size - 1})` if that is meant, or enlarge `{domain}`",
        )


def other_item(part: Tensor, value: Tensor) -> Exception:
    """Return E0401 or E0403 for an item of a field."""
    code = RankDiffers if value.ndim != part.ndim else DimensionDiffers
    return fault(
        code,
        f"this item has shape {_sizes(part.shape)}, the value {_sizes(value.shape)}",
        fix="make the value in the shape of the item; nothing is broadcast into it",
    )


def fault(
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


def dtype_of(tensor: Tensor) -> str:
    """Name a dtype as people write it."""
    return str(tensor.dtype).removeprefix("torch.")
