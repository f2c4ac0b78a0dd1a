"""The checker's cases: Markdown files whose lines say what must be reported, live and static."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks import check_live, check_static
from tests.markdown import Block, python_blocks

CASES = [
    b for p in sorted((Path(__file__).parent / "cases").glob("*.md")) for b in python_blocks(p)
]


@pytest.mark.parametrize("block", CASES, ids=lambda b: b.id)
def test_static(block: Block, tmp_path: Path) -> None:
    check_static(block, tmp_path)


@pytest.mark.parametrize("block", CASES, ids=lambda b: b.id)
def test_live(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_live(block, tmp_path, monkeypatch)
