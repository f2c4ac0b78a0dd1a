"""Fields that are computed from others: parametrizations and old-style norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from dslmut.diagnostics.codes.fields import (
    NotAField,
)
from dslmut.functions.fitting import fault, fitting


def parametrized(model: nn.Module, name: str) -> bool:
    """Say whether a field is computed by ``torch.nn.utils.parametrize``."""
    return "parametrizations" in model._modules and parametrize.is_parametrized(model, name)


def inverse(model: nn.Module, name: str, value: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors that a parametrized field is computed from, each with its new value."""
    parametrizations: Any = model.parametrizations
    chain = parametrizations[name]
    with torch.no_grad():
        value = fitting(model, name, _computed(chain), value)
        for step in reversed(chain):
            if not hasattr(step, "right_inverse"):
                raise fault(
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


def recomputed(model: nn.Module, name: str) -> bool:
    """Say whether an old-style norm, or pruning, overwrites an attribute."""
    return any(
        name in (getattr(hook, "name", None), getattr(hook, "_tensor_name", None))
        and type(hook).__module__.startswith("torch.nn.utils")
        for hook in model._forward_pre_hooks.values()
    )
