"""Whether a module can have to do with the library at all: it names it, or imports what does.

Most files of a project don't, and need no walk; so a check of thousands of files takes about as
long as parsing them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from dslmut.checking.source import read

LIBRARY = "dslmut"

_IMPORT = re.compile(
    r"(?:^|;)[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n#;]*)|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_NAME = re.compile(r"([.\w]+)(?:[ \t]+as[ \t]+\w+)?")
_NEVER = frozenset({"torch", *sys.stdlib_module_names})
"""Packages that don't use the library, and need not be read."""

Find = Callable[[str], Path | None]
"""Where a dotted name leads."""


def imports_of(text: str, package: str) -> Iterator[str]:
    """Yield the dotted names that a text may import.

    Args:
        text: Of a module.
        package: What its relative imports start from.
    """
    for module, names, plain in _IMPORT.findall(text.replace("\\\n", " ")):
        if plain:
            yield from _NAME.findall(plain)
            continue
        level = len(module) - len(module.lstrip("."))
        if level:
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - level + 1])
            module = f"{base}.{module[level:]}".rstrip(".") if base else module[level:]
        yield module
        yield from (f"{module}.{name}" for name in _NAME.findall(names))


class Reach:
    """Which modules reach the library; each file is read once."""

    def __init__(self) -> None:
        self._without: set[Path] = set()
        self._with: set[Path] = set()

    def uses(self, path: Path, text: str, package: str, find: Find) -> bool:
        """Say whether a module, or one that it imports, names the library.

        Args:
            path: Of the module.
            text: Its contents.
            package: What its relative imports start from.
            find: Where its imports lead.
        """
        seen: set[Path] = {path}
        waiting = [(text, package)]
        while waiting:
            text, package = waiting.pop()
            if LIBRARY in text or not seen.isdisjoint(self._with):
                self._with.add(path)
                return True
            for dotted in imports_of(text, package):
                target = None if dotted.partition(".")[0] in _NEVER else find(dotted)
                if target is not None and target not in seen and target not in self._without:
                    seen.add(target)
                    is_package = target.name == "__init__.py"
                    waiting.append(
                        (_text(target), dotted if is_package else dotted.rpartition(".")[0])
                    )
        self._without |= seen
        return False


def _text(path: Path) -> str:
    try:
        return read(path)
    except (OSError, SyntaxError, ValueError):
        return ""
