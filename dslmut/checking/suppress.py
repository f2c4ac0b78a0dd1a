"""``# dslmut: ignore[E1102]``: a report that the writer of a line does not want."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from dslmut.checking.source import Source
from dslmut.diagnostics.model import Diagnostic

_COMMENT = re.compile(r"#\s*dslmut:\s*ignore\[([A-Z0-9, -]+)\]")


def suppressed(found: Iterable[Diagnostic], source: Source) -> Iterator[Diagnostic]:
    """Yield the diagnostics whose first line does not ignore their code."""
    ignored = dict(ignores(source))
    for d in found:
        codes = ignored.get(d.span.start.line, frozenset()) if d.span else frozenset()
        if d.code not in codes:
            yield d


def ignores(source: Source) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield line and codes of each ignore comment; text in strings is no comment."""
    if "dslmut:" not in source.text:
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
            codes = frozenset(c.strip() for c in match[1].split(","))
            yield token.start[0], codes
