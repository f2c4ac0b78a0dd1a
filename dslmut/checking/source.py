"""A text, its tree, and where each node of it stands."""

from __future__ import annotations

import ast
import functools
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dslmut.diagnostics.model import Position, Span

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = FunctionNode | ast.ClassDef


@dataclass(frozen=True)
class Definition:
    """A function in its file.

    Args:
        node: Its tree.
        outer: The functions and classes that it stands in, the outermost first.
    """

    node: FunctionNode
    outer: tuple[Scope, ...]

    @property
    def name(self) -> str:
        """Return the name it is defined under, as in ``__name__``."""
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name

    @property
    def first_line(self) -> int:
        """Return the line that its code object names: that of its first decorator."""
        decorators = [] if isinstance(self.node, ast.Lambda) else self.node.decorator_list
        return min([self.node.lineno, *(d.lineno for d in decorators)])

    @property
    def owner(self) -> ast.ClassDef | None:
        """Return the class whose method it is."""
        return self.outer[-1] if self.outer and isinstance(self.outer[-1], ast.ClassDef) else None

    @property
    def of_instances(self) -> bool:
        """Say whether it is a method whose first parameter is an object of its class."""
        return (
            self.owner is not None
            and not isinstance(self.node, ast.Lambda)
            and takes_instance(self.node)
        )

    @property
    def called_by_frameworks(self) -> bool:
        """Say whether Python or torch calls a method, without a marker for its receiver."""
        if isinstance(self.node, ast.Lambda) or self.owner is None:
            return False
        name = self.node.name
        special = name.startswith("__") and name.endswith("__")
        accessor = any(
            getattr(d, "attr", "") in ("setter", "getter", "deleter")
            or getattr(d, "id", "") == "property"
            for d in self.node.decorator_list
        )
        return name == "forward" or special or accessor


_CLASS_METHODS = frozenset({"__new__", "__init_subclass__", "__class_getitem__"})
"""Methods that get the class, without saying so."""


def takes_instance(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a function in a class gets an object of it first."""
    names = {getattr(d, "id", getattr(d, "attr", "")) for d in node.decorator_list}
    return node.name not in _CLASS_METHODS and not names & {"staticmethod", "classmethod"}


@dataclass(frozen=True, eq=False)
class Source:
    """A parsed file or notebook cell."""

    path: str
    text: str
    tree: ast.Module

    @functools.cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines as the parser counts them, without their ends."""
        # str.splitlines also splits at form feeds and other separators; Python's parser doesn't.
        text = self.text.replace("\r\n", "\n").replace("\r", "\n")
        return tuple(text.split("\n"))

    @functools.cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """All functions and lambdas, the outer ones before those inside them."""
        return tuple(
            Definition(n, outer) for n, outer in self._scopes if isinstance(n, FunctionNode)
        )

    def span(self, node: ast.AST) -> Span:
        """Say where a statement or expression stands."""
        known = self._spans.get(node)
        if known is None:
            known = self._spans[node] = Span(
                self.path,
                self._position(node.lineno, node.col_offset),  # pyright: ignore[reportAttributeAccessIssue]
                self._position(node.end_lineno, node.end_col_offset),  # pyright: ignore[reportAttributeAccessIssue]
            )
        return known

    @property
    def classes(self) -> list[ast.ClassDef]:
        """All classes, the outer ones before those inside them."""
        return [n for n, _ in self._scopes if isinstance(n, ast.ClassDef)]

    @functools.cached_property
    def nesting(self) -> frozenset[ast.AST]:
        """The functions and classes with others inside of them."""
        return frozenset(outer for d in self._scopes for outer in d[1])

    @functools.cached_property
    def _scopes(self) -> tuple[tuple[Scope, tuple[Scope, ...]], ...]:
        return tuple(_scopes(self.tree, "lambda" in self.text))

    @functools.cached_property
    def _spans(self) -> dict[ast.AST, Span]:
        return {}

    def segment(self, node: ast.AST) -> str:
        """Return the text of a node."""
        return self.slice(self.span(node))

    def slice(self, span: Span) -> str:
        """Return the text of a range."""
        lines = list(self.lines[span.start.line - 1 : span.end.line])
        lines[-1] = lines[-1][: span.end.column]
        lines[0] = lines[0][span.start.column :]
        return "\n".join(lines)

    def _position(self, line: int, offset: int) -> Position:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if not text.isascii():  # the parser counts bytes of UTF-8
            offset = len(text.encode()[:offset].decode(errors="ignore"))
        return Position(line, offset)


def read(path: Path) -> str:
    """Return the text of a Python file, in the encoding that it declares.

    Raises:
        OSError: If it cannot be read.
        SyntaxError: If it declares an unknown encoding.
        UnicodeDecodeError: If it does not hold to it.
    """
    with tokenize.open(path) as file:
        return file.read()


@functools.lru_cache(maxsize=256)
def parse(path: str, text: str) -> Source:
    """Parse a text; one result per text, so that trees must not be changed.

    Raises:
        SyntaxError: If it is no Python.
        RecursionError: If it is nested too deeply.
    """
    return Source(path, text, tree_of(path, text))


def tree_of(path: str, text: str) -> ast.Module:
    """Parse a text, as ``parse`` does, and forget it."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of the text, which others report
            return ast.parse(text, filename=path)
    except MemoryError:  # which is how Python's parser says so
        raise RecursionError("nested too deeply") from None


_LEAVES = (ast.Constant, ast.Name, ast.expr_context, ast.operator, ast.cmpop, ast.alias)


def _scopes(tree: ast.Module, lambdas: bool) -> Iterator[tuple[Scope, tuple[Scope, ...]]]:
    """Yield functions and classes, each with those around it.

    Args:
        tree: Of the module.
        lambdas: Whether there may be functions in expressions.
    """
    skipped = _LEAVES if lambdas else (*_LEAVES, ast.expr)
    rest: list[tuple[ast.AST, tuple[Scope, ...]]] = [(tree, ())]
    while rest:
        node, outer = rest.pop()
        inside = outer
        if isinstance(node, Scope):
            yield node, outer
            inside = (*outer, node)
        children = [c for c in ast.iter_child_nodes(node) if not isinstance(c, skipped)]
        rest += [(c, inside) for c in reversed(children)]
