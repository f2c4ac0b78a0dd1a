"""What compiled updates are compared in: kinds of parameters, gradients, two runs side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor import metrics
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from dslmut import OptState

STRATEGIES: dict[str, bool | dict[str, Any]] = {
    "quick": True,
    "torch.compile": {"backend": "inductor"},
    "AOT": {"backend": "aot_eager"},
}
"""The ways in which an update can be compiled, as ``bind`` takes them."""

DENSE: dict[str, Callable[[torch.dtype], Tensor]] = {
    "matrix": lambda d: torch.randn(4, 6, dtype=d),
    "transposed": lambda d: torch.randn(8, 3, dtype=d).T,
    "channels last": lambda d: torch.randn(2, 3, 2, 2, dtype=d).to(memory_format=torch.channels_last),
    "off by one": lambda d: torch.randn(25, dtype=d)[1:].reshape(4, 6),
    "empty": lambda d: torch.randn(0, dtype=d),
    "empty matrix": lambda d: torch.randn(0, 3, dtype=d),
    "one": lambda d: torch.randn(1, dtype=d),
    "one by one": lambda d: torch.randn(1, 1, dtype=d),
    "in several threads": lambda d: torch.randn(61, 47, dtype=d),
}  # fmt: skip
"""Parameters whose elements fill a part of memory, in different orders; equal lengths share kernels."""

OTHERS: dict[str, Callable[[torch.dtype], Tensor]] = {
    "rows with gaps": lambda d: torch.randn(6, 8, dtype=d)[::2, 1:6],
    "elements with gaps": lambda d: torch.randn(5, 14, dtype=d)[:, ::2],
    "permuted with gaps": lambda d: torch.randn(3, 4, 8, dtype=d)[..., ::2].permute(2, 0, 1),
    "0-d": lambda d: torch.randn((), dtype=d),
    "0-d off by one": lambda d: torch.randn(2, dtype=d)[1],
}
"""Parameters that no other layout stands for."""

LAYOUTS = {**DENSE, **OTHERS}

GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as the parameter": lambda v: torch.empty_like(v).copy_(v),
    "dense": lambda v: v.contiguous().clone(),
    "with gaps": lambda v: torch.stack([v, v], -1)[..., 1],
    "in another order": lambda v: v.movedim(0, -1).contiguous().movedim(-1, 0) if v.ndim else v.clone(),
    "off by one": lambda v: torch.cat([v.new_zeros(1), v.reshape(-1)])[1:].reshape(v.shape),
    "expanded": lambda v: (v.reshape(-1)[0] if v.numel() else v.new_zeros(())).expand(v.shape),
}  # fmt: skip


def leaf(value: Tensor) -> Tensor:
    """Return a parameter with the same values at the same places of memory of its own."""
    memory = value.untyped_storage().clone()
    own = torch.empty(0, dtype=value.dtype)
    own.set_(memory, value.storage_offset(), value.shape, value.stride())
    return own.detach().requires_grad_()


def gradients(values: Sequence[Tensor], step: int) -> list[Tensor]:
    """Return a gradient for each parameter, each in one of the layouts, and with zeros at some steps."""
    makers = list(GRADIENTS.values())
    found = []
    for number, v in enumerate(values):
        value = torch.randn(v.shape, dtype=v.dtype)
        if step % 3 == 2:
            value = torch.where(torch.rand(v.shape) < 0.3, 0 * value, value)
        # At first a matrix rule needs a gradient of full rank.
        kind = (step + number) % (len(makers) if step > 2 else len(makers) - 1)
        found.append(makers[kind](value))
    return found


# -- two runs side by side -----------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """The same parameters in two optimizers, of which the second one computes uncompiled.

    Args:
        compiled: The one.
        plain: The other one.
    """

    compiled: OptState[Any]
    plain: OptState[Any]

    @staticmethod
    def of(rule: Any, groups: Sequence[Mapping[str, Any]], option: Any, **options: Any) -> Pair:
        """Bind a rule to parameters with the values of those in groups, twice."""

        def bound(compile: Any) -> OptState[Any]:
            own = [{**g, "params": [leaf(v) for v in g["params"]]} for g in groups]
            return rule.bind(own, compile=compile, **options)

        return Pair(bound(option), bound(False))

    def step(self, given: Sequence[Tensor | None]) -> None:
        """Update both with the same gradients."""
        for opt in (self.compiled, self.plain):
            for p, g in zip(parameters(opt), given):
                p.grad = g
        self.compiled.step()
        with ExactRoots():
            self.plain.step()

    def deviations(self) -> Iterator[tuple[int, str, float]]:
        """Yield the number of a parameter, what of it, and how far it is from the plain one."""
        pairs = zip(parameters(self.compiled), parameters(self.plain))
        for number, (p, q) in enumerate(pairs):
            yield number, "parameter", deviation(p.detach(), q.detach())
            one, other = self.compiled.state[p], self.plain.state[q]
            assert one["updates"] == other["updates"]
            assert list(one) == list(other)
            for name in set(one) - {"updates"}:
                yield number, name, deviation(one[name], other[name])


class ExactRoots(TorchDispatchMode):
    """Rounds square roots as the standard says, and as compiled updates do.

    Those that torch takes from Intel's library on CPUs are off by one unit in the last place, in
    float32 for one number of five.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        root = func is torch.ops.aten.sqrt.default or (
            func is torch.ops.aten.pow.Tensor_Scalar and args[1] == 0.5
        )
        real = root and not isinstance(args[0], FakeTensor)
        if not real or args[0].dtype not in (torch.float32, torch.float64):
            return func(*args, **(kwargs or {}))
        with numpy.errstate(invalid="ignore"):
            found = torch.as_tensor(numpy.sqrt(args[0].detach().numpy()))
        return torch.empty_like(args[0]).copy_(found)


def parameters(opt: OptState[Any]) -> list[Tensor]:
    """Return the parameters of all groups."""
    return [p for g in opt.param_groups for p in g["params"]]


def deviation(own: Tensor, other: Tensor) -> float:
    """Return the largest difference in units of the last place of the largest element.

    Where one is no number, so must be the other; infinities are equal.
    """
    assert (own.dtype, own.shape, own.stride()) == (other.dtype, other.shape, other.stride())
    if own.is_complex():
        own, other = torch.view_as_real(own), torch.view_as_real(other)
    same = (own == other) | (own.isnan() & other.isnan())
    if same.all():
        return 0.0
    if not own.dtype.is_floating_point:
        return float("inf")
    a, b, unit = own.double(), other.double(), torch.finfo(own.dtype).eps
    largest = float(b.nan_to_num(0, 0, 0).abs().max()) or 1.0
    found = float((a - b)[~same].abs().max()) / largest / unit
    return found if found == found else float("inf")


# -- compilations --------------------------------------------------------------------------------


def work() -> dict[str, Any]:
    """Return what the compiler has counted so far."""
    counted = {n: dict(c) for n, c in counters.items() if c}
    return {**counted, "kernels": metrics.generated_kernel_count}


@contextmanager
def no_compilation() -> Iterator[None]:
    """Fail if anything is compiled."""
    before = copy.deepcopy(work())
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    assert work() == before
