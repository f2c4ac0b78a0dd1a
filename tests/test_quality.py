"""The house rules that tools can check: lint, format, and types of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "--no-cache", "."],
        ["ruff", "format", "--no-cache", "--check", "."],
        ["pyright", "--pythonpath", sys.executable],
    ],
    ids=lambda c: " ".join(c[:2]),
)
def test_tool(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_too_long() -> None:
    """A reader gets lost in long files; tables and pages of codes are another matter."""
    long = {
        str(p.relative_to(ROOT)): n
        for p in (ROOT / "dslmut").rglob("*.py")
        if "codes" not in p.parts and (n := len(p.read_text().splitlines())) > 400
    }
    assert long == {}
