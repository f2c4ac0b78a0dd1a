"""Markers of a call that is being made, and the corrected call quoted."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from dslmut.diagnostics.calling import Argument, MadeCall, call_that_gave
from dslmut.diagnostics.codes.mutation import MeaninglessMut, MissingMut
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.model import Label, Span
from dslmut.diagnostics.raising import user_span
from dslmut.diagnostics.wording import an


@dataclass(frozen=True, eq=False)
class Unmarked(Argument):
    """An argument that lacks its marker.

    Args:
        declared: Where its parameter is declared.
    """

    declared: Span | None = None


def spurious_token(kind: str, how: str) -> DslmutError:
    """E1101: a token reached code that no marker was meant for, and ``how`` it was used there."""
    return MeaninglessMut.raised(
        user_span(),
        f"{an(kind)} was passed as `mut(...)` to code that takes no marker: {how}",
        fix="pass the object itself to a function that is not `@fn`",
        why="a plain function may change anything, so that there is nothing to mark",
    )


def spurious_argument(function: str, argument: Argument, frame: FrameType | None) -> DslmutError:
    """E1101: a marked argument for a parameter without ``Mut``."""
    call = call_that_gave(frame, function, [argument])
    node = call.node_of(argument)
    parameter = argument.name
    fix = f"pass it without the marker, or declare `{parameter}: Mut[...]` if it should be changed"
    if isinstance(node, ast.Call) and node.args:
        fix = f"write `{call.corrected({node: call.segment(node.args[0])})}`"
    return MeaninglessMut.raised(
        call.place(node),
        f"`{function}` does not change its parameter `{parameter}`, which was passed as `mut(...)`",
        fix=fix,
    )


def missing_markers(
    function: str, unmarked: Sequence[Unmarked], example: str, frame: FrameType | None
) -> DslmutError:
    """E1103: the arguments of a call for ``Mut`` parameters that were not marked.

    Args:
        function: Its name.
        unmarked: Every parameter whose argument lacks the marker.
        example: How the function is called, for calls whose text cannot be corrected.
        frame: The caller's.
    """
    call = call_that_gave(frame, function, unmarked)
    found = {u: call.node_of(u) for u in unmarked}
    names: Mapping[ast.expr, str] = {
        n: f"mut({n.id})" for n in found.values() if isinstance(n, ast.Name)
    }
    return MissingMut.error(
        [
            MissingMut.at(
                call.place(node),
                f"`{function}` may change {_subject(u)}, which was passed without `mut`",
                fix=_fix(node, names, call) or f"mark it where `{function}` gets it: `{example}`",
                labels=[Label(u.declared, f"`{u.name}: Mut[...]` is declared here")]
                if u.declared
                else [],
            )
            for u, node in found.items()
        ]
    )


def _subject(unmarked: Unmarked) -> str:
    return "its receiver" if unmarked.receiver else f"its parameter `{unmarked.name}`"


def _fix(node: ast.expr | None, names: Mapping[ast.expr, str], call: MadeCall) -> str | None:
    """Return the corrected call, or None where the argument is not to be seen in it."""
    if node is None:
        return None
    if isinstance(node, ast.Name):
        return f"write `{call.corrected(names, node)}`"
    part = call.corrected({**names, node: "mut(part)"}, node)
    return f"bind it to a name first: `part = {call.segment(node)}`, then write `{part}`"
