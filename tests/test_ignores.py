"""`# dslmut: ignore[E1102]`: what a comment counts for, and what is said of one without use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from dslmut import CheckError
from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project
from dslmut.diagnostics.model import Diagnostic

HEAD = """\
from torch import nn
from dslmut import Mut, fn, mut

@fn
def step(a: Mut[nn.Linear], b: Mut[nn.Linear]) -> None: ...

@fn
def f(m: nn.Linear, n: Mut[nn.Linear]) -> None:
"""


def check(body: str, tmp_path: Path) -> list[Diagnostic]:
    """Check a function with a body, which begins on line 9."""
    path = tmp_path / "user.py"
    path.write_text(HEAD + body, encoding="utf-8")
    return check_file(path, Project())


def codes(body: str, tmp_path: Path) -> list[str]:
    return [d.code for d in check(body, tmp_path)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    m.eval()  # dslmut: ignore[E1102]\n", []),
        ("    m.eval()  #dslmut:ignore[ E1102 ]", []),
        ("    m.eval()  # dslmut: ignore [E1102]", []),
        ("    m.eval()  # type: ignore  # dslmut: ignore[E1102]  # because\n", []),
        ("    m.eval()  # dslmut: ignore[E1104]  # dslmut: ignore[E1102]\n", ["E1201"]),
        ("    'ü 漢'; m.eval()  # dslmut: ignore[E1102]\n", []),
        ("    step(mut(m), n)  # dslmut: ignore[E1102, E1103]\n", []),
        ("    step(mut(m), n)  # dslmut: ignore[E1103]\n", ["E1102"]),
        ("    m.eval()  # dslmut: ignore[E1102,]\n", []),
    ],
)
def test_a_comment_counts_for_its_line(body: str, expected: list[str], tmp_path: Path) -> None:
    assert codes("    m.eval()\n", tmp_path) == ["E1102"]
    assert sorted(set(codes("    step(mut(m), n)\n", tmp_path))) == ["E1102", "E1103"]
    assert codes(body, tmp_path) == expected


def test_a_range_of_several_lines_begins_and_ends_with_one(tmp_path: Path) -> None:
    body = "    m.{}(  {}\n        False,  {}\n    )  {}\n"
    mark = "# dslmut: ignore[E1102]"
    (found,) = check(body.format("train", "#", "#", "#"), tmp_path)
    assert found.span is not None
    assert (found.span.start.line, found.span.end.line) == (9, 11)
    assert codes(body.format("train", mark, "#", "#"), tmp_path) == []
    assert codes(body.format("train", "#", "#", mark), tmp_path) == []
    assert codes(body.format("train", "#", mark, "#"), tmp_path) == ["E1102", "E1201"]


NOT_USED = [
    # body, what is said, what the fix leaves
    (
        "    n.eval()  # dslmut: ignore[E1102]\n",
        "E1102 is not reported on this line",
        "    n.eval()\n",
    ),
    (
        "    m.eval()  # dslmut: ignore[E1102, E1103, E1104]  # noqa\n",
        "E1103 is not reported on this line; E1104 is not reported on this line",
        "    m.eval()  # dslmut: ignore[E1102]  # noqa\n",
    ),
    (
        "    m.eval()  # dslmut: ignore[E1102, E11O2]\n",
        "there is no code E11O2 (did you mean E1102?)",
        "    m.eval()  # dslmut: ignore[E1102]\n",
    ),
    (
        "    n.eval()  # dslmut: ignore[e1102]  # noqa\n",
        "there is no code e1102 (did you mean E1102?)",
        "    n.eval()  # noqa\n",
    ),
    (
        "    n.eval()  # dslmut: ignore[all]\n",
        "there is no code all",
        "    n.eval()\n",
    ),
    (
        "    # dslmut: ignore[E1102]\n    n.eval()\n",
        "E1102 is not reported on this line: a comment counts for its own line alone",
        "\n    n.eval()\n",
    ),
    (
        "    n.eval()  # dslmut: ignore[E0601]\n",  # what a run finds cannot be ignored
        "E0601 is not reported on this line",
        "    n.eval()\n",
    ),
]


@pytest.mark.parametrize(("body", "message", "left"), NOT_USED)
def test_comments_without_use_are_reported(
    body: str, message: str, left: str, tmp_path: Path
) -> None:
    (found,) = [d for d in check(body, tmp_path) if d.code == "E1201"]
    assert found.message == message
    fixed = applied(found, HEAD + body)
    assert fixed == HEAD + left
    assert check(left, tmp_path) == []


def applied(d: Diagnostic, text: str) -> str:
    """Apply the edits of a fix, each within one line."""
    assert d.fix is not None
    assert d.fix.edits
    lines = text.split("\n")
    for edit in d.fix.edits:
        start, end = edit.span.start, edit.span.end
        line = lines[start.line - 1]
        lines[start.line - 1] = line[: start.column] + edit.replacement + line[end.column :]
    return "\n".join(lines)


@pytest.mark.parametrize("comment", ["# dslmut: ignore", "#dslmut:ignore # x", "# dslmut: ignore[ ,]"])  # fmt: skip
def test_comments_without_codes_ignore_nothing(comment: str, tmp_path: Path) -> None:
    found = check(f"    m.eval()  {comment}\n", tmp_path)
    assert [d.code for d in found] == ["E1102", "E1202"]
    assert found[1].fix is not None
    assert "`# dslmut: ignore[E1102]`" in found[1].fix.text
    fixed = applied(found[1], HEAD + f"    m.eval()  {comment}\n")
    assert check(fixed.removeprefix(HEAD), tmp_path) == []
    (clean,) = check(f"    n.eval()  {comment}\n", tmp_path)
    assert clean.fix is not None
    assert clean.fix.text == "remove the comment"


def test_what_is_no_such_comment(tmp_path: Path) -> None:
    body = '    n.eval()  # dslmut: ignored, dslmut: ignore-file\n    "# dslmut: ignore"\n'
    assert codes(body, tmp_path) == []


def test_the_report_itself_can_be_ignored(tmp_path: Path) -> None:
    assert codes("    n.eval()  # dslmut: ignore[E1102, E1201]\n", tmp_path) == []
    assert codes("    n.eval()  # dslmut: ignore[E1201]\n", tmp_path) == []


def test_all_parts_of_a_file_are_looked_at(tmp_path: Path) -> None:
    """A comment in the body of an `@fn`, of a rule, of a plain function, and outside of them."""
    path = tmp_path / "user.py"
    path.write_text(
        "from torch import Tensor, nn\n"
        "from dslmut import Ctx, Mut, Update, fn, metric, optimizer, optimizer_update\n"
        "@fn\n"
        "def step(m: Mut[nn.Linear]) -> None: ...\n"
        "@optimizer\n"
        "def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:\n"
        "    metric('a', grad.norm())  # dslmut: ignore[E-CONTRACT-011]\n"
        "    return optimizer_update(param - grad)\n"
        "def plain(m: nn.Linear) -> None:\n"
        "    step(m)  # dslmut: ignore[E1103]\n"
        "class Trainer:\n"
        "    step(nn.Linear(1, 1))  # dslmut: ignore[E1103]\n"
        "step(nn.Linear(1, 1))  # dslmut: ignore[E1103]\n"
    )
    assert check_file(path, Project()) == []
    path.write_text(path.read_text().replace("# dslmut", "# "))
    assert len(check_file(path, Project())) == 4


def test_decoration_obeys_comments_and_reports_none(load: Callable[..., ModuleType]) -> None:
    import torch

    module = load(HEAD + "    m.train(False)  # dslmut: ignore[E1102]\n    n  # dslmut: ignore\n")
    layer = torch.nn.Linear(1, 1)
    module.f(layer, module.mut(torch.nn.Linear(1, 1)))
    assert not layer.training
    with pytest.raises(CheckError) as error:
        load(HEAD + "    m.eval()  # dslmut: ignore\n")
    assert [d.code for d in error.value.diagnostics] == ["E1102"]
