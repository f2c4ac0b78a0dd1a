"""What a body must not do: seen in the calls of torch's functions, before anything is done."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from dslmut.diagnostics.codes.bodies import (
    ArrayFromTensor,
    BranchOnTensor,
    InPlaceInBody,
    NumberFromTensor,
    RandomInBody,
)
from dslmut.diagnostics.raising import user_span
from dslmut.functions.locate import heading

if TYPE_CHECKING:
    from dslmut.optim.trace import Tracer

from dslmut.optim.scalars import Scalar
from dslmut.optim.widening import is_low

_BRANCH = (
    BranchOnTensor,
    "the truth of a tensor is asked, which has no value yet",
    "write `torch.where(condition, a, b)`; for a choice by shape use `param.shape` or `param.ndim`",
)


_ITEM = (
    NumberFromTensor,
    "a number is asked of a tensor, which has no value yet",
    "compute with the tensor as it is; to look at it, report it: `diagnostic(name, value)`",
)


_NUMPY = (
    ArrayFromTensor,
    "a tensor is given to NumPy, and has no value yet",
    "use the function of the same name in `torch`",
)


_ABSENT = (
    NumberFromTensor,
    "something is asked of a tensor in the body that only the parameter itself has",
    "a body sees values, shapes, dtypes and devices alone; decide the rest by groups",
)


_WRITE = (
    InPlaceInBody,
    "a tensor is changed in a way that the update graph cannot hold",
    "compute a new value, and return it by `optimizer_update`",
)


_METHODS = {
    **dict.fromkeys("__bool__ __contains__ equal allclose is_nonzero".split(), _BRANCH),
    **dict.fromkeys(
        "item tolist __float__ __int__ __index__ __complex__ __format__ __repr__".split(), _ITEM
    ),
    **dict.fromkeys(["numpy", "__array__"], _NUMPY),
    **dict.fromkeys(
        "data_ptr storage_offset untyped_storage storage register_hook".split(), _ABSENT
    ),
    **dict.fromkeys("requires_grad_ apply_ map_ map2_ share_memory_ backward".split(), _WRITE),
}
_REFUSED: dict[Any, tuple[Any, str, str]] = {
    **{getattr(torch.Tensor, name): refusal for name, refusal in _METHODS.items()},
    **dict.fromkeys([torch.is_nonzero, torch.equal, torch.allclose], _BRANCH),
}
_READ = {
    **dict.fromkeys("requires_grad is_leaf grad_fn _version _base _cdata retains_grad".split(), _ABSENT),
    "grad": (
        NumberFromTensor,
        "`.grad` is asked of a tensor in the body, which has none",
        "use the gradient that the body gets as its second argument",
    ),
}  # fmt: skip


def _refusal(function: Any) -> tuple[Any, str, str] | None:
    """Say why a function, or access to an attribute, is refused in a body; None if it is not."""
    name = getattr(function, "__name__", "")
    if name == "__get__":
        return _READ.get(getattr(function.__self__, "__name__", ""))
    return _WRITE if name in ("__set__", "__delete__") else _REFUSED.get(function)


@contextmanager
def unchanged_generators(definition: Any) -> Iterator[None]:
    """Refuse a rule that draws from, or seeds, the generators that the program uses (E-OPT-024)."""
    generators = [(random.getstate, random.setstate), (torch.get_rng_state, torch.set_rng_state)]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        generators.append((numpy.random.get_state, numpy.random.set_state))
    before = [get() for get, _ in generators]
    yield
    if all(map(_same, before, [get() for get, _ in generators])):
        return
    for (_, put), state in zip(generators, before):
        put(state)
    raise RandomInBody.raised(
        heading(definition.source),
        f"`{definition.__name__}` changes the state of a global generator of random numbers",
        fix="add the noise to the gradient before the step, with a generator of your own",
    )


def _same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) else repr(a) == repr(b)


class Recorder(TorchDispatchMode):
    """Sees every operation on tensors, after torch has broken it into its basic ones."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise RandomInBody.raised(
                user_span(),
                f"`{func._schema.name.partition('::')[2]}` draws from the global generator",
                fix="add the noise to the gradient before the step, with a generator of your own",
            )
        self.tracer.check_writes(func, args, kwargs)
        result = func(*args, **kwargs)
        self.tracer.record(func, args, kwargs, result)
        return result


class Watcher(TorchFunctionMode):
    """Sees every call of torch's functions, before anything is done: what needs values is refused."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        refused = _refusal(func)
        if refused is not None:
            code, message, fix = refused
            raise code.raised(user_span(), message, fix=fix)
        flat = tree_flatten((args, kwargs))[0]
        for value in flat:
            if isinstance(value, Tensor) and not isinstance(value, FakeTensor):
                raise self.tracer.captured(value)
        self.tracer.calling = _called(func)
        try:
            if any(isinstance(value, Scalar) for value in flat):
                return self.tracer.torch_call(func, args, kwargs)
            result = func(*args, **kwargs)
            if flat and result is flat[0] and _asks_for_low(func, flat):
                # Nothing to do for torch; but what is computed is wider, and the cast rounds it.
                return torch.ops.aten._to_copy.default(result, dtype=result.dtype)
            return result
        finally:
            self.tracer.calling = ""


def _called(function: Any) -> str:
    """Return the name of a function as a body writes it: `T` for what reads that attribute."""
    name = getattr(function, "__name__", "")
    if name == "__get__":
        return getattr(function.__self__, "__name__", "")
    return name.partition(".")[0]


_CASTS = frozenset("to type type_as bfloat16 half".split())


def _asks_for_low(function: Any, flat: list[Any]) -> bool:
    """Say whether a function casts to a low precision, by a dtype or by a tensor that has it."""
    name = getattr(function, "__name__", "")
    if name not in _CASTS or not is_low(flat[0].dtype):
        return False
    return name != "to" or any(isinstance(x, torch.dtype | Tensor) for x in flat[1:])
