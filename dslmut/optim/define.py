"""``@optimizer``: a rule for one parameter becomes something that can be configured and bound."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    overload,
)

from torch import Tensor, nn

from dslmut.checking.entities import Class, Instance, Kind, Type
from dslmut.checking.live import LiveResolver
from dslmut.checking.rules.optimizers import check_body
from dslmut.diagnostics.codes.optimizers import BadHyperparameter, NotADefinition
from dslmut.diagnostics.exceptions import CheckError, DslmutError, OptimizerError
from dslmut.diagnostics.raising import user_span
from dslmut.functions.locate import heading, locate
from dslmut.optim.context import Ctx, Curriculum, Hyper
from dslmut.optim.states import Update

if TYPE_CHECKING:
    from dslmut.optim.binding import OptState

P = ParamSpec("P")
M = TypeVar("M", bound=nn.Module)

Parameters: TypeAlias = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
"""What else an optimizer can be bound to: parameters, named ones, or torch-style groups."""

RESERVED = frozenset(
    "params param_names step rule initial_lr max_lr min_lr max_momentum base_momentum swa_lr".split()
)
"""Keys of a group that mean something already: to torch, to its schedulers, or to us."""

FOREIGN = frozenset(
    "foreach fused capturable differentiable maximize amsgrad decoupled_weight_decay".split()
)
"""Keys that torch's own optimizers put into a group, and that checkpoints of them contain."""


@dataclass(frozen=True)
class Hyperparameter:
    """A keyword-only parameter of a rule.

    Args:
        name: As it is given, and as a group shows it.
        default: Its value if it is not given; ``inspect.Parameter.empty`` if it has to be.
        integer: Whether it is annotated ``int``, so that its number specialises the graph.
        scheduled: Whether it may be a schedule; one that is annotated ``float`` is a number.
    """

    name: str
    default: Any
    integer: bool = False
    scheduled: bool = True

    @property
    def required(self) -> bool:
        """Say whether it has to be given."""
        return self.default is inspect.Parameter.empty


class Optimizer(Generic[P]):
    """A definition: what ``@optimizer`` makes of a rule.

    Call it with a model or its parameters to get an ``OptState``; with hyperparameters alone to
    get a ``Configured`` optimizer.
    """

    def __init__(self, rule: Callable[..., Update]) -> None:
        self.rule = rule
        self.hyperparameters = _hyperparameters(rule)
        functools.update_wrapper(self, rule)
        self.__dslmut__ = Class(rule.__name__, Kind.STATE, key=f"{rule.__module__}.{rule.__name__}")

    @overload
    def __call__(self, model: M, /, *args: P.args, **kwargs: P.kwargs) -> OptState[M]: ...
    @overload
    def __call__(
        self, params: Parameters, /, *args: P.args, **kwargs: P.kwargs
    ) -> OptState[nn.Module]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Configured: ...
    def __call__(self, *args: Any, **hyperparameters: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
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
        configured = Configured(self, _configured(self, hyperparameters))
        return configured.bind(args[0]) if args else configured

    def __repr__(self) -> str:
        given = ", ".join(_shown(h) for h in self.hyperparameters.values())
        return f"<optimizer {self.__name__}({given})>"

    def __reduce__(self) -> str:
        # By reference, as functions are; a rule that is local to a function cannot be pickled.
        return self.rule.__qualname__

    if TYPE_CHECKING:
        __name__: str
        __qualname__: str


def _shown(h: Hyperparameter) -> str:
    return h.name if h.required else f"{h.name}={h.default!r}"


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
        curriculum: Curriculum | int | None = ...,
        diagnostics_every: int | None = ...,
        ctx: Mapping[str, float] | None = ...,
        compile: bool | dict[str, Any] = ...,
    ) -> OptState[M]: ...
    @overload
    def bind(
        self,
        target: Parameters,
        *,
        curriculum: Curriculum | int | None = ...,
        diagnostics_every: int | None = ...,
        ctx: Mapping[str, float] | None = ...,
        compile: bool | dict[str, Any] = ...,
    ) -> OptState[nn.Module]: ...
    def bind(
        self,
        target: Any,
        *,
        curriculum: Curriculum | int | None = None,
        diagnostics_every: int | None = None,
        ctx: Mapping[str, float] | None = None,
        compile: bool | dict[str, Any] = True,
    ) -> OptState[Any]:
        """Bind the rule to a model; every body is traced, and every mistake in it found, now.

        Args:
            target: A model, its parameters, named parameters, or torch-style groups.
            curriculum: What ``ctx.progress`` is counted from; an integer is a number of steps.
            diagnostics_every: On each such step the diagnostics of the bodies are computed.
            ctx: Further keys of ``ctx`` with their first values.
            compile: False computes with plain torch operations; a dict is passed to
                ``torch.compile``.

        Raises:
            OptimizerError: E-OPT-003 to E-OPT-006 and E-OPT-020 to E-OPT-026.
        """
        from dslmut.optim.binding import Options, OptState

        if isinstance(curriculum, int):
            curriculum = Curriculum(steps=curriculum)
        options = Options(curriculum, diagnostics_every, dict(ctx or {}), compile)
        return OptState(self, target, options)

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


def optimizer(rule: Callable[Concatenate[Tensor, Tensor, Ctx, P], Update], /) -> Optimizer[P]:
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
    definition = Optimizer(rule)
    _check_source(rule, sys._getframe(1).f_locals)
    return definition


def _check_source(rule: Any, surroundings: Mapping[str, object]) -> None:
    """Say what the source shows already; without a source the trace will say it."""
    try:
        source, place = locate(rule)
    except CheckError:
        return
    found = list(check_body(source, place, LiveResolver(rule, source, place, surroundings)))
    if found:
        raise OptimizerError(found, lambda path: source.lines if path == source.path else ())


# -- the signature -------------------------------------------------------------------------------


def _hyperparameters(rule: Any) -> dict[str, Hyperparameter]:
    if not inspect.isfunction(rule):
        raise NotADefinition.raised(
            user_span(),
            f"`@optimizer` decorates a function, not a {type(rule).__name__}",
            fix="write `def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.01) -> Update:`",
        )
    parameters = list(inspect.signature(rule).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    defaults = [p for p in positional if p.default is not p.empty]
    if len(positional) != 3 or defaults or len(positional) + len(keywords) != len(parameters):
        raise _not_three(rule, positional, parameters)
    for p in keywords:
        if p.name in RESERVED:
            raise _not_a_definition(
                rule,
                f"a group has a key `{p.name}` of its own",
                "give the hyperparameter another name",
            )
    return {p.name: _hyperparameter(p) for p in keywords}


def _hyperparameter(p: inspect.Parameter) -> Hyperparameter:
    integer = p.annotation in (int, "int")
    default = p.default if p.default is p.empty else normalised(p.default, integer)
    return Hyperparameter(
        p.name, default, integer, p.annotation not in (int, "int", float, "float")
    )


def normalised(value: Any, integer: bool = False) -> Any:
    """Return a hyperparameter's value as it is kept: numbers are floats, unless declared int."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or callable(value) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return int(value) if integer and float(value).is_integer() else float(value)
    if isinstance(value, list | tuple):
        return tuple(normalised(v) for v in value)
    return value


def _not_three(rule: Any, positional: list[Any], parameters: list[Any]) -> DslmutError:
    first = [p.name for p in positional if p.default is p.empty]
    extra = ", ".join([*first[3:], *(p.name for p in positional if p.default is not p.empty)])
    if len(first) >= 3 and extra:
        return _not_a_definition(
            rule,
            f"the hyperparameters ({extra}) can be given by position",
            f"write `*` before them: `({', '.join(first[:3])}, *, {extra})`",
        )
    if len(first) < 3:
        names = ", ".join(first) or "nothing"
        return _not_a_definition(
            rule,
            f"a rule takes a parameter, its gradient and `ctx`; this one takes {names}",
            "write `(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.01)`",
        )
    star = next(p for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return _not_a_definition(
        rule, f"`{star}` takes anything, so that a misspelt hyperparameter is not found",
        "name each hyperparameter",
    )  # fmt: skip


def _not_a_definition(rule: Any, message: str, fix: str) -> DslmutError:
    return NotADefinition.raised(heading(rule), message, fix=fix)


# -- the configuration ---------------------------------------------------------------------------


def _configured(definition: Optimizer[...], given: Mapping[str, Any]) -> dict[str, Any]:
    known = definition.hyperparameters
    for name in given:
        if name not in known:
            raise unknown_hyperparameter(definition, name)
    values = {}
    for name, h in known.items():
        if name not in given and h.required:
            raise BadHyperparameter.raised(
                user_span(),
                f"`{definition.__name__}` needs `{name}`, which has no default",
                fix=f"write `{definition.__name__}(..., {name}=...)`",
            )
        value = given.get(name, h.default)
        values[name] = checked(definition, h, value)
    return values


def checked(definition: Optimizer[...], h: Hyperparameter, value: Any) -> Any:
    """Return a hyperparameter's value as it is kept, of the kind that its default has."""
    kept = normalised(value, h.integer)
    default = normalised(h.default, h.integer)
    schedule = callable(kept) and h.scheduled
    numeric = isinstance(default, float) and not isinstance(kept, float) and not schedule
    pair = isinstance(default, tuple) and not (
        isinstance(kept, tuple) and len(kept) == len(default)
    )
    if numeric or pair or isinstance(kept, Tensor):
        wanted = "a number or a schedule" if h.scheduled else "a number (it is annotated `float`)"
        wanted = f"{len(default)} numbers" if isinstance(default, tuple) else wanted
        raise BadHyperparameter.raised(
            user_span(),
            f"`{h.name}` of `{definition.__name__}` is {wanted}, not {value!r}",
            fix=f"write `{h.name}={default!r}`, for instance",
        )
    return kept


def unknown_hyperparameter(definition: Optimizer[...], name: str) -> DslmutError:
    """E-OPT-002 for a name that no hyperparameter has."""
    known = definition.hyperparameters
    near = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(known) or "none"
    return BadHyperparameter.raised(
        user_span(),
        f"`{definition.__name__}` has no hyperparameter `{name}`; it has {listed}",
        fix=f"write `{near[0]}=...`" if near else "leave it out",
    )


__all__ = ["Configured", "Hyper", "Hyperparameter", "Optimizer", "optimizer"]
