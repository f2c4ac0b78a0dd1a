"""Any Python at all: the checker does not crash, and what it accepts means what it meant."""

from __future__ import annotations

import ast
import functools
import linecache
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from dslmut import CheckError, DslmutError
from dslmut.checking import depth
from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project
from dslmut.diagnostics.model import Diagnostic
from tests import robust_names
from tests.random_python import bodies

HEADER = """import contextlib
import copy
import functools

import torch
from torch import Tensor

from dslmut import Mut, fn, mut, value_and_grad
from tests.robust_names import Net, Point, bump, drive, later, log, loss, plain, same, slowly, takes
"""
PLAIN = "a: int, b: int, xs: list, d: dict, o: object"
MODELS = f"m: Mut[Net], n: Net, x: Tensor, {PLAIN}"


def text_of(body: str, parameters: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{HEADER}\n\n@fn\ndef program({parameters}):\n{lines}\n"


def is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<text>", "exec")
    except SyntaxError:
        return False
    return True


@functools.cache
def header() -> dict[str, Any]:
    return define(HEADER, {}, slice(None))


def define(text: str, names: dict[str, Any], part: slice = slice(-1, None)) -> dict[str, Any]:
    """Run a part of a text, by default the last definition, as a module with some names would."""
    path = f"<text {hash(text):x}>"
    tree = ast.parse(text)
    tree.body = tree.body[part]
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    namespace = {**names, "__name__": "texts"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(tree, path, "exec"), namespace)
    return namespace


Verdict = list[tuple[int, str]]
"""Lines and codes."""


def live(text: str) -> tuple[Verdict, Callable[..., Any] | None]:
    """Decorate the function; anything but an error of ours is a crash."""
    try:
        return [], define(text, header())["program"]
    except DslmutError as error:
        return _verdict(error.diagnostics), None


def static(text: str, path: Path, project: Project) -> Verdict:
    path.write_text(text, encoding="utf-8")
    project.refresh()
    return _verdict(check_file(path, project))


def _verdict(diagnostics: Iterable[Diagnostic]) -> Verdict:
    return sorted((d.span.start.line if d.span else 0, d.code) for d in diagnostics)


def outcome(function: Callable[..., Any]) -> tuple[object, ...]:
    """Run a function, and tell all that it shows."""
    noted, shown = robust_names.noted, robust_names.shown
    noted.clear()
    arguments = (3, 2, [1, 2, 3], {"k": 1}, robust_names.Point(1))
    try:
        result = shown(function(*arguments))
    except BaseException as error:
        if not isinstance(error, Exception | ExceptionGroup):
            raise
        result = type(error).__name__, shown(getattr(error, "exceptions", ()))
    return result, list(noted), shown(arguments)


def check_meaning(body: str) -> None:
    text = text_of(body, PLAIN)
    assume(is_python(text))
    found, ours = live(text)
    if ours is None:
        return
    plain = define(text, {**header(), "fn": lambda f: f})["program"]
    assert outcome(ours) == outcome(plain)


def check_verdicts(body: str, path: Path, project: Project) -> None:
    text = text_of(body, MODELS)
    assume(is_python(text))
    assert live(text)[0] == static(text, path, project)


QUICK = settings(
    max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
LONG = settings(QUICK, max_examples=20_000)


@QUICK
@given(bodies(models=False))
def test_what_is_accepted_means_what_it_meant(body: str) -> None:
    check_meaning(body)


@pytest.mark.long
@LONG
@given(bodies(models=False))
def test_much_that_is_accepted_means_what_it_meant(body: str) -> None:
    check_meaning(body)


@pytest.fixture
def project() -> Project:
    return Project()


@QUICK
@given(body=bodies(models=True))
def test_the_verdict_is_the_same_live_and_static(
    body: str, tmp_path: Path, project: Project
) -> None:
    check_verdicts(body, tmp_path / "case.py", project)


@pytest.mark.long
@LONG
@given(body=bodies(models=True))
def test_many_verdicts_are_the_same_live_and_static(
    body: str, tmp_path: Path, project: Project
) -> None:
    check_verdicts(body, tmp_path / "case.py", project)


@pytest.mark.parametrize("expression", [" + ".join(["a"] * 600), "a" + ".real" * 600])
def test_what_is_nested_too_deeply_is_an_error_that_says_so(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth, "DEPTH", 1000)  # as if the expression were longer
    with pytest.raises(CheckError, match="E1109(.|\n)*nested too deeply"):
        define(text_of(f"return {expression}", "a: int"), header())


LONG_BUT_FINE = {
    "a sum": "return " + " + ".join(["a"] * 500),
    "brackets": "return " + "[" * 60 + "a" + "]" * 60,
    "calls": "return " + "abs(" * 60 + "a" + ")" * 60,
    "alternatives": "if a == 0:\n    return 0\n"
    + "".join(f"elif a == {i}:\n    return {i}\n" for i in range(1, 300)),
    "statements": "\n".join(["a = a + 1"] * 1000) + "\nreturn a",
}


@pytest.mark.parametrize("what", LONG_BUT_FINE)
def test_long_functions_are_checked(what: str) -> None:
    text = text_of(LONG_BUT_FINE[what], "a: int")
    plain = define(text, {**header(), "fn": lambda f: f})["program"]
    assert define(text, header())["program"](3) == plain(3)
