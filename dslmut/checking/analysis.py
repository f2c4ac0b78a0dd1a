"""The checker's entrance: one function, or one file, and what is wrong with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dslmut.checking import entities as en
from dslmut.checking.definitions import decorator_word
from dslmut.checking.depth import room
from dslmut.checking.entities import Parameter, Word
from dslmut.checking.expressions import EXPRESSIONS
from dslmut.checking.facts import Facts, Signature
from dslmut.checking.resolve import Resolver, read_annotation, read_parameters
from dslmut.checking.rules import (
    aliasing,
    bodies,
    differentiating,
    escape,
    fields,
    fresh,
    mutation,
    opaque,
    optimizers,
    stacking,
    transforms,
)
from dslmut.checking.running import run, walk_function
from dslmut.checking.source import Definition, FunctionNode, Source, parse, read, tree_of
from dslmut.checking.statements import STATEMENTS
from dslmut.checking.static import ModuleFile, Project, StaticResolver, home_of
from dslmut.checking.summaries import Summary, remember
from dslmut.checking.suppress import sifted, suppressed
from dslmut.checking.walk import Walk
from dslmut.diagnostics.model import Diagnostic, Position

HANDLERS = {**STATEMENTS, **EXPRESSIONS}


@dataclass(frozen=True)
class Analysis:
    """What is known of one function under check."""

    signature: Signature
    facts: Facts
    diagnostics: tuple[Diagnostic, ...]
    summary: Summary | None = None


def analyse(
    source: Source, definition: Definition, resolver: Resolver, *, extern: bool = False
) -> Analysis:
    """Check one function that is decorated with ``@fn`` or ``@extern``.

    Args:
        source: The text it is in.
        definition: Its place there.
        resolver: Of the names in it.
        extern: Whether it promises to change nothing.

    Returns:
        What is known of it, without the diagnostics that a comment ignores.
    """
    analysis = _analyse(source, definition, resolver, extern)
    found = sorted(suppressed(analysis.diagnostics, source), key=_order)
    return replace(analysis, diagnostics=tuple(found))


def _analyse(source: Source, definition: Definition, resolver: Resolver, extern: bool) -> Analysis:
    signature = signature_of(definition, resolver)
    found = list(mutation.check_signature(signature, source, extern))
    facts, summary = Facts(), None
    if not extern:
        walk = walk_function(
            source, definition.node, resolver, HANDLERS, resolver.memory, signature
        )
        facts = walk.facts
        summary = remember(resolver.memory, walk)
        found += mutation.check_calls(facts, source, restricted=True)
        found += mutation.check_changes(facts, signature, source)
        found += mutation.check_rebindings(facts, signature, source)
        found += fields.check_fields(facts, source)
        found += aliasing.check_aliasing(facts, source)
        found += opaque.check_opaque(facts, signature, source)
        found += escape.check_escapes(facts, signature, source)
        found += fresh.check_fresh(facts, signature, source)
        found += differentiating.check_differentiation(facts, source)
        if signature.mut_names:  # a training step, and no helper of a body
            found += optimizers.check_outside(source, definition.node, resolver)
    return Analysis(signature, facts, tuple(_unique(found)), summary)


def signature_of(definition: Definition, resolver: Resolver) -> Signature:
    """Read what a function declares; an unannotated receiver is of its class."""
    parameters = read_parameters(definition.node, resolver)
    node = definition.node
    if definition.of_instances and parameters and not parameters[0].annotated:
        cls = resolver.own_class()
        if cls is not None:
            me = Parameter(parameters[0].name, parameters[0].passing, en.Annotation(cls.type))
            parameters = (me, *parameters[1:])
    returns = None if isinstance(node, ast.Lambda) else node.returns
    result = read_annotation(returns, resolver)
    return Signature(definition, parameters, result.mut or result.misplaced, result.fresh)


# -- files ---------------------------------------------------------------------------------------


def check_file(path: Path, project: Project, text: str | None = None) -> list[Diagnostic]:
    """Check a file without importing it or anything it imports.

    Args:
        path: Of the file.
        project: Where imports lead; ``project.refresh()`` looks for files that have changed.
        text: Its contents, where an editor has them unsaved.

    Raises:
        OSError: If it cannot be read.
        SyntaxError: If it cannot be parsed.
        ValueError: If it is not in its encoding, or holds null bytes.
        RecursionError: If it is nested too deeply.
    """
    text = read(path) if text is None else text
    if not project.concerns(path, text):
        tree_of(str(path), text)  # what cannot be parsed is said of every file
        return []
    source = parse(str(path), text)
    home, dotted = home_of(path)
    with room():
        return check_source(source, ModuleFile(source, dotted, project, home))


def check_source(source: Source, file: ModuleFile) -> list[Diagnostic]:
    """Check every function of a module, and the calls in its plain code."""
    found = list(_check_plain(source, file))
    found += bodies.check_bodies(source, StaticResolver(file))
    found += optimizers.check_outside(source, source.tree, StaticResolver(file))
    for definition in source.definitions:
        resolver = StaticResolver(file, definition)
        node = definition.node
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        words = {decorator_word(d, resolver) for d in decorators}
        if words & {Word("fn"), Word("extern")}:
            extern = Word("extern") in words
            found += _analyse(source, definition, resolver, extern).diagnostics
            found += stacking.check_decorators(definition, source, file)
        elif Word("optimizer") in words:
            found += optimizers.check_body(source, definition, resolver)
        elif shaping := [w for w in transforms.LEADING if Word(w) in words]:
            found += transforms.check_transform(source, definition, resolver, shaping[0])
        elif not any(_is_function(s) for s in definition.outer):
            walk = walk_function(source, node, resolver, HANDLERS, resolver.memory)
            remember(resolver.memory, walk)
            found += _check_calls(walk.facts, source)
    return sorted(sifted(_unique(found), source), key=_order)


def _is_function(scope: ast.AST) -> bool:
    return isinstance(scope, FunctionNode)


def _check_plain(source: Source, file: ModuleFile) -> Iterator[Diagnostic]:
    """Check the calls at the top level of a module, the bodies of its classes included."""
    resolver = StaticResolver(file)
    walk = Walk(source, resolver, Facts(), HANDLERS, source.tree, memory=resolver.memory)
    run(walk, source.tree)
    _run_classes(walk)
    yield from _check_calls(walk.facts, source)


def _run_classes(walk: Walk) -> None:
    for node in dict.fromkeys(walk.nested):
        if isinstance(node, ast.ClassDef):
            child = Walk(walk.source, walk.resolver, walk.facts, HANDLERS, node, parent=walk)
            run(child, node)
            _run_classes(child)


def _check_calls(facts: Facts, source: Source) -> Iterator[Diagnostic]:
    """Check the calls of code that may change anything."""
    yield from mutation.check_calls(facts, source, restricted=False)
    yield from aliasing.check_aliasing(facts, source)


def _unique(found: list[Diagnostic]) -> list[Diagnostic]:
    return list({(d.code, d.span): d for d in found}.values())


def _order(d: Diagnostic) -> tuple[Position, str]:
    return (d.span.start if d.span else Position(0, 0), d.code)
