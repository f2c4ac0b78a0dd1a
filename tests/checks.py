"""Whether the checker reports, live and static, exactly what a block's marks say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from dslmut import OptimizerError
from dslmut.checking.analysis import check_file
from dslmut.checking.source import parse
from dslmut.checking.static import Project
from dslmut.diagnostics.model import Diagnostic
from dslmut.functions import decorate
from dslmut.optim import define
from tests.markdown import Block, marks


def check_static(block: Block, folder: Path) -> None:
    """Check a block as a file, without importing it."""
    path = write(block, folder)
    before = set(sys.modules)
    found = check_file(path, Project())
    assert path.stem not in set(sys.modules) - before
    compare(found, block, path, "static")


def check_live(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import a block as a module, and check each function when it is decorated."""
    found: list[Diagnostic] = []
    monkeypatch.setattr(decorate, "_raise_found", lambda a, source: found.extend(a.diagnostics))
    monkeypatch.setattr(define, "_raise_found", lambda ds, source: found.extend(ds))
    path = write(block, folder)
    loaded(path, monkeypatch)
    compare(found, block, path, "live")


def check_trace(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import a block without a look at its source, and bind each optimizer that it defines."""
    found: list[Diagnostic] = []
    monkeypatch.setattr(decorate, "_raise_found", lambda a, source: None)
    monkeypatch.setattr(define, "check_source", lambda *arguments: None)
    path = write(block, folder)
    for rule in vars(loaded(path, monkeypatch)).values():
        if isinstance(rule, define.Optimizer) and rule.__module__ == path.stem:
            try:
                rule().bind([torch.ones(3, 2, requires_grad=True)], compile=False)
            except OptimizerError as error:
                found += error.diagnostics
    compare(found, block, path, "trace")


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


def write(block: Block, folder: Path) -> Path:
    """Write a block into a file, and return its path."""
    path = folder / "case.py"
    path.write_text(block.code, encoding="utf-8")
    return path


def compare(found: list[Diagnostic], block: Block, path: Path, resolver: str) -> None:
    """Compare what was found with the block's marks for a resolver: lines, codes, texts."""
    source = parse(str(path), path.read_text(encoding="utf-8"))
    kinds = ("error", resolver, "" if resolver == "trace" else "source")
    expected = [m for m in marks(block.code) if m.kind in kinds]
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
