"""What can be bound to a model: a configured rule, or several in groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, overload

from torch import Tensor, nn

from dslmut.checking.entities import Instance, Kind, Type
from dslmut.diagnostics.codes.optimizers import BadBinding
from dslmut.diagnostics.exceptions import MissingError
from dslmut.diagnostics.raising import user_span
from dslmut.optim.context import Curriculum, Stage
from dslmut.optim.options import options, unknown_option
from dslmut.optim.parameters import Arrangement, bad_binding
from dslmut.optim.signatures import told

if TYPE_CHECKING:
    from dslmut.optim.binding import OptState
    from dslmut.optim.define import Configured

M = TypeVar("M", bound=nn.Module)

Parameters: TypeAlias = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
"""What else an optimizer can be bound to: parameters, named ones, or torch-style groups."""

OF_BOUND_ONES = frozenset(
    "step zero_grad param_groups state state_dict load_state_dict add_param_group diagnostics "
    "explain graph".split()
)


class Bindable:
    """A rule, or several of them, with hyperparameters and without parameters."""

    __dslmut__: ClassVar[Instance] = Instance(Type(Kind.STATE))

    @overload
    def bind(
        self,
        target: M,
        *,
        curriculum: Curriculum | Sequence[Stage] | int | None = ...,
        diagnostics_every: int | None = ...,
        ctx: Mapping[str, float] | None = ...,
        skip_nonfinite: bool = ...,
        compile: bool | dict[str, Any] = ...,
        seed: int = ...,
        rounding: Literal["nearest", "stochastic"] = ...,
    ) -> OptState[M]: ...
    @overload
    def bind(
        self,
        target: Parameters,
        *,
        curriculum: Curriculum | Sequence[Stage] | int | None = ...,
        diagnostics_every: int | None = ...,
        ctx: Mapping[str, float] | None = ...,
        skip_nonfinite: bool = ...,
        compile: bool | dict[str, Any] = ...,
        seed: int = ...,
        rounding: Literal["nearest", "stochastic"] = ...,
    ) -> OptState[Any]: ...
    @told(bad_binding)
    def bind(
        self,
        target: Any,
        *,
        curriculum: Curriculum | Sequence[Stage] | int | None = None,
        diagnostics_every: int | None = None,
        ctx: Mapping[str, float] | None = None,
        skip_nonfinite: bool = False,
        compile: bool | dict[str, Any] = True,
        seed: int = 0,
        rounding: Literal["nearest", "stochastic"] = "nearest",
        **unknown: Any,
    ) -> OptState[Any]:
        """Bind to a model; every body is traced, and every mistake in it found, now.

        Args:
            target: A model, its parameters, named parameters, or torch-style groups.
            curriculum: What ``ctx.progress`` is counted from: a curriculum, its stages, or a
                number of steps.
            diagnostics_every: On each such step the diagnostics of the bodies are computed.
            ctx: Further keys of ``ctx`` with their first values.
            skip_nonfinite: Leave a step out where any gradient has an infinity or not-a-number in
                it: parameters, states and counts stay as they were, and ``opt.skipped`` counts it.
            compile: False computes with plain torch operations; a dict is passed to
                ``torch.compile``.
            seed: Of all random numbers: those that bodies draw, and those that round.
            rounding: How new values of ``bfloat16`` and ``float16`` parameters are rounded: to
                the nearest number, or by chance to one of the two neighbours, so that small
                updates are right on the average instead of lost. States go to the nearest.
            unknown: There is none; a misspelt option is an error that names the nearest one.

        Raises:
            OptimizerError: E-OPT-003 to E-OPT-006, E-OPT-011 and E-OPT-020 to E-OPT-028.
        """
        from dslmut.optim.binding import OptState

        for name in unknown:
            raise unknown_option(name, self.rules())
        of_run = options(
            curriculum, diagnostics_every, ctx, skip_nonfinite, compile, seed, rounding
        )
        return OptState(self, target, of_run)

    def arranged(self, target: Any) -> Arrangement:
        """Return the groups of a target; the rule of each stands in it under ``optimizer``."""
        raise NotImplementedError

    def rules(self) -> tuple[Configured, ...]:
        """Return the rules, each with its hyperparameters."""
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what is missing to somebody who takes it for a bound optimizer (E-OPT-005)."""
            if name not in OF_BOUND_ONES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            rule = ", ".join(r.definition.__name__ for r in self.rules())
            direct = f"`opt = {rule}(model, ...)`, or " if rule.isidentifier() else ""
            raise lacks(
                f"this `{rule}` is configured, but not bound to a model: it has no `{name}`",
                f"bind it: {direct}`.bind(model)`",
            )


_WHY = "a rule has states and steps only together with the parameters that it updates"


def lacks(message: str, fix: str, why: str = _WHY) -> MissingError:
    """Return E-OPT-005 for what is asked of something at another stage of its making."""
    return MissingError([BadBinding.at(user_span(), message, fix=fix, why=why)])


def check_bindable(given: Any) -> None:
    """Refuse what is no configured rule, nor several of them (E-OPT-005)."""
    if not isinstance(given, Bindable):
        name = getattr(given, "__name__", type(given).__name__)
        raise BadBinding.raised(
            user_span(),
            f"an `OptState` is made of a configured rule, not of `{name}`",
            fix="write `adamw(lr=1e-3).bind(model)`, with a rule of `dslmut.optim` or one of your own",
        )
