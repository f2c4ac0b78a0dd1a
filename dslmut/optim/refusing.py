"""What a rule refuses by a ``raise`` of its own: said with the rule, the parameter and the place."""

from __future__ import annotations

import dis
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from dslmut.diagnostics.codes.bodies import RefusedByRule
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import is_user, raised_span, user_span

if TYPE_CHECKING:
    from dslmut.optim.define import Optimizer
    from dslmut.optim.recording import Subject

_RULES = str(Path(__file__).parent / "rules")


def is_refusal(error: Exception) -> bool:
    """Say whether a rule raised an error itself, because what it was given does not fit.

    That is a plain ``ValueError`` or ``TypeError`` that comes from a ``raise`` statement. Those
    that Python and torch raise are mistakes in the body, and exceptions of somebody's own kind are
    caught by that kind.
    """
    if type(error) not in (ValueError, TypeError) or error.__traceback__ is None:
        return False
    last: TracebackType = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    of_rule = is_user(last.tb_frame) or code.co_filename.startswith(_RULES)
    return of_rule and dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"


def refused(definition: Optimizer[...], subject: Subject, error: Exception) -> DslmutError:
    """Return E-OPT-028 for what a rule has raised.

    Args:
        definition: The rule.
        subject: The parameter.
        error: With the rule's own words.
    """
    rule, name = definition.__name__, subject.name
    own = f"{rule}(...)" if rule.isidentifier() else "..."
    other = f'group("{name}", optimizer=adamw(lr=1e-3))'
    return RefusedByRule.raised(
        raised_span(error) or user_span(),
        f"`{rule}` refuses the parameter `{name}` of shape {list(subject.shape)}: {str(error).rstrip('.')}",
        fix=f"do what it says; or give the parameter to another rule: "
        f"`groups(model, {other}, group(optimizer={own}))`",
    )
