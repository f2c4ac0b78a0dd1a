"""`dm.check`: everything in a loaded module at once."""

from __future__ import annotations

import importlib
import linecache
import math
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dslmut as dm
from dslmut import CheckError

STEP = """\
from torch import nn
from dslmut import Mut, fn, mut

@fn
def step(m: Mut[nn.Linear]) -> None:
    m.weight = m.weight * 0

def train(m: nn.Linear) -> None:
    step(m)

def test(m: nn.Linear) -> None:
    step(mut(m))
    step(m)
"""
"""Loads without an error; the two calls without a marker are in plain functions."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("user_"):
            del sys.modules[name]


def found(module: Any) -> list[tuple[str, int]]:
    """Check, and return the codes and lines of what is found."""
    with pytest.raises(CheckError) as error:
        dm.check(module)
    return [(d.code, d.span.start.line if d.span else 0) for d in error.value.diagnostics]


def test_a_module_its_name_and_its_path(folder: Path) -> None:
    path = folder / "user_steps.py"
    path.write_text(STEP)
    module = importlib.import_module("user_steps")
    for given in (module, "user_steps", path, folder):
        assert found(given) == [("E1103", 9), ("E1103", 13)]
    with pytest.raises(CheckError) as error:
        dm.check(module)
    assert str(error.value).count("E1103 An argument") == 2
    assert f"{path}:9:10" in str(error.value)
    path.write_text(STEP.replace("step(m)\n", "step(mut(m))  # dslmut: ignore[E1102]\n"))
    assert found(module) == [("E1201", 9), ("E1201", 13)]
    path.write_text(STEP.replace("step(m)\n", "step(mut(m))\n"))
    for given in (module, "user_steps", path, folder):
        assert dm.check(given) is None


def test_a_module_that_does_not_use_the_library() -> None:
    dm.check(linecache)
    dm.check("json")


def test_a_package_with_everything_in_it(folder: Path) -> None:
    package = folder / "user_package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "steps.py").write_text(STEP)
    (package / "inner" / "user.py").write_text(
        "from user_package.steps import step\n\ndef f(m) -> None:\n    step(m)\n"
    )
    module = importlib.import_module("user_package")
    assert found(module) == [("E1103", 4), ("E1103", 9), ("E1103", 13)]
    inner = importlib.import_module("user_package.inner")  # a namespace, without __init__.py
    assert found(inner) == [("E1103", 4)]
    assert found(importlib.import_module("user_package.steps")) == [("E1103", 9), ("E1103", 13)]
    (package / "broken.py").write_text("x = 1\ndef f(:\n")
    assert ("E1109", 2) in found(module)  # and the others as before
    assert len(found(module)) == 4


def test_in_a_zip_file(folder: Path) -> None:
    archive = folder / "lib.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("user_zipped.py", "x = 1\n" + STEP)
    sys.path.insert(0, str(archive))
    try:
        assert found(importlib.import_module("user_zipped")) == [("E1103", 10), ("E1103", 14)]
    finally:
        sys.path.remove(str(archive))


def cell(number: int, text: str, module: ModuleType) -> None:
    """Run a cell as a notebook does: its text is kept, and its names are those of the module."""
    name = f"<cell {number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), vars(module))


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_a_notebook(notebook: ModuleType) -> None:
    cell(1, STEP.partition("def train")[0], notebook)
    dm.check("__main__")
    cell(2, "def train(m: nn.Linear) -> None:\n    step(m)\n", notebook)
    cell(
        3,
        "class Trainer:\n    @staticmethod\n    def run(m: nn.Linear) -> None:\n        step(m)\n"
        "    @property\n    def done(self) -> bool: return True\n",
        notebook,
    )
    assert found("__main__") == [("E1103", 2), ("E1103", 4)]
    cell(4, "def train(m: nn.Linear) -> None:\n    step(mut(m))\n", notebook)
    assert found(notebook) == [("E1103", 4)], "a cell that defines nothing any more is over"
    cell(5, "class Trainer: ...\n", notebook)
    assert dm.check(notebook) is None


def test_a_script_that_checks_itself(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(STEP + "import dslmut as dm\ndm.check('__main__')\nprint('clean')\n")
    env = {**os.environ, "PYTHONPATH": str(Path(dm.__file__).parents[1])}
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"--> {path}:9:10" in done.stderr
    assert done.stderr.count("E1103 An argument") == 2
    path.write_text(path.read_text().replace("step(m)\n", "step(mut(m))\n"))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=env)
    assert (done.stdout, done.stderr) == ("clean\n", "")


def test_without_a_text(notebook: ModuleType, load: Callable[..., ModuleType]) -> None:
    assert [code for code, _ in found(math)] == ["E1109"]
    assert found("builtins") == [("E1109", 0)]
    assert found(notebook) == [("E1109", 0)]
    exec("def f(): ...", vars(notebook))
    cell(1, STEP, notebook)
    assert found(notebook) == [("E1109", 1), ("E1103", 9), ("E1103", 13)]
    module = load("x = 1\n")
    assert module.__file__ is not None
    os.unlink(module.__file__)
    linecache.checkcache(module.__file__)
    assert found(module) == [("E1109", 1)]


def test_wrong_arguments(folder: Path) -> None:
    wrong: list[tuple[Any, str]] = [
        (None, "not `None`"),
        (3, "not an `int`"),
        (found, "not a `function`; `@fn` checks a function when it decorates it"),
        (Path, "not a `type`; `@fn`"),
        ([math], "not a `list`"),
    ]
    for value, message in wrong:
        with pytest.raises(TypeError, match="takes a module, its name or a path") as error:
            dm.check(value)
        assert not isinstance(error.value, CheckError)
        assert message in str(error.value)
    with pytest.raises(ModuleNotFoundError, match="no module 'user_steps.py' is loaded") as missing:
        dm.check("user_steps.py")
    assert missing.value.name == "user_steps.py"
    with pytest.raises(FileNotFoundError):
        dm.check(folder / "nothing.py")
