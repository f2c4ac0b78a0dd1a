"""Names resolved over run-time objects: what ``@fn`` sees when it decorates a function.

torch is looked at where the program has imported it, and never imported from here. A name that
does not stand for anything yet, such as a function further down, is read from the text instead.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
import types
from collections.abc import Mapping
from pathlib import Path

from dslmut.checking import definitions, wellknown
from dslmut.checking.entities import (
    Class,
    Entity,
    Module,
)
from dslmut.checking.memory import Memory
from dslmut.checking.objects import entity_from
from dslmut.checking.source import Definition, Source
from dslmut.checking.static import ModuleFile, Project, StaticResolver, member_of_class

_MISSING = object()
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)


class LiveResolver:
    """Resolves the names of one function that is being decorated.

    Args:
        function: The function as Python made it.
        source: Its text.
        definition: Its place in the text.
        surroundings: The local names where it was decorated, for annotations of local classes.
    """

    def __init__(
        self,
        function: types.FunctionType,
        source: Source,
        definition: Definition,
        surroundings: Mapping[str, object],
    ) -> None:
        self._globals = function.__globals__
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        self._surroundings = surroundings
        self._source, self._definition = source, definition
        dotted = str(function.__globals__.get("__name__", ""))
        project = _project()
        project.refresh()
        file = ModuleFile(source, dotted, project, Path(source.path).parent)
        self._text = StaticResolver(file, definition)
        self.memory = Memory()  # names may stand for something else by the next decoration

    def name(self, name: str) -> Entity | None:
        """Return what a free name stands for now, or will stand for by the text."""
        node = self._definition.node
        if not self._definition.outer and isinstance(node, _DEFS) and name == node.name:
            # The function itself is not bound yet; what is there is an older definition.
            return definitions.function_from(node, self._source, self)
        found = self.value(name)
        return self._text.name(name) if found is _MISSING else entity_from(found, name)

    def value(self, name: str) -> object:
        """Return the object that a free name stands for, or a mark that there is none."""
        if name in self._cells:
            try:
                return self._cells[name].cell_contents
            except ValueError:
                return _MISSING
        for scope in (self._surroundings, self._globals, vars(builtins)):
            if name in scope:
                return scope[name]
        return _MISSING

    def member(self, owner: Module | Class, name: str) -> Entity | None:
        """Return what ``owner.name`` stands for."""
        if isinstance(owner, Class):
            return member_of_class(owner, name)
        if not isinstance(owner.handle, types.ModuleType):
            return self._text.member(owner, name)
        found = inspect.getattr_static(owner.handle, name, _MISSING)
        if found is _MISSING:
            # Perhaps made when it is asked for, as `np.random` is: that is not done from here.
            dotted = f"{owner.name}.{name}"
            return wellknown.well_known(dotted) or _submodule(dotted)
        return entity_from(found, name, owner.name)

    def imported(self, module: str, name: str | None, level: int) -> Entity | None:
        """Return what an import inside the function gives; what isn't loaded is read as text."""
        loaded = sys.modules.get(module) if level == 0 else None
        if loaded is None:
            return self._text.imported(module, name, level)
        owner = Module(module, loaded)
        return owner if name is None else self.member(owner, name)

    def own_class(self) -> Class | None:
        """Return the class whose method is checked; it does not exist yet."""
        return self._text.own_class()

    def super_class(self) -> Class | None:
        """Return the first base of that class."""
        owner = self._definition.owner
        if owner is None or not owner.bases:
            return None
        return definitions.base_of(owner.bases[0], self)


def _submodule(dotted: str) -> Module | None:
    """Return a module that is loaded, or has a file, where its package does not know it yet."""
    if dotted in sys.modules:
        return Module(dotted, sys.modules[dotted])
    return Module(dotted) if _project().exists(dotted, None) else None


@functools.cache
def _project() -> Project:
    return Project()
