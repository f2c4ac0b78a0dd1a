"""Which files to check, and what to say of one that cannot be."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Failed = Callable[[Path, Exception], None]
"""What to do about a path that cannot be read."""

_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def files_of(
    paths: Iterable[Path],
    failed: Failed,
    excluded: Callable[[Path], bool] = lambda path: False,
) -> list[Path]:
    """Return the files that are named, and the Python files below folders; each once.

    Hidden files and folders, and links to folders, are left out below a folder.

    Args:
        paths: Of files, whatever their ending, and of folders.
        failed: Called for what cannot be read; the others are returned all the same.
        excluded: Whether to leave out a file or folder that is found below another one.
    """
    found: dict[str, Path] = {}
    for path in paths:
        try:
            files = [path] if _is_file(path) else _below(path, failed, excluded)
            for file in files:
                found.setdefault(os.path.realpath(file), file)
        except (OSError, ValueError) as error:
            failed(path, error)
    return sorted(found.values())


def _is_file(path: Path) -> bool:
    """Tell a file from a folder.

    Raises:
        OSError: If there is neither.
        ValueError: If it is something else, or a notebook.
    """
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        return False
    if not stat.S_ISREG(mode):
        raise ValueError("it is neither a file nor a folder")
    if path.suffix == ".ipynb":
        raise ValueError(
            "notebooks are not supported; save its code first, with `jupyter nbconvert --to script`"
        )
    return True


def _below(folder: Path, failed: Failed, excluded: Callable[[Path], bool]) -> Iterator[Path]:
    def stopped(error: OSError) -> None:
        failed(Path(error.filename), error)

    def wanted(path: Path) -> bool:
        return not path.name.startswith(".") and path.name not in _SKIPPED and not excluded(path)

    for at, folders, files in os.walk(folder, onerror=stopped):
        here = Path(at)
        folders[:] = [f for f in folders if wanted(here / f)]
        for name in files:
            path = here / name
            if path.suffix == ".py" and path.is_file() and wanted(path):
                yield path


def unreadable(path: Path | str, error: Exception) -> str:
    """Say in one line why a file cannot be checked."""
    match error:
        case RecursionError():
            return f"{path} cannot be checked: its expressions are nested too deeply"
        case FileNotFoundError():
            return f"there is no {path}"
        case OSError():
            return f"{path} cannot be read: {(error.strerror or str(error)).lower()}"
        case UnicodeDecodeError():
            byte = error.object[error.start]
            return f"{path} cannot be read: byte 0x{byte:02x} is not {error.encoding}; {_ENCODING}"
        case SyntaxError() if error.lineno is None:  # of the encoding that it declares
            text = error.msg.replace(f" for {str(path)!r}", "")
            return f"{path} cannot be read: {text}; {_ENCODING}"
        case SyntaxError():
            return f"{path}:{error.lineno}:{error.offset or 1} cannot be read: {error.msg}"
        case _:
            return f"{path} cannot be checked: {error}"


_ENCODING = "save it as UTF-8, or declare its encoding on the first line (`# coding: latin-1`)"
