"""Whether a text is what a function was compiled from."""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import types
from collections import Counter

from dslmut.checking.scopes import arguments_of
from dslmut.checking.source import Definition, FunctionNode
from dslmut.functions.trees import bare_arguments, compiled_alone, shallow


def is_exactly(definition: Definition, code: types.CodeType) -> bool:
    """Say whether the text gives the very instructions that were compiled."""
    if not _has_parameters(definition, code):
        return False
    text = compiled_alone(_bare(definition.node), definition, code)
    return _steps(text) == _steps(code)


def is_compiled_from(definition: Definition, code: types.CodeType) -> bool:
    """Compare what the text says with what was compiled: names, constants, lines, operators.

    Not every instruction, and no assertions: pytest and other tools put more into a function than
    its text says. So all that the text says has to be in the code.
    """
    if not _has_parameters(definition, code):
        return False
    without = _WithoutAssertions().visit(copy.deepcopy(_bare(definition.node)))
    text = compiled_alone(without, definition, code)
    return not _content(text) - _content(code)


def _has_parameters(definition: Definition, code: types.CodeType) -> bool:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    compiled = sorted(_plain(n, definition) for n in code.co_varnames[:count])
    return sorted(_plain(a.arg, definition) for a in arguments_of(definition.node)) == compiled


def _bare(node: FunctionNode) -> FunctionNode:
    """Return a function without its annotations, defaults and decorators."""
    if isinstance(node, ast.Lambda):
        return ast.copy_location(ast.Lambda(bare_arguments(node.args), node.body), node)
    new = shallow(node)
    new.args, new.returns = bare_arguments(node.args), None
    new.decorator_list = [ast.copy_location(ast.Constant(None), d) for d in node.decorator_list]
    return new


class _WithoutAssertions(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)


_SILENT = frozenset({"CACHE", "PUSH_NULL", "PRECALL", "COPY_FREE_VARS", "RESUME", "EXTENDED_ARG"})
"""Instructions that depend on what surrounds a function in its file."""


def _steps(code: types.CodeType) -> list[object]:
    """Return the instructions of a function and of those inside of it, with their lines."""
    steps: list[object] = []
    for made in dis.get_instructions(code):
        inside = made.argval if isinstance(made.argval, types.CodeType) else None
        if inside is not None:
            steps.append(_steps(inside))
        elif made.opname not in _SILENT:
            name = made.opname.replace("LOAD_METHOD", "LOAD_ATTR")
            jumps = made.opcode in dis.hasjrel or made.opcode in dis.hasjabs
            value = None if jumps else (type(made.argval), made.argval)
            steps.append((name, value, made.positions and made.positions.lineno))
    return steps


_OPERATORS = ("BINARY_OP", "COMPARE_OP", "CONTAINS_OP", "IS_OP", "UNARY_")


def _content(code: types.CodeType) -> Counter[tuple[str, object]]:
    """Return the names, constants, lines and operators of a function and of those inside of it."""
    content: Counter[tuple[str, object]] = Counter()
    names = {*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars}
    content.update(("name", name) for name in names)
    content.update(("line", line) for line in {n for start, _, n in code.co_lines() if start})
    for made in dis.get_instructions(code):
        if made.opname.startswith(_OPERATORS):
            content[made.opname, made.argrepr] += 1
    for constant in code.co_consts:
        if isinstance(constant, int | float | str | bytes):
            content[type(constant).__name__, constant] += 1
        elif isinstance(constant, types.CodeType):
            content += _content(constant)
    return content


def _plain(name: str, definition: Definition) -> str:
    """Undo the mangling of a parameter's name in a class."""
    owner = definition.owner
    prefix = f"_{owner.name.lstrip('_')}" if owner is not None else ""
    return name.removeprefix(prefix) if prefix and name.startswith(f"{prefix}__") else name
