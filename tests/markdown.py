"""Python blocks in Markdown files, and the marks on their lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(\s*)```(\w*)(.*)$")
_MARK = re.compile(r"#\s*(error|source|static|live|trace):\s*(.+)$")
_ITEM = re.compile(r"(E[A-Z0-9-]+)(?:\s+`([^`]*)`)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and options, its text, and where it stands."""

    path: Path
    line: int
    language: str
    options: str
    code: str

    @property
    def id(self) -> str:
        return f"{self.path.stem}:{self.line}"


@dataclass(frozen=True)
class Mark:
    """What must be reported on a line: the code, and the underlined text if it is given.

    ``error`` marks are for all of them: the text alone (``static``), the text with what is loaded
    (``live``), which are together the ``source``, and the ``trace`` of an optimizer's body.
    """

    kind: str
    line: int
    code: str
    text: str | None


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a file."""
    found, lines = [], path.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        number += 1
        if not opening:
            continue
        start, body = number, []
        while not lines[number].strip().startswith("```"):
            body.append(lines[number].removeprefix(opening[1]))
            number += 1
        number += 1
        code = "\n".join(body) + "\n"
        found.append(Block(path, start + 1, opening[2], opening[3].strip(), code))
    return found


def python_blocks(path: Path) -> list[Block]:
    """Return the Python blocks of a file, each behind the file's preludes."""
    preludes, found = "", []
    for block in blocks(path):
        if block.language != "python":
            continue
        if "prelude" in block.options:
            preludes += block.code
            continue
        found.append(Block(block.path, block.line, "python", block.options, preludes + block.code))
    return found


def marks(code: str) -> list[Mark]:
    """Return the marks on the lines of a block."""
    found = []
    for number, line in enumerate(code.splitlines(), start=1):
        mark = _MARK.search(line)
        if mark:
            found += [Mark(mark[1], number, m[1], m[2]) for m in _ITEM.finditer(mark[2])]
    return found
