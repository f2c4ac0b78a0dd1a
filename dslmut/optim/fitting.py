"""Gradients and states in the layouts that the graphs were traced for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dslmut.diagnostics.codes.optimizers import BadBinding, ForeignCheckpoint
from dslmut.diagnostics.raising import user_span
from dslmut.optim.numbers import Item
from dslmut.optim.programs import Program
from dslmut.optim.recording import State


def fit_gradient(item: Item, gradient: Tensor) -> Tensor:
    """Return a gradient laid out as its parameter is.

    Raises:
        OptimizerError: E-OPT-005 for one that is sparse or of another shape, or complex where the
            parameter is real.
    """
    parameter = item.parameter
    if gradient.layout is not torch.strided or gradient.shape != parameter.shape:
        raise BadBinding.raised(
            user_span(),
            f"the gradient of `{item.name}` has shape {list(gradient.shape)} and layout "
            f"{gradient.layout}, the parameter shape {list(parameter.shape)}",
            fix="use dense gradients of the parameter's shape, as in `nn.Embedding(sparse=False)`",
            why="a rule computes each element of the parameter from the gradient's element in its place",
        )
    if gradient.is_complex() and not parameter.is_complex():
        raise BadBinding.raised(
            user_span(),
            f"the gradient of `{item.name}` is complex, and the parameter is real",
            fix="give its real part, `gradient.real`, if that is what the loss depends on",
            why="a real parameter cannot move by a complex number",
        )
    gradient = gradient.resolve_conj().resolve_neg()  # kernels read memory as it is
    same = gradient.stride() == parameter.stride() and gradient.dtype is parameter.dtype
    if same and gradient.device == parameter.device:
        return gradient
    return _like(parameter).copy_(gradient)


def _like(parameter: Tensor) -> Tensor:
    shape, stride = parameter.shape, parameter.stride()
    return torch.empty_strided(shape, stride, dtype=parameter.dtype, device=parameter.device)


def fit_states(item: Item, program: Program, states: dict[str, Any]) -> None:
    """Make the states that a parameter lacks, and lay out the others as the rule declares them.

    So a parameter that has changed its dtype or device takes its states along.

    Raises:
        OptimizerError: E-OPT-007 for a state of another shape; nothing was changed then.
    """
    fitted = {s.name: fit_state(item, s, states.get(s.name)) for s in program.states}
    states.update(fitted)
    states.setdefault("updates", 0)


def fit_state(item: Item, state: State, value: Any, own: bool = False) -> Tensor:
    """Return a state as it is declared; None for one that starts.

    Args:
        item: The parameter.
        state: As it is declared.
        value: A tensor, or None.
        own: Whether it must be a tensor of its own.
    """
    device = item.parameter.device
    if value is None:
        return state.make(device)
    check_state(item, state, value)
    same = value.stride() == state.stride and value.dtype is state.dtype
    if same and not own and value.device == device and value.layout is torch.strided:
        return value
    kind = {"dtype": state.dtype, "device": device}
    return torch.empty_strided(state.shape, state.stride, **kind).copy_(value)


def check_state(item: Item, state: State, value: Any) -> None:
    """Refuse a value that a state cannot have.

    Raises:
        OptimizerError: E-OPT-007 for another shape, for a kind of number that its dtype cannot
            hold, and for a tensor without values.
    """
    if not isinstance(value, Tensor) or tuple(value.shape) != state.shape:
        shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        problem = f"has shape {shape}, and the rule declares {list(state.shape)}"
        fix = "give it that shape; states are loaded into a model of the same sizes"
    elif not torch.can_cast(value.dtype, state.dtype):
        problem = f"holds {value.dtype} in the file, and the rule declares {state.dtype}"
        fix = "load it into an optimizer with the rule that it was saved from"
    elif value.is_meta and not item.parameter.is_meta:
        problem = "has no values: it is on the meta device"
        fix = 'load the file to a device that holds values: `torch.load(path, map_location="cpu")`'
    else:
        return
    message = f"the state `{state.name}` of `{item.name}` {problem}"
    raise ForeignCheckpoint.raised(user_span(), message, fix=fix)
