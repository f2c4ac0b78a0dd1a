"""Chains: transforms around a rule become one rule, with one set of hyperparameters and states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torch import Tensor

from dslmut.checking.entities import Class, Kind
from dslmut.diagnostics.codes.optimizers import BadChain, BadResult
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.functions.locate import heading
from dslmut.optim.define import Configured, Optimizer
from dslmut.optim.hyperparameters import call_of
from dslmut.optim.states import Update, results
from dslmut.optim.trace import active
from dslmut.optim.transforms import Transform, TransformDefinition

Definition: TypeAlias = Optimizer[...] | TransformDefinition[...]


@dataclass(frozen=True)
class Part:
    """One part of a chain.

    Args:
        label: What its hyperparameters, states and diagnostics are called by; "" for the rule.
        definition: The rule or the transform.
    """

    label: str
    definition: Definition

    @property
    def prefix(self) -> str:
        """Return what stands before the names of what is the part's."""
        return f"{self.label}." if self.label else ""

    @property
    def gives(self) -> str:
        """Return what it computes: the gradient, or the parameter."""
        return getattr(self.definition, "what", "parameter")


class Chain(Optimizer[...]):
    """A definition like that of a rule, made of transforms and the rule that they stand around.

    Two chains of the same parts are equal.

    Args:
        definitions: Of the parts, in order; exactly one is a rule.
    """

    def __init__(self, definitions: tuple[Definition, ...]) -> None:
        self.definitions = definitions
        self.parts = _labelled(definitions)
        self.hyperparameters = {
            part.prefix + name: replace(h, name=part.prefix + name)
            for part in self.parts
            for name, h in part.definition.hyperparameters.items()
        }
        self.rule = self._run
        rule = next(p.definition for p in self.parts if not p.label)
        self.source, self.torch = rule.rule, getattr(rule, "torch", None)
        self.__name__ = f"chain({', '.join(p.label or p.definition.__name__ for p in self.parts)})"
        self.__qualname__, self.__doc__ = self.__name__, f"The rule of `{self.__name__}`."
        self.__dslmut__ = Class(self.__name__, Kind.STATE, key=self.__name__)

    def _run(self, param: Tensor, grad: Tensor, ctx: Any, **given: Any) -> Update:
        """Compute what all parts compute, one behind the other."""
        new, pairs = param, []
        for part in self.parts:
            arguments = (param, grad, ctx)
            if isinstance(part.definition, TransformDefinition) and part.gives == "parameter":
                arguments = (param, grad, new, ctx)
            value, own = _traced(part, arguments, given)
            pairs += own
            if part.gives == "gradient":
                grad = value
            else:
                new = value
        return Update(new, tuple(pairs))

    def written(self, hyperparameters: Mapping[str, Any]) -> str:
        """Return the call that gives this chain with these hyperparameters."""
        return f"chain({', '.join(map(repr, self.opened(hyperparameters)))})"

    def opened(self, hyperparameters: Mapping[str, Any]) -> list[Transform | Configured]:
        """Return the parts with their own hyperparameters."""
        found: list[Transform | Configured] = []
        for part in self.parts:
            names = part.definition.hyperparameters
            own = {n: hyperparameters[part.prefix + n] for n in names}
            made = part.definition
            is_rule = isinstance(made, Optimizer)
            found.append(Configured(made, own) if is_rule else Transform(made, own))
        return found

    def __eq__(self, other: object) -> bool:
        return self.definitions == other.definitions if isinstance(other, Chain) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.definitions)

    def __repr__(self) -> str:
        return f"<optimizer {self.__name__}>"

    def __reduce__(self) -> Any:
        return Chain, (self.definitions,)


def chain(*parts: Transform | Configured) -> Configured:
    """Put transforms around a rule; the result is configured and bound like any other optimizer.

    Gradient transforms stand before the rule, update transforms behind it, and each gets what the
    one before it gave. The rule keeps the names of its hyperparameters and states; those of a
    transform are called by the transform's name, ``clip_by_global_norm.max_norm`` for instance, in
    groups and in checkpoints, and a second transform of the same name is ``clip_by_value_2``.

    Args:
        parts: Configured transforms, and one configured rule; a chain counts as its parts.

    Raises:
        OptimizerError: E-OPT-010 for no rule or several, for a transform on the wrong side of it,
            and for anything else among the parts.

    Example:
        >>> rule = chain(clip_by_global_norm(1.0), sgd(lr=0.1), cautious())
        >>> rule.hyperparameters["clip_by_global_norm.max_norm"]
        1.0
    """
    opened = [part for given in parts for part in _opened(given)]
    _check_order(opened)
    made = Chain(tuple(p.definition for p in opened))
    values = [v for p in opened for v in p.hyperparameters.values()]
    return Configured(made, dict(zip(made.hyperparameters, values)))


def _opened(given: Any) -> Iterable[Transform | Configured]:
    """Return the parts that an argument of ``chain`` stands for."""
    if isinstance(given, Configured) and isinstance(given.definition, Chain):
        return given.definition.opened(given.hyperparameters)
    if isinstance(given, Configured | Transform):
        return [given]
    if isinstance(given, Optimizer | TransformDefinition):
        name = given.__name__
        call = call_of(given)
        raise _bad(f"`{name}` is not configured", f"call it, with its hyperparameters: `{call}`")
    if hasattr(given, "param_groups"):
        name = type(given).__name__
        raise _bad(
            f"this `{name}` is bound to parameters already",
            "give the rule alone, `adamw(lr=1e-3)`, and bind the chain: `chain(...).bind(model)`",
        )
    name = getattr(given, "__name__", type(given).__name__)
    raise _bad(
        f"`{name}` is neither a transform nor a rule",
        "decorate the function that it should be with `@gradient_transform` or `@update_transform`, and call it"
        if callable(given)
        else "give the parts one by one: `chain(centralised(), adamw(lr=1e-3))`",
    )


def _check_order(parts: list[Transform | Configured]) -> None:
    rules = [i for i, p in enumerate(parts) if isinstance(p, Configured)]
    if not rules:
        raise _bad("the chain has no rule", "add one: `chain(..., adamw(lr=1e-3))`")
    if len(rules) > 1:
        first, second = (parts[i].definition.__name__ for i in rules[:2])
        raise _bad(
            f"the chain has two rules, `{first}` and `{second}`",
            "keep one; parameters that follow different rules stand in different groups",
        )
    rule = parts[rules[0]].definition.__name__
    for place, part in enumerate(parts):
        name = part.definition.__name__
        what = part.definition.what if isinstance(part, Transform) else None
        if what == "gradient" and place > rules[0]:
            raise _bad(
                f"`{name}` changes the gradient, and stands behind the rule `{rule}`, which has used it",
                f"put it before the rule: `chain({name}(...), {rule}(...))`",
            )
        if what == "parameter" and place < rules[0]:
            raise _bad(
                f"`{name}` changes the finished update, and stands before the rule `{rule}`, which computes it",
                f"put it behind the rule: `chain({rule}(...), {name}(...))`",
            )


def _labelled(definitions: Iterable[Definition]) -> tuple[Part, ...]:
    """Give each transform a name of its own within the chain."""
    parts: list[Part] = []
    for definition in definitions:
        name = label = definition.__name__
        taken, number = {p.label for p in parts}, 2
        while label in taken:
            label, number = f"{name}_{number}", number + 1
        parts.append(Part("" if isinstance(definition, Optimizer) else label, definition))
    return tuple(parts)


def _traced(
    part: Part, arguments: tuple[Any, ...], given: Mapping[str, Any]
) -> tuple[Any, list[tuple[Any, Any]]]:
    """Run one part; return what it gives, and its states with their new values."""
    tracer, definition = active(), part.definition
    assert tracer is not None
    own = {name: given[part.prefix + name] for name in definition.hyperparameters}
    with tracer.scoped(part.prefix):
        update = definition.rule(*arguments, **own)
        if isinstance(definition, TransformDefinition):
            update = _result(definition, update)
        value, states = results(tracer, update, definition.rule, part.gives)
        declared = list(tracer.declared().values())
    if part.gives == "gradient":
        tracer.gradient_of = definition.__name__
    return value, list(zip(declared, states))


def _result(definition: TransformDefinition[...], given: Any) -> Update:
    """Return what a transform gave: a tensor alone stands for itself."""
    if isinstance(given, Update):
        return given
    span = heading(definition.rule)  # pyright: ignore[reportArgumentType]
    if isinstance(given, Tensor):
        return Update(given, span=span)
    raise BadResult.raised(
        span,
        f"`{definition.__name__}` returns a `{type(given).__name__}` instead of a tensor",
        fix="end every path with `return value`, or with `return transformed(value, state=new_state)`",
    )


def _bad(message: str, fix: str) -> DslmutError:
    return BadChain.raised(user_span(), message, fix=fix)
