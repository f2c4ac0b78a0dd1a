"""``# dslmut: ignore[E1102]``: a report that the writer of a line does not want.

A comment counts for what is reported on its line: for a range of several lines on the first or the
last of them, where a formatter puts a comment.
"""

from __future__ import annotations

import functools
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dslmut.checking.source import Source
from dslmut.diagnostics import registry
from dslmut.diagnostics.codes.comments import IgnoresNothing, NamesNoCode
from dslmut.diagnostics.model import Diagnostic, Edit, Fix, Position, Span

_COMMENT = re.compile(r"#\s*dslmut:\s*ignore(?![\w-])(?:\s*\[([^\]#]*)\])?")


@dataclass(frozen=True)
class Ignore:
    """An ignore comment: its place, and the codes in it as they are written."""

    span: Span
    codes: tuple[str, ...]

    @property
    def line(self) -> int:
        """Return the line that it counts for."""
        return self.span.start.line


def suppressed(found: Iterable[Diagnostic], source: Source) -> list[Diagnostic]:
    """Return the diagnostics that no comment ignores."""
    return _kept(found, ignores(source))


def sifted(found: Iterable[Diagnostic], source: Source) -> list[Diagnostic]:
    """Return the diagnostics that no comment ignores, and what is wrong with the comments.

    Args:
        found: All that is reported of a whole file.
        source: The file.
    """
    everything, comments = list(found), ignores(source)
    everything += [d for c in comments for d in _check(c, everything, source)]
    return _kept(everything, comments)


@functools.lru_cache(maxsize=256)  # `@fn` asks for each function of a file
def ignores(source: Source) -> tuple[Ignore, ...]:
    """Return the ignore comments of a file; text in strings is no comment."""
    return tuple(_ignores(source)) if "dslmut:" in source.text else ()


def _ignores(source: Source) -> Iterator[Ignore]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        for match in _COMMENT.finditer(token.string):
            start, end = (Position(line, column + at) for at in match.span())
            codes = (c.strip() for c in (match[1] or "").split(","))
            yield Ignore(Span(source.path, start, end), tuple(c for c in codes if c))


def _kept(found: Iterable[Diagnostic], comments: Iterable[Ignore]) -> list[Diagnostic]:
    ignored = {(c.line, code) for c in comments for code in c.codes}
    return [d for d in found if not any((n, d.code) in ignored for n in _lines(d))]


def _lines(d: Diagnostic) -> set[int]:
    return {d.span.start.line, d.span.end.line} if d.span else set()


# -- what is wrong with a comment ----------------------------------------------------------------


def _check(comment: Ignore, found: list[Diagnostic], source: Source) -> Iterator[Diagnostic]:
    here = [d for d in found if comment.line in _lines(d)]
    if not comment.codes:
        codes = ", ".join(dict.fromkeys(d.code for d in here))
        fix = _with_codes(comment, codes) if codes else _without(comment, source)
        yield NamesNoCode.at(comment.span, "this names no code, and ignores nothing", fix=fix)
        return
    used = {d.code for d in here} | {IgnoresNothing.code}
    unused = [c for c in dict.fromkeys(comment.codes) if c not in used]
    if not unused:
        return
    meant = {c: registry.nearest(c) for c in unused if c not in registry.CODES}
    right = [meant.get(c, c) for c in comment.codes]
    rest = ", ".join(dict.fromkeys(c for c in right if c in used))
    alone = _is_alone(comment, source)
    fix = _with_codes(comment, rest) if rest else _without(comment, source)
    if alone and not rest:
        fix = Fix("write it at the end of the line that it is for, or remove it", fix.edits)
    yield IgnoresNothing.at(comment.span, "; ".join(_said(c, alone) for c in unused), fix=fix)


def _said(code: str, alone: bool) -> str:
    if code not in registry.CODES:
        near = registry.nearest(code)
        return f"there is no code {code}" + (f" (did you mean {near}?)" if near else "")
    if alone:
        return f"{code} is not reported on this line: a comment counts for its own line alone"
    return f"{code} is not reported on this line"


def _is_alone(comment: Ignore, source: Source) -> bool:
    return not _before(comment, source).strip()


def _before(comment: Ignore, source: Source) -> str:
    return source.lines[comment.line - 1][: comment.span.start.column]


def _with_codes(comment: Ignore, codes: str) -> Fix:
    text = f"# dslmut: ignore[{codes}]"
    return Fix(f"write `{text}`", (Edit(comment.span, text),))


def _without(comment: Ignore, source: Source) -> Fix:
    """Take a comment away, with the space before it; another one behind it stays."""
    before, end = _before(comment, source), comment.span.end
    after = source.lines[comment.line - 1][end.column :]
    if after.strip():
        start = comment.span.start
        end = Position(end.line, end.column + len(after) - len(after.lstrip()))
    else:
        start = Position(comment.line, len(before.rstrip()))
    return Fix("remove the comment", (Edit(Span(source.path, start, end), ""),))
