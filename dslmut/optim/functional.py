"""The functional style: ``update(mut(m), mut(opt), g)``."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from dslmut.checking.wellknown import well_known
from dslmut.diagnostics.codes.values import ForeignGradient
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.diagnostics.wording import an
from dslmut.functions import runtime
from dslmut.functions.gradients import all_parameters
from dslmut.functions.records import Gradient, Grads
from dslmut.functions.spec import Spec
from dslmut.optim.binding import OptState
from dslmut.optim.define import Configured
from dslmut.tokens import Token
from dslmut.vocabulary import Mut

M = TypeVar("M", bound=nn.Module)


def update(m: Mut[M], opt: Mut[OptState[M]], g: Grads[M], /) -> None:
    """Update a model by a gradient record: ``update(mut(m), mut(opt), g)``.

    Args:
        m: The model, marked.
        opt: The optimizer state that was made for it, marked.
        g: From ``value_and_grad``. Parameters that the loss does not depend on are skipped, as
            after ``loss.backward()``.

    Raises:
        CheckError: E1103 for an argument that is not marked, E1101 for a marked gradient.
        MutationError: E0702 where an argument is of another kind, and where state or gradient
            belong to another model; nothing was changed then.
    """
    given: tuple[Any, ...] = (m, opt, g)
    model, state, gradient = (v._o if type(v) is Token else v for v in given)
    _check_kinds(model, state, gradient)
    if type(m) is not Token:
        runtime.missing(_UPDATE, "m", m)
    if type(opt) is not Token:
        runtime.missing(_UPDATE, "opt", opt)
    if type(g) is Token:
        runtime.spurious(_UPDATE, g=g)
    _check_belongs(model, state, gradient)
    state.step(gradients=gradient)


_UPDATE = Spec(well_known("dslmut.update"), frozenset({"m", "opt"}))  # pyright: ignore[reportArgumentType]


_KINDS = (nn.Module, OptState, Gradient)
_CALL = "write `update(mut(m), mut(opt), g)`"
_NEEDS = "an update needs the model, the state that belongs to it, and a gradient of it"


def _check_kinds(model: Any, state: Any, g: Any) -> None:
    """Check that each argument is of its kind, and say what was probably meant."""
    given = (model, state, g)
    if all(map(isinstance, given, _KINDS)):
        return
    if all(any(isinstance(v, kind) for v in given) for kind in _KINDS):
        raise _refused("the arguments are in another order", _CALL, _NEEDS)
    if not isinstance(model, nn.Module):
        raise _refused(
            f"the first argument is the model, and this is {an(type(model).__name__)}",
            f"{_CALL}, with a torch.nn.Module as `m`",
            _NEEDS,
        )
    if isinstance(state, Configured):
        raise _refused(
            f"`{state}` is configured and not bound to a model, so that it has no state",
            f"bind it first, once: `opt = {state.definition.__name__}(m, ...)`, or `opt = opt.bind(m)`",
            _NEEDS,
        )
    if not isinstance(state, OptState):
        raise _refused(
            f"the second argument is an `OptState`, and this is {an(type(state).__name__)}",
            "put the gradients where torch looks for them: `g.into_grad()`, then `opt.step()`; "
            "or bind an optimizer of `dslmut.optim`"
            if isinstance(state, torch.optim.Optimizer)
            else "bind an optimizer to the model: `opt = adamw(m, lr=1e-3)`",
            _NEEDS,
        )
    raise _refused(
        f"the third argument is a gradient record, and this is {an(type(g).__name__)}",
        "take the pair apart: `loss, g = value_and_grad(...)`"
        if isinstance(g, tuple)
        else "give what `value_and_grad` or `grad` returned; its tensors, `Gradient.values(g)`, may be "
        "scaled in place before",
        _NEEDS,
    )


def _check_belongs(model: nn.Module, state: OptState[Any], g: Gradient[Any]) -> None:
    own = set(map(id, all_parameters(model)))
    name = type(model).__name__
    if not all(id(p) in own for p in g._parameters):
        raise _refused(
            f"the gradient was taken of another model than this `{name}`",
            "take it of the model that is updated: `value_and_grad(loss_of, m, ...)`",
        )
    held = {id(p) for group in state.param_groups for p in group["params"]}
    if not all(id(p) in held for p in g._parameters):
        rules = state._rule_names()
        fix = f"bind one to this model: `{'groups' if ',' in rules else rules}(m, ...)`"
        if state._model_name == name:
            fix += "; to copy a model with its state, `m, opt = copy.deepcopy((m, opt))`"
        raise _refused(
            f"the state is bound to another `{state._model_name or 'set of parameters'}`, "
            f"not to this `{name}`",
            fix,
        )


def _refused(message: str, fix: str, why: str | None = None) -> DslmutError:
    return ForeignGradient.raised(user_span(), message, fix=fix, why=why)


update.__dslmut__ = _UPDATE  # pyright: ignore[reportFunctionMemberAccess]
