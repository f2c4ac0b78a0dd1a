"""The examples in docstrings say what is true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float

import dslmut
from dslmut import optim
from dslmut.optim import schedules

ROOT = Path(dslmut.__file__).parent
MODULES = sorted(
    "dslmut." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def names() -> dict[str, Any]:
    """Return what an example may use without an import: all public names, and torch's usual ones."""
    found: dict[str, Any] = {"dm": dslmut, "Float": Float}
    found |= {"torch": torch, "nn": torch.nn, "Tensor": torch.Tensor}
    for home in (schedules, optim, dslmut):
        found |= {name: getattr(home, name) for name in home.__all__}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    loaded = importlib.import_module(module)
    found = doctest.DocTestFinder(exclude_empty=True).find(loaded, module, extraglobs=names())
    for test in found:
        test.globs.pop("annotations", None)  # of the module's own `from __future__`
        test.globs["__name__"] = __name__  # what an example defines is somebody else's
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    count = sum(runner.run(test, out=said.append).attempted for test in found)
    assert count, "an example that nobody finds"
    assert not said, "".join(said)
