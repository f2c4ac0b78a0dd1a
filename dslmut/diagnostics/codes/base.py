"""What every code has: a number, a title, a reason, and a page."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import ClassVar

from dslmut.diagnostics.exceptions import CheckError, DslmutError
from dslmut.diagnostics.model import Diagnostic, Fix, Label, Span


class Code:
    """A kind of defect. The first line of a subclass's docstring is its title, the rest its page.

    Attributes:
        code: As in ``E1102``.
        why: One sentence: the rule that is broken.
        error: The exception that carries it.
    """

    code: ClassVar[str]
    why: ClassVar[str]
    error: ClassVar[type[DslmutError]] = CheckError

    @classmethod
    def title(cls) -> str:
        """Return the fixed sentence of the code."""
        return inspect.getdoc(cls).splitlines()[0].rstrip(".")  # pyright: ignore[reportOptionalMemberAccess]

    @classmethod
    def page(cls) -> str:
        """Return the page of the code, in Markdown: what it says, why, an example, what to write."""
        text = (inspect.getdoc(cls) or "").partition("\n")[2].strip()
        what, example, rest = text.partition("## Example")
        # The rule once, as each diagnostic quotes it.
        return f"# {cls.code}: {cls.title()}\n\n{what.strip()}\n\n**Why:** {cls.why}.\n\n{example}{rest}\n"

    @classmethod
    def at(
        cls,
        span: Span | None,
        message: str,
        *,
        fix: Fix | str | None = None,
        labels: Iterable[Label] = (),
        why: str | None = None,
    ) -> Diagnostic:
        """Make a diagnostic of this code.

        Args:
            span: Where; None where no source is known.
            message: What is wrong there, in a sentence without its full stop.
            fix: What to write instead.
            labels: Further places.
            why: A more fitting reason than that of the code.
        """
        return Diagnostic(
            code=cls.code,
            title=cls.title(),
            message=message,
            span=span,
            why=cls.why if why is None else why,
            fix=Fix(fix) if isinstance(fix, str) else fix,
            labels=tuple(labels),
        )

    @classmethod
    def raised(
        cls,
        span: Span | None,
        message: str,
        *,
        fix: Fix | str | None = None,
        why: str | None = None,
    ) -> DslmutError:
        """Make the exception that carries one diagnostic of this code."""
        return cls.error([cls.at(span, message, fix=fix, why=why)])
