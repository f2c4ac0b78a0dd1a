"""The command line: ``dslmut check``, ``dslmut explain`` and ``dslmut demo``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import dslmut
from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project
from dslmut.diagnostics import formats, registry, render
from dslmut.diagnostics.model import Diagnostic

CLEAN, FOUND, USAGE = 0, 1, 2

DEPTH = 5000
"""How deep the checker may go into an expression: a sum of 500 terms is nested 500 times."""

EXAMPLES = """examples:
  dslmut check train.py src/          what a function changes without saying so, and more
  dslmut check . --output-format json
  dslmut explain E1102                the page of a code
  dslmut demo                         train on handwritten digits, then look at a mistake
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; by default those of the process.

    Returns:
        0 if nothing was found, 1 if something was, 2 if the command could not be carried out.
    """
    parser = argparse.ArgumentParser(
        prog="dslmut",
        description="Mutation that shows, and optimizers in ten lines.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dslmut {dslmut.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    check = commands.add_parser("check", help="check files without importing them")
    check.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files and folders")
    check.add_argument(
        "--output-format",
        choices=("full", "concise", "json", "github", "sarif"),
        default="full",
        help="how to print what is found (default: full)",
    )
    check.set_defaults(run=lambda a: run_check(a.paths, a.output_format))

    explain = commands.add_parser("explain", help="print the page of a code")
    explain.add_argument("code", metavar="CODE", help="such as E1102")
    explain.set_defaults(run=lambda a: run_explain(a.code))

    demo = commands.add_parser("demo", help="train on handwritten digits")
    demo.add_argument("--epochs", type=int, default=None, help="passes over the data")
    demo.set_defaults(run=lambda a: run_demo(a.epochs))

    parsed = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        return run(parsed)
    except BrokenPipeError:  # `dslmut check . | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND


# -- check ---------------------------------------------------------------------------------------


def run_check(paths: Iterable[Path], output_format: str) -> int:
    """Check files and print what is found."""
    missing = [p for p in paths if not p.exists()]
    if missing:
        print(f"dslmut: there is no {missing[0]}", file=sys.stderr)
        return USAGE
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEPTH))
    project, found, unread = Project(), [], 0
    files = sorted({f for p in paths for f in python_files(p)})
    for path in files:
        try:
            found += check_file(path, project)
        except (SyntaxError, ValueError, OSError, RecursionError) as error:
            print(f"dslmut: {unreadable(path, error)}", file=sys.stderr)
            unread += 1
    print_diagnostics(found, output_format)
    if output_format == "full":
        print(summary(len(found), len(files) - unread))
    if unread:
        return USAGE
    return FOUND if found else CLEAN


def unreadable(path: Path, error: Exception) -> str:
    """Say why a file cannot be checked."""
    if isinstance(error, RecursionError):
        return f"{path} cannot be checked: its expressions are nested too deeply"
    place = f"{path}:{error.lineno}" if isinstance(error, SyntaxError) else str(path)
    return f"{place} cannot be read: {error}"


def python_files(path: Path) -> Iterable[Path]:
    """Return a file itself, or the Python files below a folder, hidden ones left out."""
    if path.is_file():
        return [path]
    below = (f for f in path.rglob("*.py") if f.is_file())
    return [f for f in below if not any(_is_hidden(p) for p in f.relative_to(path).parts)]


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or part in ("__pycache__", "node_modules", "site-packages")


def print_diagnostics(found: Sequence[Diagnostic], output_format: str) -> None:
    """Print diagnostics in one of the formats."""
    if output_format == "json":
        print(formats.as_json(found))
    elif output_format == "sarif":
        pages = {c: (k.title(), k.page()) for c, k in registry.CODES.items()}
        print(formats.sarif(found, pages, dslmut.__version__))
    elif output_format == "full":
        style = render.COLOURED if wants_colour() else render.PLAIN
        for d in found:
            print(render.full(d, style=style), end="\n\n")
    else:
        one_line = formats.github if output_format == "github" else render.concise
        for d in found:
            print(one_line(d))


def summary(count: int, files: int) -> str:
    """Say in one line what was found."""
    looked = f"{files} file{'s' * (files != 1)}"
    if count == 0:
        return f"no mistakes in {looked}"
    return f"{count} mistake{'s' * (count != 1)} in {looked}; `dslmut explain CODE` says more"


def wants_colour() -> bool:
    """Say whether to colour: on a terminal, unless NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


# -- explain and demo ----------------------------------------------------------------------------


def run_explain(code: str) -> int:
    """Print the page of a code."""
    page = registry.explain(code)
    if page is not None:
        print(page, end="")
        return CLEAN
    near = registry.nearest(code)
    hint = f"; did you mean {near}?" if near else ""
    print(f"dslmut: there is no code {code}{hint}", file=sys.stderr)
    print(f"the codes are {', '.join(registry.CODES)}", file=sys.stderr)
    return USAGE


def run_demo(epochs: int | None) -> int:
    """Train on handwritten digits."""
    try:
        from dslmut.front.demo import run
    except ImportError as error:
        print(f"dslmut: the demo needs {error.name}: pip install 'dslmut[demo]'", file=sys.stderr)
        return USAGE
    return run(epochs)
