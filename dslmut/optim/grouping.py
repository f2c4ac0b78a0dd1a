"""Several rules in one optimizer: which parameters each of them updates."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from torch import Tensor, nn

from dslmut.checking.wellknown import well_known
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.optim.bindable import Bindable, M, Parameters
from dslmut.optim.define import Configured, Optimizer
from dslmut.optim.parameters import (
    Arrangement,
    arrangement,
    bad_binding,
    listed,
    names_of,
    tied,
)
from dslmut.optim.signatures import misfit_of, told

if TYPE_CHECKING:
    from dslmut.optim.binding import OptState

Selector: TypeAlias = str | Callable[[str, Tensor], bool]
"""A pattern of names, as in a shell, or a function of name and parameter."""


@dataclass(frozen=True)
class Selection:
    """Some parameters of a model, and the rule that updates them; ``group`` makes it.

    Args:
        selectors: Any of them chooses a parameter; without one all that are left are chosen.
        optimizer: The rule.
        reasons: Why a parameter is here, by name; ``explain`` shows it.
    """

    selectors: tuple[Selector, ...]
    optimizer: Configured
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.selectors, self.optimizer))

    def __repr__(self) -> str:
        words = [_words(s) for s in self.selectors]
        return f"group({', '.join([*words, f'optimizer={self.optimizer}'])})"


@dataclass(frozen=True)
class Groups(Bindable):
    """Several rules with their parameters still to be chosen; ``groups`` makes it.

    Args:
        selections: In order; the first that chooses a parameter has it.
    """

    selections: tuple[Selection, ...]

    def rules(self) -> tuple[Configured, ...]:
        """Return the rules, in order."""
        return tuple(s.optimizer for s in self.selections)

    def arranged(self, target: Any) -> Arrangement:
        """Return the groups of a target.

        Raises:
            OptimizerError: E-OPT-005 for a parameter without a group, for what chooses nothing,
                and for a target that has groups of its own.
        """
        places = _places(target)
        for selection in self.selections:
            _check_matches(selection, places)
        members: list[list[_Place]] = [[] for _ in self.selections]
        for place in places:
            members[self._first(place)].append(place)
        for number, (selection, chosen) in enumerate(zip(self.selections, members)):
            if selection.selectors and not chosen:
                raise _taken(selection, number)
        groups = [_group(s, m) for s, m in zip(self.selections, members)]
        model = type(target).__name__ if isinstance(target, nn.Module) else ""
        return Arrangement(groups, model, self._notes(places))

    def _notes(self, places: Sequence[_Place]) -> dict[str, str]:
        notes = tied(place.names for place in places)
        for place in places:
            reason = self.selections[self._first(place)].reasons.get(place.name)
            if reason is not None:
                notes[place.name] = "; ".join(filter(None, (reason, notes.get(place.name))))
        return notes

    def _first(self, place: _Place) -> int:
        for number, selection in enumerate(self.selections):
            if not selection.selectors or any(_chooses(s, place) for s in selection.selectors):
                return number
        raise bad_binding(
            f"no group chooses the parameter `{place.name}`",
            "let a last group take the rest: `group(optimizer=adamw(lr=3e-4))`",
            _WHY,
        )

    def __repr__(self) -> str:
        return f"groups({', '.join(map(repr, self.selections))})"


def _misused(message: str, _: str) -> DslmutError:
    fix = 'write `group("*.bias", optimizer=adamw(lr=1e-3))`; hyperparameters belong to the rule'
    return bad_binding(message, fix, "a group is a choice of parameters, and the rule for them")


@told(_misused)
def group(*selectors: Selector, optimizer: Configured) -> Selection:
    """Choose parameters and give them a rule; for ``groups``.

    Args:
        selectors: Patterns of names (``"*.bias"``, ``"encoder.*"``; upper and lower case differ),
            and functions of name and parameter that say whether it belongs here. Without any,
            the group takes what is left, and may be empty.
        optimizer: A configured rule: ``adamw(lr=3e-4, weight_decay=0)``.

    Raises:
        OptimizerError: E-OPT-005 for something else.

    Example:
        >>> from dslmut.optim import sgd
        >>> group("*.bias", optimizer=sgd(lr=0.1))
        group('*.bias', optimizer=sgd(lr=0.1, weight_decay=0.0, maximize=False))
    """
    check_rule("optimizer", optimizer)
    for selector in selectors:
        if isinstance(selector, Bindable | Optimizer):
            raise bad_binding("the rule of a group is given by name", "write `optimizer=...`")
        if not isinstance(selector, str) and (
            isinstance(selector, nn.Module | type) or not callable(selector)
        ):
            raise bad_binding(
                f"a group chooses by patterns and functions, not by a `{type(selector).__name__}`",
                'write a pattern, `"head.*"`, or `lambda name, p: p.ndim == 2`',
            )
        if not isinstance(selector, str) and not _takes_two(selector):
            raise bad_binding(
                f"a group calls {_words(selector)} with a name and a parameter, which it does not take",
                "write `lambda name, p: p.ndim == 2`",
            )
    return Selection(selectors, optimizer)


def _takes_two(selector: Callable[..., Any]) -> bool:
    try:
        return misfit_of(selector, ("", None), {}) is None
    except ValueError:  # a built-in without a signature
        return True


def check_rule(name: str, given: Any) -> None:
    """Refuse what is no configured rule (E-OPT-005).

    Args:
        name: Of the argument.
        given: It.
    """
    if isinstance(given, Optimizer):
        rule = given.__name__
        raise bad_binding(f"`{rule}` is not configured", f"write `{name}={rule}(lr=...)`")
    if not isinstance(given, Configured):
        raise bad_binding(
            f"`{name}` of a group is a configured rule, not a `{type(given).__name__}`",
            f"write `{name}=adamw(lr=3e-4)`, with a rule of `dslmut.optim` or one of your own",
        )


@overload
def groups(model: M, /, *selections: Selection) -> OptState[M]: ...
@overload
def groups(params: Parameters, /, *selections: Selection) -> OptState[Any]: ...
@overload
def groups(*selections: Selection) -> Groups: ...
def groups(*arguments: Any) -> Any:
    """Put several rules into one optimizer: one step, one scheduler, one state dict.

    The first group that chooses a parameter has it. A tied parameter is updated once, and chosen
    by any of its names. ``explain()`` of the result shows who has what.

    Args:
        arguments: A model or named parameters, and then what ``group`` gives; without the first
            the result is to be bound: ``groups(...).bind(model, curriculum=10_000)``.

    Raises:
        OptimizerError: E-OPT-005 for a parameter that no group chooses, for a pattern or function
            that chooses none, and for anything but groups.

    Example:
        >>> from torch import nn
        >>> from dslmut.optim import adamw, momentum_sgd
        >>> model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
        >>> opt = groups(
        ...     model,
        ...     group(lambda name, p: p.ndim == 2, optimizer=momentum_sgd(lr=0.02)),
        ...     group(optimizer=adamw(lr=3e-4, weight_decay=0)),
        ... )
        >>> [g["rule"] for g in opt.param_groups]
        ['momentum_sgd', 'adamw']
    """
    first = [] if arguments and isinstance(arguments[0], Selection) else list(arguments[:1])
    selections = arguments[len(first) :]
    for selection in selections:
        if not isinstance(selection, Selection):
            raise bad_binding(
                f"`groups` takes groups, and this is a `{type(selection).__name__}`",
                'write `groups(model, group("*.bias", optimizer=...), group(optimizer=...))`',
            )
    if not selections:
        raise bad_binding(
            "`groups` has no groups", "write `groups(model, group(optimizer=adamw(lr=3e-4)))`"
        )
    for selection in selections[:-1]:
        if not selection.selectors:
            raise bad_binding(
                "a group without patterns takes all that is left, and others stand behind it",
                "put it last",
            )
    made = Groups(tuple(selections))
    return made.bind(first[0]) if first else made


groups.__dslmut__ = well_known("dslmut.groups")  # pyright: ignore[reportFunctionMemberAccess]


_WHY = "a parameter that is forgotten, or goes elsewhere than its pattern says, is found only much later"


# -- choosing ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Place:
    """A parameter with all the names that it has, the first of them its own."""

    names: tuple[str, ...]
    parameter: Tensor

    @property
    def name(self) -> str:
        return self.names[0]


def _places(target: Any) -> list[_Place]:
    if isinstance(target, nn.Module):
        return [_Place(tuple(n), p) for p, n in names_of(target).items()]
    if not isinstance(target, Tensor | dict):
        target = listed(target)
        if any(isinstance(t, dict) for t in target):
            raise bad_binding(
                "`groups` makes the groups itself, and these are some already",
                "give a model or named parameters; or torch-style groups, each with its rule: "
                '`{"params": [...], "optimizer": adamw(lr=3e-4)}`, to any rule',
            )
    [found] = arrangement(target).groups
    if "param_names" not in found:
        raise bad_binding(
            "these parameters have no names, by which they are chosen",
            "give the model, or `model.named_parameters()`",
        )
    pairs = zip(found["param_names"], found["params"])
    return [_Place((name,), parameter) for name, parameter in pairs]


def _chooses(selector: Selector, place: _Place) -> bool:
    if isinstance(selector, str):
        return any(fnmatchcase(name, selector) for name in place.names)
    return bool(selector(place.name, place.parameter))


def _check_matches(selection: Selection, places: Sequence[_Place]) -> None:
    """Refuse a pattern or function that chooses nothing: it was written for something."""
    for selector in selection.selectors:
        if any(_chooses(selector, place) for place in places):
            continue
        names = [name for place in places for name in place.names]
        raise bad_binding(
            f"{_words(selector)} chooses no parameter", _advice(selector, names), _WHY
        )


def _advice(selector: Selector, names: Sequence[str]) -> str:
    listed = ", ".join(f"`{n}`" for n in names[:8]) + (", …" if len(names) > 8 else "")
    if isinstance(selector, str):
        near = difflib.get_close_matches(selector, names, n=1, cutoff=0.5)
        bare = [n for n in names if fnmatchcase(f".{n}", selector)]
        if bare:
            return f"`{bare[0]}` has no dot before it: write `{selector.replace('*.', '*', 1)!r}`"
        if near:
            return f"write `{near[0]!r}`, for instance; the parameters are {listed}"
    return f"leave it out, or choose among {listed}"


def _taken(selection: Selection, number: int) -> DslmutError:
    chosen = ", ".join(map(_words, selection.selectors))
    return bad_binding(
        f"group {number} is empty: what {chosen} chooses belongs to groups before it",
        "put the narrower group first",
        _WHY,
    )


def _group(selection: Selection, members: Sequence[_Place]) -> dict[str, Any]:
    return {
        "params": [place.parameter for place in members],
        "param_names": [place.name for place in members],
        "optimizer": selection.optimizer,
    }


def _words(selector: Selector) -> str:
    if isinstance(selector, str):
        return repr(selector)
    name = getattr(selector, "__name__", type(selector).__name__)
    if name != "<lambda>":
        return name
    return f"the lambda of line {selector.__code__.co_firstlineno}"  # pyright: ignore[reportFunctionMemberAccess]
