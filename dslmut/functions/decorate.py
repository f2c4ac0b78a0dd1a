"""``@fn``: a function is read, checked, rewritten, and given back as a plain function."""

from __future__ import annotations

import ast
import functools
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, overload

from dslmut.checking.analysis import Analysis, analyse
from dslmut.checking.definitions import decorator_word, function_from
from dslmut.checking.depth import room
from dslmut.checking.entities import Function, Role, Text, Word
from dslmut.checking.live import LiveResolver
from dslmut.checking.resolve import read_annotation
from dslmut.checking.scopes import is_generator
from dslmut.checking.source import Definition, Source
from dslmut.diagnostics.exceptions import CheckError
from dslmut.diagnostics.model import Span
from dslmut.diagnostics.render import read_lines
from dslmut.functions import runtime
from dslmut.functions.locate import locate, readable
from dslmut.functions.plan import RUNTIME, SPEC, Plan
from dslmut.functions.reloading import forget_calls_of_older
from dslmut.functions.rewrite import rewritten
from dslmut.functions.spec import Spec
from dslmut.functions.targets import check_decorated, plain_function
from dslmut.functions.trees import mangling

F = TypeVar("F", bound=Callable[..., Any])


@overload
def fn(function: F, /) -> F: ...
@overload
def fn(*, check: bool = True) -> Callable[[F], F]: ...
def fn(function: Any = None, /, *, check: bool = True) -> Any:
    """Check a function for what it changes, and let it assign the fields of models.

    A function may change a model, an optimizer state or a reference only through a parameter
    annotated ``Mut[...]``, and calls of it mark that argument with ``mut(...)``. In its body
    ``m.w = e`` sets the field in place: the parameter stays the same object.

    Args:
        function: A function or method. What comes back is a plain function with its name,
            signature, docstring, closure, defaults and line numbers.
        check: Whether its arguments and result are checked against their annotations.

    Returns:
        The function, or a decorator if no function was given.

    Raises:
        CheckError: E1101 to E1108, E1110, E0303, E0403, E0901: all that is wrong in one
            error. E1109 if there is no text to check.

    Example:
        >>> @fn
        ... def scale(m: Mut[nn.Linear], factor: float) -> None:
        ...     m.weight = m.weight * factor
    """
    if function is None:
        return lambda f: _decorate(f, sys._getframe(1), check)
    return _decorate(function, sys._getframe(1), check)


def extern(function: F, /) -> F:
    """Declare that a plain Python function changes nothing that it is given.

    Args:
        function: A function without ``Mut`` parameters.

    Returns:
        The same function.

    Raises:
        CheckError: E1101 for a ``Mut`` parameter, E1109 without a text to check.
    """
    plain = plain_function(function, "@extern")
    frame = sys._getframe(1)
    check_decorated(plain, frame, "@extern")
    with room(), readable(plain):
        source, definition = locate(plain)
        surroundings = _used_names(definition, frame)
        resolver = LiveResolver(plain, source, definition, surroundings)
        analysis = analyse(source, definition, resolver, extern=True)
    _raise_found(analysis, source)
    plain.__dslmut__ = _spec(plain, analysis, source, definition, resolver, Role.EXTERN, {}, False)  # pyright: ignore
    return function


def _decorate(function: Any, frame: types.FrameType, check: bool) -> Any:
    if isinstance(function, staticmethod | classmethod):
        return type(function)(_decorate(function.__func__, frame, check))
    if isinstance(function, functools.cached_property):
        return functools.cached_property(_decorate(function.func, frame, check))
    if isinstance(function, property):
        get, set_, delete = (
            p and _decorate(p, frame, check) for p in (function.fget, function.fset, function.fdel)
        )
        return type(function)(get, set_, delete, function.__doc__)
    plain = plain_function(function)
    check_decorated(plain, frame)
    with room(), readable(plain):
        source, definition = locate(plain)
        surroundings = _used_names(definition, frame)
        resolver = LiveResolver(plain, source, definition, surroundings)
        analysis = analyse(source, definition, resolver)
        _raise_found(analysis, source)
        spec = _spec(plain, analysis, source, definition, resolver, Role.FN, surroundings, check)
        return _made(plain, spec, _plan(analysis, spec, definition, resolver))


def _raise_found(analysis: Analysis, source: Source) -> None:
    if analysis.diagnostics:
        # The parsed text, not the file: a notebook cell or generated code may be gone from disk.
        raise CheckError(
            analysis.diagnostics,
            lambda path: source.lines if path == source.path else read_lines(path),
        )


def _spec(
    function: types.FunctionType,
    analysis: Analysis,
    source: Source,
    definition: Definition,
    resolver: LiveResolver,
    role: Role,
    surroundings: Mapping[str, object],
    check: bool,
) -> Spec:
    """Gather what the function's run time and the checker of its callers need."""
    node = definition.node
    parameters = analysis.signature.parameters
    private = mangling(definition)
    annotations = {
        p.name: function.__annotations__[private(p.name)]
        for p in parameters
        if private(p.name) in function.__annotations__ and "*" not in p.passing.value
    }
    if "return" in function.__annotations__:
        annotations["return"] = function.__annotations__["return"]
    return Spec(
        entity=_entity(function, analysis, source, definition, resolver, role),
        mut=analysis.signature.mut_names,
        optional=frozenset(p.name for p in parameters if p.mut and p.annotation.optional),
        unmarked=frozenset(p.name for p in parameters[:1] if definition.called_by_frameworks),
        module=function.__globals__,
        names=_in_annotations(annotations, surroundings),
        cells=dict(zip(function.__code__.co_freevars, function.__closure__ or ())),
        annotations=annotations,
        check=check,
        places=_places(node, source),
    )


def _entity(
    function: types.FunctionType,
    analysis: Analysis,
    source: Source,
    definition: Definition,
    resolver: LiveResolver,
    role: Role,
) -> Function:
    node, owner = definition.node, definition.owner
    name = function.__qualname__.rpartition("<locals>.")[2]
    if isinstance(node, ast.Lambda):
        return Function(name, role, analysis.signature.parameters)
    made = function_from(node, source, resolver, owner.name if owner else "")
    if not isinstance(made, Function):
        result = read_annotation(node.returns, resolver)
        made = Function(name, role, None, result.type, node.returns is not None)
    text = Text(node, source, resolver, analysis.summary)
    return replace(
        made,
        name=name,
        role=role,
        parameters=analysis.signature.parameters,
        method=definition.of_instances,
        text=lambda: text,
    )


def _places(node: Any, source: Source) -> dict[str, Span]:
    """Say where each parameter is declared."""
    everything = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    places = {a.arg: source.span(a) for a in everything}
    if getattr(node, "returns", None) is not None:
        places["return"] = source.span(node.returns)
    return places


def _used_names(definition: Definition, frame: types.FrameType) -> dict[str, object]:
    """Return the local names where it is decorated that a function uses; no others are kept alive."""
    if frame.f_locals is frame.f_globals:
        return {}
    node, owner = definition.node, definition.owner
    roots = [node, *(owner.bases if owner is not None else ())]
    words = {n.id for root in roots for n in ast.walk(root) if isinstance(n, ast.Name)}
    for root in (node.args, *filter(None, [getattr(node, "returns", None)])):  # what is quoted
        for n in ast.walk(root):
            if isinstance(n, ast.Constant) and isinstance(n.value, str):
                words.update(re.findall(r"\w+", n.value))
    return {name: value for name, value in frame.f_locals.items() if name in words}


def _in_annotations(
    annotations: Mapping[str, object], surroundings: Mapping[str, object]
) -> dict[str, object]:
    """Keep the local names that postponed annotations use."""
    texts = [a for a in annotations.values() if isinstance(a, str)]
    words = {w for text in texts for w in re.findall(r"\w+", text)}
    return {w: surroundings[w] for w in words if w in surroundings}


def _plan(analysis: Analysis, spec: Spec, definition: Definition, resolver: LiveResolver) -> Plan:
    node = definition.node
    checked = tuple(n for n in spec.annotations if n != "return") if spec.check else ()
    returns = spec.check and "return" in spec.annotations and not is_generator(node)
    inner = [
        n
        for n in ast.walk(node)
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n is not node
    ]
    decorated = {Word("fn"), Word("extern"), Word("optimizer")}
    untouched = frozenset(
        id(n) for n in inner if decorated & {decorator_word(d, resolver) for d in n.decorator_list}
    )
    return Plan(definition, analysis.signature, analysis.facts, checked, returns, untouched)


def _made(function: types.FunctionType, spec: Spec, plan: Plan) -> types.FunctionType:
    """Make the function anew around its rewritten code."""
    code = spec.code = rewritten(plan, function.__code__)
    forget_calls_of_older(function)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    cells[RUNTIME] = types.CellType(runtime)
    cells[SPEC] = types.CellType(spec)
    made = types.FunctionType(
        code,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells[name] for name in code.co_freevars),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__annotations__ = function.__annotations__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    made.__doc__ = function.__doc__
    made.__dict__.update(function.__dict__)
    if sys.version_info >= (3, 12):
        made.__type_params__ = function.__type_params__
    made.__dslmut__ = spec  # pyright: ignore[reportFunctionMemberAccess]
    made.__dict__["__beartype_wrapper"] = True  # its import hook need not check values once more
    return made
