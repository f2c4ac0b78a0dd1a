"""``dslmut check``: files are checked, what is found is printed, and what cannot be is said."""

from __future__ import annotations

import io
import linecache
import os
import sys
import tokenize
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dslmut
from dslmut.checking.analysis import check_file
from dslmut.checking.files import files_of, unreadable
from dslmut.checking.static import Project
from dslmut.diagnostics import registry, render
from dslmut.diagnostics.garbage import rare_collections
from dslmut.diagnostics.model import Diagnostic
from dslmut.front.settings import SettingsError, find_settings

CLEAN, FOUND, USAGE, INTERRUPTED = 0, 1, 2, 130

STDIN = Path("-")


@dataclass
class Run:
    """What one run has found, and what it could not check."""

    found: list[Diagnostic] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    checked: int = 0
    project: Project = field(default_factory=Project)

    def check(self, path: Path, text: str | None = None) -> None:
        """Check a file; whatever happens, the others are checked too."""
        try:
            self.found += check_file(path, self.project, text)
            self.checked += 1
        except (SyntaxError, ValueError, OSError, RecursionError) as error:
            self.failed(path, error)
        except Exception:
            traceback.print_exc()
            self._say(
                f"{path} cannot be checked: a mistake of dslmut, shown above; please report it"
            )

    def failed(self, path: Path, error: Exception) -> None:
        """Say why something cannot be checked."""
        self._say(unreadable(path, error))

    def _say(self, text: str) -> None:
        self.failures.append(text)
        print(f"dslmut: {text}", file=sys.stderr)


def run_check(paths: Sequence[Path], output_format: str | None, stdin_name: Path) -> int:
    """Check files and print what is found.

    Args:
        paths: Of files and folders; ``-`` is the standard input.
        output_format: One of ``FORMATS``; None for that of the settings.
        stdin_name: The path that the standard input is checked under.
    """
    try:
        settings = find_settings(Path.cwd())
    except SettingsError as error:
        print(f"dslmut: {error}", file=sys.stderr)
        return USAGE
    run = Run()
    named = [p for p in paths if p != STDIN]
    with rare_collections():
        if len(named) < len(paths):
            check_stdin(run, stdin_name)
        for path in files_of(named, run.failed, settings.excludes):
            run.check(path)
    run.found = [d for d in run.found if d.code not in settings.ignore]
    print_run(run, output_format or settings.output_format)
    if run.failures:
        return USAGE
    return FOUND if run.found else CLEAN


def check_stdin(run: Run, name: Path) -> None:
    """Check the standard input, which takes the place of the file *name*."""
    data = sys.stdin.buffer.read()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except (SyntaxError, ValueError) as error:
        run.failed(name, error)
        return
    lines = io.StringIO(text).readlines()
    linecache.cache[str(name)] = (len(text), None, lines, str(name))  # for the code frames
    run.check(name, text)


# -- printing ------------------------------------------------------------------------------------


def print_run(run: Run, output_format: str) -> None:
    """Print what was found, in one of the formats."""
    if output_format in ("json", "sarif", "github"):
        print_for_machines(run, output_format)
    elif output_format == "full":
        style = render.COLOURED if wants_colour() else render.PLAIN
        for d in run.found:
            print(render.full(d, style=style), end="\n\n")
        print(summary(run))
    else:
        for d in run.found:
            print(render.concise(d))


def print_for_machines(run: Run, output_format: str) -> None:
    """Print what was found for another program."""
    from dslmut.diagnostics import formats  # a tenth of the start, and not for people

    if output_format == "json":
        print(formats.as_json(run.found))
    elif output_format == "sarif":
        pages = {c: (k.title(), k.page()) for c, k in registry.CODES.items()}
        print(formats.sarif(run.found, pages, dslmut.__version__, run.failures))
    else:
        for d in run.found:
            print(formats.github(d))


def summary(run: Run) -> str:
    """Say in one line what was found."""
    count, failed = len(run.found), len(run.failures)
    looked = f"{run.checked} file{'s' * (run.checked != 1)}"
    if failed:
        looked += f", and {failed} could not be checked"
    if count == 0:
        return f"no mistakes in {looked}"
    return f"{count} mistake{'s' * (count != 1)} in {looked}; `dslmut explain CODE` says more"


def wants_colour() -> bool:
    """Say whether to colour: on a terminal, unless NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))
