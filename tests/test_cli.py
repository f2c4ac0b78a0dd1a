"""The command line."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dslmut.diagnostics.registry import CODES
from dslmut.front.cli import main

BAD = """\
from torch import nn
from dslmut import fn

@fn
def reset(m: nn.Linear) -> None:
    m.weight = m.weight * 0
    größe = "µ"; m.eval()
"""


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.py"
    path.write_text(BAD, encoding="utf-8")
    return path


def test_check_finds_and_says_so(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(bad)]) == 1
    out = capsys.readouterr().out
    assert "E1102 Changes something that this function may not change" in out
    assert f"--> {bad}:6:5" in out
    assert "fix: write `m: Mut[nn.Linear]`" in out
    assert "with eval_mode(m):" in out
    assert "2 mistakes in 1 file" in out
    assert "\033" not in out


def test_receivers_are_annotated_with_their_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import Tensor, nn\n"
        "from dslmut import fn\n"
        "class Net(nn.Module):\n"
        "    calls = 0\n"
        "    @fn\n"
        "    def forward(self, x: Tensor) -> Tensor:\n"
        "        self.calls += 1\n"
        "        return x\n"
        "    @fn\n"
        "    def reset(me) -> None:\n"
        "        me.calls = 0\n"
    )
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert 'annotate the receiver: `self: Mut["Net"]`; calls stay as they are' in out
    assert '`me: Mut["Net"]`, and write `mut(m).reset(...)` at the calls' in out


def test_columns_count_characters(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(bad), "--output-format", "concise"])
    lines = capsys.readouterr().out.splitlines()
    column = BAD.splitlines()[6].index("m.eval") + 1
    assert lines[1].startswith(f"{bad}:7:{column}: E1102 ")


def test_clean_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text("x = 1\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "b.py").write_text("this is no python")
    assert main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no mistakes in 1 file\n"


def test_formats(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(bad), "--output-format", "json"]) == 1
    records = json.loads(capsys.readouterr().out)
    assert [r["code"] for r in records] == ["E1102", "E1102"]
    assert records[0]["start"] == {"line": 6, "column": 5}
    assert records[0]["fix"]["edits"][0]["replacement"] == "Mut[nn.Linear]"
    main(["check", str(bad), "--output-format", "github"])
    assert capsys.readouterr().out.startswith(f"::error file={bad},line=6,col=5,")
    main(["check", str(bad), "--output-format", "sarif"])
    log = json.loads(capsys.readouterr().out)
    assert [r["ruleId"] for r in log["runs"][0]["results"]] == ["E1102", "E1102"]
    assert {r["id"] for r in log["runs"][0]["tool"]["driver"]["rules"]} == set(CODES)


def test_ignore_comments(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = BAD.replace("m.weight * 0", "m.weight * 0  # dslmut: ignore[E1102]")
    bad.write_text(text.replace('"µ"', '"# dslmut: ignore[E1102]"'), encoding="utf-8")
    assert main(["check", str(bad), "--output-format", "concise"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "e1102"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# E1102: Changes something")
    assert "## Instead" in out
    assert main(["explain", "E11O2"]) == 2
    assert "did you mean E1102?" in capsys.readouterr().err


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["check"], ["nothing"], ["check", "a.py", "--output-format", "x"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_as_a_module_and_into_a_closed_pipe(bad: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dslmut", "check", str(bad)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == ""
    piped = subprocess.run(
        f"{sys.executable} -m dslmut explain E1102 | head -1",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert piped.stderr == ""
    coloured = subprocess.run(
        [sys.executable, "-m", "dslmut", "check", str(bad)],
        capture_output=True, text=True, env={**os.environ, "FORCE_COLOR": "1"},
    )  # fmt: skip
    assert "\033[" in coloured.stdout
    plain = subprocess.run(
        [sys.executable, "-m", "dslmut", "check", str(bad)],
        capture_output=True, text=True, env={**os.environ, "FORCE_COLOR": "1", "NO_COLOR": "1"},
    )  # fmt: skip
    assert "\033[" not in plain.stdout


def test_the_demo_trains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--epochs", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("accuracy ")
    assert float(lines[-1].split()[1]) > 0.9
    out = "\n".join(lines)
    assert "update / weight" in out
    losses = {int(n): float(v) for n, v in re.findall(r"^step (\d+): loss ([\d.]+)$", out, re.M)}
    assert len(losses) == 3
    first, middle, last = (losses[n] for n in sorted(losses))
    assert first > middle > last
    assert out.count("E1102") == 2
    assert out.count("E1103") == 1


def test_the_collector_of_garbage_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "fine.py"
    path.write_text("x = 1\n")
    before = gc.get_threshold()
    assert main(["check", str(path)]) == 0
    assert gc.get_threshold() == before
