"""Transforms: what changes a gradient before a rule sees it, or the update that the rule computed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeAlias

from torch import Tensor

from dslmut.checking.rules.transforms import LEADING, check_transform
from dslmut.diagnostics.codes.optimizers import BadHyperparameter
from dslmut.diagnostics.raising import user_span
from dslmut.optim.bindable import OF_BOUND_ONES, lacks
from dslmut.optim.context import Ctx
from dslmut.optim.declaring import transform_signature
from dslmut.optim.define import check_source, written
from dslmut.optim.hyperparameters import Hyperparameter, call_of, configured
from dslmut.optim.states import Update

P = ParamSpec("P")
What: TypeAlias = Literal["gradient", "parameter"]

_WORDS: dict[What, str] = {"gradient": "gradient_transform", "parameter": "update_transform"}


class TransformDefinition(Generic[P]):
    """A definition: what ``@gradient_transform`` or ``@update_transform`` makes of a function.

    Called with hyperparameters it gives a ``Transform``, which a chain holds.

    Attributes:
        rule: The function.
        what: What it gives: a new gradient, or a new parameter.
        hyperparameters: By name.
    """

    def __init__(self, rule: Callable[..., Tensor | Update], what: What) -> None:
        self.rule, self.what = rule, what
        self.hyperparameters: dict[str, Hyperparameter]
        self.hyperparameters, self._by_position = transform_signature(rule, LEADING[_WORDS[what]])
        functools.update_wrapper(self, rule)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Transform:
        """Configure the transform.

        Args:
            args: The hyperparameters that stand before a ``*`` in the definition, in order.
            kwargs: Hyperparameters by name.

        Raises:
            OptimizerError: E-OPT-002 for one that is unknown, missing, or does not fit.
        """
        if len(args) > len(self._by_position):
            raise BadHyperparameter.raised(
                user_span(),
                f"`{self.__name__}` takes {len(self._by_position)} hyperparameters by position, and got {len(args)}",
                fix="give the hyperparameters by name; what is transformed comes from the chain",
            )
        given = dict(zip(self._by_position, args))
        twice = [n for n in given if n in kwargs]
        if twice:
            raise BadHyperparameter.raised(
                user_span(),
                f"`{twice[0]}` of `{self.__name__}` is given by position and by name",
                fix="give it once",
                why="one of the two values would be lost",
            )
        return Transform(self, configured(self, {**given, **kwargs}))

    def __repr__(self) -> str:
        given = ", ".join(str(h) for h in self.hyperparameters.values())
        return f"<{self.what} transform {self.__name__}({given})>"

    def __reduce__(self) -> str:
        return self.rule.__qualname__  # pyright: ignore[reportFunctionMemberAccess]

    if TYPE_CHECKING:
        __name__: str
    else:

        def __getattr__(self, name: str) -> Any:
            raise _no_rule(self, self, name)


@dataclass(frozen=True)
class Transform:
    """A transform with its hyperparameters, for a chain: immutable, comparable, printable.

    Args:
        definition: What was decorated.
        hyperparameters: All of them, by name.
    """

    definition: TransformDefinition[...]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.definition, tuple(self.hyperparameters)))

    def __repr__(self) -> str:
        return written(self.definition.__name__, self.hyperparameters)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _no_rule(self, self.__dict__.get("definition"), name)


def _no_rule(found: Any, definition: Any, name: str) -> AttributeError:
    """Return what says to somebody who binds a transform that it needs a rule (E-OPT-005)."""
    if definition is None or (name != "bind" and name not in OF_BOUND_ONES):
        return AttributeError(f"{type(found).__name__!r} object has no attribute {name!r}")
    call = call_of(definition)
    parts = f"{call}, adamw()" if definition.what == "gradient" else f"adamw(), {call}"
    return lacks(
        f"`{definition.__name__}` is a transform, and only a rule can be bound: it has no `{name}`",
        f"put it into a chain with a rule, and bind that: `chain({parts}).bind(model)`",
    )


def gradient_transform(
    rule: Callable[Concatenate[Tensor, Tensor, Ctx, P], Tensor | Update], /
) -> TransformDefinition[P]:
    """Define what happens to a gradient before the rule of a chain sees it.

    Args:
        rule: A function ``(param, grad, ctx, hyperparameters)`` that returns the new gradient. It
            is traced together with the rule, and as pure as one. With ``defstate`` it may declare
            states, and then returns ``transformed(new_grad, state=value)``.

    Returns:
        The definition: call it with hyperparameters, and put the result into a ``chain``.

    Raises:
        OptimizerError: E-OPT-001 for another signature.

    Example:
        >>> @gradient_transform
        ... def scaled(param: Tensor, grad: Tensor, ctx: Ctx, factor: Hyper = 0.5) -> Tensor:
        ...     return schedule_value(factor, ctx) * grad
        >>> chain(scaled(0.1), sgd(lr=1.0))
        chain(scaled(factor=0.1), sgd(lr=1.0, weight_decay=0.0, maximize=False))
    """
    return _defined(rule, "gradient", sys._getframe(1).f_locals)


def update_transform(
    rule: Callable[Concatenate[Tensor, Tensor, Tensor, Ctx, P], Tensor | Update], /
) -> TransformDefinition[P]:
    """Define what happens to the update that the rule of a chain has computed.

    Args:
        rule: A function ``(param, grad, new, ctx, hyperparameters)`` of the parameter, the gradient
            that the rule saw, and the new parameter that it gave; it returns another new
            parameter. States as in a gradient transform.

    Returns:
        The definition: call it with hyperparameters, and put the result into a ``chain``.

    Raises:
        OptimizerError: E-OPT-001 for another signature.

    Example:
        >>> @update_transform
        ... def halved(param: Tensor, grad: Tensor, new: Tensor, ctx: Ctx) -> Tensor:
        ...     return (param + new) / 2
        >>> chain(sgd(lr=1.0), halved())
        chain(sgd(lr=1.0, weight_decay=0.0, maximize=False), halved())
    """
    return _defined(rule, "parameter", sys._getframe(1).f_locals)


def _defined(rule: Any, what: What, surroundings: Mapping[str, object]) -> Any:
    definition = TransformDefinition(rule, what)
    check = functools.partial(check_transform, word=_WORDS[what])
    check_source(rule, surroundings, check)
    return definition


def transformed(value: Tensor, /, *pairs: tuple[Tensor, Tensor], **states: Tensor) -> Update:
    """Return what a transform gives, and each state that it declared exactly once.

    Args:
        value: The new gradient, or the new parameter.
        pairs: ``(declared value, new value)``, as in ``optimizer_update``.
        states: New values by the states' names.

    Raises:
        OptimizerError: E-OPT-004, when the result is looked at.

    Example:
        A transform with a state ends in ``return transformed(mean, mean=mean)``.
    """
    return Update(value, pairs, states, user_span())
