"""Which rule a file comes from: a rule, and all chains around it, read each other's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dslmut.optim.define import Optimizer


def parts(rule: str) -> tuple[str, ...]:
    """Return the parts of a chain by its name, in order; a rule is its own only part."""
    listed = rule.removeprefix("chain(")
    return (rule,) if listed == rule else tuple(listed.removesuffix(")").split(", "))


def core(definition: Optimizer[...]) -> str:
    """Return the name of the rule that a chain is around; of a rule, its own."""
    own: Any = getattr(definition, "parts", ())
    return next((p.definition.__name__ for p in own if not p.label), definition.__name__)


def is_related(definition: Optimizer[...], saved: str) -> bool:
    """Say whether a file's rule is this one, but for transforms around it.

    Args:
        definition: Of a group here.
        saved: The name of the rule in the file.
    """
    return core(definition) in parts(saved)


def left_out(own: str, saved: str) -> tuple[str, ...]:
    """Return how the names of states and hyperparameters begin that only the file's chain has."""
    return tuple(f"{p}." for p in parts(saved) if p not in parts(own))


def begun(own: str, saved: str) -> tuple[str, ...]:
    """Return how the names of states and hyperparameters begin that only the chain here has."""
    return left_out(saved, own)


def difference(own: str, saved: str) -> str:
    """Return what is to be said of two different chains around one rule."""
    here, there = parts(own), parts(saved)
    gone = ", ".join(f"`{p}`" for p in there if p not in here)
    new = ", ".join(f"`{p}`" for p in here if p not in there)
    said = [f"it goes on without {gone}"] if gone else []
    said += [f"{new} begins now, with the hyperparameters that it has here"] if new else []
    what = ", and ".join(said) or "the parts are in another order"
    return f"the file was saved from `{saved}`, and this is `{own}`: {what}"
