"""Which state of a file belongs to which parameter: by name where both sides have names."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dslmut.diagnostics.codes.optimizers import ForeignCheckpoint
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span, warn_user
from dslmut.optim.renaming import renaming

if TYPE_CHECKING:
    from dslmut.optim.running import Runner

SavedGroups = Sequence[Mapping[str, Any]]


def copied(saved: Any) -> Any:
    """Return a state dict with groups of its own; what is none, as it is."""
    if not isinstance(saved, Mapping):
        return saved
    groups = saved.get("param_groups")
    own: dict[str, Any] = dict(saved)
    if isinstance(groups, list | tuple):
        own["param_groups"] = [copy(g) for g in groups]
    return own


def groups_in(saved: Any) -> SavedGroups:
    """Return the groups of a state dict, once it has torch's layout.

    Raises:
        OptimizerError: E-OPT-007 for anything else.
    """
    fix = "load what `opt.state_dict()` gave"
    if not _is_state_dict(saved):
        problem = "this is no state dict of an optimizer: it has no `state` and `param_groups`"
        raise foreign(problem, _instead(saved) or fix)
    groups = saved["param_groups"]
    if not isinstance(groups, list | tuple) or not all(
        isinstance(g, Mapping) and isinstance(g.get("params"), list | tuple) for g in groups
    ):
        raise foreign("a group of the file has no `params`", fix)
    for group in groups:
        _check_group(group, fix)
    if not isinstance(saved["state"], Mapping):
        raise foreign("the `state` of the file is no dictionary by parameter", fix)
    numbers = {n for g in groups for n in g["params"]}
    for number, state in saved["state"].items():
        if number not in numbers:
            raise foreign(
                f"the file has a state of {number!r}, which stands in none of its groups", fix
            )
        if not isinstance(state, Mapping) or not _are_names(state):
            raise foreign(
                f"the state of {number!r} in the file is no dictionary of states by name", fix
            )
    return groups


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, Mapping) and {"state", "param_groups"} <= set(value)


def _instead(saved: Any) -> str | None:
    """Return what is to be loaded instead, if the file has an optimizer in it, or is a model's."""
    found = [f"`file{path}`" for path in _places(saved, 3)]
    if found:
        return f"load what it has inside: {' or '.join(found[:3])}"
    values = list(saved.values()) if isinstance(saved, Mapping) else []
    if values and all(isinstance(v, Tensor) for v in values):
        return "it may be the model's: `model.load_state_dict(file)`"
    return None


def _places(value: Any, depth: int) -> Iterator[str]:
    """Yield where the state dicts of optimizers are within a file, as code."""
    if _is_state_dict(value):
        yield ""
        return
    parts: Iterable[tuple[Any, Any]] = ()
    if depth and isinstance(value, Mapping):
        parts = value.items()
    elif depth and isinstance(value, list | tuple):
        parts = enumerate(value)
    for key, part in parts:
        yield from (
            f"[{json.dumps(key) if isinstance(key, str) else repr(key)}]{p}"
            for p in _places(part, depth - 1)
        )


def _check_group(group: Mapping[str, Any], fix: str) -> None:
    """Refuse a group of a file in which something stands that no optimizer wrote (E-OPT-007)."""
    if not _are_names(group):
        raise foreign("a group of the file has a key that is no string", fix)
    names = group.get("param_names", ())
    if not isinstance(names, list | tuple) or not _are_names(names):
        raise foreign(f"the `param_names` of a group of the file are {names!r}", fix)
    if not isinstance(group.get("rule", ""), str):
        raise foreign(f"the `rule` of a group of the file is {group['rule']!r}", fix)
    for number in group["params"]:
        if not isinstance(number, int | str):
            raise foreign(f"a parameter of the file is called {number!r}", fix)


def _are_names(names: Iterable[Any]) -> bool:
    return all(isinstance(name, str) for name in names)


def matched(runner: Runner, saved: SavedGroups) -> list[Hashable | None]:
    """Return, for each parameter in order, the number that its state has in the file.

    Args:
        runner: Which knows the parameters.
        saved: The groups of the file.

    Returns:
        None for a parameter that the file does not have, which is warned of.

    Raises:
        OptimizerError: E-OPT-007 for parameters that only the file has, and for other sizes of
            the groups where there are no names.
    """
    shown = [g.shown for g in runner.groups]
    names = [n for g in shown for n in g.get("param_names", ())]
    numbers = [n for g in saved for n in g["params"]]
    theirs = _names(saved, set(names)) if len(names) == len(runner.items) else None
    if theirs is None or len(set(theirs)) < len(theirs):
        return _in_order(shown, saved, numbers)
    ours, known = set(names), dict(zip(theirs, numbers))
    missing = [n for n in names if n not in known]
    lost = [n for n in theirs if n not in ours]
    if lost:
        raise _unknown(lost, missing, [n for n in theirs if n in ours])
    if missing:
        warn(f"the file has no states of {listed(missing)}; they start at zeros")
    return [known.get(n) for n in names]


def _names(saved: SavedGroups, known: set[str]) -> list[str] | None:
    """Return the names of the parameters in a file, in order; None if they have none.

    ``torch.distributed.checkpoint`` puts full names in the place of numbers, and then sorts the
    parameters into the groups that it loads into, but leaves the ``param_names`` of the old ones:
    the numbers count then, and the order where they are no names of ours.
    """
    numbers = [n for g in saved for n in g["params"]]
    if numbers and all(isinstance(n, str) for n in numbers) and known & set(numbers):
        return numbers
    if any(len(g.get("param_names", ())) != len(g["params"]) for g in saved):
        return None
    listed = [n for g in saved for n in g.get("param_names", ())]
    full = [(n, name) for n, name in zip(numbers, listed) if not str(n).isdigit()]
    agree = all(str(n).endswith(name) for n, name in full)
    return listed if agree else None


def _in_order(
    shown: SavedGroups, saved: SavedGroups, numbers: list[Hashable]
) -> list[Hashable | None]:
    sizes, old_sizes = [len(g["params"]) for g in shown], [len(g["params"]) for g in saved]
    if sizes == old_sizes:
        return [*numbers]
    fix = "load it into an optimizer of the model that it was saved from"
    if sum(sizes) == sum(old_sizes):
        groups = ", ".join(['{"params": [...]}'] * min(len(saved), 2))
        more = ", ..." if len(saved) > 2 else ""
        fix = f"bind to groups of the file's sizes, with the parameters in its order: `.bind([{groups}{more}])`"
    raise foreign(
        f"the file has {old_sizes} parameters in its groups, this optimizer {sizes}, "
        "and there are no names to go by",
        f"{fix}; files of optimizers that are bound to a model, or to pairs of name and parameter, "
        "have names",
    )


def _unknown(lost: Sequence[str], missing: Sequence[str], kept: Sequence[str]) -> DslmutError:
    """E-OPT-007 for names that only the file has; a renaming is recognised and written down."""
    message = f"the file has states of {listed(lost)}, which this optimizer does not have"
    if not missing:
        return foreign(message, "load it into an optimizer of the model that it was saved from")
    message += f"; it has {listed(missing)}, which the file does not have"
    code = renaming(lost, missing, kept)
    return foreign(
        message,
        "if only the names have changed, change them in the file before it is loaded: "
        f'`g["param_names"] = [{code} for n in g["param_names"]]` '
        'for each `g` in `file["param_groups"]`'
        + (", where `new_names` has the new name of each" if "new_names" in code else ""),
    )


def listed(names: Sequence[str]) -> str:
    """Return names for a message, the first three of many."""
    shown = ", ".join(f"`{n}`" for n in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def count(value: Any, what: str) -> int:
    """Return a count that a file gives.

    Raises:
        OptimizerError: E-OPT-007 for anything else.
    """
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
    if not whole or not 0 <= number < 2**63:
        raise foreign(
            f"the number of {what} is {value!r} in the file",
            "load what `opt.state_dict()` gave",
        )
    return int(number)


def warn(message: str) -> None:
    """Warn where the user loads a file."""
    warn_user(f"dslmut: {message}", UserWarning)


def foreign(message: str, fix: str) -> DslmutError:
    """Return E-OPT-007."""
    return ForeignCheckpoint.raised(user_span(), message, fix=fix)
