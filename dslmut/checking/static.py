"""Names resolved over files: they are parsed, imports are followed, and nothing is imported."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dslmut.checking import definitions, generic, wellknown
from dslmut.checking.entities import (
    UNKNOWN,
    Alias,
    Class,
    Entity,
    Function,
    Instance,
    Kind,
    Module,
    Role,
    Word,
)
from dslmut.checking.memory import Memory
from dslmut.checking.reach import Reach
from dslmut.checking.resolve import entity_of, read_annotation
from dslmut.checking.scopes import bound_names
from dslmut.checking.source import Definition, Source, parse, read


class Project:
    """The files that names may lead to: each is read once, until one of them changes.

    Args:
        roots: Folders that modules are imported from, besides that of the checked file.
    """

    def __init__(self, roots: Iterable[Path] | None = None) -> None:
        paths = [Path(p) for p in sys.path if p] if roots is None else roots
        self._roots = tuple(p for p in paths if p.is_dir())
        self._files: dict[tuple[Path, str], ModuleFile | None] = {}
        self._stamps: dict[Path, int] = {}
        self._reach = Reach()
        self._found: dict[tuple[str, Path | None], Path | None] = {}
        self.memory = Memory()

    def concerns(self, path: Path, text: str) -> bool:
        """Say whether a file, or what it imports, can have to do with the library."""
        home, dotted = home_of(path)
        package = dotted if path.name == "__init__.py" else dotted.rpartition(".")[0]
        return self._reach.uses(path, text, package, lambda d: self._file_of(d, home))

    def _file_of(self, dotted: str, home: Path | None) -> Path | None:
        key = (dotted, home)
        if key not in self._found:
            candidates = self._candidates(dotted, home)
            self._found[key] = next((p for p in candidates if p.is_file()), None)
        return self._found[key]

    def refresh(self) -> None:
        """Forget everything if a file changed: what others know of its names is old as well."""
        self._reach, self._found, self.memory = Reach(), {}, Memory()
        if any(_stamp(path) != stamp for path, stamp in self._stamps.items()):
            self._files, self._stamps = {}, {}

    def module(self, dotted: str, home: Path | None = None) -> ModuleFile | None:
        """Return a module by its dotted name, or None where there is no file to read."""
        path = self._file_of(dotted, home)
        if path is None:
            return None
        if (path, dotted) not in self._files:
            self._stamps[path] = _stamp(path)
            self._files[path, dotted] = self._read(path, dotted, home)
        return self._files[path, dotted]

    def exists(self, dotted: str, home: Path | None) -> bool:
        """Say whether a dotted name is a module or package with a file or folder."""
        return any(True for _ in self._candidates(dotted, home))

    def _candidates(self, dotted: str, home: Path | None) -> Iterator[Path]:
        relative = Path(*dotted.split("."))
        for root in (*([home] if home else []), *self._roots):
            for path in (root / relative / "__init__.py", (root / relative).with_suffix(".py")):
                if path.is_file():
                    yield path
            if (root / relative).is_dir():
                yield root / relative

    def _read(self, path: Path, dotted: str, home: Path | None) -> ModuleFile | None:
        try:
            return ModuleFile(parse(str(path), read(path)), dotted, self, home)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None


def _stamp(path: Path) -> int:
    """Return when a file was last changed; 0 if it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def home_of(path: Path) -> tuple[Path, str]:
    """Return the folder that a file's package is imported from, and its dotted name."""
    path = path.absolute()
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


class ModuleFile:
    """A parsed module and what its names stand for."""

    def __init__(self, source: Source, dotted: str, project: Project, home: Path | None) -> None:
        self.source, self.dotted, self.project, self.home = source, dotted, project, home
        self._resolving: set[str] = set()
        self._known: dict[str, Entity | None] = {}

    @property
    def package(self) -> str:
        """Return the dotted name that relative imports start from."""
        is_package = Path(self.source.path).name == "__init__.py"
        return self.dotted if is_package else self.dotted.rpartition(".")[0]

    @functools.cached_property
    def bindings(self) -> dict[str, ast.stmt]:
        """The statement that last binds each name at the top level of the module."""
        return dict(_top_level(self.source.tree.body))

    def entity(self, name: str) -> Entity | None:
        """Return what a name at the top level of the module stands for."""
        if name in self._known:
            return self._known[name]
        if name in self._resolving:
            return None  # imports may go round in a circle
        self._resolving.add(name)
        try:
            node = self.bindings.get(name)
            found = self._star_imported(name) if node is None else self.resolve_binding(name, node)
        finally:
            self._resolving.discard(name)
        self._known[name] = found
        return found

    def resolve_binding(self, name: str, node: ast.stmt) -> Entity | None:
        """Return what a statement makes of a name that it binds."""
        resolver = StaticResolver(self)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return definitions.function_from(node, self.source, resolver)
            case ast.ClassDef():
                of_torch = self.dotted.partition(".")[0] == "torch"
                return definitions.class_from(node, self.source, resolver, of_torch)
            case ast.Import(names=aliases):
                alias = next(a for a in aliases if bound_by(a) == name)
                return self.imported(alias.name if alias.asname else bound_by(alias), None, 0)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                alias = next(a for a in aliases if bound_by(a) == name)
                return self.imported(module or "", alias.name, level)
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return _assigned(value, resolver)
            case ast.stmt(name=ast.Name(), value=ast.expr() as value):  # type A = ...
                return Alias(read_annotation(value, resolver))
        return None

    def _star_imported(self, name: str) -> Entity | None:
        """Return what a name stands for that comes from a ``from module import *``."""
        for node in self._stars if not name.startswith("_") else ():
            module = self.imported(node.module or "", None, node.level)
            if isinstance(module, Module):
                found = member_of(self.project, self.home, module.name, name)
                if found is not None:
                    return found
        return None

    @functools.cached_property
    def _stars(self) -> tuple[ast.ImportFrom, ...]:
        """The imports of everything, the last first."""
        return tuple(
            node
            for node in reversed(self.source.tree.body)
            if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names)
        )

    def imported(self, module: str, name: str | None, level: int) -> Entity | None:
        """Return what ``from module import name`` gives, or the module itself."""
        home = self.home
        if level:
            parts = self.package.split(".") if self.package else []
            base = parts[: max(len(parts) - level + 1, 0)]
            module = ".".join([*base, module] if module else base)
            above = level - 1 - len(parts)  # of folders without an `__init__.py`
            if above > 0 and home is not None:
                home = home.absolute().parents[above - 1]
        return Module(module) if name is None else member_of(self.project, home, module, name)


def bound_by(alias: ast.alias) -> str:
    """Return the name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]


def member_of(project: Project, home: Path | None, module: str, name: str) -> Entity | None:
    """Return what a name of a module stands for."""
    dotted = f"{module}.{name}"
    known = wellknown.well_known(dotted)
    if known is not None:
        return known
    if module.partition(".")[0] == "torch":
        return _torch(project, home, module, name)
    file = project.module(module, home)
    found = file.entity(name) if file is not None else None
    if found is not None:
        return found
    if project.exists(dotted, home):
        return Module(dotted)
    return None


_TORCH_MODULES = frozenset(
    "torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.optim torch.func torch.linalg "
    "torch.autograd torch.utils torch.utils.data torch.cuda torch.amp torch.fft torch.special "
    "torch.optim.lr_scheduler torch.distributed torch.backends torch.jit torch.random".split()
)


def _torch(project: Project, home: Path | None, module: str, name: str) -> Entity | None:
    """Return what a name of torch stands for; its files are read only for their classes."""
    dotted = f"{module}.{name}"
    if dotted in _TORCH_MODULES:
        return Module(dotted)
    if name[:1].isupper():
        if module.startswith(("torch.nn", "torch.optim")):
            return _torch_class(project, home, module, name)
        return None
    return wellknown.torch_function(
        dotted, written_in_python=module not in ("torch", "torch.linalg")
    )


def _torch_class(project: Project, home: Path | None, module: str, name: str) -> Entity | None:
    file = project.module(module, home)
    found = file.entity(name) if file is not None else None
    if isinstance(found, Class) and found.kind is not Kind.UNKNOWN:
        return found
    if module == "torch.nn":
        return Class(name, Kind.MODEL, key=f"torch.nn.{name}")
    if module == "torch.optim":
        return Class(name, Kind.STATE, key=f"torch.optim.{name}")
    return None


def _assigned(value: ast.expr, resolver: StaticResolver) -> Entity | None:
    match value:
        case ast.Name() | ast.Attribute():
            return entity_of(value, resolver)
        case ast.Subscript() | ast.BinOp():
            annotation = read_annotation(value, resolver)
            return Alias(annotation) if annotation.type != UNKNOWN or annotation.mut else None
        case ast.Call():
            made = _decorated(value, resolver) or _partial(value, resolver)
            made = made or generic.variable_from(value, resolver)
            return made or definitions.instance_of(value, resolver)
        case ast.Constant():
            return Instance(read_annotation(ast.Constant(None), resolver).type)
    return None


def _decorated(value: ast.Call, resolver: StaticResolver) -> Entity | None:
    """Return what ``step = fn(plain)`` makes."""
    if entity_of(value.func, resolver) != Word("fn") or len(value.args) != 1:
        return None
    inner = entity_of(value.args[0], resolver)
    if not isinstance(inner, Function):
        return None
    return replace(inner, role=Role.FN)


def _partial(value: ast.Call, resolver: StaticResolver) -> Entity | None:
    """Return what ``half = functools.partial(scale, by=0.5)`` makes: the parameters that are open."""
    maker = entity_of(value.func, resolver)
    if not isinstance(maker, Function) or maker.qualified != "functools.partial" or not value.args:
        return None
    inner = entity_of(value.args[0], resolver)
    stars = any(isinstance(a, ast.Starred) for a in value.args)
    if not isinstance(inner, Function) or stars or any(k.arg is None for k in value.keywords):
        return None
    return definitions.opened(inner, len(value.args) - 1, {k.arg for k in value.keywords})


def _top_level(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield each binding of a module, those under ``if``, ``try`` and ``with`` too."""
    for node in body:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((bound_by(a), node) for a in aliases if a.name != "*")
            case ast.Assign(targets=targets):
                yield from ((t.id, node) for t in targets if isinstance(t, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node
            case ast.stmt(name=ast.Name(id=name)):  # type A = ..., from Python 3.12 on
                yield name, node
            case ast.If(body=inner, orelse=other):
                yield from _top_level([*other, *inner])
            case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=final):
                yield from _top_level(
                    [*(s for h in handlers for s in h.body), *inner, *other, *final]
                )
            case ast.With(body=inner):
                yield from _top_level(inner)


class StaticResolver:
    """Resolves the names of one function over files.

    Args:
        file: The module.
        definition: The function, whose enclosing scopes are looked into first.
    """

    def __init__(self, file: ModuleFile, definition: Definition | None = None) -> None:
        self.file, self.definition = file, definition

    @property
    def memory(self) -> Memory:
        """Return what is remembered of the functions that are called."""
        return self.file.project.memory

    def name(self, name: str) -> Entity | None:
        """Return what a free name stands for."""
        scopes = (*self.definition.outer, self.definition.node) if self.definition else ()
        variable = generic.variable_in(reversed(scopes), name, self)
        if variable is not None:
            return variable
        for scope in reversed(scopes[:-1]):
            if isinstance(scope, ast.ClassDef) or name not in bound_names(scope, True):
                continue
            body = [] if isinstance(scope, ast.Lambda) else scope.body
            node = dict(_top_level(body)).get(name)
            return self.file.resolve_binding(name, node) if node is not None else None
        found = self.file.entity(name)
        if found is None and name not in self.file.bindings:
            return wellknown.well_known(f"builtins.{name}")
        return found

    def member(self, owner: Module | Class, name: str) -> Entity | None:
        """Return what ``owner.name`` stands for."""
        if isinstance(owner, Class):
            return member_of_class(owner, name)
        return member_of(self.file.project, self.file.home, owner.name, name)

    def imported(self, module: str, name: str | None, level: int) -> Entity | None:
        """Return what an import inside the function gives."""
        return self.file.imported(module, name, level)

    def own_class(self) -> Class | None:
        """Return the class whose method is checked."""
        owner = self.definition.owner if self.definition else None
        if owner is None:
            return None
        return definitions.class_from(owner, self.file.source, self)

    def super_class(self) -> Class | None:
        """Return the first base of that class."""
        owner = self.definition.owner if self.definition else None
        bases = [definitions.base_of(b, self) for b in owner.bases] if owner else []
        return bases[0] if bases else None


def member_of_class(owner: Class, name: str) -> Entity | None:
    """Return what ``C.name`` stands for: ``init`` of a model, or a method."""
    if owner.kind is Kind.MODEL and name == "init":
        return definitions.initialiser_of(owner)
    return owner.members.method(name)
