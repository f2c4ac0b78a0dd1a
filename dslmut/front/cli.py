"""The command line: ``dslmut check``, ``dslmut explain`` and ``dslmut demo``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import dslmut
from dslmut.diagnostics import registry
from dslmut.front.check import CLEAN, FOUND, INTERRUPTED, STDIN, USAGE, run_check
from dslmut.front.settings import FORMATS

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
    check.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="files and folders; - for stdin"
    )
    check.add_argument(
        "--output-format", choices=FORMATS, help="how to print what is found (default: full)"
    )
    check.add_argument(
        "--stdin-filename", type=Path, default=STDIN, metavar="PATH", help="what `-` stands for"
    )
    check.set_defaults(run=lambda a: run_check(a.paths, a.output_format, a.stdin_filename))

    explain = commands.add_parser("explain", help="print the page of a code")
    explain.add_argument("code", metavar="CODE", help="such as E1102")
    explain.set_defaults(run=lambda a: run_explain(a.code))

    demo = commands.add_parser("demo", help="train on handwritten digits")
    demo.add_argument("--epochs", type=int, default=None, help="passes over the data")
    demo.set_defaults(run=lambda a: run_demo(a.epochs))

    for stream in (sys.stdout, sys.stderr):  # a name or a line that its encoding cannot write
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    parsed = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        return run(parsed)
    except BrokenPipeError:  # `dslmut check . | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND
    except KeyboardInterrupt:
        return INTERRUPTED


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
