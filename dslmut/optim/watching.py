"""What a body must not do: seen in the calls of torch's functions, before anything is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from dslmut.diagnostics.codes.optimizers import (
    ArrayFromTensor,
    BranchOnTensor,
    NumberFromTensor,
    RandomInBody,
)
from dslmut.diagnostics.raising import user_span

if TYPE_CHECKING:
    from dslmut.optim.trace import Tracer

from dslmut.optim.scalars import Scalar

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


_REFUSED: dict[Any, tuple[Any, str, str]] = {
    torch.Tensor.__bool__: _BRANCH,
    torch.Tensor.item: _ITEM,
    torch.Tensor.tolist: _ITEM,
    torch.Tensor.__float__: _ITEM,
    torch.Tensor.__int__: _ITEM,
    torch.Tensor.__index__: _ITEM,
    torch.Tensor.__complex__: _ITEM,
    torch.Tensor.__format__: _ITEM,
    torch.Tensor.__repr__: _ITEM,
    torch.Tensor.numpy: _NUMPY,
    torch.Tensor.__array__: _NUMPY,
    torch.is_nonzero: _BRANCH,
    torch.equal: _BRANCH,
    torch.allclose: _BRANCH,
}


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
        refused = _REFUSED.get(func)
        if refused is not None:
            code, message, fix = refused
            raise code.raised(user_span(), message, fix=fix)
        flat = tree_flatten((args, kwargs))[0]
        for value in flat:
            if isinstance(value, Tensor) and not isinstance(value, FakeTensor):
                raise self.tracer.captured(value)
        if any(isinstance(value, Scalar) for value in flat):
            return self.tracer.torch_call(func, args, kwargs)
        return func(*args, **kwargs)
