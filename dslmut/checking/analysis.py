"""The checker's entrance: one function, or one file, and what is wrong with it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dslmut.checking import entities as en
from dslmut.checking.definitions import decorator_word
from dslmut.checking.entities import Kind, Parameter, Passing, Type, Word
from dslmut.checking.environments import Binding
from dslmut.checking.expressions import EXPRESSIONS
from dslmut.checking.facts import Facts, Signature
from dslmut.checking.origins import Origin, Root, Value, join
from dslmut.checking.resolve import Resolver, read_annotation, read_parameters
from dslmut.checking.rules import aliasing, escape, fields, mutation, opaque, optimizers
from dslmut.checking.scopes import arguments_of
from dslmut.checking.source import Definition, FunctionNode, Source, parse, read
from dslmut.checking.statements import STATEMENTS
from dslmut.checking.static import ModuleFile, Project, StaticResolver, home_of
from dslmut.checking.suppress import suppressed
from dslmut.checking.walk import Walk
from dslmut.diagnostics.model import Diagnostic, Position

HANDLERS = {**STATEMENTS, **EXPRESSIONS}


@dataclass(frozen=True)
class Analysis:
    """What is known of one function under check."""

    signature: Signature
    facts: Facts
    diagnostics: tuple[Diagnostic, ...]


def analyse(
    source: Source, definition: Definition, resolver: Resolver, *, extern: bool = False
) -> Analysis:
    """Check one function that is decorated with ``@fn`` or ``@extern``.

    Args:
        source: The text it is in.
        definition: Its place there.
        resolver: Of the names in it.
        extern: Whether it promises to change nothing.
    """
    signature = signature_of(definition, resolver)
    found = list(mutation.check_signature(signature, source, extern))
    facts = Facts()
    if not extern:
        facts = walk_function(source, definition.node, resolver, signature)
        found += mutation.check_calls(facts, source, restricted=True)
        found += mutation.check_changes(facts, signature, source)
        found += mutation.check_rebindings(facts, signature, source)
        found += fields.check_fields(facts, source)
        found += aliasing.check_aliasing(facts, source)
        found += opaque.check_opaque(facts, signature, source)
        found += escape.check_escapes(facts, signature, source)
    return Analysis(signature, facts, tuple(sorted(suppressed(found, source), key=_order)))


def signature_of(definition: Definition, resolver: Resolver) -> Signature:
    """Read what a function declares; an unannotated receiver is of its class."""
    parameters = read_parameters(definition.node, resolver)
    node = definition.node
    if definition.owner is not None and parameters and not parameters[0].annotated:
        cls = resolver.own_class()
        names = {getattr(d, "id", "") for d in getattr(node, "decorator_list", [])}
        if cls is not None and not names & {"staticmethod", "classmethod"}:
            me = Parameter(parameters[0].name, parameters[0].passing, en.Annotation(cls.type))
            parameters = (me, *parameters[1:])
    returns = None if isinstance(node, ast.Lambda) else node.returns
    result = read_annotation(returns, resolver)
    return Signature(definition, parameters, result.mut or result.misplaced)


def walk_function(
    source: Source, node: FunctionNode, resolver: Resolver, signature: Signature | None
) -> Facts:
    """Walk over a function and the functions inside it; return what was found."""
    facts = Facts()
    walk = Walk(source, resolver, facts, HANDLERS, node, signature)
    parameters = signature.parameters if signature else read_parameters(node, resolver)
    while True:
        # Again where a function inside rebinds names of this one.
        before = dict(walk.ever) if walk.rebound else {}
        _seed(walk, node, parameters)
        _run(walk, node)
        if not walk.rebound or walk.ever == before:
            return facts


def _run(walk: Walk, node: FunctionNode | ast.Module | ast.ClassDef) -> None:
    if isinstance(node, ast.Lambda):
        walk.evaluate(node.body)
    else:
        walk.block(node.body)
    _walk_nested(walk)


def _walk_nested(walk: Walk) -> None:
    """Walk over the functions inside, until what they bind outside of themselves is stable."""
    inner = list(dict.fromkeys(walk.nested))
    while True:
        before = dict(walk.ever)
        for node in inner:
            if isinstance(node, _DEFS) and _is_checked(node, walk.resolver):
                continue
            child = Walk(walk.source, walk.resolver, walk.facts, HANDLERS, node, parent=walk)
            if not isinstance(node, ast.ClassDef):
                _seed_inner(child, node, walk.defaults.get(id(node), {}))
            _run(child, node)
        if walk.ever == before:
            return


_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _is_checked(node: ast.FunctionDef | ast.AsyncFunctionDef, resolver: Resolver) -> bool:
    words = {decorator_word(d, resolver) for d in node.decorator_list}
    return bool(words & {Word("fn"), Word("extern"), Word("optimizer")})


def _seed(walk: Walk, node: FunctionNode, parameters: Iterable[Parameter]) -> None:
    """Bind the parameters to what is known of them from the signature."""
    places = {a.arg: a for a in arguments_of(node)}
    for parameter in parameters:
        type_ = _argument_type(parameter)
        root = Root.MUT if parameter.mut else Root.PARAM
        origins = frozenset({Origin(root, parameter.name, type_.kind)})
        value = Value(type_, origins if type_.kind is not Kind.PLAIN else frozenset())
        _bind_parameter(walk, places[parameter.name], value)


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


def _bind_parameter(walk: Walk, argument: ast.arg, value: Value) -> None:
    binding = Binding.at(walk.source.span(argument), value)
    walk.env[argument.arg] = walk.ever[argument.arg] = binding


def _argument_type(parameter: Parameter) -> Type:
    if parameter.passing in (Passing.STAR, Passing.DOUBLE_STAR):
        return en.container(parameter.type)
    return parameter.type


# -- files ---------------------------------------------------------------------------------------


def check_file(path: Path, project: Project, text: str | None = None) -> list[Diagnostic]:
    """Check a file without importing it or anything it imports.

    Args:
        path: Of the file.
        project: Where imports lead; ``project.refresh()`` looks for files that have changed.
        text: Its contents, where an editor has them unsaved.

    Raises:
        SyntaxError: If it cannot be parsed.
    """
    text = read(path) if text is None else text
    if not project.concerns(path, text):
        ast.parse(text, str(path))  # what cannot be parsed is said of every file
        return []
    source = parse(str(path), text)
    home, dotted = home_of(path)
    return check_source(source, ModuleFile(source, dotted, project, home))


def check_source(source: Source, file: ModuleFile) -> list[Diagnostic]:
    """Check every function of a module, and the calls in its plain code."""
    found = list(_check_plain(source, file))
    for definition in source.definitions:
        resolver = StaticResolver(file, definition)
        node = definition.node
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        words = {decorator_word(d, resolver) for d in decorators}
        if words & {Word("fn"), Word("extern")}:
            found += analyse(
                source, definition, resolver, extern=Word("extern") in words
            ).diagnostics
        elif Word("optimizer") in words:
            found += optimizers.check_body(source, definition, resolver)
        elif not any(_is_function(s) for s in definition.outer):
            facts = walk_function(source, node, resolver, None)
            found += _check_calls(facts, source)
    return sorted(suppressed(_unique(found), source), key=_order)


def _is_function(scope: ast.AST) -> bool:
    return isinstance(scope, FunctionNode)


def _check_plain(source: Source, file: ModuleFile) -> Iterator[Diagnostic]:
    """Check the calls at the top level of a module."""
    facts = Facts()
    walk = Walk(source, StaticResolver(file), facts, HANDLERS, source.tree)
    walk.block(source.tree.body)
    yield from _check_calls(facts, source)


def _check_calls(facts: Facts, source: Source) -> Iterator[Diagnostic]:
    """Check the calls of code that may change anything."""
    yield from mutation.check_calls(facts, source, restricted=False)
    yield from aliasing.check_aliasing(facts, source)


def _unique(found: list[Diagnostic]) -> list[Diagnostic]:
    return list({(d.code, d.span): d for d in found}.values())


def _order(d: Diagnostic) -> tuple[Position, str]:
    return (d.span.start if d.span else Position(0, 0), d.code)
