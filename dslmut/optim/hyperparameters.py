"""Hyperparameters: what a rule declares, and the values that fit."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

from torch import Tensor

from dslmut.diagnostics.codes.optimizers import BadHyperparameter
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.optim.ranges import FINITE, Range, Ranges, outside

BOUND_WITH = "bound_with"
"""The key of a group in a file that says how the run was bound."""

OWN = frozenset("step rule seed skipped ctx".split()) | {BOUND_WITH}
"""Keys of a group that are ours: counts, the seed, the rule's name, and what ``ctx`` was told."""

RESERVED = OWN | set(
    "params param_names initial_lr max_lr min_lr max_momentum base_momentum swa_lr".split()
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
        kind: ``int``, ``bool``, ``str``, ``tuple`` or ``float`` if only such values fit; a whole
            number specialises the graph, a float is an input of it. None for anything else.
        scheduled: Whether it may be a schedule; one that is annotated ``float`` is a number.
        ranges: Which numbers it may be, or which its parts may be.
    """

    name: str
    default: Any
    kind: type | None = float
    scheduled: bool = True
    ranges: Ranges = FINITE

    @property
    def required(self) -> bool:
        """Say whether it has to be given."""
        return self.default is inspect.Parameter.empty

    def __str__(self) -> str:
        return self.name if self.required else f"{self.name}={self.default!r}"


class Declaring(Protocol):
    """What declares hyperparameters: a rule, a transform, or a chain of them."""

    __name__: str

    @property
    def hyperparameters(self) -> Mapping[str, Hyperparameter]:
        """Return them by name."""
        ...


def configured(definition: Declaring, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all hyperparameters of a definition, those that are given and the defaults.

    Raises:
        OptimizerError: E-OPT-002.
    """
    known = definition.hyperparameters
    for name in given:
        if name not in known:
            raise unknown(definition, name)
    missing = [n for n, h in known.items() if h.required and n not in given]
    if missing:
        raise BadHyperparameter.raised(
            user_span(),
            f"`{definition.__name__}` needs `{missing[0]}`, which has no default",
            fix=f"write `{definition.__name__}(..., {missing[0]}=...)`",
            why="there is no value that the rule could take instead",
        )
    return {n: fitted(definition, h, given.get(n, h.default)) for n, h in known.items()}


def normalised(value: Any, whole: bool = False) -> Any:
    """Return a value as it is kept: numbers of any kind are floats, unless *whole* ones are wanted."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    elif not isinstance(value, Real | Tensor) and getattr(value, "ndim", None) == 0:
        value = value.item()  # of NumPy
    if isinstance(value, list | tuple):
        return tuple(normalised(v) for v in value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    number: Any = value
    try:
        return int(number) if whole and number == int(number) else float(number)
    except OverflowError:  # a whole number beyond all floats: no kind of number that fits
        return value


def fitted(definition: Declaring, h: Hyperparameter, value: Any) -> Any:
    """Return a value as it is kept, of the kind and in the range that is declared.

    Raises:
        OptimizerError: E-OPT-002 for another kind, and for a number out of range.
    """
    try:
        kept = normalised(value, h.kind is int)
        check_hashable(kept)
    except (OverflowError, ValueError, TypeError):
        raise _misfit(definition, h, value) from None
    if not _fits(h, kept, h.default):
        raise _misfit(definition, h, value)
    wrong = outside(h.name, kept, h.ranges)
    if wrong is not None:
        raise _out_of_range(definition, h, *wrong)
    return kept


def check_hashable(value: Any) -> None:
    """Raise TypeError for what a trace cannot be remembered by; a schedule is, by its identity."""
    for part in value if isinstance(value, tuple) else (value,):
        if not callable(part):
            hash(part)


def _fits(h: Hyperparameter, kept: Any, default: Any) -> bool:
    if isinstance(kept, Tensor) or (type(kept) is int and h.kind is not int):
        return False
    if callable(kept) and h.scheduled:
        return (h.kind in (float, None) or default is None) and takes_ctx(kept)
    if h.kind is tuple:
        return isinstance(kept, tuple) and len(kept) == len(default) and all(
            isinstance(k, float) or (callable(k) and h.scheduled) if isinstance(d, float) else True
            for k, d in zip(kept, default)
        )  # fmt: skip
    return h.kind is None or type(kept) is h.kind


def takes_ctx(schedule: Callable[..., Any]) -> bool:
    """Say whether a function can be called with ``ctx`` alone."""
    return takes(schedule, 1)


def takes(function: Callable[..., Any], count: int) -> bool:
    """Say whether a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return True
    return True


def _out_of_range(
    definition: Declaring, h: Hyperparameter, name: str, value: float, range: Range
) -> DslmutError:
    fix = f"write `{h.name}={example(h)}`, for instance"
    if h.name == "lr" and value < 0 and "maximize" in definition.hyperparameters:
        fix = f"write `lr={-value!r}, maximize=True` to make the loss grow"
    return BadHyperparameter.raised(
        user_span(),
        f"`{name}` of `{definition.__name__}` is {range}, not {value!r}",
        fix=fix,
        why="out of its range a number spoils the weights, or turns the update around, silently",
    )


def example(h: Hyperparameter) -> str:
    """Return a value to write, for people."""
    if not h.required:
        return repr(h.default)
    return "1.0" if outside(h.name, 1.0, h.ranges) is None else "..."


def call_of(definition: Declaring) -> str:
    """Return a call that configures a definition, for people."""
    needed = [h for h in definition.hyperparameters.values() if h.required]
    return f"{definition.__name__}({', '.join(f'{h.name}={example(h)}' for h in needed)})"


_WORDS = {int: "a whole number", bool: "True or False", str: "a string"}


def _misfit(definition: Declaring, h: Hyperparameter, value: Any) -> DslmutError:
    fix = f"write `{h.name}={example(h)}`, for instance"
    if h.kind is tuple:
        wanted = f"a tuple of {len(h.default)} numbers"
    elif h.kind is float:
        wanted = "a number or a schedule" if h.scheduled else "a number"
    else:
        wanted = _WORDS.get(h.kind, "a number, a string, None or a tuple of such")
    if callable(value) and h.scheduled:
        shown = "a function that does not take `ctx` alone"
        fix = f"write `{h.name}=lambda ctx: ...`"
    elif callable(value) and h.kind is float:
        shown = "a schedule"
        fix = f"annotate it `{h.name}: Hyper`, and read it by `schedule_value({h.name}, ctx)`"
    else:
        shown = "a function" if callable(value) else repr(value)
    return BadHyperparameter.raised(
        user_span(), f"`{h.name}` of `{definition.__name__}` is {wanted}, not {shown}", fix=fix
    )


_RUN = frozenset("curriculum diagnostics_every ctx skip_nonfinite compile seed rounding".split())
_ALSO_CALLED = {"learning_rate": "lr", "beta": "betas", "wd": "weight_decay", "epsilon": "eps"}


def check_spelling(definition: Declaring, names: Iterable[str]) -> None:
    """Refuse keys of a group that are misspelt hyperparameters (E-OPT-002); others are people's own."""
    known = definition.hyperparameters
    close = _called(known)
    for name in names:
        near = difflib.get_close_matches(name, close, n=1, cutoff=0.8) if len(name) > 3 else []
        wrong = name in _ALSO_CALLED or any(abs(len(n) - len(name)) <= 1 for n in near)
        wrong = wrong or name in close  # that of a part of a chain, without the part's name
        if wrong and name not in {*known, *RESERVED, *FOREIGN}:
            raise unknown(definition, name)


def _called(known: Iterable[str]) -> dict[str, list[str]]:
    """Return what hyperparameters are called: in a chain, by the last part of the name too."""
    found: dict[str, list[str]] = {}
    for name in known:
        for call in {name, name.rpartition(".")[2]}:
            found.setdefault(call, []).append(name)
    return found


def _written(names: Sequence[str]) -> str:
    """Say how to write one of several names; a dotted one is the key of a group, and no keyword."""
    return "write " + " or ".join(f'`"{n}"`' if "." in n else f"`{n}=...`" for n in names)


def unknown(definition: Declaring, name: str) -> DslmutError:
    """E-OPT-002 for a name that no hyperparameter has."""
    known, rule = definition.hyperparameters, definition.__name__
    near = [n for n in known if n == _ALSO_CALLED.get(name)]
    called = _called(known)
    near = near or called.get(name, [])
    near = near or [n for c in difflib.get_close_matches(name, called, n=1) for n in called[c]]
    fix = _written(near) if near else "leave it out"
    of_the_run = [] if near else difflib.get_close_matches(name, _RUN, n=1, cutoff=0.75)
    if of_the_run:
        fix = f"it belongs to the run: write `{rule}(...).bind(model, {of_the_run[0]}=...)`"
    elif name in FOREIGN and not near:
        fix = "leave it out: torch's own optimizers take it, and this rule does not"
    return BadHyperparameter.raised(
        user_span(),
        f"`{rule}` has no hyperparameter `{name}`; it has {', '.join(known) or 'none'}",
        fix=fix,
        why="a misspelt hyperparameter would silently leave the default in force",
    )
