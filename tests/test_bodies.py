"""E0902 in the body of a class: said of files that are only parsed, and when the class is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslmut import FieldError
from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project

HEAD = """\
from typing import ClassVar, Dict, List, Optional
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
import dslmut as dm
from dslmut import Index, Model, buffer, param


class Part(Model):
    v: Float[Tensor, "2"] = param(0.0)


class Made(Part):
"""

WRONG = [
    ('w = Float[Tensor, "D H"]', 'write a colon: `w: Float[Tensor, "D H"]`'),
    ('i = Index[Tensor, "b -> C"]', 'write a colon: `i: Index[Tensor, "b -> C"]`'),
    ("lin = nn.Linear(2, 2)", "declare it: `lin: Linear`"),
    ("lin: nn.Linear = nn.Linear(2, 2)", "Made.init(..., lin=Linear(...))"),
    ("w = torch.ones(3)", "declare it: `w: Float"),
    ("w = nn.Parameter(torch.ones(3))", "all its instances would share"),
    ("parts: list[nn.Linear]", "write `parts: nn.ModuleList`"),
    ("parts: tuple[nn.Module, ...]", "write `parts: nn.ModuleList`"),
    ("parts: List[Part]", "write `parts: nn.ModuleList`"),
    ("parts: list[nn.Linear] | None", "write `parts: nn.ModuleList`"),
    ("parts: dict[str, Part]", "write `parts: nn.ModuleDict`"),
    ("half: int = 3", "called `half`"),
]

RIGHT = [
    'w: Float[Tensor, "D"]',
    'w: Float[Tensor, "D"] = param(0.0)',
    'n: Int[Tensor, "D"] = buffer()',
    'Vector = Float[Tensor, "D"]\n    u: Vector',
    "sizes: list[int] = [1, 2]",
    "shared: ClassVar[nn.Module] = nn.ReLU()",
    "lin: nn.Linear",
    "parts: nn.ModuleList",
    "D: int = 2",
    "name = 'net'",
]


@pytest.mark.parametrize(("body", "text"), WRONG, ids=[w for w, _ in WRONG])
def test_what_torch_would_not_see(body: str, text: str, tmp_path: Path, load) -> None:
    whole = f"{HEAD}    {body}\n"
    path = tmp_path / "user.py"
    path.write_text(whole)
    (found,) = check_file(path, Project())
    assert found.code == "E0902"
    assert found.span is not None
    assert found.span.start.line == whole.count("\n")
    said = f"{found.message}\n{found.fix.text if found.fix else ''}"
    assert text in said
    with pytest.raises(FieldError) as error:
        load(whole)
    live = error.value.diagnostics[0]
    assert (live.code, live.message) == (found.code, found.message)


@pytest.mark.parametrize("body", RIGHT)
def test_what_a_body_may_hold(body: str, tmp_path: Path, load) -> None:
    path = tmp_path / "user.py"
    path.write_text(f"{HEAD}    {body}\n")
    assert check_file(path, Project()) == []
    load(path.read_text())


def test_classes_of_torch_may_hold_what_they_like(tmp_path: Path) -> None:
    path = tmp_path / "user.py"
    path.write_text(
        "from torch import nn\nimport dslmut\nclass Net(nn.Module):\n    act = nn.ReLU()\n"
    )
    assert check_file(path, Project()) == []
