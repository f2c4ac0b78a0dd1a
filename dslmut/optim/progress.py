"""A line on the standard error about a compilation that takes long."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TextIO

from dslmut.functions.config import config

PATIENCE = 2.0
"""Seconds after which there is something to say."""

TICK = 1.0
"""Seconds from one look at the clock to the next."""


class Progress:
    """Says how far a compilation is, if it takes longer than two seconds.

    A terminal shows one line that changes in its place; anything else, such as a file or a
    notebook, gets a line when there is something to say, and one at the end. There is none with
    ``dm.config.progress = False``, or ``DSLMUT_PROGRESS=0`` in the environment.

    Args:
        count: How many kernels there are.
        rule: Whose they are.
    """

    def __init__(self, count: int, rule: str) -> None:
        self._kernels = f"{count} kernel{'' if count == 1 else 's'} for {rule}"
        self._count, self._done, self._told = count, 0, False
        self._start, self._over = time.monotonic(), threading.Event()
        self._stream: TextIO | None = sys.stderr if config.progress else None
        self._in_place = self._stream is not None and _is_terminal(self._stream)
        self._thread = threading.Thread(target=self._watch, name="dslmut progress", daemon=True)

    def advance(self) -> None:
        """Count one kernel more that is ready."""
        self._done += 1

    def __enter__(self) -> Progress:
        if self._stream is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is None:
            return
        self._over.set()
        self._thread.join()
        if self._told and error is None:
            self._write(f"dslmut: compiled {self._kernels} in {self._seconds()} s", last=True)
        elif self._told and self._in_place:
            self._write(self._now(), last=True)

    def _watch(self) -> None:
        if self._over.wait(PATIENCE):
            return
        self._told = True
        self._write(self._now())
        while not self._over.wait(TICK):
            if self._in_place:
                self._write(self._now())

    def _now(self) -> str:
        done = f"{self._done} of {self._count}, {self._seconds()} s"
        return f"dslmut: compiling {self._kernels}: {done}"

    def _seconds(self) -> int:
        return round(time.monotonic() - self._start)

    def _write(self, text: str, last: bool = False) -> None:
        """Write a line; in a terminal over the one before, which it clears to its end."""
        if self._in_place:
            text = f"\r{text}\x1b[K" + ("\n" if last else "")
        else:
            text += "\n"
        with suppress(OSError, ValueError):  # a stream may be closed, or unable to say it
            assert self._stream is not None
            self._stream.write(text)
            self._stream.flush()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):
        return False
