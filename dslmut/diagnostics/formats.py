"""Diagnostics for machines: JSON, GitHub's workflow commands, SARIF.

JSON and SARIF are written in ASCII with escapes, so that they stay valid in a pipe of any encoding.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from urllib.parse import quote

from dslmut.diagnostics.model import Diagnostic, Edit, Fix, Label, Position, Span

# -- JSON ----------------------------------------------------------------------------------------


def as_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Render all as a JSON array.

    Lines and columns count from 1, columns in Unicode code points (not in bytes, UTF-16 units or
    cells of a terminal); the end of a range is exclusive.
    """
    return json.dumps([_record(d) for d in diagnostics], indent=2)


def _record(d: Diagnostic) -> dict[str, object]:
    return {
        "code": d.code,
        "title": d.title,
        "message": d.message,
        **_range(d.span),
        "why": d.why,
        "fix": _fix(d.fix),
        "labels": [{**_range(label.span), "text": label.text} for label in d.labels],
    }


def _range(span: Span | None) -> dict[str, object]:
    if span is None:
        return {"path": None, "start": None, "end": None}
    return {"path": span.path, "start": _position(span.start), "end": _position(span.end)}


def _position(position: Position) -> dict[str, int]:
    return {"line": position.line, "column": position.column + 1}


def _fix(fix: Fix | None) -> dict[str, object] | None:
    if fix is None:
        return None
    edits = [{**_range(e.span), "replacement": e.replacement} for e in fix.edits]
    return {"text": fix.text, "edits": edits}


# -- GitHub --------------------------------------------------------------------------------------


def github(diagnostic: Diagnostic) -> str:
    """Render a workflow command that shows the diagnostic on its line of a pull request."""
    span = diagnostic.span
    where = ""
    if span is not None:
        # GitHub takes columns of a single line alone.
        single = span.start.line == span.end.line
        start = f",col={span.start.column + 1}" if single else ""
        end = f",endColumn={span.end.column + 1}" if single else ""
        where = (
            f" file={_property(span.path)},line={span.start.line}{start},"
            f"endLine={span.end.line}{end},title={diagnostic.code}"
        )
    text = diagnostic.message + (f"\nfix: {diagnostic.fix.text}" if diagnostic.fix else "")
    return f"::error{where}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# -- SARIF ---------------------------------------------------------------------------------------


def sarif(
    diagnostics: Iterable[Diagnostic],
    pages: Mapping[str, tuple[str, str]],
    version: str,
    failures: Sequence[str] = (),
) -> str:
    """Render a SARIF 2.1.0 log; columns as in ``as_json``.

    Args:
        diagnostics: The results.
        pages: Title and page of every code.
        version: Of this tool.
        failures: What could not be checked, and why.
    """
    index = {code: i for i, code in enumerate(pages)}
    rules = [
        {"id": code, "shortDescription": {"text": title}, "help": {"text": page, "markdown": page}}
        for code, (title, page) in pages.items()
    ]
    notes = [{"level": "error", "message": {"text": text}} for text in failures]
    run = {
        "tool": {"driver": {"name": "dslmut", "version": version, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not failures, "toolExecutionNotifications": notes}],
        "results": [_result(d, index) for d in diagnostics],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(log, indent=2)


def _result(d: Diagnostic, index: Mapping[str, int]) -> dict[str, object]:
    return {
        "ruleId": d.code,
        "ruleIndex": index[d.code],
        "level": "error",
        "message": {"text": d.message},
        "locations": [_location(d.span)] if d.span else [],
        "relatedLocations": [_related(label) for label in d.labels],
        "fixes": [_sarif_fix(d.fix)] if d.fix and d.fix.edits else [],
    }


def _related(label: Label) -> dict[str, object]:
    return {**_location(label.span), "message": {"text": label.text}}


def _sarif_fix(fix: Fix) -> dict[str, object]:
    paths = dict.fromkeys(e.span.path for e in fix.edits)
    changes = [
        {
            "artifactLocation": {"uri": _uri(path)},
            "replacements": [_replacement(e) for e in fix.edits if e.span.path == path],
        }
        for path in paths
    ]
    return {"description": {"text": fix.text}, "artifactChanges": changes}


def _replacement(edit: Edit) -> dict[str, object]:
    return {
        "deletedRegion": _region(edit.span),
        "insertedContent": {"text": edit.replacement},
    }


def _location(span: Span) -> dict[str, object]:
    place = {"artifactLocation": {"uri": _uri(span.path)}, "region": _region(span)}
    return {"physicalLocation": place}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.start.line,
        "startColumn": span.start.column + 1,
        "endLine": span.end.line,
        "endColumn": span.end.column + 1,
    }


def _uri(path: str) -> str:
    """Return a path as a URI: a relative reference where the path is relative."""
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(os.fsencode(pure.as_posix()))
