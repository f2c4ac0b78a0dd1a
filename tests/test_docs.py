"""Every Python block of the README and the docs runs, and fails where its marks say so."""

from __future__ import annotations

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from dslmut import DslmutError
from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project
from dslmut.diagnostics.registry import CODES
from tests.markdown import Block, Mark, blocks, marks, python_blocks

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [b for page in PAGES for b in python_blocks(page)]

CHECK_ALONE = {"E1201", "E1202"}
"""Codes that `dslmut check` says, and no run."""


def run(path: Path, monkeypatch: pytest.MonkeyPatch) -> DslmutError | None:
    """Run a file as a module; return the library's error that it ends in."""
    spec = importlib.util.spec_from_file_location("block", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "block", module)
    try:
        spec.loader.exec_module(module)
    except DslmutError as error:
        return error
    return None


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: f"{b.path.name}:{b.line}")
def test_block(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "block.py"
    path.write_text(block.code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    wanted = marks(block.code)
    static = {(d.span.start.line, d.code) for d in check_file(path, Project()) if d.span}
    assert static <= {(m.line, m.code) for m in wanted}, (
        "the checker reports more than the page says"
    )
    error = run(path, monkeypatch)
    if wanted and {m.code for m in wanted} <= CHECK_ALONE:
        assert static == {(m.line, m.code) for m in wanted}
        wanted = []
    if not wanted:
        assert error is None, str(error)
        return
    assert error is not None, "the page says that this fails"
    found = static | {(d.span.start.line, d.code) for d in error.diagnostics if d.span}
    if any(m.code == "E1109" for m in wanted):  # there is no line of a text that is missing
        assert {d.code for d in error.diagnostics} == {"E1109"}
        return
    assert found >= {(m.line, m.code) for m in wanted if isinstance(m, Mark)}


@pytest.mark.parametrize("code", CODES)
def test_each_code_has_an_example_that_fails_and_one_that_runs(code: str) -> None:
    page = ROOT / "docs" / "errors" / f"{code}.md"
    text = page.read_text()
    what, _, rest = text.partition("## Example\n")
    bad, _, _ = rest.partition("## Instead\n")
    instead = text.splitlines().index("## Instead") + 1
    assert len(what.partition("**Why:**")[0].split()) > 20, "the page says what is meant"
    assert f"**Why:** {CODES[code].why}." in what
    assert f"# error: {code}" in bad
    after = [b for b in blocks(page) if b.language == "python" and b.line > instead]
    assert any(not marks(b.code) for b in after)


def test_error_pages_are_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_error_pages.py"))["pages"]()
    there = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "errors").glob("*.md")}
    assert there == made, "run `python docs/make_error_pages.py`"


def test_the_readme_shows_the_example_whole() -> None:
    example = (ROOT / "dslmut" / "examples" / "digits.py").read_text()
    assert any(b.code == example for b in blocks(ROOT / "README.md"))


def test_the_readme_begins_with_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    commands = [b for b in blocks(ROOT / "README.md") if b.language in ("sh", "bash", "shell")]
    lines = [line for line in commands[0].code.splitlines() if line]
    assert len(lines) == 2
    assert all('"torch==2.13.0"' in line for line in lines)
    assert lines[0].endswith("python -m dslmut demo")
    assert text.index("```sh") < 600


def test_links_lead_somewhere() -> None:
    import re

    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_ci_runs_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    shown = subprocess.run([script, "--print"], capture_output=True, text=True, check=True)
    commands = blocks(ROOT / "README.md")[0].code.splitlines()
    assert shown.stdout == commands[1] + "\n"
    assert commands[1].endswith(".venv/bin/python -m pytest")
