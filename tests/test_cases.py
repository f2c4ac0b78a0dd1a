"""The checker's cases: Markdown files whose lines say what must be reported, live and static."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from dslmut.checking.analysis import check_file
from dslmut.checking.source import parse
from dslmut.checking.static import Project
from dslmut.diagnostics.model import Diagnostic
from dslmut.functions import decorate
from tests.markdown import Block, Mark, marks, python_blocks

CASES = [
    b for p in sorted((Path(__file__).parent / "cases").glob("*.md")) for b in python_blocks(p)
]

Found = set[tuple[int, str]]


def wanted(code: str, resolver: str) -> list[Mark]:
    return [m for m in marks(code) if m.kind in ("error", resolver)]


def compare(found: list[Diagnostic], block: Block, path: Path, resolver: str) -> None:
    source = parse(str(path), path.read_text())
    expected = wanted(block.code, resolver)
    reported = [
        (d.span.start.line, d.code, source.slice(d.span)) for d in found if d.span is not None
    ]
    assert len(reported) == len(found), "every diagnostic has a place"
    shown = "\n".join(f"line {line}: {code} `{text}`" for line, code, text in sorted(reported))
    assert sorted((m.line, m.code) for m in expected) == sorted(
        (line, code) for line, code, _ in reported
    ), f"{block.id}, {resolver}:\n{shown or 'nothing was reported'}"
    for mark in expected:
        if mark.text is not None:
            texts = [t for line, code, t in reported if (line, code) == (mark.line, mark.code)]
            assert mark.text in texts, f"{block.id}, {resolver}:\n{shown}"


@pytest.mark.parametrize("block", CASES, ids=lambda b: b.id)
def test_static(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(block.code)
    before = set(sys.modules)
    found = check_file(path, Project())
    assert "case" not in set(sys.modules) - before
    compare(found, block, path, "static")


@pytest.mark.parametrize("block", CASES, ids=lambda b: b.id)
def test_live(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Diagnostic] = []
    monkeypatch.setattr(decorate, "_raise_found", lambda a, source: found.extend(a.diagnostics))
    path = tmp_path / "case.py"
    path.write_text(block.code)
    spec = importlib.util.spec_from_file_location("case", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "case", module)
    spec.loader.exec_module(module)
    compare(found, block, path, "live")
