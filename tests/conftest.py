"""What all tests share."""

from __future__ import annotations

import importlib.util
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., ModuleType]]:
    """Return a function that writes a text into a file and imports it as a module."""
    made: list[str] = []

    def load(text: str, name: str = "") -> ModuleType:
        name = name or f"user_code_{len(made)}"
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        linecache.checkcache(str(path))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in made:
        sys.modules.pop(name, None)
