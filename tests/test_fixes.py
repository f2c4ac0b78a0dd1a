"""The code that a message gives: written into the program, it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project

HEAD = """\
import torch
from torch import Tensor, nn
from dslmut import Model, Mut, fn, mut


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.layer = nn.Parameter(torch.ones(3)), nn.Linear(3, 3)


"""

FIXES = {
    "a trainer's model": (
        "class Trainer:\n"
        "    def __init__(self, m: Net) -> None:\n"
        "        self.m = m\n\n"
        "    @fn\n"
        "    def reset(self) -> None:\n"
        "        self.m.weight = self.m.weight * 0\n",
        "E1102",
        "take the model and the state as `Mut` parameters of their own",
    ),
    "any number of models": (
        "@fn\ndef reset(*ms: nn.Linear) -> None:\n    for m in ms:\n        m.weight = m.weight * 0\n",
        "E1102",
        "write `ms: Mut[nn.ModuleList]`, and `mut(ms)` at the calls",
    ),
    "a leaf of one's own": (
        "@fn\ndef leaf(x: Tensor) -> None:\n    x.requires_grad_()\n",
        "E1102",
        "`x = x.detach().requires_grad_()`",
    ),
    "a field like a method": (
        "@fn\ndef more(m: Mut[Net], x: Tensor) -> None:\n    m.extra = x\n",
        "E0901",
        "declare it in the class: `extra: ...`",
    ),
    "a field that is misspelt": (
        "@fn\ndef more(m: Mut[Net], x: Tensor) -> None:\n    m.wieght = x\n",
        "E0901",
        "write `m.weight`",
    ),
    "a code in small letters": (
        "@fn\ndef reset(m: Net) -> None:\n    m.weight = m.weight * 0  # dslmut: ignore[e1102]\n",
        "E1201",
        "write `# dslmut: ignore[E1102]`",
    ),
    "a comment above": (
        "@fn\ndef reset(m: Net) -> None:\n    # dslmut: ignore[E1102]\n    m.weight = m.weight * 0\n",
        "E1201",
        "write it at the end of the line that it is for",
    ),
}


@pytest.mark.parametrize(("body", "code", "fix"), FIXES.values(), ids=list(FIXES))
def test_what_to_write(body: str, code: str, fix: str, tmp_path: Path) -> None:
    path = tmp_path / "user.py"
    path.write_text(HEAD + body)
    found = [d for d in check_file(path, Project()) if d.code == code]
    assert len(found) == 1
    assert found[0].fix is not None
    assert fix in found[0].fix.text


FIXED = [
    "@fn\ndef reset(ms: Mut[nn.ModuleList]) -> None:\n    for m in ms:\n        m.weight = m.weight * 0\n",
    "@fn\ndef leaf(x: Tensor) -> None:\n    x = x.detach().requires_grad_()\n    x.sum().backward()\n",
    "@fn\ndef more(m: Mut[Net], x: Tensor) -> None:\n    m.weight = x\n",
    "@fn\ndef reset(m: Net) -> None:\n    m.weight = m.weight * 0  # dslmut: ignore[E1102]\n",
]


@pytest.mark.parametrize("body", FIXED)
def test_what_was_written_is_right(body: str, tmp_path: Path, load) -> None:
    path = tmp_path / "user.py"
    path.write_text(HEAD + body)
    assert check_file(path, Project()) == []
    load(HEAD + body)
