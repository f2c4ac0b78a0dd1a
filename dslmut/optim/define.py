"""``@optimizer``: a rule for one parameter becomes something that can be configured and bound."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

from torch import Tensor, nn

from dslmut.checking.entities import Class, Instance, Kind, Type
from dslmut.checking.live import LiveResolver
from dslmut.checking.rules.optimizers import check_body
from dslmut.diagnostics.codes.optimizers import BadBinding, BadHyperparameter
from dslmut.diagnostics.exceptions import CheckError, MissingError, OptimizerError
from dslmut.diagnostics.raising import user_span
from dslmut.functions.locate import locate
from dslmut.optim.context import Ctx, Curriculum, Hyper, Stage
from dslmut.optim.hyperparameters import configured, declared
from dslmut.optim.options import options
from dslmut.optim.states import Update

if TYPE_CHECKING:
    from dslmut.optim.binding import OptState

P = ParamSpec("P")
M = TypeVar("M", bound=nn.Module)

Parameters: TypeAlias = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
"""What else an optimizer can be bound to: parameters, named ones, or torch-style groups."""


class Optimizer(Generic[P]):
    """A definition: what ``@optimizer`` makes of a rule.

    Call it with a model or its parameters to get an ``OptState``; with hyperparameters alone to
    get a ``Configured`` optimizer.
    """

    def __init__(self, rule: Callable[..., Update]) -> None:
        self.rule = rule
        self.hyperparameters = declared(rule)
        functools.update_wrapper(self, rule)
        self.__dslmut__ = Class(rule.__name__, Kind.STATE, key=f"{rule.__module__}.{rule.__name__}")

    @overload
    def __call__(self, model: M, /, *args: P.args, **kwargs: P.kwargs) -> OptState[M]: ...
    @overload
    def __call__(
        self, params: Parameters, /, *args: P.args, **kwargs: P.kwargs
    ) -> OptState[Any]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Configured: ...
    def __call__(self, /, *args: Any, **hyperparameters: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """Configure the rule, and bind it if there is something to bind it to.

        Args:
            args: At most one: a model, its parameters, named parameters, or torch-style groups.
            hyperparameters: By name.

        Raises:
            OptimizerError: E-OPT-002 for a hyperparameter, and what ``bind`` raises.
        """
        if len(args) > 1:
            raise BadHyperparameter.raised(
                user_span(),
                f"`{self.__name__}` takes the model alone by position; hyperparameters are given by name",
                fix=f"write `{self.__name__}(model, {next(iter(self.hyperparameters), 'lr')}=...)`",
            )
        bound = Configured(self, configured(self, hyperparameters))
        return bound.bind(args[0]) if args else bound

    def __repr__(self) -> str:
        given = ", ".join(str(h) for h in self.hyperparameters.values())
        return f"<optimizer {self.__name__}({given})>"

    def __reduce__(self) -> str:
        # By reference, as functions are; a rule that is local to a function cannot be pickled.
        return self.rule.__qualname__

    if TYPE_CHECKING:
        __name__: str
        __qualname__: str


_OF_BOUND_ONES = frozenset(
    "step zero_grad param_groups state state_dict load_state_dict add_param_group diagnostics".split()
)


@dataclass(frozen=True)
class Configured:
    """A rule with its hyperparameters: immutable, comparable, printable.

    Args:
        definition: The rule.
        hyperparameters: All of them, by name.
    """

    __dslmut__: ClassVar[Instance] = Instance(Type(Kind.STATE))
    definition: Optimizer[...]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    @overload
    def bind(
        self,
        target: M,
        *,
        curriculum: Curriculum | Sequence[Stage] | int | None = ...,
        diagnostics_every: int | None = ...,
        ctx: Mapping[str, float] | None = ...,
        compile: bool | dict[str, Any] = ...,
    ) -> OptState[M]: ...
    @overload
    def bind(
        self,
        target: Parameters,
        *,
        curriculum: Curriculum | Sequence[Stage] | int | None = ...,
        diagnostics_every: int | None = ...,
        ctx: Mapping[str, float] | None = ...,
        compile: bool | dict[str, Any] = ...,
    ) -> OptState[Any]: ...
    def bind(
        self,
        target: Any,
        *,
        curriculum: Curriculum | Sequence[Stage] | int | None = None,
        diagnostics_every: int | None = None,
        ctx: Mapping[str, float] | None = None,
        compile: bool | dict[str, Any] = True,
    ) -> OptState[Any]:
        """Bind the rule to a model; every body is traced, and every mistake in it found, now.

        Args:
            target: A model, its parameters, named parameters, or torch-style groups.
            curriculum: What ``ctx.progress`` is counted from: a curriculum, its stages, or a
                number of steps.
            diagnostics_every: On each such step the diagnostics of the bodies are computed.
            ctx: Further keys of ``ctx`` with their first values.
            compile: False computes with plain torch operations; a dict is passed to
                ``torch.compile``.

        Raises:
            OptimizerError: E-OPT-003 to E-OPT-006 and E-OPT-020 to E-OPT-026.
        """
        from dslmut.optim.binding import OptState

        return OptState(self, target, options(curriculum, diagnostics_every, ctx, compile))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what is missing to somebody who takes it for a bound optimizer (E-OPT-005)."""
            if name not in _OF_BOUND_ONES:
                raise AttributeError(f"'Configured' object has no attribute {name!r}")
            rule = self.definition.__name__
            message = f"this `{rule}` is configured, but not bound to a model: it has no `{name}`"
            fix = f"bind it: `opt = {rule}(model, ...)`, or `.bind(model)`"
            raise MissingError([BadBinding.at(user_span(), message, fix=fix)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Configured):
            return NotImplemented
        return self.definition is other.definition and self.hyperparameters == other.hyperparameters

    def __hash__(self) -> int:
        return hash((id(self.definition), tuple(sorted(self.hyperparameters))))

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={_value(v)}" for k, v in self.hyperparameters.items())
        return f"{self.definition.__name__}({given})"


def _value(value: Any) -> str:
    return getattr(value, "__name__", "schedule") if callable(value) else repr(value)


@overload
def optimizer(rule: Callable[Concatenate[Tensor, Tensor, Ctx, P], Update], /) -> Optimizer[P]: ...
@overload
def optimizer() -> _Decorator: ...
def optimizer(rule: Any = None, /) -> Any:
    """Define an optimizer by what it does to one parameter.

    Args:
        rule: A function ``(param, grad, ctx, *, hyperparameters) -> optimizer_update(...)``. It is
            ordinary Python on tensors, and pure; it is traced once per parameter and compiled.

    Returns:
        The definition: call it with a model, or with hyperparameters alone.

    Raises:
        OptimizerError: E-OPT-001 for another signature; E-OPT-003, E-OPT-004 and E-CONTRACT-011
            where the source shows them.

    Example:
        >>> @optimizer
        ... def descent(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        ...     return optimizer_update(param - lr * grad)
    """
    surroundings = sys._getframe(1).f_locals

    def define(rule: Any) -> Any:
        definition = Optimizer(rule)
        _check_source(rule, surroundings)
        return definition

    return define if rule is None else define(rule)


class _Decorator(Protocol):
    def __call__(
        self, rule: Callable[Concatenate[Tensor, Tensor, Ctx, P], Update], /
    ) -> Optimizer[P]: ...


def _check_source(rule: Any, surroundings: Mapping[str, object]) -> None:
    """Say what the source shows already; without a source the trace will say it."""
    try:
        source, place = locate(rule)
    except CheckError:
        return
    found = list(check_body(source, place, LiveResolver(rule, source, place, surroundings)))
    if found:
        raise OptimizerError(found, lambda path: source.lines if path == source.path else ())


__all__ = ["Configured", "Hyper", "Optimizer", "optimizer"]
