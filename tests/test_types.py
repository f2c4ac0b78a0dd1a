"""What type checkers say: nothing on the good lines and on the examples, something on each bad one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.markdown import marks
from tests.test_docs import BLOCKS

HERE = Path(__file__).parent / "typing"
ROOT = HERE.parents[1]
PYTHON = sys.executable
EXAMPLE = ROOT / "dslmut" / "examples" / "digits.py"

COMMANDS = {
    "pyright": ["-m", "pyright", "--pythonpath", PYTHON],
    "basedpyright": ["-m", "basedpyright", "--pythonpath", PYTHON, "--level", "error"],
    "mypy": ["-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", os.devnull],
    "ty": ["-m", "ty", "check", "--python", PYTHON, "--output-format", "concise"],
    "pyrefly": ["-m", "pyrefly", "check", "--python-interpreter-path", PYTHON, "--search-path", str(ROOT), "--output-format", "min-text"],
}  # fmt: skip


def reported(checker: str, *paths: Path) -> dict[str, set[int]]:
    """Return the lines that a checker reports, file by file."""
    names = [str(p) for p in paths]
    done = subprocess.run(
        [PYTHON, *COMMANDS[checker], *names],
        capture_output=True, text=True, cwd=HERE, env={**os.environ, "MYPYPATH": str(ROOT)},
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode in (0, 1), output
    found: dict[str, set[int]] = {p.name: set() for p in paths}
    for line in output.splitlines():
        match = re.search(r"(\w+\.py):(\d+)", line)
        if match and re.search(r"\berror\b", line, re.IGNORECASE) and match[1] in found:
            found[match[1]].add(int(match[2]))
    return found


@pytest.mark.parametrize("checker", COMMANDS)
def test_good_and_bad_lines(checker: str) -> None:
    found = reported(checker, HERE / "good.py", HERE / "bad.py", EXAMPLE)
    assert found["good.py"] == set()
    assert found[EXAMPLE.name] == set()
    lines = (HERE / "bad.py").read_text().splitlines()
    bad = {n for n, line in enumerate(lines, 1) if "# bad" in line}
    assert len(bad) >= 25
    assert {n: lines[n - 1] for n in bad - found["bad.py"]} == {}, f"{checker} misses these"
    assert {n: lines[n - 1] for n in found["bad.py"] - bad} == {}, f"{checker} reports these too"


def test_the_blocks_of_the_docs(tmp_path: Path) -> None:
    """What a user copies from the docs is clean for a type checker too."""
    for block in BLOCKS:
        if not marks(block.code):
            name = f"{block.path.stem}_{block.line}.py".replace("-", "_")
            (tmp_path / name).write_text(block.code, encoding="utf-8")
    done = subprocess.run(
        [PYTHON, *COMMANDS["pyright"], str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
