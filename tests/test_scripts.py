"""Whole training scripts: each is clean and trains, and its twin's mistakes are all found.

A page in ``scripts`` has two blocks: a script, and the same script with the mistakes of a user.
"""

from __future__ import annotations

import difflib
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.checks import check_live, check_static, write
from tests.markdown import Block, marks, python_blocks

PAGES = sorted((Path(__file__).parent / "scripts").glob("*.md"))
PAIRS = [tuple(python_blocks(page)) for page in PAGES]
CLEAN, BROKEN = [p[0] for p in PAIRS], [p[1] for p in PAIRS]

clean = pytest.mark.parametrize("block", CLEAN, ids=lambda b: b.path.stem)
broken = pytest.mark.parametrize("block", BROKEN, ids=lambda b: b.path.stem)


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """The models are tiny: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_there_are_many() -> None:
    assert len(PAGES) >= 20


@clean
def test_nothing_is_reported(block: Block, tmp_path: Path) -> None:
    assert not marks(block.code)
    check_static(block, tmp_path)


@clean
@pytest.mark.usefixtures("_one_thread")
def test_training_works(block: Block, tmp_path: Path) -> None:
    assert "assert " in block.code
    runpy.run_path(str(write(block, tmp_path)), run_name="__main__")


@broken
def test_mistakes_are_found_in_the_file(block: Block, tmp_path: Path) -> None:
    check_static(block, tmp_path)


@broken
def test_mistakes_are_found_at_decoration(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_live(block, tmp_path, monkeypatch)


@pytest.mark.parametrize(("right", "wrong"), PAIRS, ids=[p.stem for p in PAGES])
def test_the_twin_differs_by_its_mistakes(right: Block, wrong: Block) -> None:
    lines = difflib.ndiff(right.code.splitlines(), wrong.code.splitlines())
    changed = [line for line in lines if line.startswith("+ ")]
    assert 1 <= len(changed) <= 8
    assert len(marks(wrong.code)) >= 1
