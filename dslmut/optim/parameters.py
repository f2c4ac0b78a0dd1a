"""What an optimizer is bound to: a model, parameters, named ones, or groups of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dslmut.diagnostics.codes.optimizers import BadBinding
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span


@dataclass(frozen=True)
class Arrangement:
    """The parameters of a target in groups.

    Args:
        groups: As torch has them.
        model: The name of the model's class, if the target is one.
        notes: What ``explain`` says of parameters, by their names.
    """

    groups: list[dict[str, Any]]
    model: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)


def arrangement(target: Any) -> Arrangement:
    """Return the groups of a target, a single one unless it consists of some."""
    if isinstance(target, nn.Module):
        names = names_of(target)
        group = {"params": list(names), "param_names": [n[0] for n in names.values()]}
        return Arrangement([group], type(target).__name__, tied(names.values()))
    return Arrangement(_groups(target))


def names_of(model: nn.Module) -> dict[Tensor, list[str]]:
    """Return the parameters of a model, each with all names that it has; its own is the first."""
    names: dict[Tensor, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    if not names:
        raise bad_binding(
            f"`{type(model).__name__}` has no parameters", "bind it to a model that has some"
        )
    return names


def tied(names: Iterable[Sequence[str]]) -> dict[str, str]:
    """Return notes on the parameters that have several names."""
    return {n[0]: f"also {', '.join(n[1:])}" for n in names if len(n) > 1}


def _groups(target: Any) -> list[dict[str, Any]]:
    if isinstance(target, Tensor):
        raise bad_binding("this is a single tensor", "put it into a list: `[tensor]`")
    if isinstance(target, dict):
        raise bad_binding("this is a dictionary", "put it into a list: `[group]`")
    if isinstance(target, set | frozenset):
        return [opened({"params": target})]
    items = listed(target)
    if not items:
        raise bad_binding(
            "there are no parameters", "give a model; an iterator can be used only once"
        )
    if all(isinstance(i, dict) for i in items):
        return [opened(i) for i in items]
    return [opened({"params": items})]


def listed(target: Any) -> list[Any]:
    """Return what a target consists of (E-OPT-005 for something that consists of nothing)."""
    try:
        return list(iter(target))
    except TypeError:
        raise bad_binding(
            f"this is a `{type(target).__name__}`",
            "give a model, its parameters, named parameters, or groups of them",
        ) from None


def opened(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group with its parameters in a list, and their names in another if they have any.

    Raises:
        OptimizerError: E-OPT-005 for a group without parameters, or in no order.
    """
    if not isinstance(group, dict):
        raise bad_binding(
            f"a group is a dictionary, not a `{type(group).__name__}`",
            'write `{"params": [...], "lr": 0.1}`',
        )
    if "params" not in group:
        raise bad_binding("a group has no `params`", 'write `{"params": [...], "lr": 0.1}`')
    params = group["params"]
    if isinstance(params, nn.Module):
        params = params.named_parameters()
    if isinstance(params, set | frozenset):
        raise bad_binding(
            "a set of parameters has another order in each run, by which states are saved",
            "give a list",
        )
    items = [params] if isinstance(params, Tensor) else listed(params)
    if items and all(isinstance(i, tuple) and len(i) == 2 for i in items):
        return {**group, "params": [p for _, p in items], "param_names": [n for n, _ in items]}
    return {**group, "params": items}


def check_names(names: Sequence[str]) -> None:
    """Refuse a name that two parameters have: states are saved by name (E-OPT-005)."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise bad_binding(
                f"two parameters are called `{name}`, and states are saved by name",
                'tell them apart: `[(f"encoder.{n}", p) for n, p in encoder.named_parameters()]`',
                "the states of one would be loaded as those of the other",
            )
        seen.add(name)


def overlapping(parameters: Sequence[Tensor]) -> set[int]:
    """Return the numbers of the parameters that share memory with another one."""
    found: set[int] = set()
    last: dict[int, tuple[int, int]] = {}
    ranges = [(*_range(p), i) for i, p in enumerate(parameters) if not is_lazy(p) and p.numel()]
    for storage, start, end, number in sorted(ranges):
        before = last.get(storage)
        if before is not None and start < before[0]:
            found |= {number, before[1]}
        if before is None or end > before[0]:
            last[storage] = (end, number)
    return found


def _range(p: Tensor) -> tuple[int, int, int]:
    """Return the storage of a tensor, and the elements of it that it lies in."""
    start = int(p.storage_offset())
    end = start + 1 + sum((n - 1) * s for n, s in zip(p.shape, p.stride()))
    return p.untyped_storage()._cdata, start, int(end)


def check_parameters(parameters: Sequence[Any], groups: Sequence[dict[str, Any]]) -> None:
    """Refuse what is no parameter, or stands in a group already (E-OPT-005)."""
    seen = {id(p) for g in groups for p in g["params"]}
    for p in parameters:
        if not isinstance(p, Tensor):
            raise bad_binding(
                f"a `{type(p).__name__}` stands among the parameters",
                "give a model, its parameters, or pairs of name and parameter",
            )
        if not p.is_leaf:
            raise bad_binding(
                f"a tensor of shape {list(p.shape)} was computed from others, so that it is no parameter",
                "give the parameter itself, made with `requires_grad=True` or as `nn.Parameter`",
            )
        if id(p) in seen:
            raise bad_binding(
                f"a parameter of shape {list(p.shape)} is given twice",
                "give each parameter once; a tied one stands in `named_parameters()` once already",
                "it would be updated twice at each step",
            )
        if is_traceable_wrapper_subclass(p):
            raise bad_binding(
                f"a parameter of shape {list(p.shape)} is a `{type(p).__name__}`, which holds other tensors",
                "update it by an optimizer of `torch.optim`; sharded and quantized parameters are not "
                "supported yet",
            )
        if p.layout is not torch.strided:
            raise bad_binding(
                f"a parameter of shape {list(p.shape)} has the layout {p.layout}",
                "make it dense: `nn.Parameter(tensor.to_dense())`",
            )
        if not is_lazy(p) and any(s == 0 and n > 1 for s, n in zip(p.stride(), p.shape)):
            raise bad_binding(
                f"a parameter of shape {list(p.shape)} is expanded: several elements share one place",
                "make it dense: `nn.Parameter(tensor.clone())`",
            )
        if not is_lazy(p) and (p.is_conj() or p.is_neg()):
            raise bad_binding(
                f"a parameter of shape {list(p.shape)} is a conjugate or negative view of another tensor",
                "give it memory of its own: `nn.Parameter(tensor.resolve_conj().resolve_neg())`",
            )
        if p.dtype is torch.complex32:
            raise bad_binding(
                f"a parameter of shape {list(p.shape)} holds torch.complex32, which torch hardly computes with",
                "keep it as `torch.complex64`",
            )
        if not (p.is_floating_point() or p.is_complex()):
            raise bad_binding(f"a parameter holds {p.dtype}, which has no gradient", "leave it out")
        seen.add(id(p))


def is_lazy(p: Tensor) -> bool:
    """Say whether a parameter does not exist yet."""
    return nn.parameter.is_lazy(p) or p.is_meta


def bad_binding(message: str, fix: str, why: str | None = None) -> DslmutError:
    """Return E-OPT-005."""
    return BadBinding.raised(user_span(), message, fix=fix, why=why)
