"""The errors of the library: each carries diagnostics, and is of the fitting built-in kind too."""

from __future__ import annotations

from collections.abc import Iterable

from dslmut.diagnostics.model import Diagnostic
from dslmut.diagnostics.render import Reader, full, read_lines


class DslmutError(Exception):
    """Any error of the library.

    Args:
        diagnostics: What is wrong; at least one.
        read: Gives the lines of a file, for the code frames.

    Attributes:
        diagnostics: Each with ``.code``.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic], read: Reader = read_lines) -> None:
        self.diagnostics = tuple(diagnostics)
        # Rendered at once: the file may have changed by the time somebody prints this.
        self._text = "\n\n".join(full(d, read) for d in self.diagnostics)
        super().__init__(self._text)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.diagnostics, self._text)


class CheckError(DslmutError, TypeError):
    """What the source says is wrong."""


class MutationError(DslmutError, RuntimeError):
    """What a run changes is wrong."""


class FieldError(DslmutError, ValueError):
    """A value does not fit the field that it is assigned to."""


class OptimizerError(DslmutError, ValueError):
    """An optimizer is defined, configured or bound wrongly."""


class MissingError(OptimizerError, AttributeError):
    """Something is asked for what it does not have; so ``getattr(ctx, "warmup", 0)`` works."""


def _restore(
    kind: type[DslmutError], diagnostics: tuple[Diagnostic, ...], text: str
) -> DslmutError:
    error = kind.__new__(kind)
    error.diagnostics, error._text, error.args = diagnostics, text, (text,)
    return error
