"""What a body must not do: seen in the calls of torch's functions, before anything is done."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, UnsupportedOperatorException
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from dslmut.checking.tracing import refusals, tables
from dslmut.checking.tracing.refusals import Refusal
from dslmut.diagnostics.codes.bodies import RandomInBody
from dslmut.diagnostics.raising import user_span
from dslmut.functions.locate import heading

if TYPE_CHECKING:
    from dslmut.optim.trace import Tracer

from dslmut.optim import naming
from dslmut.optim.scalars import Scalar
from dslmut.optim.widening import is_low

_METHODS = {
    **dict.fromkeys(tables.BRANCHING, refusals.BRANCH),
    **dict.fromkeys(tables.READING | {"__repr__"}, refusals.ITEM),
    **dict.fromkeys(tables.ARRAYS, refusals.ARRAY),
    **dict.fromkeys(tables.ABSENT, refusals.ABSENT),
    **dict.fromkeys(tables.WRITING, refusals.WRITE),
}
_REFUSED: dict[Any, Refusal] = {
    **{getattr(torch.Tensor, name): refusal for name, refusal in _METHODS.items()},
    **dict.fromkeys([torch.is_nonzero, torch.equal, torch.allclose], refusals.BRANCH),
}
_READ = {
    **dict.fromkeys({*tables.ABSENT_ATTRIBUTES, "_cdata"}, refusals.ABSENT),
    "grad": refusals.GRAD,
}


def _refusal(function: Any) -> Refusal | None:
    """Say why a function, or access to an attribute, is refused in a body; None if it is not."""
    name = getattr(function, "__name__", "")
    if name == "__get__":
        return _READ.get(getattr(function.__self__, "__name__", ""))
    return refusals.WRITE if name in ("__set__", "__delete__") else _REFUSED.get(function)


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
        fix="draw by `ctx.rand_like(t)` or `ctx.randn_like(t)`, which depend on seed, step and parameter alone",
    )


def _same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) else pickle.dumps(a) == pickle.dumps(b)


_QUANTIZED = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}
_PACKING = {torch.ops.aten.to_mkldnn.default}


def _is_dtype(value: Any) -> bool:
    return isinstance(value, torch.dtype)


class Recorder(TorchDispatchMode):
    """Sees every operation on tensors, after torch has broken it into its basic ones."""

    supports_higher_order_operators = True  # to refuse them

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            raise refusals.runs_functions(func.name()).raised(user_span())
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise refusals.draws(func._schema.name.partition("::")[2]).raised(user_span())
        if func in _PACKING or not _QUANTIZED.isdisjoint(
            filter(_is_dtype, (*args, *kwargs.values()))
        ):
            raise refusals.packs(func._schema.name.partition("::")[2]).raised(user_span())
        self.tracer.check_writes(func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except (UnsupportedOperatorException, RuntimeError) as error:
            if "fake impl" in str(error) or isinstance(error, UnsupportedOperatorException):
                raise refusals.says_no_shape(func._schema.name).raised(user_span()) from error
            raise
        self.tracer.record(func, args, kwargs, result)
        return result


class Watcher(TorchFunctionMode):
    """Sees every call of torch's functions, before anything is done: what needs values is refused."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat = tree_flatten((args, kwargs))[0]
        given = [v for v in flat if isinstance(v, Tensor)]
        refused = _refusal(func)
        if refused is not None and not (refused in _OF_TRANSFORMS and any(map(_inside, given))):
            raise refused.raised(user_span())
        for value in given:
            if not isinstance(value, FakeTensor) and not _inside(value):
                raise self.tracer.captured(value)
        naming.note(self.tracer, sys._getframe(1))
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


_inside = is_functorch_wrapped_tensor
"""Says whether a tensor is one that a function under `vmap` or `torch.func.grad` sees."""

_OF_TRANSFORMS = (refusals.WRITE, refusals.ABSENT)
"""What these transforms do themselves, to mark their tensors; the recorder sees any real write."""


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
