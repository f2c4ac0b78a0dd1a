"""Functions from notebook cells, from files of all kinds, and from where there is no text."""

from __future__ import annotations

import doctest
import importlib
import linecache
import os
import py_compile
import subprocess
import sys
import tempfile
import time
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from torch import nn

from dslmut import CheckError, fn, mut
from dslmut.diagnostics.exceptions import DslmutError

HEAD = "from torch import nn\nfrom dslmut import Mut, fn, mut\n"
STEP = (
    "@fn\ndef step(m: Mut[nn.Linear], x: int = 1) -> int:\n    m.bias = m.bias * 0\n    return x\n"
)
ROOT = str(Path(__file__).parents[1])


def works(step: Callable[..., object], result: object = 1) -> None:
    m = nn.Linear(2, 2)
    nn.init.ones_(m.bias)
    assert step(mut(m)) == result
    assert not m.bias.any()
    with pytest.raises(CheckError, match="E1103"):
        step(m)


class Notebook:
    """Runs cells as IPython does: each is compiled under a name that ``linecache`` knows."""

    def __init__(self, pattern: str) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._pattern, self._count = pattern, 0

    def run(self, text: str, name: str = "") -> str:
        self._count += 1
        name = name or self._pattern.format(self._count)
        linecache.cache[name] = (len(text), time.time(), text.splitlines(True), name)
        exec(compile(text, name, "exec"), self.names)
        return name


CELLS = ["<ipython-input-{}-0a1b>", f"{tempfile.gettempdir()}/ipykernel_77/{{}}.py", "<cell {}>"]
"""How IPython, Jupyter and others name the texts of cells."""


@pytest.fixture(params=CELLS, ids=["IPython", "Jupyter", "others"])
def notebook(request: pytest.FixtureRequest) -> Notebook:
    return Notebook(request.param)


def test_cells(notebook: Notebook) -> None:
    notebook.run(HEAD)
    name = notebook.run(STEP)
    works(notebook.names["step"])
    notebook.run(STEP.replace("return x", "return x + 1"))
    works(notebook.names["step"], 2)
    notebook.run(STEP.replace("return x", "return x - 1"), name)  # the same name: a newer text
    works(notebook.names["step"], 0)
    notebook.run("m = nn.Linear(2, 2)\nfirst = step")
    notebook.run("def other(): ...\n" + STEP)
    works(notebook.names["first"], 0)
    with pytest.raises(CheckError, match=r"step\(m\)(.|\n)*write `step\(mut\(m\)\)`"):
        notebook.run("step(m)\n")


def test_errors_show_the_lines_of_the_cell(notebook: Notebook) -> None:
    notebook.run(HEAD)
    with pytest.raises(CheckError) as caught:
        notebook.run("\n# a comment\n" + STEP.replace("Mut[nn.Linear]", "nn.Linear"))
    (d,) = caught.value.diagnostics
    assert d.span is not None
    assert (d.code, d.span.start.line) == ("E1102", 5)
    assert "5 |     m.bias = m.bias * 0" in str(caught.value)


def test_a_cell_that_was_forgotten(notebook: Notebook) -> None:
    """A decorated function needs its text no more, even where others clear the cache."""
    notebook.run(HEAD + STEP)
    linecache.checkcache()
    works(notebook.names["step"])
    with pytest.raises(CheckError, match="E1109(.|\n)*there is no text"):
        exec("fn(step)", notebook.names)


def test_ipython() -> None:
    shell = InteractiveShell.instance()
    assert shell.run_cell(HEAD).success
    assert shell.run_cell(STEP).success
    works(shell.user_ns["step"])
    assert shell.run_cell(STEP.replace("return x", "return x + 1")).success
    works(shell.user_ns["step"], 2)
    wrong = shell.run_cell(STEP.replace("Mut[nn.Linear]", "nn.Linear")).error_in_exec
    assert isinstance(wrong, CheckError)
    assert [d.code for d in wrong.diagnostics] == ["E1102"]
    span = wrong.diagnostics[0].span
    assert span is not None
    shown = str(wrong)
    assert f"{span.start.line} |" in shown
    assert "m.bias = m.bias * 0" in shown
    works(shell.user_ns["step"], 2)  # the one before is still there
    timed = shell.run_cell("%%time\n" + STEP).error_in_exec
    assert timed is None or "take `%%time` off the cell" in str(timed)


# -- modules that are loaded again ---------------------------------------------------------------


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], types.ModuleType]:
    """Return a function that writes a module anew and loads it again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path, count = tmp_path / "edited_module.py", 0

    def edited(text: str) -> types.ModuleType:
        nonlocal count
        count += 1
        path.write_text(HEAD + text)
        os.utime(path, (count * 10, count * 10))
        if count == 1:
            sys.modules.pop("edited_module", None)
            return importlib.import_module("edited_module")
        return importlib.reload(sys.modules["edited_module"])

    return edited


@pytest.mark.parametrize("new", ["x + 7", "7 - x", "x - 8", "x", "7 if x else x"])
def test_a_module_that_is_loaded_again(edited: Any, new: str) -> None:
    works(edited(STEP.replace("return x", "return x - 7")).step, -6)
    works(edited(STEP.replace("return x", f"return {new}")).step, eval(new, {"x": 1}))
    works(edited("\n\n" + STEP).step, 1)


def test_a_file_that_was_edited_but_not_loaded_again(edited: Any, tmp_path: Path) -> None:
    """Its functions go on as they were, and those inside of them too."""
    module = edited(
        "def make():\n    @fn\n    def inner(x: int) -> int:\n        return x - 7\n    return inner\n"
        "first = make()\n"
    )
    path = tmp_path / "edited_module.py"
    path.write_text("# something else\n" + path.read_text().replace("x - 7", "x + 7"))
    assert module.make()(1) == module.first(1) == -6


def autoreloaded(old: Any, new: Any) -> None:
    """Do what IPython's ``%autoreload`` does to a function that others have imported."""
    for name in "__code__ __defaults__ __doc__ __closure__ __globals__ __dict__".split():
        try:
            setattr(old, name, getattr(new, name))
        except (AttributeError, TypeError):
            continue


def test_autoreload(edited: Any) -> None:
    texts = [
        "@fn\ndef f():\n    return 1\n",
        "@fn\ndef f(x: int) -> int:\n    return x\n",
        "@fn\ndef f(x: str) -> str:\n    return x\n",
        "@fn\ndef f(m: Mut[nn.Linear], x: str) -> str:\n    m.bias = m.bias * 0\n    return x\n",
        "@fn\ndef f(x: int):\n    return str(x)\n",
    ]
    old = edited(texts[0]).f

    def outcome(f: Callable[..., object], *args: object) -> object:
        try:
            return f(*args)
        except (DslmutError, TypeError) as error:
            return str(error)[:5]

    m = nn.Linear(2, 2)
    for text in texts[1:]:
        new = edited(text).f
        autoreloaded(old, new)
        calls = [(1,), ("a",), (mut(m), "a"), (m, "a"), (mut(m), 1)]
        found = [outcome(old, *c) for c in calls]
        assert found == [outcome(new, *c) for c in calls]
        assert "E0601" in found


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("crlf", lambda b: b.replace(b"\n", b"\r\n")),
        ("cr", lambda b: b.replace(b"\n", b"\r")),
        ("bom", lambda b: b"\xef\xbb\xbf" + b),
        ("tabs", lambda b: b.replace(b"    ", b"\t")),
        ("form_feed", lambda b: b.replace(b"@fn", b"\x0c@fn") + b"\x0c"),
        ("continued", lambda b: b.replace(b"m.bias * 0", b"m.bias \\\n  * 0")),
        ("no_end", lambda b: b.rstrip()),
        ("separators", lambda b: b.replace(b"return x", b'"a\x0cb\x1cc\xe2\x80\xa8d"; return x')),
        ("lines", lambda b: b.replace(b"return x", b's = """a\n b\xe2\x80\xa8c\n"""; return x')),
    ],
)
def test_files_of_all_kinds(
    name: str, change: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"good_{name}.py").write_bytes(change((HEAD + STEP).encode()))
    works(importlib.import_module(f"good_{name}").step)
    wrong = (HEAD + STEP).replace("Mut[nn.Linear]", "nn.Linear")
    (tmp_path / f"wrong_{name}.py").write_bytes(change(wrong.encode()))
    with pytest.raises(CheckError, match=r"5 \|(    |\t)m.bias = m.bias|5 \|\s+m.bias") as caught:
        importlib.import_module(f"wrong_{name}")
    assert [d.code for d in caught.value.diagnostics] == ["E1102"]


def test_zip_files_and_compiled_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.writestr("in_zip.py", HEAD + STEP)
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
    monkeypatch.syspath_prepend(str(tmp_path))
    works(importlib.import_module("in_zip").step)
    source = tmp_path / "compiled_only.py"
    source.write_text(HEAD + STEP)
    py_compile.compile(str(source), cfile=str(tmp_path / "compiled_only.pyc"))
    source.unlink()
    with pytest.raises(CheckError, match="E1109(.|\n)*keep the module's `.py` file"):
        importlib.import_module("compiled_only")


def test_doctests() -> None:
    module = types.ModuleType("module")
    module.__doc__ = """
    >>> from dslmut import Mut, fn, mut
    >>> from torch import nn
    >>> @fn
    ... def zero(m: Mut[nn.Linear]) -> int:
    ...     m.bias = m.bias * 0
    ...     return 1
    >>> m = nn.Linear(2, 2)
    >>> zero(mut(m)), m.bias.any().item()
    (1, False)
    """
    assert doctest.testmod(module) == (0, 5)


@pytest.mark.parametrize("arguments", [["-c", HEAD + STEP], ["-"], ["-i"]])
def test_what_is_typed(arguments: list[str]) -> None:
    text = (HEAD + STEP + "\n") * (arguments != ["-c", HEAD + STEP])
    done = subprocess.run(
        [sys.executable, *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    if sys.version_info < (3, 13):
        assert "E1109" in done.stderr
        assert "what is typed here keeps no text" in done.stderr
    else:
        assert "E1109" not in done.stderr or "keeps no text" in done.stderr


def test_without_columns(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(HEAD + STEP + "m = nn.Linear(2, 2)\nstep(mut(m))\nstep(m)\n")
    done = subprocess.run(
        [sys.executable, "-X", "no_debug_ranges", str(tmp_path / "main.py")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert "E1103" in done.stderr
    assert "write `step(mut(m))`" in done.stderr


def test_lambdas_in_one_place() -> None:
    made = [fn(lambda x, k=k: x + k) for k in range(3)]
    assert [f(torch.tensor(1)).item() for f in made] == [1, 2, 3]
    pair = {"a": fn(lambda x: x), "b": fn(lambda x: -x)}
    assert (pair["a"](1), pair["b"](1)) == (1, -1)
