"""What belongs to a run and not to a rule."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from dslmut.diagnostics.codes.optimizers import BadOption
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.functions.records import Gradient
from dslmut.optim.context import CONSTANTS, COUNTS, DRAWS, PROGRESS, WIDE, Curriculum
from dslmut.optim.numbers import context_keys, context_number

if TYPE_CHECKING:
    from dslmut.optim.define import Configured


@dataclass(frozen=True)
class Options:
    """The options of a run; see ``Configured.bind``."""

    curriculum: Curriculum | None = None
    diagnostics_every: int | None = None
    ctx: Mapping[str, float] = field(default_factory=dict)
    skip_nonfinite: bool = False
    compile: bool | dict[str, Any] = True
    seed: int = 0
    rounding: str = "nearest"

    def chosen(self) -> str:
        """Return what is not at its default, as it is given to ``bind``; groups show seed and keys."""
        names = ("curriculum", "diagnostics_every", "skip_nonfinite", "rounding")
        values = {n: getattr(self, n) for n in names if getattr(self, n) != getattr(Options(), n)}
        return ", ".join(f"{n}={v!r}" for n, v in values.items())


def options(
    curriculum: Any,
    diagnostics_every: Any,
    ctx: Mapping[str, Any] | None,
    skip_nonfinite: Any,
    compile: Any,
    seed: Any = 0,
    rounding: Any = "nearest",
) -> Options:
    """Return the options of a run.

    Raises:
        OptimizerError: E-OPT-011 for one that does not fit.
    """
    ctx = context_keys(ctx)
    for name in ctx:
        taken = name in (*COUNTS, *PROGRESS, *CONSTANTS, *WIDE, *DRAWS)
        if taken or not isinstance(name, str) or not name.isidentifier():
            raise _misfit(
                f"`ctx` cannot get a key `{name}`: {'it has one' if taken else 'that is no name'}",
                "choose another name for the key",
            )
    if diagnostics_every is not None and not _is_count(diagnostics_every):
        raise _misfit(
            f"`diagnostics_every` is a number of steps, at least 1, not {diagnostics_every!r}",
            "write `diagnostics_every=100`, for instance",
        )
    if not isinstance(skip_nonfinite, bool):
        raise _misfit(
            f"`skip_nonfinite` is True or False, not {skip_nonfinite!r}",
            "write `skip_nonfinite=True`",
        )
    if not isinstance(compile, bool | dict):
        raise _misfit(
            f"`compile` is True, False or a dictionary for `torch.compile`, not {compile!r}",
            "write `compile=False` to compute with plain operations",
        )
    keys = {name: context_number(name, value) for name, value in ctx.items()}
    counted = curriculum_of(curriculum)
    return Options(
        counted,
        diagnostics_every,
        keys,
        skip_nonfinite,
        compile,
        seed_of(seed),
        _rounding(rounding),
    )


def is_seed(given: Any) -> bool:
    """Say whether it is a whole number that a file can hold."""
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**63


def check_call(closure: Any, diagnostics: Any, gradients: Any) -> None:
    """Refuse arguments of a step that are not what it takes (E-OPT-006)."""
    if closure is not None and not callable(closure):
        raise _misfit(
            f"`step` takes a function that computes the loss, and got a `{type(closure).__name__}`",
            "write `loss.backward()` and `opt.step()`",
        )
    if diagnostics is not None and not isinstance(diagnostics, bool):
        raise _misfit(
            f"`diagnostics` of a step is True or False, not {diagnostics!r}",
            "write `opt.step(diagnostics=True)`",
        )
    if gradients is not None and not isinstance(gradients, Gradient):
        raise _misfit(
            f"`gradients` of a step is a gradient record, not a `{type(gradients).__name__}`",
            "give what `value_and_grad` returned beside the value, `loss, g = value_and_grad(...)`",
        )


def check_own(shown: Mapping[str, Any], rule: str) -> None:
    """Refuse what somebody wrote over a group's own keys: its counts, seed and rule (E-OPT-006)."""
    for name in ("step", "seed", "skipped"):
        value = shown.get(name) if name != "skipped" else shown.get(name, 0)
        if type(value) is not int or not 0 <= value < 2**63:
            raise _misfit(
                f"`{name}` of a group is a whole number from 0 to 2**63 - 1, not {value!r}",
                f"leave it to the optimizer, or write `group[{name!r}] = 0`",
            )
    if not isinstance(shown.get("rule"), str) or shown["rule"] != rule:
        raise _misfit(
            f"a group of `{rule}` says that its rule is {shown.get('rule')!r}",
            "a group keeps its rule; give another one by `opt.add_param_group"
            '({"params": [...], "optimizer": adamw(lr=1e-3)})`',
        )


def seed_of(given: Any) -> int:
    """Return a seed, also one that somebody wrote into a group.

    Raises:
        OptimizerError: E-OPT-011 if it is no whole number that a file can hold.
    """
    if is_seed(given):
        return given
    raise _misfit(
        f"`seed` is a whole number from 0 to 2**63 - 1, not {given!r}",
        "write `seed=1`, for instance",
    )


_ROUNDINGS = ("nearest", "stochastic")


def _rounding(given: Any) -> str:
    if isinstance(given, str) and given in _ROUNDINGS:
        return given
    near = difflib.get_close_matches(str(given), _ROUNDINGS, n=1, cutoff=0.3)
    raise _misfit(
        f'`rounding` is "nearest" or "stochastic", not {given!r}',
        f'write `rounding="{near[0] if near else "stochastic"}"`',
    )


def unknown_option(name: str, rules: Iterable[Configured]) -> DslmutError:
    """Return E-OPT-011 for an option that a run does not have.

    Args:
        name: Of the option.
        rules: Which are bound; it may be a hyperparameter of one of them.
    """
    known = [f.name for f in fields(Options)]
    owner = next((r.definition for r in rules if name in r.definition.hyperparameters), None)
    near = difflib.get_close_matches(name, known, n=1)
    fix = f"write `{near[0]}=...`" if near else "leave it out"
    if owner is not None:
        fix = f"it is a hyperparameter: write `{owner.__name__}({name}=...).bind(model)`"
    return _misfit(f"`bind` has no option `{name}`; it has {', '.join(known)}", fix)


def curriculum_of(given: Any) -> Curriculum | None:
    """Return a curriculum that may be given as its stages, or as a number of steps.

    Raises:
        OptimizerError: E-OPT-011 for anything else.
    """
    if given is None or isinstance(given, Curriculum):
        return given
    if isinstance(given, int):
        return Curriculum(steps=given)
    if isinstance(given, list | tuple):
        return Curriculum(given)
    raise _misfit(
        f"`curriculum` is a number of steps, a `Curriculum` or its stages, not {given!r}",
        "write `curriculum=10_000`, for instance",
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _misfit(message: str, fix: str) -> DslmutError:
    return BadOption.raised(user_span(), message, fix=fix)
