"""Loops are run until nothing new is found, and come to an end whatever their values do."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslmut.checking import paths
from dslmut.checking.analysis import check_file
from dslmut.checking.environments import Environment
from dslmut.checking.static import Project

TEXT = """\
import torch
from torch import nn

from dslmut import Mut, fn


@fn
def f(m: nn.Linear, t: Mut[nn.Linear], n: int) -> None:
    kept = []
    for _ in range(n):
        kept = [kept, t]
    while n:
        n -= 1
        kept = (m, kept)
    kept[0].weight = torch.ones(1)
"""


def codes(folder: Path) -> list[tuple[str, int]]:
    file = folder / "loops.py"
    file.write_text(TEXT)
    return [(d.code, d.span.start.line) for d in check_file(file, Project())]


def test_what_is_changed_after_a_loop_is_found(tmp_path: Path) -> None:
    assert codes(tmp_path) == [("E1102", 15)]


def test_a_loop_ends_where_each_round_finds_a_value_to_be_deeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, rounds = paths.meet, 0

    def deeper(environments: list[Environment | None]) -> Environment | None:
        nonlocal rounds
        rounds += 1
        assert rounds < 4 * paths.ROUNDS, "no end"
        found = original(environments)
        if found is None:
            return None
        return Environment(
            (n, b._replace(value=b.value._replace(contents=(b.value,)))) for n, b in found.items()
        )

    monkeypatch.setattr(paths, "meet", deeper)
    assert codes(tmp_path) == [("E1102", 15)]
    assert rounds > 2 * paths.ROUNDS
