"""The table ``[tool.dslmut]`` of a ``pyproject.toml``."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from dslmut.diagnostics import registry

FORMATS = ("full", "concise", "json", "github", "sarif")


class SettingsError(ValueError):
    """The table cannot be used; the text says where and why."""


@dataclass(frozen=True)
class Settings:
    """What the table says; each has an option's place.

    Args:
        folder: Of the file, which the patterns start from.
        exclude: Patterns of what to leave out below the folders that are checked.
        ignore: Codes that are not reported.
        output_format: How to print what is found.
    """

    folder: Path = field(default_factory=Path.cwd)
    exclude: Sequence[str] = ()
    ignore: frozenset[str] = frozenset()
    output_format: str = "full"

    def excludes(self, path: Path) -> bool:
        """Say whether a path, or a folder that it is in, matches a pattern."""
        absolute = Path(os.path.abspath(path))
        inside = absolute.is_relative_to(self.folder)
        relative = absolute.relative_to(self.folder) if inside else absolute
        wholes = [p.as_posix() for p in (relative, *relative.parents)]
        return any(
            fnmatch(text, pattern.rstrip("/"))
            for pattern in self.exclude
            for text in (wholes if "/" in pattern.rstrip("/") else relative.parts)
        )


def find_settings(start: Path) -> Settings:
    """Return the settings of the nearest file, from a folder upwards, that has the table.

    Args:
        start: An absolute path.

    Raises:
        SettingsError: If that table, or the file, cannot be understood.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            table = _table(path)
            if table is not None:
                return _read(path, table)
    return Settings(start)


def _table(path: Path) -> object:
    try:
        data = path.read_bytes()
        if b"dslmut" not in data:
            return None
        import tomllib  # most projects need it not

        tool = tomllib.loads(data.decode()).get("tool")
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    return tool.get("dslmut") if isinstance(tool, dict) else None


def _read(path: Path, table: object) -> Settings:
    where = f"{path}: [tool.dslmut]"
    if not isinstance(table, dict):
        raise SettingsError(f"{where} is not a table")
    known = ("exclude", "ignore", "output-format")
    for key in table:
        if key not in known:
            raise SettingsError(
                f"{where} has no `{key}`{_near(key, known)}; it may have {', '.join(known)}"
            )
    codes = _texts(where, table, "ignore")
    for code in codes:
        if code not in registry.CODES:
            raise SettingsError(f"{where} ignore: there is no code {code}{_near_code(code)}")
    output_format = table.get("output-format", "full")
    if output_format not in FORMATS:
        raise SettingsError(
            f"{where} output-format: there is no {output_format!r}"
            f"{_near(str(output_format), FORMATS)}; it may be {', '.join(FORMATS)}"
        )
    return Settings(path.parent, _texts(where, table, "exclude"), frozenset(codes), output_format)


def _texts(where: str, table: dict[str, object], key: str) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise SettingsError(f'{where} {key} is a list of strings, as in `{key} = ["..."]`')
    return value


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _near_code(code: str) -> str:
    near = registry.nearest(code)
    return f"; did you mean {near}?" if near else ""
