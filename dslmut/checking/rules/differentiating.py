"""E1106: changes that differentiation would lose, repeat or get wrong."""

from __future__ import annotations

from collections.abc import Iterator

from dslmut.checking.facts import Facts, Late
from dslmut.checking.source import Source
from dslmut.diagnostics.codes.hidden import ChangeLost
from dslmut.diagnostics.model import Diagnostic, Label

_REPEATED = {
    "checkpoint": "runs its function again in the backward pass, so that the change is made twice",
    "vmap": "runs its function once for many inputs, so that the change is made once, or not at all",
}


def check_differentiation(facts: Facts, source: Source) -> Iterator[Diagnostic]:
    """E1106 on each call that differentiates, with a label on the change."""
    for late in facts.of(Late):
        message, fix = _said(late)
        yield ChangeLost.at(
            source.span(late.node),
            message,
            fix=fix,
            labels=[Label(late.changed, f"{late.origin} is changed here")],
        )


def _said(late: Late) -> tuple[str, str]:
    if late.how is None:
        return (
            f"{late.origin} gets new values between the forward pass and this",
            "differentiate first, or compute the loss again after the change",
        )
    name = late.how.rpartition(".")[2]
    for repeating, what in _REPEATED.items():
        if name.startswith(repeating):
            return (
                f"`{name}` {what}",
                f"change it outside of `{name}`: return the new value, and set it after the call",
            )
    return (
        f"the function that `{name}` differentiates gives {late.origin} new values",
        "change it after the gradients are there: `m.w = m.w - lr * g.w`",
    )
