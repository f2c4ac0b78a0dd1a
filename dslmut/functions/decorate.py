"""``@fn``: a function is read, checked, rewritten, and given back as a plain function."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, overload

from dslmut.checking.analysis import Analysis, analyse
from dslmut.checking.definitions import decorator_word, function_from
from dslmut.checking.entities import Function, Role, Text, Word
from dslmut.checking.live import LiveResolver
from dslmut.checking.resolve import read_annotation
from dslmut.checking.scopes import is_generator
from dslmut.checking.source import Definition, Source
from dslmut.diagnostics.codes.mutation import SourceUnavailable
from dslmut.diagnostics.exceptions import CheckError, DslmutError
from dslmut.diagnostics.model import Span
from dslmut.diagnostics.raising import user_span
from dslmut.functions import runtime, values
from dslmut.functions.locate import locate, readable
from dslmut.functions.rewrite import SPEC, Plan, rewritten
from dslmut.functions.spec import Spec
from dslmut.functions.trees import RUNTIME

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
        CheckError: E1101 to E1105, E1107, E1108, E0303, E0403, E0901: all that is wrong in one
            error. E1109 if there is no text to check.

    Example:
        >>> @fn
        ... def scale(m: Mut[nn.Linear], factor: float) -> None:
        ...     m.weight = m.weight * factor
    """
    surroundings = sys._getframe(1).f_locals
    if function is None:
        return lambda f: _decorate(f, surroundings, check)
    return _decorate(function, surroundings, check)


def extern(function: F, /) -> F:
    """Declare that a plain Python function changes nothing that it is given.

    Args:
        function: A function without ``Mut`` parameters.

    Returns:
        The same function.

    Raises:
        CheckError: E1101 for a ``Mut`` parameter, E1109 without a text to check.
    """
    plain = _plain_function(function)
    surroundings = sys._getframe(1).f_locals
    with readable(plain):
        source, definition = locate(plain)
        resolver = LiveResolver(plain, source, definition, surroundings)
        analysis = analyse(source, definition, resolver, extern=True)
    _raise_found(analysis, source)
    plain.__dslmut__ = _spec(plain, analysis, source, definition, resolver, Role.EXTERN, {}, False)  # pyright: ignore
    return function


def _decorate(function: Any, surroundings: Mapping[str, object], check: bool) -> Any:
    if isinstance(function, staticmethod | classmethod):
        return type(function)(_decorate(function.__func__, surroundings, check))
    if isinstance(function, property):
        get, set_, delete = (
            p and _decorate(p, surroundings, check)
            for p in (function.fget, function.fset, function.fdel)
        )
        return property(get, set_, delete, function.__doc__)
    plain = _plain_function(function)
    with readable(plain):
        return _checked(plain, surroundings, check)


def _checked(
    plain: types.FunctionType, surroundings: Mapping[str, object], check: bool
) -> types.FunctionType:
    source, definition = locate(plain)
    resolver = LiveResolver(plain, source, definition, surroundings)
    analysis = analyse(source, definition, resolver)
    _raise_found(analysis, source)
    spec = _spec(plain, analysis, source, definition, resolver, Role.FN, surroundings, check)
    return _made(plain, spec, _plan(analysis, spec, definition, resolver))


def _plain_function(function: Any) -> types.FunctionType:
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None and not hasattr(function, "__dslmut__"):
        raise _wrapper(function, wrapped)
    if isinstance(function, types.FunctionType):
        return function
    kind = type(function).__name__
    raise TypeError(f"@fn decorates a function written in Python, not a {kind}")


def _wrapper(function: Any, wrapped: Any) -> DslmutError:
    """Return the error for `@fn` above a decorator that puts another function around the user's."""
    name = getattr(wrapped, "__name__", "the function")
    return SourceUnavailable.raised(
        user_span(),
        f"another decorator stands between `@fn` and `{name}`: `@fn` gets its wrapper, whose text is another",
        fix="put `@fn` directly above the `def`, below the other decorators",
    )


def _raise_found(analysis: Analysis, source: Source) -> None:
    if analysis.diagnostics:
        # The parsed text, not the file: a notebook cell or generated code may be gone from disk.
        raise CheckError(
            analysis.diagnostics, lambda path: source.lines if path == source.path else ()
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
    annotations = {
        p.name: function.__annotations__[p.name]
        for p in parameters
        if p.name in function.__annotations__ and "*" not in p.passing.value
    }
    if "return" in function.__annotations__:
        annotations["return"] = function.__annotations__["return"]
    return Spec(
        entity=_entity(function, analysis, source, definition, resolver, role),
        mut=analysis.signature.mut_names,
        optional=frozenset(p.name for p in parameters if p.mut and p.annotation.optional),
        unmarked=frozenset(p.name for p in parameters[:1] if definition.called_by_frameworks),
        module=function.__globals__,
        names={}
        if surroundings is function.__globals__
        else _used_names(annotations, surroundings),
        cells=dict(zip(function.__code__.co_freevars, function.__closure__ or ())),
        annotations=annotations,
        check=check and values.ENABLED,
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
    method = owner is not None and not _is_static(node)
    text = Text(node, source, resolver, analysis.summary)
    return replace(
        made,
        name=name,
        role=role,
        parameters=analysis.signature.parameters,
        method=method,
        text=lambda: text,
    )


def _is_static(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(getattr(d, "id", "") in ("staticmethod", "classmethod") for d in node.decorator_list)


def _places(node: Any, source: Source) -> dict[str, Span]:
    """Say where each parameter is declared."""
    everything = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    places = {a.arg: source.span(a) for a in everything}
    if getattr(node, "returns", None) is not None:
        places["return"] = source.span(node.returns)
    return places


def _used_names(
    annotations: Mapping[str, object], surroundings: Mapping[str, object]
) -> dict[str, object]:
    """Keep the local names that postponed annotations use, and no others alive."""
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
    code = rewritten(plan, function.__code__)
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
    return made
