"""``dm.config``: what is on or off in the whole process."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, TypedDict, Unpack


class Settings(TypedDict, total=False):
    """What can be set."""

    checks: bool
    progress: bool


class Config:
    """The settings of the process, for all threads, from the next call of a function on.

    Set one for good, ``dm.config.checks = False``, or for a block, ``with dm.config(checks=False):``.
    A name that does not exist is an ``AttributeError``, a value that is no bool a ``TypeError``.

    Attributes:
        checks: Whether arguments and results of ``@fn`` functions are checked against their
            annotations (E0601), of those that are decorated already too. At first True, unless
            the environment says ``DSLMUT_CHECKS=0``. What is assigned to fields is always checked.
        progress: Whether a line on the standard error says how far a compilation is that takes
            longer than two seconds. At first True, unless the environment says
            ``DSLMUT_PROGRESS=0``.

    Example:
        >>> from dslmut.examples.digits import Mlp, accuracy
        >>> m, x, y = Mlp.init(seed=0), torch.rand(2, 64), torch.tensor([3, 7])
        >>> with dm.config(checks=False):
        ...     share = accuracy(m, x, y)
    """

    __slots__ = ("checks", "progress")
    checks: bool
    progress: bool

    def __init__(self) -> None:
        self.checks = _says_yes("DSLMUT_CHECKS")
        self.progress = _says_yes("DSLMUT_PROGRESS")

    @contextmanager
    def _set(self, settings: Settings) -> Iterator[None]:
        before = {name: getattr(self, name) for name in settings}
        try:
            for name, value in settings.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def __call__(self, **settings: Unpack[Settings]):
        """Set something for the block of a ``with``, and restore it behind that.

        Args:
            settings: As the attributes.

        Returns:
            What ``with`` takes.
        """
        for name, value in settings.items():
            self._check(name, value)
        return self._set(settings)

    def __setattr__(self, name: str, value: object) -> None:
        self._check(name, value)
        object.__setattr__(self, name, value)

    # No __getattr__: it would make each reading of a setting slow, and each call reads one.

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"`dm.config.{name}` cannot be deleted; set it to True or False")

    def __repr__(self) -> str:
        return f"config({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"

    def _check(self, name: str, value: object) -> None:
        if name not in self.__slots__:
            raise _unknown(name)
        if not isinstance(value, bool):
            raise TypeError(f"`dm.config.{name}` is True or False, not {value!r}")


def _says_yes(variable: str) -> bool:
    """Say whether a variable of the environment leaves something on."""
    said = os.environ.get(variable, "1").strip().lower()
    return said not in ("0", "false", "off", "no")


def _unknown(name: str) -> AttributeError:
    near = difflib.get_close_matches(name, Config.__slots__, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(Config.__slots__)}"
    return AttributeError(f"`dm.config` has no setting `{name}`; {hint}")


config = Config()
