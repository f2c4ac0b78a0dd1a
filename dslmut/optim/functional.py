"""The functional style: ``update(mut(m), mut(opt), g)``."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from dslmut.checking.wellknown import well_known
from dslmut.diagnostics.codes.values import ForeignGradient
from dslmut.diagnostics.raising import user_span
from dslmut.functions import runtime
from dslmut.functions.records import Gradient, Grads
from dslmut.functions.spec import Spec
from dslmut.optim.binding import OptState
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
        CheckError: E1103 for an argument that is not marked.
        MutationError: E0702 where state or gradient belong to another model; nothing was changed.
    """
    model = m._o if type(m) is Token else runtime.missing(_UPDATE, "m", m)
    state = opt._o if type(opt) is Token else runtime.missing(_UPDATE, "opt", opt)
    if not isinstance(g, Gradient):
        raise ForeignGradient.raised(
            user_span(),
            f"the third argument is a gradient record, and this is a `{type(g).__name__}`",
            fix="give what `value_and_grad` or `grad` returned",
        )
    _check_belongs(model, state, g)
    state.step(gradients=g)


_UPDATE = Spec(well_known("dslmut.update"), frozenset({"m", "opt"}))  # pyright: ignore[reportArgumentType]


def _check_belongs(model: Any, state: Any, g: Gradient[Any]) -> None:
    if not isinstance(state, OptState) or not isinstance(model, nn.Module):
        raise ForeignGradient.raised(
            user_span(),
            f"`update` takes a model and its optimizer state, and got `{type(model).__name__}` and `{type(state).__name__}`",
            fix="write `update(mut(m), mut(opt), g)`",
        )
    own = set(map(id, model.parameters()))
    name = type(model).__name__
    if not all(id(p) in own for p in g._parameters):
        raise ForeignGradient.raised(
            user_span(),
            f"the gradient was taken of another model than this `{name}`",
            fix="take it of the model that is updated: `value_and_grad(loss_of, m, ...)`",
        )
    held = {id(p) for group in state.param_groups for p in group["params"]}
    if not all(id(p) in held for p in g._parameters):
        bound = state._model_name or "other parameters"
        raise ForeignGradient.raised(
            user_span(),
            f"the state is bound to another `{bound}`, not to this `{name}`",
            fix=f"bind one to this model: `{state._configured.definition.__name__}(m, ...)`",
        )


update.__dslmut__ = _UPDATE  # pyright: ignore[reportFunctionMemberAccess]
