"""What the source of a transform shows: said at decoration, and in files without running them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project
from dslmut.diagnostics.exceptions import OptimizerError

HEAD = "import torch\nfrom dslmut import *\nfrom dslmut.optim import *\n"
BEFORE = "@gradient_transform\ndef f(param, grad, ctx, share: Hyper = 0.5):\n"
BEHIND = "@update_transform\ndef f(param, grad, new, ctx, *, share: Hyper = 0.5):\n"


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (BEFORE + "    grad.mul_(2)\n    return grad\n", "E-OPT-020", "grad.mul_(2)"),
        (BEHIND + "    return new.clamp_(0)\n", "E-OPT-020", "new.clamp_(0)"),
        (BEHIND + "    if new.sum() > 0:\n        return new\n    return param\n", "E-OPT-021", "new.sum() > 0"),
        (BEFORE + "    metric('a', grad.norm())\n    return grad\n", "E-CONTRACT-011", "metric("),
        (BEFORE + "    return None\n", "E-OPT-004", "return None"),
        (BEFORE + "    if param.ndim:\n        return grad\n", "E-OPT-004", "def f("),
        (BEFORE + "    return grad, grad\n", "E-OPT-004", "return grad, grad"),
        (
            BEFORE + "    m = defstate('m', torch.zeros_like(grad))\n    return transformed(grad)\n",
            "E-OPT-004",
            "return transformed(grad)",
        ),
        (
            BEFORE + "    m = defstate('m', grad * 2)\n    return transformed(grad, m=m)\n",
            "E-OPT-003",
            "m = defstate(",
        ),
        ("@gradient_transform\ndef f(param, grad):\n    return grad\n", "E-OPT-001", "def f("),
        ("@update_transform\ndef f(param, new, ctx):\n    return new\n", "E-OPT-001", "def f("),
    ],
)  # fmt: skip
def test_what_the_source_shows(load, tmp_path: Path, text: str, code: str, line: str) -> None:
    with pytest.raises(OptimizerError) as caught:
        load(HEAD + text)
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert line in str(caught.value)
    path = tmp_path / "transform.py"
    path.write_text(HEAD + text)
    found = check_file(path, Project())
    assert [d.code for d in found] == [code]


GOOD = [
    BEFORE + "    share = schedule_value(share, ctx)\n    return share * grad / ctx.grad_norm\n",
    BEFORE + "    if share > 0.5:\n        return grad\n    return 2 * grad\n",
    BEFORE + "    if param.ndim > 1:\n        return grad.mean(0, keepdim=True).expand_as(grad)\n    return grad\n",
    BEHIND + "    m = defstate('m', torch.zeros_like(new))\n    return transformed(new + m, (m, share * new))\n",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_what_is_right_passes(load, tmp_path: Path, text: str) -> None:
    rest = "chain(f(), sgd())" if "gradient_transform" in text else "chain(sgd(), f())"
    module = load(HEAD + text + f"opt = {rest}.bind(torch.nn.Linear(3, 2), compile=False)\n")
    assert module is not None
    path = tmp_path / "transform.py"
    path.write_text(HEAD + text)
    assert check_file(path, Project()) == []
