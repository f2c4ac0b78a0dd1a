"""The bodies in cases/optimizers.md: the trace says what the source shows, with the same line and code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks import check_trace
from tests.markdown import Block, python_blocks

CASES = python_blocks(Path(__file__).parent / "cases" / "optimizers.md")


@pytest.mark.parametrize("block", CASES, ids=lambda b: b.id)
def test_trace(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_trace(block, tmp_path, monkeypatch)
