"""Names resolved over files that are parsed and never imported."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

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
    project.refresh()
    assert codes(user, project) == []
    steps.unlink()
    project.refresh()
    assert codes(user, project) == []


IMPORTS = [
    "from between import step", "import between as b; step = b.step", "from between import *",
    "import os; from between import (  # names\n    step,\n)", "from between import \\\n    step",
]  # fmt: skip


@pytest.mark.parametrize("imported", IMPORTS)
def test_a_file_that_does_not_name_the_library_may_use_it(tmp_path: Path, imported: str) -> None:
    (tmp_path / "steps.py").write_text(STEP)
    (tmp_path / "between.py").write_text("from steps import *\nimport user\n")
    user = tmp_path / "user.py"
    user.write_text(f"{imported}\nfrom torch import nn\nstep(nn.Linear(1, 1))\n")
    assert codes(user, Project()) == ["E1103"]
    other = tmp_path / "other.py"
    other.write_text("import json\nstep(1)\n")
    assert codes(other, Project()) == []


def test_relative_imports_reach_the_library(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    for folder in (package, package / "inner"):
        (folder / "__init__.py").write_text("")
    (package / "steps.py").write_text(STEP)
    user = package / "inner" / "user.py"
    user.write_text("from .. import steps\nfrom torch import nn\nsteps.step(nn.Linear(1, 1))\n")
    assert codes(user, Project()) == ["E1103"]


def test_methods_of_a_base_are_called_on_super_without_a_marker(tmp_path: Path) -> None:
    path = tmp_path / "classes.py"
    path.write_text(
        "from torch import nn\n"
        "from dslmut import Mut, fn, mut\n"
        "class Base:\n"
        "    def plain(self) -> None: ...\n"
        "class Child(Base):\n"
        "    def plain(self) -> None:\n"
        "        super().plain()\n"
        "class Net(nn.Module):\n"
        "    @fn\n"
        "    def bump(self: Mut[Net]) -> None: ...\n"
        "    def plain(self) -> None: ...\n"
        "class Wide(Net):\n"
        "    def bump_it(self) -> None:\n"
        "        super().bump()\n"
        "        super().plain()\n"
        "    def mark(self, net: Net) -> None:\n"
        "        mut(net).bump()\n"
        "        mut(net).plain()\n"
        "        net.bump()\n"
    )
    found = [(d.span.start.line, d.code) for d in check_file(path, Project()) if d.span]
    assert found == [(18, "E1101"), (19, "E1103")]


NESTED = """
class Node:
    def __init__(self, *inner): self.inner = inner
    def wrap(self): return Node(self)


def built(node: Node, n):
    for _ in range(n):
        node = Node(node, n)
    return node


def walked(node, keys, stack):
    while stack:
        edits, up, down, kind = keys.edits, node.up, node.down, node.kind
        left, right, last, index = keys.left, keys.right, stack.last, stack.index
        stack, keys, node = (stack.prev, last, (up or right)), (left, node.keys), keys[index]
        if node:
            node = getattr(node, kind)
        elif up:
            node, stack = (stack.frame, edits), up.stack
        for key, value in edits:
            node[key] = value
            down.of = node
            keys = (key, keys.first, keys.second, keys.third, node.fourth, stack.fifth)
"""


def test_loops_that_build_and_walk_structures_come_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "nested.py"
    path.write_text(NESTED + "from dslmut import fn\n" + NESTED.replace("\ndef ", "\n@fn\ndef "))
    started = time.process_time()
    assert check_file(path, Project()) == []
    assert time.process_time() - started < 5


SCOPES = """
def method_in_a_class():
    class Inner:
        def f(self):
            nonlocal count
            count = self
            return count
    count = 0
    return count


def class_cell():
    class Inner:
        global __class__
        __class__ = 42
        def f(self):
            nonlocal __class__
            __class__ = self
            return __class__
    return __class__


def two_deep():
    a = b = None
    def f():
        nonlocal a
        def g():
            nonlocal a, b
            a, b = b, a
            return a, b
        a = g
        return a
    return f, a, b
"""


def test_names_of_other_scopes(tmp_path: Path) -> None:
    path = tmp_path / "scopes.py"
    path.write_text(SCOPES + "from dslmut import fn\n" + SCOPES.replace("\ndef ", "\n@fn\ndef "))
    assert check_file(path, Project()) == []


PARTS = """\
from torch import nn

def first(m: nn.Sequential) -> nn.Module:
    return m[0]
"""

CALLER = """\
from torch import nn
from dslmut import fn
from package import first

@fn
def f(m: nn.Sequential) -> None:
    first(m).train()
"""


def test_what_a_callee_gives_back_is_read_over_files(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from .parts import first as first\n")
    (package / "parts.py").write_text(PARTS)
    user = tmp_path / "user.py"
    user.write_text(CALLER)
    project = Project()
    assert codes(user, project) == ["E1102"]
    (package / "parts.py").write_text(PARTS.replace("m[0]", "nn.Linear(3, 3)"))
    stamp = (package / "parts.py").stat().st_mtime_ns
    os.utime(package / "parts.py", ns=(stamp, stamp + 1))
    project.refresh()
    assert codes(user, project) == []


def test_a_text_that_is_edited_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "user.py"
    here = PARTS + CALLER.replace("from package import first\n", "")
    project = Project()
    assert [d.code for d in check_file(path, project, here)] == ["E1102"]
    edited = here.replace("m[0]", "nn.Linear(3, 3)")
    assert check_file(path, project, edited) == []
    assert [d.code for d in check_file(path, project, here)] == ["E1102"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax of Python 3.12")
def test_type_parameters_and_type_aliases(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text(
        "from torch import nn\n"
        "from dslmut import Mut, fn, mut\n"
        "type Net = nn.Linear\n"
        "@fn\n"
        "def f[T: nn.Module](m: Mut[T], n: T) -> T:\n"
        "    m.bias = m.bias * 0\n"
        "    n.bias = n.bias * 0\n"  # E1102
        "    return m\n"
        "class Box[T: nn.Module]:\n"
        "    @fn\n"
        "    def f(self, n: T) -> None:\n"
        "        n.bias = n.bias * 0\n"  # E1102
        "@fn\n"
        "def g[T: (int, float)](n: Mut[T]) -> None: ...\n"  # E1101
        "@fn\n"
        "def h(n: Net, t: Mut[nn.Module]) -> None:\n"
        "    n.bias = n.bias * 0\n"  # E1102
        "    type t = int\n"  # E1104
    )
    assert codes(user, Project()) == ["E1102", "E1102", "E1101", "E1102", "E1104"]


@pytest.mark.parametrize(
    ("imports", "decorator", "between"),
    [
        ("import torch", "torch.no_grad()", True),
        ("import torch as t", "t.compile(fullgraph=True)", True),
        ("from functools import cache as c", "c", True),
        ("import contextlib", "contextlib.contextmanager", True),
        ("from abc import abstractmethod", "abstractmethod", False),
        ("import app", "app.command()", False),
        ("from mine import no_grad", "no_grad", False),
    ],
)
def test_wrappers_between(tmp_path: Path, imports: str, decorator: str, between: bool) -> None:
    """The checker says what loading the module would: live tests are with those of stacking."""
    head = f"from torch import nn\nfrom dslmut import Mut, extern, fn\n{imports}\n"
    user = tmp_path / "user.py"
    for word, annotation in (("fn(check=False)", "Mut[nn.Linear]"), ("extern", "nn.Linear")):
        body = f"def f(m: {annotation}) -> None: ...\n"
        user.write_text(f"{head}@{word}\n@{decorator}\n{body}")
        assert codes(user, Project()) == ["E1109"] * between
        user.write_text(f"{head}@{decorator}\n@{word}\n{body}")
        assert codes(user, Project()) == []


def test_the_bodies_of_classes_are_plain_code(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEP)
    user = tmp_path / "user.py"
    user.write_text(
        "from torch import nn\nfrom dslmut import mut\nfrom steps import step\n"
        "class Trainer:\n"
        "    net = nn.Linear(1, 1)\n"
        "    step(net)\n"
        "    class Inner:\n"
        "        step(nn.Linear(1, 1))\n"
        "        def run(self, net: nn.Linear) -> None:\n"
        "            step(net)\n"
        "    step(mut(net))\n"
        "if True:\n"
        "    class Other:\n"
        "        step(nn.Linear(1, 1))\n"
    )
    found = [(d.span.start.line, d.code) for d in check_file(user, Project()) if d.span]
    assert found == [(line, "E1103") for line in (6, 8, 10, 14)]


@pytest.mark.parametrize("marked", [False, True], ids=["a folder", "a package"])
def test_relative_imports_go_up(tmp_path: Path, marked: bool) -> None:
    inner = tmp_path / "pkg" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner) if marked else ():
        (folder / "__init__.py").touch()
    (tmp_path / "pkg" / "steps.py").write_text(STEP)
    user = inner / "user.py"
    user.write_text(USER.format(module="..steps", names="step"))
    assert codes(user, Project()) == ["E1103"]


INSIDE = """\
from torch import nn
from dslmut import Mut, fn

@fn
def outer(m: nn.Linear, t: Mut[nn.Linear]) -> None:
    def stop(q):
        q.eval()

    stop(t)
    stop(m)
"""


def test_a_label_stands_on_the_argument_that_a_function_inside_got(tmp_path: Path) -> None:
    path = tmp_path / "caller.py"
    path.write_text(INSIDE)
    (found,) = check_file(path, Project())
    assert found.span is not None
    assert found.span.start.line == 7
    assert ("`q` may be `m`, bound here", 10) in [
        (label.text, label.span.start.line) for label in found.labels
    ]
