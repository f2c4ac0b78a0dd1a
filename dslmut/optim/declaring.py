"""Declarations: the hyperparameters that stand in the signature of a rule or a transform."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dslmut.diagnostics.codes.optimizers import NotADefinition
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.functions.locate import heading
from dslmut.optim.hyperparameters import RESERVED, Hyperparameter, check_hashable, normalised
from dslmut.optim.ranges import bare, outside, ranges_of


def declared(rule: Any) -> dict[str, Hyperparameter]:
    """Return what a rule declares behind ``param, grad, ctx, *``.

    Raises:
        OptimizerError: E-OPT-001 for another signature.
    """
    if not inspect.isfunction(rule):
        raise NotADefinition.raised(
            user_span(),
            f"`@optimizer` decorates a function, not a {type(rule).__name__}",
            fix="write `def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.01) -> Update:`",
        )
    if inspect.iscoroutinefunction(rule) or inspect.isgeneratorfunction(rule):
        raise _not_a_definition(
            rule,
            "a rule is computed at once, and this function is `async` or yields",
            "write a plain `def` that ends in `return optimizer_update(...)`",
        )
    parameters = list(_signature(rule).parameters.values())
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
    return _hyperparameters(rule, keywords)


def transform_signature(
    rule: Any, leading: tuple[str, ...]
) -> tuple[dict[str, Hyperparameter], tuple[str, ...]]:
    """Return the hyperparameters of a transform, and which of them are given by position too.

    Args:
        rule: The function.
        leading: What it is called with, before its hyperparameters.

    Raises:
        OptimizerError: E-OPT-001 for another signature.
    """
    call = f"({', '.join(leading)}, strength: Hyper = 0.5)"
    if not inspect.isfunction(rule):
        raise NotADefinition.raised(
            user_span(),
            f"a transform is a function, not a {type(rule).__name__}",
            fix=f"decorate `def name{call}`",
        )
    parameters = list(_signature(rule).parameters.values())
    head, rest = parameters[: len(leading)], parameters[len(leading) :]
    fits = len(head) == len(leading) and all(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        for p in head
    )
    if not fits:
        taken = ", ".join(p.name for p in parameters) or "nothing"
        raise _not_a_definition(
            rule,
            f"this transform is called with {', '.join(leading)}, and `{rule.__name__}` takes {taken}",
            f"write `def {rule.__name__}{call}`",
        )
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) for p in rest):
        raise _not_a_definition(
            rule,
            "it takes anything, so that a misspelt hyperparameter is not found",
            "name each hyperparameter",
        )
    positional = tuple(p.name for p in rest if p.kind is p.POSITIONAL_OR_KEYWORD)
    return _hyperparameters(rule, rest), positional


def _hyperparameters(rule: Any, parameters: list[inspect.Parameter]) -> dict[str, Hyperparameter]:
    try:
        found = {p.name: _hyperparameter(p) for p in parameters}
    except TypeError:
        raise _not_a_definition(
            rule,
            "the default of a hyperparameter is no number, string, tuple or function",
            "give each number a hyperparameter of its own",
        ) from None
    for p, h in zip(parameters, found.values()):
        _check_range(rule, p, h)
    return found


def _check_range(rule: Any, p: inspect.Parameter, h: Hyperparameter) -> None:
    """Refuse a range that is not known, and a default that is out of it."""
    if isinstance(p.annotation, str) and "Range(" in p.annotation:
        raise _not_a_definition(
            rule,
            f"the annotation of `{p.name}` cannot be evaluated, so that its range is not known",
            "import what stands in it at the top of the file, outside of `if TYPE_CHECKING`",
            "a range that is not known would refuse nothing",
        )
    wrong = outside(h.name, h.default, h.ranges)
    if wrong is not None:
        name, value, range = wrong
        raise _not_a_definition(
            rule,
            f"`{name}` is {range}, and its default is {value!r}",
            f"write another default, or another range: `{h.name}: Annotated[Hyper, Range(...)]`",
            "a number that may not be given is no default; `lr`, `eps`, `betas` and the like have a "
            "range by their names",
        )


def _signature(rule: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(rule, eval_str=True)
    except Exception:  # whatever a postponed annotation raises that cannot be evaluated here
        signature = inspect.signature(rule)
        known = getattr(rule, "__globals__", {})
        return signature.replace(
            parameters=[_evaluated(p, known) for p in signature.parameters.values()]
        )


def _evaluated(p: inspect.Parameter, known: dict[str, Any]) -> inspect.Parameter:
    """Return a parameter with its own annotation evaluated, if that is possible."""
    if not isinstance(p.annotation, str):
        return p
    try:
        return p.replace(annotation=eval(p.annotation, known))
    except Exception:  # as above
        return p


_KINDS = {kind.__name__: kind for kind in (int, bool, str, float)}


def _hyperparameter(p: inspect.Parameter) -> Hyperparameter:
    given = bare(p.annotation)
    annotation = str(getattr(given, "__name__", given))
    kind = _KINDS.get(annotation)
    plain = p.annotation is p.empty and not callable(p.default)
    scheduled = plain or "Hyper" in annotation or "Ctx" in str(given)
    if kind is None and p.default is p.empty:
        kind = float if scheduled else None
    elif kind is None:
        default = normalised(p.default)
        found = type(default) if isinstance(default, bool | str | tuple | float) else None
        kind = found if "None" not in annotation else None
    default = p.default if p.default is p.empty else normalised(p.default, kind is int)
    check_hashable(default)
    ranges = ranges_of(p.name, p.annotation, default)
    return Hyperparameter(p.name, default, kind, scheduled, ranges)


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


def _not_a_definition(rule: Any, message: str, fix: str, why: str | None = None) -> DslmutError:
    return NotADefinition.raised(heading(rule), message, fix=fix, why=why)
