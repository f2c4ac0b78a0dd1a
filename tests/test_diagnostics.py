"""What a diagnostic looks like, to the letter: for people, and in each format for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project
from dslmut.diagnostics import formats
from dslmut.diagnostics.cells import LONGEST, Line
from dslmut.diagnostics.model import Diagnostic, Edit, Fix, Label, Position, Span
from dslmut.diagnostics.registry import CODES
from dslmut.diagnostics.render import COLOURED, PLAIN, concise, full, read_lines

PAGES = {c: (k.title(), k.page()) for c, k in CODES.items()}


def span(line: int, start: int, stop: int, *, last: int | None = None, path: str = "a.py") -> Span:
    return Span(path, Position(line, start), Position(last or line, stop))


def diagnostic(
    place: Span | None,
    *labels: Label,
    message: str = "this changes `m`",
    fix: Fix | None = None,
    why: str = "",
) -> Diagnostic:
    return Diagnostic("E1102", "A title", message, place, why, fix, labels)


def shown(d: Diagnostic, text: str, **others: str) -> str:
    """Render a diagnostic over the texts of its files, without the trailing bars."""
    files = {"a.py": text, **{f"{n}.py": t for n, t in others.items()}}
    return full(d, lambda path: files[path].split("\n") if path in files else [])


# -- for people ----------------------------------------------------------------------------------


def test_everything() -> None:
    d = diagnostic(
        span(3, 4, 11),
        Label(span(1, 6, 12), "`m` is a parameter without `Mut`"),
        fix=Fix("write `m: Mut[Net]`, and\n`mut(m)` at the calls"),
        why="changes show",
    )
    assert shown(d, "def f(m: Net):\n    pass\n    m.eval()") == (
        "E1102 A title\n"
        "  --> a.py:3:5\n"
        "  |\n"
        "1 | def f(m: Net):\n"
        "  |       ------ `m` is a parameter without `Mut`\n"
        ".\n"
        "3 |     m.eval()\n"
        "  |     ^^^^^^^ this changes `m`\n"
        "  |\n"
        "  why: changes show\n"
        "  fix: write `m: Mut[Net]`, and\n"
        "       `mut(m)` at the calls"
    )
    assert concise(d) == "a.py:3:5: E1102 this changes `m`"


def frame(d: Diagnostic, text: str, **others: str) -> list[str]:
    """Return a frame's lines after the arrow, without the bars above and below."""
    lines = shown(d, text, **others).splitlines()[2:]
    return [line for line in lines if line.strip() != "|"]


WIDTHS = [
    # text, what is marked, what is shown, cells before the mark, cells of the mark
    ("\tm.eval()", "m.eval", "    m.eval()", 4, 6),
    ("\tx = 1;\tm.eval()", "m.eval", "    x = 1;    m.eval()", 14, 6),
    (" \t m.eval()", "m.eval", "      m.eval()", 6, 6),
    ("größe = m.eval()", "m.eval", "größe = m.eval()", 8, 6),
    ("'漢字'; m.eval()", "m.eval", "'漢字'; m.eval()", 8, 6),
    ("f('漢字')", "漢字", "f('漢字')", 3, 4),
    ("'😀'; m", "m", "'😀'; m", 6, 1),
    ("'👨\u200d👩\u200d👧'; m", "m", "'👨\u200d👩\u200d👧'; m", 6, 1),
    ("'👍🏽'; m", "m", "'👍🏽'; m", 6, 1),
    ("'e\u0301'; m", "m", "'e\u0301'; m", 5, 1),
    ("e\u0301 = m", "e\u0301", "e\u0301 = m", 0, 1),
    ("'\u200b'; m", "m", "'\u200b'; m", 4, 1),
    ("'ﾊﾝ'; m", "m", "'ﾊﾝ'; m", 6, 1),
    ("'ﾊﾝ'; 変数", "変数", "'ﾊﾝ'; 変数", 6, 4),
    ("\fm.eval()", "m.eval", "␌m.eval()", 1, 6),
    ("'\x1b[31m'; m", "m", "'␛[31m'; m", 9, 1),
    ("'\u202e'; m", "m", "'�'; m", 5, 1),
    ("'\u2028'; m", "m", "'�'; m", 5, 1),
    ("'\x85'; m", "m", "'�'; m", 5, 1),
]


@pytest.mark.parametrize(("text", "marked", "line", "before", "length"), WIDTHS)
def test_underlines_stand_under_their_text(
    text: str, marked: str, line: str, before: int, length: int
) -> None:
    start = text.rindex(marked)
    found = frame(diagnostic(span(1, start, start + len(marked))), text)
    assert found == [f"1 | {line}", f"  | {' ' * before}{'^' * length} this changes `m`"]


def test_a_range_over_several_lines_shows_the_first() -> None:
    text = "step(  \n    m,\n)"
    assert frame(diagnostic(span(1, 0, 1, last=3)), text) == [
        "1 | step(",
        "  | ^^^^^ this changes `m`",
    ]
    assert concise(diagnostic(span(1, 0, 1, last=3))) == "a.py:1:1: E1102 this changes `m`"


def test_a_mark_outside_of_the_text_is_at_its_edge() -> None:
    text = "m.eval()\n"
    for place in (span(1, 8, 8), span(1, 90, 95), span(1, 8, 2)):
        assert frame(diagnostic(place), text)[1] == "  |         ^ this changes `m`"
    assert frame(diagnostic(span(2, 0, 0)), text) == ["2 |", "  | ^ this changes `m`"]
    after = diagnostic(span(2, 0, 0))
    assert "2 |\n  | ^" in full(after, lambda _: ["m.eval()"]), "the end of the file"
    assert full(diagnostic(span(3, 0, 0)), lambda _: ["m.eval()"]) == (
        "E1102 A title\n  --> a.py:3:1\n  this changes `m`"
    )


def test_without_a_text() -> None:
    other = Label(span(1, 0, 1, path="b.py"), "bound here")
    d = diagnostic(span(3, 0, 1), other)
    head = "E1102 A title\n  --> a.py:3:1\n  this changes `m`\n"
    assert full(d, lambda _: ()) == head + "  note: b.py:1:1: bound here"
    assert shown(d, "", b="m = n") == (
        head + "  ::: b.py:1:1\n  |\n1 | m = n\n  | - bound here\n  |"
    )
    assert full(diagnostic(None)) == "E1102 A title: this changes `m`"
    assert concise(diagnostic(None)) == "<unknown>: E1102 this changes `m`"
    gone = Label(span(9, 0, 1, path="gone.py"), "bound here")
    assert shown(diagnostic(span(1, 0, 1), gone), "m").endswith(
        "^ this changes `m`\n  |\n  note: gone.py:9:1: bound here"
    )


def test_labels_on_one_line_and_in_other_files() -> None:
    d = diagnostic(
        span(10, 0, 1),
        Label(span(10, 5, 6), "second"),
        Label(span(2, 1, 2, path="b.py"), "declared"),
    )
    assert shown(d, "\n" * 9 + "m.f(n)", b="x\n漢n") == (
        "E1102 A title\n"
        "   --> a.py:10:1\n"
        "   |\n"
        "10 | m.f(n)\n"
        "   |      - second\n"
        "   | ^ this changes `m`\n"
        "   |\n"
        "   ::: b.py:2:2\n"
        "   |\n"
        " 2 | 漢n\n"
        "   |   - declared\n"
        "   |"
    )


def test_messages_of_several_lines_stay_on_one() -> None:
    d = diagnostic(span(1, 0, 1), message="first\n    second\r\nthird")
    assert concise(d) == "a.py:1:1: E1102 first second third"
    assert frame(d, "m")[1] == "  | ^ first second third"


def test_long_lines_are_cut_around_the_mark() -> None:
    text = "x" * 500 + "m" + "y" * 500
    found = frame(diagnostic(span(1, 500, 501), Label(span(1, 2, 3), "far")), text)
    line = found[0].removeprefix("1 | ")
    assert len(line) == LONGEST + 2
    assert line.startswith("…")
    assert line.endswith("…")
    place = found[1].removeprefix("  | ").index("^")
    assert line[place] == "m"
    assert found[2] == "  | - far", "what is cut off is under the dots"
    right = frame(diagnostic(span(1, 3, 4), Label(span(1, 900, 950), "far")), text)
    assert right[0] == f"1 | {'x' * LONGEST}…"
    assert right[1] == f"  | {' ' * LONGEST}- far"
    assert right[2] == "  |    ^ this changes `m`"
    end = Line.of(text, around=1000)
    assert end.text == "…" + text[-LONGEST:]
    assert end.cells(1000, 1001) == (LONGEST, 1)


def test_colours_change_nothing_else() -> None:
    import re

    d = diagnostic(span(1, 0, 1), Label(span(2, 0, 1), "n"), fix=Fix("f"), why="w")
    coloured = full(d, lambda _: ["m", "n"], COLOURED)
    assert re.sub(r"\033\[[0-9;]*m", "", coloured) == full(d, lambda _: ["m", "n"], PLAIN)
    assert coloured != full(d, lambda _: ["m", "n"], PLAIN)


BAD = """\
from torch import nn
from dslmut import fn
\f
@fn
def reset(m: nn.Linear) -> None:
\t'größe 😀 e\u0301'; m.weight = m.weight * 0"""


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_files_of_every_kind(tmp_path: Path, end: str, last: bool, encoding: str) -> None:
    """Line ends, a form feed, a tab, a byte order mark, a last line that isn't ended."""
    path = tmp_path / "bad.py"
    path.write_bytes((BAD + "\n" * last).replace("\n", end).encode(encoding))
    (found,) = check_file(path, Project())
    place = found.span
    assert place is not None
    line = BAD.split("\n")[-1]
    assert place.start == Position(6, line.index("m.weight"))
    assert place.end == Position(6, line.index("m.weight") + len("m.weight"))
    lines = full(found, read_lines).splitlines()
    assert lines[-5] == "6 |     'größe 😀 e\u0301'; m.weight = m.weight * 0"
    assert lines[-4].startswith(f"  | {' ' * 18}^^^^^^^^ this changes `m`")


# -- for machines --------------------------------------------------------------------------------

EDIT = Edit(span(1, 9, 12), "Mut[Net]")


def test_json() -> None:
    d = diagnostic(
        span(3, 4, 1, last=5, path="größe.py"),
        Label(span(1, 6, 12), "bound"),
        fix=Fix("write 😀", (EDIT,)),
        why="w",
    )
    text = formats.as_json([d])
    assert text.isascii(), "valid in a pipe of any encoding"
    assert json.loads(text) == [
        {
            "code": "E1102",
            "title": "A title",
            "message": "this changes `m`",
            "path": "größe.py",
            "start": {"line": 3, "column": 5},
            "end": {"line": 5, "column": 2},
            "why": "w",
            "fix": {
                "text": "write 😀",
                "edits": [
                    {
                        "path": "a.py",
                        "start": {"line": 1, "column": 10},
                        "end": {"line": 1, "column": 13},
                        "replacement": "Mut[Net]",
                    }
                ],
            },
            "labels": [
                {
                    "path": "a.py",
                    "start": {"line": 1, "column": 7},
                    "end": {"line": 1, "column": 13},
                    "text": "bound",
                }
            ],
        }
    ]
    (nowhere,) = json.loads(formats.as_json([diagnostic(None)]))
    assert nowhere["path"] is nowhere["start"] is nowhere["end"] is nowhere["fix"] is None
    assert json.loads(formats.as_json([])) == []


def test_github() -> None:
    assert formats.github(diagnostic(span(3, 4, 11))) == (
        "::error file=a.py,line=3,col=5,endLine=3,endColumn=12,title=E1102::this changes `m`"
    )
    several = diagnostic(span(3, 4, 1, last=5), fix=Fix("100%\r\nsure"))
    assert formats.github(several) == (
        "::error file=a.py,line=3,endLine=5,title=E1102::this changes `m`%0Afix: 100%25%0D%0Asure"
    )
    odd = formats.github(diagnostic(span(1, 0, 1, path="C:\\a,b%.py"), message="a: b, c"))
    assert odd.startswith("::error file=C%3A\\a%2Cb%25.py,line=1,")
    assert odd.endswith("::a: b, c")
    assert formats.github(diagnostic(None)) == "::error::this changes `m`"


def valid_sarif(text: str) -> dict[str, Any]:
    """Hold a log to what SARIF 2.1.0 requires of the objects that are in it; return its run."""
    log = json.loads(text)
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"]
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    assert all(r["shortDescription"]["text"] and r["help"]["text"] for r in driver["rules"])
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    for invocation in run["invocations"]:
        assert isinstance(invocation["executionSuccessful"], bool)
        notes = invocation["toolExecutionNotifications"]
        assert all(n["message"]["text"] and n["level"] == "error" for n in notes)
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert ids[result["ruleIndex"]] == result["ruleId"]
        places = [*result["locations"], *result["relatedLocations"]]
        assert all(p["message"]["text"] for p in result["relatedLocations"])
        for place in places:
            _valid_artifact(place["physicalLocation"]["artifactLocation"])
            _valid_region(place["physicalLocation"]["region"])
        for fix in result["fixes"]:
            assert fix["description"]["text"]
            assert fix["artifactChanges"], "at least one"
            for change in fix["artifactChanges"]:
                _valid_artifact(change["artifactLocation"])
                assert change["replacements"], "at least one"
                for replacement in change["replacements"]:
                    _valid_region(replacement["deletedRegion"])
                    assert isinstance(replacement["insertedContent"]["text"], str)
    return run


def _valid_artifact(place: dict[str, str]) -> None:
    from urllib.parse import urlsplit

    uri = place["uri"]
    assert uri.isascii()
    assert not set(uri) & set(' \\"<>^`{|}')
    assert urlsplit(uri).scheme in ("", "file")


def _valid_region(region: dict[str, int]) -> None:
    assert all(region[k] >= 1 for k in ("startLine", "startColumn", "endLine", "endColumn"))
    start = (region["startLine"], region["startColumn"])
    assert start <= (region["endLine"], region["endColumn"])


def test_sarif() -> None:
    d = diagnostic(
        span(3, 4, 1, last=5, path="/srv/a b/größe.py"),
        Label(span(1, 6, 12, path="sub/b:c.py"), "bound"),
        fix=Fix("write it", (EDIT, Edit(span(2, 0, 0, path="b.py"), "x\n"))),
    )
    run = valid_sarif(formats.sarif([d, diagnostic(None)], PAGES, "1.2"))
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]
    first, second = run["results"]
    assert first["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "file:///srv/a%20b/gr%C3%B6%C3%9Fe.py"},
                "region": {"startLine": 3, "startColumn": 5, "endLine": 5, "endColumn": 2},
            }
        }
    ]
    (related,) = first["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "sub/b%3Ac.py"
    assert related["message"]["text"] == "bound"
    (fix,) = first["fixes"]
    assert [c["artifactLocation"]["uri"] for c in fix["artifactChanges"]] == ["a.py", "b.py"]
    assert fix["artifactChanges"][0]["replacements"] == [
        {
            "deletedRegion": {"startLine": 1, "startColumn": 10, "endLine": 1, "endColumn": 13},
            "insertedContent": {"text": "Mut[Net]"},
        }
    ]
    assert second["locations"] == second["fixes"] == []
    failed = valid_sarif(formats.sarif([], PAGES, "1.2", ["a.py cannot be read"]))
    assert failed["invocations"][0] == {
        "executionSuccessful": False,
        "toolExecutionNotifications": [
            {"level": "error", "message": {"text": "a.py cannot be read"}}
        ],
    }


def test_the_sarif_check_can_fail() -> None:
    good = formats.sarif([diagnostic(span(1, 0, 1))], PAGES, "1")
    wrong: Sequence[tuple[str, str]] = (
        ('"uri": "a.py"', '"uri": "a b.py"'),
        ('"startColumn": 1', '"startColumn": 0'),
        ('"ruleId": "E1102"', '"ruleId": "E1103"'),
    )
    for old, new in wrong:
        assert old in good
        with pytest.raises(AssertionError):
            valid_sarif(good.replace(old, new))
