"""Walks over whole functions: their parameters are bound, their bodies run, those inside them too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from dslmut.checking import entities as en
from dslmut.checking.arguments import matched
from dslmut.checking.definitions import decorator_name, decorator_word
from dslmut.checking.entities import Function, Parameter, Passing, Type, Word
from dslmut.checking.environments import Binding
from dslmut.checking.facts import Facts, Signature, Write
from dslmut.checking.knowledge import NO_GRADIENTS
from dslmut.checking.lattice import NOTHING, Given, Use, Value, holding, join
from dslmut.checking.memory import Memory
from dslmut.checking.origins import Origin, Root
from dslmut.checking.resolve import Resolver, read_parameters
from dslmut.checking.scopes import arguments_of
from dslmut.checking.source import FunctionNode, Source
from dslmut.checking.walk import Handlers, Walk

CALLS = 200
"""So many calls of functions inside of a function are followed, and as deep as this:"""

DEPTH = 6


def walk_function(
    source: Source,
    node: FunctionNode,
    resolver: Resolver,
    handlers: Handlers,
    memory: Memory,
    signature: Signature | None = None,
    parameters: Iterable[Parameter] | None = None,
) -> Walk:
    """Walk over a function and the functions inside it.

    Args:
        source: The text it is in.
        node: The function.
        resolver: Of names from outside.
        handlers: What to do for each type of node.
        memory: Of the functions that it calls.
        signature: What it may change; None where anything may be changed.
        parameters: What it declares, where no signature says so.

    Returns:
        The walk, with what it found as ``facts``.
    """
    walk = Walk(source, resolver, Facts(), handlers, node, signature, memory=memory)
    if signature is not None:
        parameters = signature.parameters
    declared = tuple(read_parameters(node, resolver) if parameters is None else parameters)
    walk.parameters = declared
    while True:
        # Again where a function inside rebinds names of this one.
        before = dict(walk.ever) if walk.rebound else {}
        _seed(walk, node, declared)
        run(walk, node)
        _walk_nested(walk)
        if not walk.rebound or walk.ever == before:
            return walk


def run(walk: Walk, node: FunctionNode | ast.Module | ast.ClassDef) -> None:
    """Run a body, or the expression that a lambda returns."""
    walk.running = True
    if {decorator_name(d) for d in getattr(node, "decorator_list", ())} & NO_GRADIENTS:
        walk.without_gradients = True
    if isinstance(node, ast.Lambda):
        walk.returns(walk.evaluate(node.body))
    else:
        walk.block(node.body)
    walk.running = False


def _walk_nested(walk: Walk) -> None:
    """Walk over the functions inside, until what they bind outside of themselves is stable."""
    inner = list(dict.fromkeys(walk.nested))
    while True:
        before = dict(walk.ever)
        for node in inner:
            if isinstance(node, _DEFS) and is_checked(node, walk.resolver):
                continue
            child = Walk(walk.source, walk.resolver, walk.facts, walk.handlers, node, parent=walk)
            if not isinstance(node, ast.ClassDef):
                _seed_inner(child, node, walk.defaults.get(id(node), {}))
            run(child, node)
            _walk_nested(child)
        if walk.ever == before:
            return


_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)


_CHECKED = ("fn", "extern", "optimizer", "gradient_transform", "update_transform")


def is_checked(node: ast.FunctionDef | ast.AsyncFunctionDef, resolver: Resolver) -> bool:
    """Say whether a function is checked by itself."""
    words = {decorator_word(d, resolver) for d in node.decorator_list}
    return any(Word(w) in words for w in _CHECKED)


# -- parameters ----------------------------------------------------------------------------------


def _seed(walk: Walk, node: FunctionNode, parameters: Iterable[Parameter]) -> None:
    """Bind the parameters to what is known of them from the signature."""
    places = {a.arg: a for a in arguments_of(node)}
    for parameter in parameters:
        type_ = _argument_type(parameter)
        root = Root.MUT if parameter.mut else Root.PARAM
        origins = frozenset({Origin(root, parameter.name, type_.kind)})
        value = Value(type_, origins if type_.kind is not en.Kind.PLAIN else frozenset())
        if type_.kind not in _NO_VALUES:  # a caller may have computed it from its parameters
            value = value._replace(graph=frozenset({Use(origins)}))
        _bind_parameter(walk, places[parameter.name], value)


_NO_VALUES = frozenset({*en.MARKABLE, en.Kind.PLAIN, en.Kind.CALLABLE})


def _seed_inner(walk: Walk, node: FunctionNode, defaults: Mapping[str, Value]) -> None:
    """Bind the parameters of a function inside: called from here with we don't know what."""
    places = {a.arg: a for a in arguments_of(node)}
    for parameter in read_parameters(node, walk.resolver):
        type_ = _argument_type(parameter)
        value = Value(type_, frozenset({Origin(Root.FRESH, parameter.name, type_.kind)}))
        default = defaults.get(parameter.name)
        if default is not None:
            value = join(value, default) if parameter.annotated else default
        _bind_parameter(walk, places[parameter.name], value)


def _bind_parameter(
    walk: Walk, argument: ast.arg, value: Value, given: ast.AST | None = None
) -> None:
    binding = Binding.at(walk.source.span(given or argument), value)
    walk.env[argument.arg] = walk.ever[argument.arg] = binding


def _argument_type(parameter: Parameter) -> Type:
    if parameter.passing in (Passing.STAR, Passing.DOUBLE_STAR):
        return en.container(parameter.type)
    return parameter.type


def default_values(walk: Walk, node: FunctionNode) -> dict[str, Value]:
    """Evaluate the defaults of a function that is defined here; return them by parameter."""
    a = node.args
    positional = [*a.posonlyargs, *a.args]
    pairs = [*zip(positional[len(positional) - len(a.defaults) :], a.defaults)]
    pairs += [(k, d) for k, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None]
    return {argument.arg: walk.evaluate(default) for argument, default in pairs}


# -- calls of functions inside -------------------------------------------------------------------


def follow(
    walk: Walk, function: Function, given: list[Given] | None, call: ast.AST
) -> Value | None:
    """Run a function that is defined inside of this one where it is called, with its arguments.

    Args:
        walk: Of the caller.
        function: What is called.
        given: The arguments; None where somebody else calls it, with others.
        call: The call.

    Returns:
        What it gives; None where it is defined elsewhere, or cannot be followed.
    """
    child = _followed(walk, function, given, call)
    return result_of(child, call) if child is not None else None


def writes_inside(
    walk: Walk, function: Function, given: list[Given] | None, call: ast.AST
) -> Mapping[Origin, Write] | None:
    """Return the tensors of models that a function which is defined inside writes when called."""
    child = _followed(walk, function, given, call)
    return child.writes if child is not None else None


def _followed(
    walk: Walk, function: Function, given: list[Given] | None, call: ast.AST
) -> Walk | None:
    """Walk over a function that is defined inside of this one; None where it is not."""
    text = function.text() if function.text is not None else None
    home = walk.home_of(text.node) if text is not None else None
    if text is None or home is None or isinstance(home.scope, ast.Module):
        return None
    if any(g.star for g in given or ()):
        return None
    callers = list(walk.callers())
    if len(callers) > DEPTH or any(w.scope is text.node for w in callers):
        return None
    callers[-1].followed += 1
    if callers[-1].followed > CALLS:
        return None
    child = Walk(
        walk.source, walk.resolver, walk.facts, walk.handlers, text.node, parent=home, caller=walk
    )
    defaults = home.defaults[id(text.node)]
    if given is None:
        _seed_inner(child, text.node, defaults)
    else:
        _seed_given(child, text.node, function, given, defaults)
    run(child, text.node)
    return child


def _seed_given(
    walk: Walk,
    node: FunctionNode,
    function: Function,
    given: list[Given],
    defaults: Mapping[str, Value],
) -> None:
    """Bind the parameters of a function inside to the arguments of one call."""
    values: dict[str, list[Value]] = {}
    subjects: dict[str, ast.expr] = {}
    for argument, parameter in matched(function.parameters or (), given):
        if parameter is not None:
            values.setdefault(parameter.name, []).append(argument.value)
            subjects.setdefault(parameter.name, argument.subject)
    places = {a.arg: a for a in arguments_of(node)}
    for parameter in function.parameters or ():
        found = values.get(parameter.name)
        place = places[parameter.name]
        if parameter.passing in (Passing.STAR, Passing.DOUBLE_STAR):
            positional = parameter.passing is Passing.STAR
            value = holding(found or (), walk.fresh(place), positional)
        elif found is not None:
            value = _typed(found[0], parameter.type)
        else:
            value = defaults.get(parameter.name, NOTHING)
        _bind_parameter(walk, place, value, subjects.get(parameter.name))


def _typed(value: Value, declared: Type) -> Value:
    """Return an argument with the type that its parameter is declared with, if it had none."""
    return value._replace(type=declared) if value.type.kind is en.Kind.UNKNOWN else value


def age_what_may_change(walk: Walk, function: Value) -> None:
    """A function that is defined here may be called: it may change what this one may change."""
    if not any(o.kind is en.Kind.CALLABLE for o in function.origins):
        return
    seen = {o for b in walk.env.values() for o in b.value.reachable}
    walk.stale(frozenset(o for o in seen if o.kind is en.Kind.MODEL and o.changeable))


def result_of(walk: Walk, call: ast.AST) -> Value:
    """Return what a walk over a function has found it to give."""
    if walk.generates:
        # Its body runs when it is asked for items, as a function's does when it is called.
        return holding([walk.yielded], walk.fresh(call, en.Kind.CALLABLE))
    value = walk.returned or NOTHING
    entity = value.entity
    text = entity.text() if isinstance(entity, Function) and entity.text is not None else None
    if text is None or walk.home_of(text.node) is not walk or not isinstance(entity, Function):
        return value
    # It leads out of what it was defined in: what it gives there is all that is known of it.
    gives = follow(walk, entity, None, call)
    return Value(value.type, value.origins, (gives,) if gives is not None else ())
