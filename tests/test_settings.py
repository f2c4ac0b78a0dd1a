"""`[tool.dslmut]` in a pyproject.toml, and what `dslmut check` makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslmut.front.cli import main
from dslmut.front.settings import SettingsError, find_settings

BAD = """\
from torch import nn
from dslmut import fn, mut

@fn
def reset(m: nn.Linear) -> None:
    m.eval()

reset(mut(nn.Linear(1, 1)))
"""

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    for name in ("a.py", "build/b.py", "src/build/c.py", "src/gen_d.py", "tests/data/e.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(BAD)
    monkeypatch.chdir(folder)
    return folder


def configure(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)


def checked(capsys: Capture, *paths: str) -> set[str]:
    """Return the files in which something is found."""
    main(["check", *(paths or ["."]), "--output-format", "json"])
    return {Path(r["path"]).as_posix() for r in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ([], {"a.py", "build/b.py", "src/build/c.py", "src/gen_d.py", "tests/data/e.py"}),
        (["build"], {"a.py", "src/gen_d.py", "tests/data/e.py"}),
        (["build/"], {"a.py", "src/gen_d.py", "tests/data/e.py"}),
        (["src/build"], {"a.py", "build/b.py", "src/gen_d.py", "tests/data/e.py"}),
        (["gen_*.py", "tests/*"], {"a.py", "build/b.py", "src/build/c.py"}),
        (["[ab].py", "src"], {"tests/data/e.py"}),
        (["../a.py", "/a.py", "uild"], {"a.py", "build/b.py", "src/build/c.py", "src/gen_d.py", "tests/data/e.py"}),
    ],
)  # fmt: skip
def test_exclude(
    patterns: list[str],
    left: set[str],
    project: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(project, f"[tool.dslmut]\nexclude = {json.dumps(patterns)}\n")
    assert checked(capsys) == left
    assert checked(capsys, "build/b.py") == {"build/b.py"}, "what is named is checked"
    monkeypatch.chdir(project / "src")
    inside = {p.removeprefix("src/") for p in left if p.startswith("src/")}
    assert checked(capsys) == inside, "patterns start at the file"
    assert checked(capsys, "../src") == {f"../src/{p}" for p in inside}


def test_ignore(project: Path, capsys: Capture) -> None:
    configure(project, '[tool.dslmut]\nignore = ["E1102"]\n')
    assert main(["check", "a.py", "--output-format", "concise"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "E1101" in line
    configure(project, '[tool.dslmut]\nignore = ["E1102", "E1101"]\n')
    assert main(["check", "a.py"]) == 0
    assert capsys.readouterr().out == "no mistakes in 1 file\n"


def test_output_format(project: Path, capsys: Capture) -> None:
    configure(project, '[tool.dslmut]\noutput-format = "concise"\n')
    main(["check", "a.py"])
    assert capsys.readouterr().out.startswith("a.py:6:5: E1102")
    main(["check", "a.py", "--output-format", "json"])
    assert json.loads(capsys.readouterr().out)[0]["code"] == "E1102", "an option goes first"


def test_the_nearest_table_counts(project: Path) -> None:
    configure(project, '[tool.dslmut]\noutput-format = "json"\n')
    inner = project / "src"
    assert find_settings(inner / "build").output_format == "json"
    configure(inner, '[project]\nname = "inner"\n')
    assert find_settings(inner / "build").output_format == "json", "one without the table is passed"
    configure(inner, "this is no TOML")
    assert find_settings(inner / "build").output_format == "json", "whatever else is in it"
    configure(inner, '[tool]\ndslmut = { output-format = "github" }\n')
    assert find_settings(inner / "build").output_format == "github"
    assert find_settings(project).output_format == "json"
    for other in ("[tool.other]\nx = 'dslmut'\n", "tool = 'dslmut'\n", ""):
        configure(project, other)
        assert find_settings(project).output_format == "full"


WRONG = [
    ("[tool.dslmut]\nexcludes = []\n", "has no `excludes`; did you mean `exclude`?"),
    ("[tool.dslmut]\noutput_format = 'json'\n", "did you mean `output-format`?"),
    ("[tool.dslmut]\nselect = []\n", "has no `select`; it may have exclude, ignore, output-format"),
    ("[tool.dslmut]\nexclude = 'build'\n", "exclude is a list of strings"),
    ("[tool.dslmut]\nignore = [1102]\n", "ignore is a list of strings"),
    ("[tool.dslmut]\nignore = ['E11O2']\n", "ignore: there is no code E11O2; did you mean E1102?"),
    ("[tool.dslmut]\noutput-format = 'jsno'\n", "did you mean `json`?"),
    ("[tool.dslmut]\noutput-format = 3\n", "there is no 3; it may be full, concise"),
    ("[tool]\ndslmut = 3\n", "is not a table"),
    ("[[tool.dslmut]]\nignore = []\n", "is not a table"),
    ("[tool.dslmut\n", "cannot be read: Expected ']'"),
    ("[tool.dslmut]\nx = '\udcff'\n", "cannot be read: "),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_mistakes_in_the_table(text: str, message: str, project: Path, capsys: Capture) -> None:
    (project / "pyproject.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SettingsError):
        find_settings(project)
    assert main(["check", "a.py"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "", "nothing is checked under settings that are not understood"
    (line,) = captured.err.splitlines()
    assert line.startswith(f"dslmut: {project / 'pyproject.toml'}")
    assert message in line
