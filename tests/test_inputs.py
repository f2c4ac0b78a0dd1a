"""What `dslmut check` is given: every file that can be checked is, and of the rest it is said why not."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dslmut as dm
from dslmut.front.cli import main
from tests.test_diagnostics import valid_sarif

BAD = """\
from torch import nn
from dslmut import fn

@fn
def reset(m: nn.Linear) -> None:
    größe = "µ"; m.eval()
"""
COLUMN = BAD.splitlines()[-1].index("m.eval") + 1

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.py"
    path.write_text(BAD, encoding="utf-8")
    return path


def check(*paths: Path | str) -> int:
    return main(["check", *map(str, paths), "--output-format", "concise"])


def places(out: str) -> list[str]:
    return [":".join(line.split(":")[:3]) for line in out.splitlines()]


def deep(text: str) -> bytes:
    return b"import dslmut\nx = " + text.encode()


UNREADABLE: list[tuple[str, bytes, str]] = [
    ("syntax", b"x = 1\ndef f(:\n", ":2:7 cannot be read: invalid syntax"),
    ("indent", b"if x:\npass\n", ":2:1 cannot be read: expected an indented block after"),
    ("latin", BAD.encode("latin-1"), " cannot be read: byte 0xf6 is not utf-8; save it as UTF-8"),
    ("latin2", "# größe\n".encode("latin-1"), " cannot be read: invalid or missing encoding decl"),
    ("cookie", b"# coding: nonsense\n", " cannot be read: unknown encoding: nonsense; save it"),
    ("liar", b"# coding: latin-1\n\xef\xbb\xbf".join([b"\xef\xbb\xbf", b"x"]), " cannot be read: "),
    ("utf16", "x = 1\n".encode("utf-16"), " cannot be read: invalid or missing encoding decl"),
    ("null", b"import dslmut\nx = '\0'\n", "null bytes"),
    ("sum", deep("+".join(["1"] * 5000)), " cannot be checked: its expressions are nested too"),
    ("attr", deep("a" + ".b" * 20_000), " cannot be checked: its expressions are nested too"),
    ("nots", deep("not " * 20_000 + "a"), " cannot be checked: its expressions are nested too"),
    ("ifs", deep("1\nif a: pass\n" + "elif b: pass\n" * 20_000), " cannot be checked: its expr"),
    ("parens", deep("(" * 500 + ")" * 500), " cannot be read: too many nested parentheses"),
]


@pytest.mark.parametrize(("name", "data", "message"), UNREADABLE, ids=[n for n, _, _ in UNREADABLE])
def test_files_that_cannot_be_read(
    name: str, data: bytes, message: str, tmp_path: Path, bad: Path, capsys: Capture
) -> None:
    path = tmp_path / f"{name}.py"
    path.write_bytes(data)
    assert check(tmp_path) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith(f"dslmut: {path}")
    assert message in line
    assert line.count(str(path)) == 1
    assert places(captured.out) == [f"{bad}:6:{COLUMN}"], "the other files are checked all the same"
    bad.write_text(f"import dslmut\nfrom {name} import *\nimport {name}\n")
    assert check(bad) == 0, "and a file that imports it"


def test_files_that_can_be_read(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "empty.py").write_bytes(b"")
    (tmp_path / "blank.py").write_bytes(b"\n\n\f\n")
    (tmp_path / "only_bom.py").write_bytes(b"\xef\xbb\xbf")
    (tmp_path / "bom.py").write_bytes(BAD.encode("utf-8-sig"))
    (tmp_path / "crlf.py").write_bytes(BAD.replace("\n", "\r\n").encode())
    (tmp_path / "latin.py").write_bytes(("# coding: latin-1\n" + BAD).encode("latin-1"))
    (tmp_path / "vim.py").write_bytes(("#!/bin/python\n# vim: set fileencoding=latin-1 :\n" + BAD).encode("latin-1"))  # fmt: skip
    (tmp_path / "long.py").write_bytes(deep("+".join(["1"] * 500)))
    assert check(tmp_path) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    assert places(captured.out) == [
        f"{tmp_path / 'bom.py'}:6:{COLUMN}",
        f"{tmp_path / 'crlf.py'}:6:{COLUMN}",
        f"{tmp_path / 'latin.py'}:7:{COLUMN}",
        f"{tmp_path / 'vim.py'}:8:{COLUMN}",
    ]


def test_the_warnings_of_a_text_are_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text("import dslmut\nx = '\\d' is 1\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "dslmut", "check", path],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_paths_that_lead_nowhere(
    tmp_path: Path, bad: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop.py"
    loop.symlink_to(loop)
    broken = tmp_path / "broken.py"
    broken.symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe.py")
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.py")
    (tmp_path / "note.ipynb").write_text("{}")
    wrong = {
        "nothing.py": "there is no {}",
        "broken.py": "there is no {}",
        "loop.py": "{} cannot be read: too many levels of symbolic links",
        "pipe.py": "{} cannot be checked: it is neither a file nor a folder",
        "socket.py": "{} cannot be checked: it is neither a file nor a folder",
        "note.ipynb": "{} cannot be checked: notebooks are not supported",
        "bad.py/deeper": "{} cannot be read: not a directory",
    }
    assert check(*(tmp_path / name for name in wrong), bad) == 2
    captured = capsys.readouterr()
    for line, (name, message) in zip(captured.err.splitlines(), wrong.items(), strict=True):
        assert line.startswith(f"dslmut: {message.format(tmp_path / name)}")
    assert places(captured.out) == [f"{bad}:6:{COLUMN}"]
    assert check(tmp_path) == 1, "below a folder they are left out"
    assert capsys.readouterr().err == ""


def test_what_must_not_be_read(
    tmp_path: Path, bad: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "file.py", tmp_path / "folder"
    file.write_text("x = 1\n")
    folder.mkdir()
    file.chmod(0)
    folder.chmod(0)
    if os.access(file, os.R_OK):  # the superuser may read anything
        monkeypatch.setattr(os, "scandir", refusing(os.scandir, folder))
        monkeypatch.setattr(tokenize, "open", refusing(tokenize.open, file))
    assert check(tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        f"dslmut: {folder} cannot be read: permission denied",
        f"dslmut: {file} cannot be read: permission denied",
    ]
    assert places(captured.out) == [f"{bad}:6:{COLUMN}"]
    folder.chmod(0o700)


def refusing(function: Callable[..., Any], refused: Path) -> Callable[..., Any]:
    def call(path: Any) -> Any:
        if Path(path) == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return function(path)

    return call


def test_folders(tmp_path: Path, bad: Path, capsys: Capture) -> None:
    """A folder that is named like a file, loops of links, hidden files."""
    (tmp_path / "folder.py").mkdir()
    inner = tmp_path / "folder.py" / "inner.py"
    inner.write_text(BAD, encoding="utf-8")
    (tmp_path / "folder.py" / "up").symlink_to(tmp_path)
    (tmp_path / "text.txt").write_text(BAD)
    for hidden in (".hidden.py", ".git/a.py", "__pycache__/a.py", "node_modules/a.py"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_text(BAD)
    expected = [f"{bad}:6:{COLUMN}", f"{inner}:6:{COLUMN}"]
    assert check(tmp_path) == 1
    assert places(capsys.readouterr().out) == expected
    assert check(tmp_path / "folder.py", bad) == 1
    assert places(capsys.readouterr().out) == expected
    (tmp_path / "empty").mkdir()
    assert main(["check", str(tmp_path / "empty")]) == 0
    assert capsys.readouterr().out == "no mistakes in 0 files\n"


def test_a_file_that_is_named_twice_is_checked_once(
    tmp_path: Path, bad: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.py").symlink_to(bad)
    monkeypatch.chdir(tmp_path)
    for paths in (
        ["bad.py", bad],
        ["bad.py", "./bad.py", "."],
        [".", tmp_path],
        ["bad.py", "link.py"],
    ):
        assert check(*paths) == 1
        assert len(capsys.readouterr().out.splitlines()) == 1
    assert check("bad.py", "link.py") == 1
    assert capsys.readouterr().out.startswith(f"bad.py:6:{COLUMN}: ")


def test_files_with_other_endings_that_are_named(tmp_path: Path, capsys: Capture) -> None:
    for name in ("script", "types.pyi", "text.txt"):
        (tmp_path / name).write_text(BAD, encoding="utf-8")
    assert check(*(tmp_path / n for n in ("script", "types.pyi", "text.txt"))) == 1
    assert len(capsys.readouterr().out.splitlines()) == 3
    compiled = tmp_path / "a.pyc"
    compiled.write_bytes(b"\xa7\r\r\n\0\0\0\0")
    assert check(compiled) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_and_texts_that_cannot_be_printed(tmp_path: Path, encoding: str) -> None:
    path = os.fsencode(tmp_path) + b"/gr\xf6\xdfe.py"
    with open(path, "w", encoding="utf-8") as file:
        file.write(BAD.replace("µ", "漢😀"))
    for name in ("full", "concise", "github", "json", "sarif"):
        done = subprocess.run(
            [sys.executable, "-m", "dslmut", "check", path, "--output-format", name],
            capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode == 1, done.stderr
        out = done.stdout.decode(encoding)
        if name == "json":
            (record,) = json.loads(out)
            assert os.fsencode(record["path"]) == path
        if name == "sarif":
            assert "/gr%F6%DFe.py" in out
            valid_sarif(out)


@pytest.mark.parametrize("format_", ["json", "sarif", "github"])
def test_formats_stay_valid(format_: str, tmp_path: Path, bad: Path, capsys: Capture) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert main(["check", str(tmp_path), "nowhere.py", "--output-format", format_]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 2
    if format_ == "json":
        assert [r["code"] for r in json.loads(captured.out)] == ["E1102"]
    elif format_ == "sarif":
        run = valid_sarif(captured.out)
        assert [r["ruleId"] for r in run["results"]] == ["E1102"]
        assert run["invocations"][0]["executionSuccessful"] is False
        notes = [n["message"]["text"] for n in run["invocations"][0]["toolExecutionNotifications"]]
        assert [f"dslmut: {n}" for n in notes] == captured.err.splitlines()
    else:
        assert len(captured.out.splitlines()) == 1
    assert main(["check", "nowhere.py", "--output-format", format_]) == 2
    out = capsys.readouterr().out
    assert format_ == "github" or json.loads(out) is not None


def test_the_summary_counts_what_could_not_be_checked(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "good.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert main(["check", str(tmp_path)]) == 2
    assert capsys.readouterr().out == "no mistakes in 1 file, and 1 could not be checked\n"


def given(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_the_standard_input(
    tmp_path: Path, bad: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data in (BAD.encode(), BAD.replace("\n", "\r\n").encode("utf-8-sig")):
        given(data, monkeypatch)
        assert check("-") == 1
        assert places(capsys.readouterr().out) == [f"-:6:{COLUMN}"]
    given(BAD.encode(), monkeypatch)
    assert main(["check", "-"]) == 1
    assert f"\n6 |     {BAD.splitlines()[-1].strip()}\n" in capsys.readouterr().out
    given(BAD.encode("latin-1"), monkeypatch)
    assert check("-", bad) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("dslmut: - cannot be read: byte 0xf6 is not utf-8")
    assert places(captured.out) == [f"{bad}:6:{COLUMN}"]


def test_the_standard_input_in_place_of_a_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an editor does it: its imports are looked for beside the file."""
    (tmp_path / "steps.py").write_text(
        "from torch import nn\nfrom dslmut import Mut, fn\n"
        "@fn\ndef step(m: Mut[nn.Linear]) -> None: ...\n"
    )
    path = tmp_path / "user.py"
    path.write_text("saved = 1\n" * 9)
    given(b"from steps import step\n\nstep(3)\n", monkeypatch)
    assert main(["check", "-", "--stdin-filename", str(path)]) == 1
    out = capsys.readouterr().out
    assert f"--> {path}:3:6" in out
    assert "3 | step(3)" in out


def test_a_mistake_of_our_own_stops_nothing(
    tmp_path: Path, bad: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dslmut.front import check as front

    def failing(path: Path, *others: Any) -> Any:
        if path.name == "odd.py":
            raise KeyError("no such thing")
        return real(path, *others)

    real = front.check_file
    monkeypatch.setattr(front, "check_file", failing)
    (tmp_path / "odd.py").write_text("x = 1\n")
    assert check(tmp_path) == 2
    captured = capsys.readouterr()
    assert "Traceback" in captured.err
    assert f"{tmp_path / 'odd.py'} cannot be checked: a mistake of dslmut" in captured.err
    assert places(captured.out) == [f"{bad}:6:{COLUMN}"]


def test_an_interrupt_ends_it(bad: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslmut.front import check as front

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(front, "check_file", interrupted)
    assert check(bad) == 130


def test_a_huge_file(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "huge.py"
    body = "".join(f"    a{n} = m.weight + {n}\n" for n in range(1000))
    heads = [f"@fn\ndef f{n}(m: nn.Linear) -> None:\n" for n in range(1000)]
    functions = "".join(head + (body if n < 3 else "    ...\n") for n, head in enumerate(heads))
    path.write_text(
        f"from torch import nn\nfrom dslmut import fn\n{functions}x = {[0] * 200_000}\n"
    )
    start = time.perf_counter()
    assert check(path) == 0
    assert time.perf_counter() - start < 30
    assert capsys.readouterr().err == ""


NESTED = [
    " + ".join(["x"] * 700),
    "abs(" * 150 + "x" + ")" * 150,
    "x" + ".real" * 700,
    "not " * 700 + "x",
    "x if x else " * 400 + "x",
    "(lambda: " * 40 + "x" + ")()" * 40,
]


@pytest.mark.parametrize("expression", NESTED, ids=lambda e: e[:9])
def test_what_python_runs_is_checked_and_decorated(
    expression: str, tmp_path: Path, load: Callable[..., Any], capsys: Capture
) -> None:
    """However deep: what Python compiles within its own limits is no trouble to us."""
    text = f"from dslmut import fn\n@fn\ndef f(x: float):\n    return {expression}\n"
    before = sys.getrecursionlimit()
    module = load(text)
    dm.check(module)
    plain: dict[str, Any] = {}
    exec(text.replace("@fn\n", ""), plain)
    assert module.f(2.0) == plain["f"](2.0)
    assert sys.getrecursionlimit() == before
    assert check(module.__file__) == 0
