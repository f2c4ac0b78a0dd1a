"""E1109 by the text: a decorator between ours and the ``def`` that puts another function there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslmut.checking.definitions import decorator_word
from dslmut.checking.entities import Word
from dslmut.checking.source import Definition, Source
from dslmut.checking.static import ModuleFile, StaticResolver
from dslmut.diagnostics.codes.mutation import SourceUnavailable
from dslmut.diagnostics.model import Diagnostic

_WRAPPERS = {
    "torch": "no_grad enable_grad inference_mode set_grad_enabled autocast compile vmap",
    "torch.amp": "autocast",
    "torch.compiler": "disable",
    "torch.func": "vmap grad grad_and_value",
    "torch.jit": "script",
    "functools": "cache lru_cache singledispatch partial",
    "contextlib": "contextmanager asynccontextmanager",
    "pytest": "fixture",
}
WRAPPERS = {f"{module}.{name}" for module, names in _WRAPPERS.items() for name in names.split()}
"""Decorators that are known to give something else than the function; others may give it back."""


def check_decorators(
    definition: Definition, source: Source, file: ModuleFile
) -> Iterator[Diagnostic]:
    """Find wrappers below ``@fn`` or ``@extern``, which get in the way when the module is loaded."""
    if isinstance(definition.node, ast.Lambda):
        return
    resolver = StaticResolver(file, definition)
    ours: ast.expr | None = None
    for node in definition.node.decorator_list:
        if decorator_word(node, resolver) in (Word("fn"), Word("extern")):
            ours = node
        elif ours is not None and _dotted(node, file) in WRAPPERS:
            word = f"@{source.segment(ours)}"
            yield SourceUnavailable.at(
                source.span(node),
                f"`@{source.segment(node)}` stands between `{word}` and `{definition.name}`: "
                f"`{word}` gets its wrapper, whose text is another",
                fix=f"put `{word}` directly above the `def`, below the other decorators",
            )


def _dotted(node: ast.expr, file: ModuleFile) -> str:
    """Return the name of a decorator from the module that it is imported from."""
    node = node.func if isinstance(node, ast.Call) else node
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, file)}.{node.attr}"
    name = getattr(node, "id", "")
    match file.bindings.get(name):
        case ast.ImportFrom(module=str(module), names=aliases, level=0):
            return next((f"{module}.{a.name}" for a in aliases if name in (a.asname, a.name)), "")
        case ast.Import(names=aliases):
            return next((a.name for a in aliases if a.asname == name), name)
    return ""
