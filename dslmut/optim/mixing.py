"""Calls of torch's functions that got a scalar of the scalar program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from dslmut.diagnostics.codes.bodies import NumberFromTensor
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.optim.expressions import FUNCTIONS
from dslmut.optim.scalars import Scalar, operation


def call(function: Any, args: Any, kwargs: Any, tensor_of: Callable[[Scalar, bool], Tensor]) -> Any:
    """Return what a function of torch gives for scalars, and for tensors beside them.

    Args:
        function: Of torch.
        args: Its arguments; one of them, or of *kwargs*, is a scalar.
        kwargs: Its arguments by name.
        tensor_of: Gives the tensor of a scalar; the flag says whether whole numbers stay such.

    Raises:
        OptimizerError: E-OPT-022 if the function takes only numbers there.
    """
    name = getattr(function, "__name__", "")
    tensors = [a for a in tree_flatten((args, kwargs))[0] if isinstance(a, Tensor)]
    if not tensors and name in _ALONE:
        return _ALONE[name](*args, **kwargs)
    whole = not any(t.is_floating_point() for t in tensors)

    def replaced(value: Any) -> Any:
        return tensor_of(value, whole) if isinstance(value, Scalar) else value

    new_args, new_kwargs = tree_map(replaced, (args, kwargs))
    try:
        return (_WITH_TENSORS.get(name) or function)(*new_args, **new_kwargs)
    except DslmutError:
        raise
    except Exception as error:
        numbers = tree_map(lambda a: a.value if isinstance(a, Scalar) else a, (args, kwargs))
        function(*numbers[0], **numbers[1])  # raises what the call would raise for plain numbers
        scalar = next(a for a in tree_flatten((args, kwargs))[0] if isinstance(a, Scalar))
        raise NumberFromTensor.raised(
            user_span(),
            f"`torch.{name}` takes a plain number where `{scalar.expression}` stands, which changes "
            "from step to step",
            fix="write what it computes with arithmetic, `torch.where` or `torch.maximum`",
        ) from error


# -- scalars alone -------------------------------------------------------------------------------


def _clamped(x: Any, min: Any = None, max: Any = None) -> Any:
    if min is not None:
        x = operation("maximum", x, min)
    return x if max is None else operation("minimum", x, max)


def _named(op: str) -> Callable[..., Any]:
    return lambda *operands: operation(op, *operands)


_OTHER_NAMES = {
    "true_divide": "div", "divide": "div", "subtract": "sub", "multiply": "mul", "absolute": "abs",
    "negative": "neg", "power": "pow", "remainder": "mod", "floor_divide": "floordiv",
    "min": "minimum", "max": "maximum",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "not_equal": "ne",
    "logical_not": "not", "logical_and": "and", "logical_or": "or", "logical_xor": "xor",
}  # fmt: skip

_ALONE: dict[str, Callable[..., Any]] = {
    **{name: _named(name) for name in FUNCTIONS},
    **{name: _named(op) for name, op in _OTHER_NAMES.items()},
    "round": lambda x, *, decimals=0: operation("round", x, decimals),
    "clamp": _clamped, "clip": _clamped,
    "clamp_min": _clamped, "clamp_max": lambda x, max: _clamped(x, None, max),
}  # fmt: skip
"""What functions of torch do to scalars, where no tensor is among the arguments."""


# -- scalars and tensors -------------------------------------------------------------------------


def _times(x: Any, factor: Any) -> Any:
    return x if factor is None else x * factor


def _sum(x: Any, y: Any, *, alpha: Any = None) -> Any:
    return x + _times(y, alpha)


def _difference(x: Any, y: Any, *, alpha: Any = None) -> Any:
    return x - _times(y, alpha)


def _reverse_difference(x: Any, y: Any, *, alpha: Any = None) -> Any:
    return y - _times(x, alpha)


def _interpolated(start: Any, end: Any, weight: Any) -> Any:
    return start + weight * (end - start)


def _with_product(x: Any, a: Any, b: Any, *, value: Any = None) -> Any:
    return x + _times(a, value) * b


def _with_quotient(x: Any, a: Any, b: Any, *, value: Any = None) -> Any:
    return x + _times(a, value) / b


def _affine(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda x, a, b, *, beta=None, alpha=None: _times(x, beta) + _times(product(a, b), alpha)


def _limited(x: Any, min: Any = None, max: Any = None) -> Any:
    for limit, choose in ((min, torch.maximum), (max, torch.minimum)):
        if limit is not None:
            x = choose(x, limit if isinstance(limit, Tensor) else torch.full_like(x, limit))
    return x


def _filled(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    return torch.zeros(size, dtype=dtype, device=device) + fill_value.to(
        dtype or torch.get_default_dtype()
    )


def _filled_like(x: Any, fill_value: Any, **kind: Any) -> Any:
    zeros = torch.zeros_like(x, **kind)
    return zeros + fill_value.to(zeros.dtype)


def _newly_filled(x: Any, size: Any, fill_value: Any, **kind: Any) -> Any:
    zeros = x.new_zeros(size, **kind)
    return zeros + fill_value.to(zeros.dtype)


def _masked(x: Any, mask: Any, value: Any) -> Any:
    return torch.where(mask, value.to(x.dtype), x)


def _array(data: Any, *, dtype: Any = None, device: Any = None) -> Any:
    if isinstance(data, list | tuple):
        return torch.stack([_array(d, dtype=dtype, device=device) for d in data])
    if not isinstance(data, Tensor):
        return torch.tensor(data, dtype=dtype or torch.get_default_dtype(), device=device)
    exact = data.dtype is torch.float64 and dtype is None
    return data.to(torch.get_default_dtype()) if exact else data.to(dtype or data.dtype)


_WITH_TENSORS: dict[str, Callable[..., Any]] = {
    "add": _sum, "sub": _difference, "subtract": _difference, "rsub": _reverse_difference,
    "lerp": _interpolated, "addcmul": _with_product, "addcdiv": _with_quotient,
    "addmm": _affine(torch.matmul), "addmv": _affine(torch.matmul), "addr": _affine(torch.outer),
    "baddbmm": _affine(torch.matmul),
    "clamp": _limited, "clip": _limited, "clamp_min": _limited,
    "clamp_max": lambda x, max: _limited(x, None, max),
    "full": _filled, "full_like": _filled_like, "new_full": _newly_filled,
    "masked_fill": _masked, "tensor": _array, "as_tensor": _array,
}  # fmt: skip
"""Functions that take only numbers somewhere, written with functions that take tensors there."""
