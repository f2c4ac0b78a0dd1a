"""Small pieces of syntax trees, and where they stand in the user's file."""

from __future__ import annotations
import __future__

import ast
import dis
import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dslmut.checking.source import Definition, FunctionNode
from dslmut.functions.plan import RUNTIME

Node = TypeVar("Node", bound=ast.AST)


def bare_arguments(arguments: ast.arguments) -> ast.arguments:
    """Return parameters without annotations and defaults: the function object keeps those."""

    def bare(a: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(a.arg), a)

    return ast.arguments(
        posonlyargs=[bare(a) for a in arguments.posonlyargs],
        args=[bare(a) for a in arguments.args],
        vararg=bare(arguments.vararg) if arguments.vararg else None,
        kwonlyargs=[bare(a) for a in arguments.kwonlyargs],
        kw_defaults=[None for _ in arguments.kwonlyargs],
        kwarg=bare(arguments.kwarg) if arguments.kwarg else None,
        defaults=[],
    )


def runtime_call(name: str, *arguments: ast.expr) -> ast.Call:
    """Make a call of a function of the run time."""
    function = ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load())
    return ast.Call(function, list(arguments), [])


def parsed(text: str) -> ast.stmt:
    """Parse a statement that has no place yet."""
    statement = ast.parse(text).body[0]
    for node in ast.walk(statement):
        for attribute in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            node.__dict__.pop(attribute, None)
    return statement


def placed(node: Node, place: Any) -> Node:
    """Put a new node, and the new ones inside of it, where another stands.

    Names of the run time stand where it begins, however many lines it has, and all that stands at
    a ``def`` is on its first line: Python says a line again when the next instruction is elsewhere.
    """
    inner: Any
    for inner in ast.walk(node):
        if "lineno" not in inner._attributes or "lineno" in inner.__dict__:
            continue
        ast.copy_location(inner, place)
        if isinstance(place, ast.FunctionDef | ast.AsyncFunctionDef):
            inner.end_lineno, inner.end_col_offset = place.lineno, place.col_offset + 3
        elif isinstance(inner, ast.Name | ast.Attribute) and inner.end_lineno != inner.lineno:
            inner.end_lineno, inner.end_col_offset = inner.lineno, inner.col_offset
    return node


def shallow(node: Node) -> Node:
    """Copy a node, but nothing that is inside of it."""
    new = type(node)(**{name: getattr(node, name, None) for name in node._fields})
    return ast.copy_location(new, node) if "lineno" in node._attributes else new


def no_type_parameters() -> dict[str, Any]:
    """Return the field that definitions have from Python 3.12 on."""
    return {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}


def mangling(definition: Definition) -> Callable[[str], str]:
    """Return what Python does to private names in the class around a function."""
    scope = next((s for s in reversed(definition.outer) if isinstance(s, ast.ClassDef)), None)
    return functools.partial(mangled, scope.name.lstrip("_") if scope is not None else "")


def mangled(owner: str, name: str) -> str:
    """Return a private name as Python mangles it in a class.

    Args:
        owner: The name of the class, without underscores before it; empty outside of classes.
        name: Any name.
    """
    private = name.startswith("__") and not name.endswith("__")
    return f"_{owner}{name}" if private and owner else name


# -- compiling a function by itself --------------------------------------------------------------

_FUTURE = functools.reduce(
    operator.or_, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names)
)
_TARGET = "__dslmut_target__"


def compiled_alone(
    node: FunctionNode,
    definition: Definition,
    original: types.CodeType,
    variables: tuple[str, ...] = (),
) -> types.CodeType:
    """Compile one function as it was compiled in its file.

    It is put into a dummy function that binds the free variables, and into a dummy class for a
    method, so that cells, ``super()`` and name mangling are as they were, and no other name is.

    Args:
        node: The function, perhaps rewritten; it gets another name here.
        definition: Where it stands.
        original: Its code, as Python compiled it.
        variables: Further free variables that it may use.
    """
    inner: ast.stmt
    if isinstance(node, ast.Lambda):
        inner = ast.Expr(node)
    else:
        inner = node = shallow(node)
        node.name = _TARGET
    body: list[ast.stmt] = [inner]
    owner = next((s for s in reversed(definition.outer) if isinstance(s, ast.ClassDef)), None)
    if owner is not None:
        body = [ast.ClassDef(owner.name, [], [], [inner], [], **no_type_parameters())]
        if owner.name not in original.co_freevars:
            body.insert(0, ast.Global([owner.name]))
    names = dict.fromkeys([*original.co_freevars, *variables])
    arguments = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
    outer = ast.FunctionDef("__outer__", arguments, body, [], **no_type_parameters())
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(outer, node)], []))
    flags = original.co_flags & _FUTURE
    code = compile(module, original.co_filename, "exec", flags=flags, dont_inherit=True)
    found = _find(code, "<lambda>" if isinstance(node, ast.Lambda) else _TARGET)
    flags = found.co_flags | original.co_flags & inspect.CO_ITERABLE_COROUTINE  # types.coroutine
    found = _renamed(found, found.co_qualname, original.co_qualname)
    return found.replace(co_name=original.co_name, co_flags=flags)


def _renamed(code: types.CodeType, old: str, new: str) -> types.CodeType:
    """Give a function, and all that is inside of it, the qualified name that it has in its file."""

    def renamed(constant: object) -> object:
        if isinstance(constant, types.CodeType):
            return _renamed(constant, old, new)
        if (
            isinstance(constant, str) and constant == code.co_qualname
        ):  # a class says its name in its body
            return new + code.co_qualname.removeprefix(old)
        return constant

    return code.replace(
        co_qualname=new + code.co_qualname.removeprefix(old),
        co_consts=tuple(map(renamed, code.co_consts)),
    )


def first_line(code: types.CodeType) -> int:
    """Return the line at which a function starts to run, as debuggers show it."""
    instructions = list(dis.get_instructions(code))
    start = next(i for i, made in enumerate(instructions) if made.opname == "RESUME")
    places = (made.positions for made in instructions[start + 1 :])
    return next((p.lineno for p in places if p and p.lineno), code.co_firstlineno)


def _find(code: types.CodeType, name: str) -> types.CodeType:
    """Find the function's code among the constants of what surrounds it."""
    inside = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    found = [c for c in inside if c.co_name == name]
    return found[0] if found else _find(inside[0], name)


def inside_of_view(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what an expression takes a view of, as far as nothing else happens in between."""
    while True:
        match node:
            case ast.Attribute(value=inner):
                between: list[ast.AST] = []
            case ast.Subscript(value=inner, slice=index):
                between = [index]
            case ast.Call(func=ast.Attribute(value=inner), args=args, keywords=keywords):
                between = [*args, *keywords]
            case _:
                return
        if any(isinstance(n, _RUNS) for part in between for n in ast.walk(part)):
            return
        node = inner
        yield node


_RUNS = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
