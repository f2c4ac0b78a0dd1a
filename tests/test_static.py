"""Names resolved over files that are parsed and never imported."""

from __future__ import annotations

import os
from pathlib import Path

from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project

USER = """\
from torch import nn
from dslmut import fn, mut
from {module} import {names}

@fn
def outer(m: nn.Linear) -> None:
    step(m)
"""

STEP = """\
from torch import nn
from dslmut import Mut, fn

@fn
def step(m: Mut[nn.Linear]) -> None:
    m.weight = m.weight * 0
"""


def codes(path: Path, project: Project) -> list[str]:
    return [d.code for d in check_file(path, project)]


def test_star_imports_are_followed(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEP)
    (tmp_path / "between.py").write_text("from steps import *\n")
    (tmp_path / "private.py").write_text(STEP.replace("def step", "def _step"))
    user = tmp_path / "user.py"
    user.write_text(USER.format(module="between", names="*"))
    assert codes(user, Project()) == ["E1103"]
    text = USER.format(module="private", names="*").replace("step(m)", "_step(m)")
    user.write_text(text)  # a star does not import it
    assert codes(user, Project()) == []
    user.write_text(text.replace("import *", "import _step"))
    assert codes(user, Project()) == ["E1103"]


def test_star_imports_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import *\n")
    (tmp_path / "b.py").write_text("from a import *\nfrom steps import *\n")
    (tmp_path / "steps.py").write_text(STEP)
    user = tmp_path / "user.py"
    user.write_text(USER.format(module="a", names="*"))
    assert codes(user, Project()) == ["E1103"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    steps, user = tmp_path / "steps.py", tmp_path / "user.py"
    steps.write_text(STEP)
    (tmp_path / "between.py").write_text("from steps import step\n")  # which stays as it is
    user.write_text(USER.format(module="between", names="step"))
    project = Project()
    assert codes(user, project) == ["E1103"]
    steps.write_text(STEP.replace("Mut[nn.Linear]", "nn.Linear").replace("m.weight =", "w ="))
    stamp = steps.stat().st_mtime_ns
    os.utime(steps, ns=(stamp, stamp + 1))
    assert codes(user, project) == []
    steps.unlink()
    assert codes(user, project) == []
