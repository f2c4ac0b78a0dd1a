"""``@optimizer``: a rule for one parameter becomes something that can be configured and bound."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    overload,
)

from torch import Tensor

from dslmut.checking.entities import Class, Kind
from dslmut.checking.live import LiveResolver
from dslmut.checking.rules.optimizers import check_body
from dslmut.checking.source import Source
from dslmut.diagnostics.codes.optimizers import BadHyperparameter
from dslmut.diagnostics.exceptions import CheckError, OptimizerError
from dslmut.diagnostics.model import Diagnostic
from dslmut.diagnostics.raising import user_span
from dslmut.functions.locate import locate
from dslmut.optim.bindable import OF_BOUND_ONES, Bindable, M, Parameters, lacks
from dslmut.optim.context import Ctx, Hyper
from dslmut.optim.declaring import declared
from dslmut.optim.hyperparameters import call_of, configured
from dslmut.optim.parameters import Arrangement, arrangement
from dslmut.optim.states import Update

if TYPE_CHECKING:
    from dslmut.optim.binding import OptState
    from dslmut.optim.interchange import TorchFormat

P = ParamSpec("P")


class Optimizer(Generic[P]):
    """A definition: what ``@optimizer`` makes of a rule.

    Call it with a model or its parameters to get an ``OptState``; with hyperparameters alone to
    get a ``Configured`` optimizer.
    """

    def __init__(self, rule: Callable[..., Update], torch: TorchFormat | None = None) -> None:
        self.rule = self.source = rule
        self.torch = torch
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
                why="a number without a name says not which hyperparameter it is",
            )
        bound = Configured(self, configured(self, hyperparameters))
        return bound.bind(args[0]) if args else bound

    def written(self, hyperparameters: Mapping[str, Any]) -> str:
        """Return the call that configures it with these hyperparameters."""
        return written(self.__name__, hyperparameters)

    def __repr__(self) -> str:
        given = ", ".join(str(h) for h in self.hyperparameters.values())
        return f"<optimizer {self.__name__}({given})>"

    def __reduce__(self) -> str:
        # By reference, as functions are; a rule that is local to a function cannot be pickled.
        return self.rule.__qualname__

    if TYPE_CHECKING:
        __name__: str
        __qualname__: str
    else:

        def __getattr__(self, name: str) -> Any:
            """Say what is missing to somebody who takes it for a configured or bound optimizer."""
            if name != "bind" and name not in OF_BOUND_ONES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            rule = self.__dict__.get("__name__", "rule")
            call = call_of(self) if rule.isidentifier() else rule
            raise lacks(
                f"`{rule}` is the definition, neither configured nor bound: it has no `{name}`",
                f"configure and bind it: `opt = {call}.bind(model)`",
            )


@dataclass(frozen=True)
class Configured(Bindable):
    """A rule with its hyperparameters: immutable, comparable, printable.

    Args:
        definition: The rule.
        hyperparameters: All of them, by name.
    """

    definition: Optimizer[...]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    def arranged(self, target: Any) -> Arrangement:
        """Return the groups of a target, all of them with this rule unless they have their own."""
        found = arrangement(target)
        return replace(found, groups=[{"optimizer": self, **group} for group in found.groups])

    def rules(self) -> tuple[Configured, ...]:
        """Return the one rule."""
        return (self,)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Configured):
            return NotImplemented
        return self.definition == other.definition and self.hyperparameters == other.hyperparameters

    def __hash__(self) -> int:
        return hash((self.definition, tuple(sorted(self.hyperparameters))))

    def __repr__(self) -> str:
        return self.definition.written(self.hyperparameters)


def written(name: str, hyperparameters: Mapping[str, Any]) -> str:
    """Return a call, for people."""
    return f"{name}({', '.join(f'{k}={shown_value(v)}' for k, v in hyperparameters.items())})"


def shown_value(value: Any) -> str:
    """Write a hyperparameter for people; a schedule by its name."""
    return getattr(value, "__name__", None) or repr(value)


@overload
def optimizer(rule: Callable[Concatenate[Tensor, Tensor, Ctx, P], Update], /) -> Optimizer[P]: ...
@overload
def optimizer(*, torch: TorchFormat | None = ...) -> _Decorator: ...
def optimizer(rule: Any = None, /, *, torch: TorchFormat | None = None) -> Any:
    """Define an optimizer by what it does to one parameter.

    Args:
        rule: A function ``(param, grad, ctx, *, hyperparameters) -> optimizer_update(...)``. It is
            ordinary Python on tensors, and pure; it is traced once per parameter and compiled.
        torch: The optimizer of torch whose checkpoints it reads and writes.

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
        definition = Optimizer(rule, torch)
        check_source(rule, surroundings, check_body)
        return definition

    return define if rule is None else define(rule)


class _Decorator(Protocol):
    def __call__(
        self, rule: Callable[Concatenate[Tensor, Tensor, Ctx, P], Update], /
    ) -> Optimizer[P]: ...


def check_source(
    rule: Any, surroundings: Mapping[str, object], check: Callable[..., Iterable[Diagnostic]]
) -> None:
    """Say what the source shows already; without a source the trace will say it.

    Args:
        rule: The function.
        surroundings: The names around it.
        check: Takes its source, its place there, and a resolver of the names in it.
    """
    try:
        source, place = locate(rule)
    except CheckError:
        return
    found = list(check(source, place, LiveResolver(rule, source, place, surroundings)))
    if found:
        _raise_found(found, source)


def _raise_found(found: Sequence[Diagnostic], source: Source) -> NoReturn:
    raise OptimizerError(found, lambda path: source.lines if path == source.path else ())


__all__ = ["Configured", "Hyper", "Optimizer", "optimizer"]
