"""``dm.check``: everything in a loaded module at once, as ``dslmut check`` would check its file."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

from dslmut.checking.analysis import check_file, check_source
from dslmut.checking.depth import room
from dslmut.checking.entities import Entity
from dslmut.checking.files import files_of, unreadable
from dslmut.checking.objects import entity_from
from dslmut.checking.source import parse
from dslmut.checking.static import ModuleFile, Project
from dslmut.diagnostics.codes.mutation import SourceUnavailable
from dslmut.diagnostics.exceptions import CheckError
from dslmut.diagnostics.model import Diagnostic, Position, Span
from dslmut.diagnostics.wording import an


def check(module: ModuleType | str | os.PathLike[str], /) -> None:
    """Check everything in a module, the calls in its plain code too, without running anything.

    Of a package every module in it is checked, whether it is loaded or not. Of a notebook
    (``dm.check("__main__")``) the cells are, whose functions and classes there are now.

    Args:
        module: A module or package; its name, if it is loaded; or the path of a file or folder,
            as a ``pathlib.Path``.

    Raises:
        CheckError: All that is found, in one error; each is one of its ``.diagnostics``. E1109
            where the source cannot be found, or is no Python.
        TypeError: If *module* is something else.
        ModuleNotFoundError: If no module of that name is loaded.
        OSError: If a file cannot be read.

    Example:
        >>> from dslmut.examples import digits
        >>> dm.check(digits)
    """
    found = list(_check(module, Project()))
    if found:
        raise CheckError(found)


def _check(module: object, project: Project) -> Iterator[Diagnostic]:
    if isinstance(module, str):
        module = _loaded(module)
    if isinstance(module, os.PathLike):
        yield from _check_files([Path(module)], project)
    elif isinstance(module, ModuleType):
        yield from _check_module(module, project)
    else:
        raise TypeError(
            f"`check` takes a module, its name or a path, not {an(type(module).__name__)}"
            + ("; `@fn` checks a function when it decorates it" if callable(module) else "")
        )


def _loaded(name: str) -> ModuleType:
    found = sys.modules.get(name)
    if found is None:
        raise ModuleNotFoundError(
            f"no module {name!r} is loaded; import it first, or give the path of its file, "
            "as in `check(Path('steps.py'))`",
            name=name,
        )
    return found


def _check_module(module: ModuleType, project: Project) -> Iterator[Diagnostic]:
    folders = [Path(p) for p in getattr(module, "__path__", ())]
    if folders and all(f.is_dir() for f in folders):
        yield from _check_files(folders, project)
        return
    path = getattr(module, "__file__", None)
    if path is None:
        yield from _check_cells(module, project)
    elif Path(path).is_file() and not path.endswith((".pyc", ".so", ".pyd")):
        yield from check_file(Path(path), project)
    else:  # a loader may have its text, such as that of a zip file
        text = "".join(linecache.getlines(path, vars(module)))
        yield from check_file(Path(path), project, text) if text else [_unavailable(module, path)]


def _check_files(paths: list[Path], project: Project) -> Iterator[Diagnostic]:
    def failed(path: Path, error: Exception) -> None:
        raise error

    for path in files_of(paths, failed):
        try:
            yield from check_file(path, project)
        except (SyntaxError, ValueError, RecursionError) as error:
            yield _unreadable(path, error)  # the others are checked all the same


def _unreadable(path: Path, error: Exception) -> Diagnostic:
    line = (getattr(error, "lineno", None) or 1, max((getattr(error, "offset", None) or 1) - 1, 0))
    place = Position(*line)
    return SourceUnavailable.at(
        Span(str(path), place, place),
        unreadable(path, error),
        fix="let Python compile the file first",
    )


def _unavailable(module: ModuleType, path: str | None) -> Diagnostic:
    span = Span(path, Position(1, 0), Position(1, 0)) if path else None
    return SourceUnavailable.at(
        span,
        f"the source of the module `{module.__name__}` cannot be found",
        fix="check a module that is a Python file; for generated code, register the text in "
        "`linecache.cache` under the name that it is compiled with",
    )


# -- modules without a file ----------------------------------------------------------------------


class _Cell(ModuleFile):
    """A text that was run in a namespace: the names that it does not bind are there."""

    def __init__(self, path: str, text: str, module: ModuleType, project: Project) -> None:
        super().__init__(parse(path, text), module.__name__, project, None)
        self._namespace = vars(module)

    def entity(self, name: str) -> Entity | None:
        found = super().entity(name)
        if found is None and name not in self.bindings and name in self._namespace:
            return entity_from(self._namespace[name], name)
        return found


def _check_cells(module: ModuleType, project: Project) -> Iterator[Diagnostic]:
    """Check the texts that the functions and classes of a namespace come from."""
    paths = dict.fromkeys(f.__code__.co_filename for f in _functions(module))
    if not paths:
        yield _unavailable(module, None)
    for path in paths:
        text = "".join(linecache.getlines(path, vars(module)))
        if text:
            cell = _Cell(path, text, module, project)
            with room():
                found = check_source(cell.source, cell)
            yield from found
        else:
            yield _unavailable(module, path)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions and methods that were made in a namespace."""
    for value in list(vars(module).values()):
        of_class = isinstance(value, type) and value.__module__ == module.__name__
        for inner in list(vars(value).values()) if of_class else [value]:
            function = getattr(inner, "__func__", getattr(inner, "fget", inner))
            if isinstance(function, FunctionType) and function.__globals__ is vars(module):
                yield function
