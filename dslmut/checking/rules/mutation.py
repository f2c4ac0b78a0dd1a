"""E1101 to E1104: what a function may change, and how that shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslmut.checking.entities import Function, Kind, Parameter, Passing, Role
from dslmut.checking.facts import (
    Call,
    Change,
    Facts,
    Misplaced,
    Passed,
    Place,
    Rebinding,
    Signature,
    Verb,
)
from dslmut.checking.origins import Origin, Root
from dslmut.checking.rules.fixes import argument_node, fix_for, holds_models, module_container
from dslmut.checking.source import FunctionNode, Source
from dslmut.checking.trees import is_super
from dslmut.diagnostics.codes.mutation import (
    ChangeWithoutMut,
    MeaninglessMut,
    MissingMut,
    ReboundMut,
)
from dslmut.diagnostics.model import Diagnostic, Edit, Fix, Label, Position, Span

THREE_KINDS = "a model (nn.Module), an optimizer state (OptState) or a reference (Ref)"


def check_signature(signature: Signature, source: Source, extern: bool) -> Iterator[Diagnostic]:
    """E1101 in the annotations of a function."""
    node = signature.definition.node
    for parameter in signature.parameters:
        yield from _check_parameter(parameter, node, source, extern)
    returns = None if isinstance(node, ast.Lambda) else node.returns
    if returns is not None and signature.returns_mut:
        yield MeaninglessMut.at(
            source.span(returns),
            "a result is not annotated with `Mut`: the caller decides what it may do with it",
            fix=f"write `-> {_without_mut(returns, source)}`",
        )


def _check_parameter(
    parameter: Parameter, node: FunctionNode, source: Source, extern: bool
) -> Iterator[Diagnostic]:
    argument = argument_node(node, parameter.name)
    annotation = argument.annotation if argument else None
    if annotation is None:
        return
    span = source.span(annotation)
    plain = f"write `{parameter.name}: {_without_mut(annotation, source)}`"
    if parameter.annotation.misplaced:
        yield MeaninglessMut.at(
            span,
            "`Mut` stands inside of another annotation: only a parameter as a whole can be marked",
            fix=plain,
        )
    elif parameter.mut and parameter.passing in (Passing.STAR, Passing.DOUBLE_STAR):
        yield MeaninglessMut.at(
            span,
            f"`{parameter.passing.value}{parameter.name}` takes any number of arguments, which cannot be marked one by one",
            fix="give the function one `Mut` parameter for each object that it changes",
        )
    elif parameter.mut and extern:
        yield MeaninglessMut.at(
            span,
            "an `@extern` function promises to change nothing",
            fix=f"{plain}, or use `@fn`",
        )
    elif parameter.mut and holds_models(parameter):
        yield MeaninglessMut.at(
            span,
            f"`{parameter.name}` is a container of Python; `Mut` takes {THREE_KINDS}",
            fix=f"keep its modules in one model: write `{parameter.name}: {module_container(annotation, source)}`",
        )
    elif parameter.mut and not parameter.type.markable:
        yield MeaninglessMut.at(
            span,
            f"`{parameter.name}` is {_described(parameter)}, which is a value; "
            f"`Mut` takes {THREE_KINDS}",
            fix=f"{plain} and return the new value",
        )


def _described(parameter: Parameter) -> str:
    kind = parameter.type.kind
    special = {Kind.OBJECT: "an object of Python", Kind.PLAIN: "a number or a string"}
    if kind in special:
        return special[kind]
    return "a tensor" if kind in (Kind.TENSOR, Kind.FIELD) else f"a {kind.value}"


def _without_mut(annotation: ast.expr, source: Source) -> str:
    """Return an annotation's text without its ``Mut[...]``."""
    text = source.segment(annotation)
    if isinstance(annotation, ast.Subscript) and text.split("[")[0].endswith("Mut"):
        return source.segment(annotation.slice)
    for inner in ast.walk(annotation):
        if isinstance(inner, ast.Subscript) and source.segment(inner.value).endswith("Mut"):
            return text.replace(source.segment(inner), source.segment(inner.slice))
    return text.replace("Mut[", "", 1).replace("]", "", 1) if "Mut[" in text else text


# -- markers at calls ----------------------------------------------------------------------------


def check_calls(facts: Facts, source: Source, restricted: bool) -> Iterator[Diagnostic]:
    """E1101 and E1103 at calls, and E1101 for markers that are no arguments.

    Args:
        facts: Of the walk.
        source: The text.
        restricted: Whether the calls stand in an ``@fn``.
    """
    for misplaced in facts.of(Misplaced):
        yield _misplaced(misplaced, source)
    for call in facts.of(Call):
        for passed in spurious(call, restricted):
            yield _spurious(call, passed, source)
        for passed in call.passed:
            if _lacks_marker(passed):
                yield _missing(call, passed, source)
        if call.receiver is not None and _lacks_marker(call.receiver):
            yield _missing(call, call.receiver, source)


def spurious(call: Call, restricted: bool) -> Iterator[Passed]:
    """Yield the arguments of a call whose marker means nothing."""
    receiver = () if call.receiver is None or is_super(call.receiver.node) else (call.receiver,)
    for passed in (*receiver, *call.passed):
        if passed.marked and not _accepts(call.callee, passed.parameter, restricted):
            yield passed


def _accepts(callee: Function, parameter: Parameter | None, restricted: bool) -> bool:
    """Say whether a marked argument means something to a function."""
    if parameter is not None and parameter.mut:
        return True
    if callee.role is Role.PLAIN:
        # A plain function may change anything; but only @fn hands it the object, not the token.
        return restricted
    return callee.role is Role.FN and callee.parameters is None


def _lacks_marker(passed: Passed) -> bool:
    parameter = passed.parameter
    if parameter is None or not parameter.mut or passed.marked:
        return False
    return not (passed.is_none and parameter.annotation.optional)


def _misplaced(event: Misplaced, source: Source) -> Diagnostic:
    node = event.node
    inner = source.segment(node.args[0]) if node.args else ""
    span = source.span(node)
    if event.place is Place.ARITY:
        message = "`mut` takes one argument, the name of what is passed"
        return MeaninglessMut.at(span, message, fix="write `mut(m)`")
    if event.place is Place.EXPRESSION:
        message = "only a name can be marked, so that a reader sees what changes"
        again = isinstance(node.args[0], ast.Call) and inner.startswith("mut(")
        fix = f"write `{inner}`" if again else _bind_first(inner)
        return MeaninglessMut.at(span, message, fix=fix)
    message = "`mut` marks an argument or a method's receiver, and this is neither"
    return MeaninglessMut.at(span, message, fix=Fix(f"write `{inner}`", (Edit(span, inner),)))


def _bind_first(text: str) -> str:
    return f"bind it to a name first: `part = {text}`, then pass `mut(part)`"


def _spurious(call: Call, passed: Passed, source: Source) -> Diagnostic:
    assert isinstance(passed.node, ast.Call)
    inner = source.segment(passed.node.args[0])
    callee, labels = call.callee, []
    if callee.role is Role.PLAIN:
        message = f"`{callee.name}` is a plain function: called from plain code, it takes the object itself"
    elif passed.parameter is not None:
        message = f"`{callee.name}` does not change its parameter `{passed.parameter.name}`"
    elif callee.role is Role.BUILTIN:
        message = f"`{callee.name}` changes none of its arguments"
    else:
        message = f"`{callee.name}` has no `Mut` parameter for this argument"
    if callee.definition is not None and callee.role is not Role.PLAIN:
        labels.append(Label(_heading(callee.definition), f"`{callee.name}` is defined here"))
    span = source.span(passed.node)
    fix = Fix(f"write `{inner}`", (Edit(span, inner),))
    return MeaninglessMut.at(span, message, fix=fix, labels=labels)


def _missing(call: Call, passed: Passed, source: Source) -> Diagnostic:
    span, text = source.span(passed.node), source.segment(passed.node)
    name = passed.parameter.name if passed.parameter else "?"
    marked = f"mut({text})"
    named = isinstance(passed.node, ast.Name)
    fix = Fix(f"write `{marked}`", (Edit(span, marked),)) if named else Fix(_bind_first(text))
    labels = []
    if call.callee.definition is not None:
        place = _heading(call.callee.definition)
        labels.append(Label(place, f"`{name}: Mut[...]` is declared here"))
    message = f"`{call.callee.name}` may change its parameter `{name}`"
    return MissingMut.at(span, message, fix=fix, labels=labels)


def _heading(span: Span) -> Span:
    """Return the first line of a definition."""
    return Span(span.path, span.start, Position(span.start.line, 10**6))


# -- changes -------------------------------------------------------------------------------------


def check_changes(facts: Facts, signature: Signature, source: Source) -> Iterator[Diagnostic]:
    """E1102: a change of what is not the function's to change."""
    reported = {id(p.node) for call in facts.of(Call) for p in spurious(call, restricted=True)}
    for change in facts.of(Change):
        if change.blamed and id(change.node) not in reported:
            yield _unmarked_change(change, signature, source)


def _unmarked_change(change: Change, signature: Signature, source: Source) -> Diagnostic:
    origin = min(change.blamed, key=lambda o: (o.root is Root.OUTER, str(o)))
    labels = []
    if change.alias is not None:
        alias = change.alias
        labels.append(Label(alias.site, f"`{alias.name}` may be {alias.origin}, bound here"))
    parameter = signature.parameter(origin.name) if origin.root is Root.PARAM else None
    if parameter is not None:
        argument = argument_node(signature.definition.node, parameter.name)
        if argument is not None and (not labels or labels[0].span.start.line != argument.lineno):
            labels.append(
                Label(source.span(argument), f"`{parameter.name}` is a parameter without `Mut`")
            )
    return ChangeWithoutMut.at(
        source.span(change.node),
        f"{_verb(change)} {origin}, {_whose(origin)}",
        fix=fix_for(change, origin, parameter, signature, source),
        labels=labels,
    )


def _verb(change: Change) -> str:
    subject = "this may change" if _aliased(change) else "this changes"
    match change.verb:
        case Verb.METHOD:
            return f"`{change.name}` works in place: {subject}"
        case Verb.WRITER:
            return f"`{change.name}` writes to its argument: {subject}"
        case Verb.ARGUMENT:
            callee = change.name if " " in change.name or "`" in change.name else f"`{change.name}`"
            return f"{callee} is given the right to change it: {subject}"
        case Verb.AUGMENT:
            return f"`{change.name}=` on a tensor works in place: {subject}"
    return subject


def _aliased(change: Change) -> bool:
    return len(change.touched) > 1


def _whose(origin: Origin) -> str:
    if origin.root is Root.OUTER:
        return "a variable from outside of the function"
    if origin.path and "[]" not in origin.path:
        return f"a part of `{origin.name}`, which is a parameter without `Mut`"
    return "which is a parameter without `Mut`"


# -- rebindings ----------------------------------------------------------------------------------


def check_rebindings(facts: Facts, signature: Signature, source: Source) -> Iterator[Diagnostic]:
    """E1104: a ``Mut`` parameter's name gets another object; E1101: the name ``mut`` does."""
    for event in facts.of(Rebinding):
        span = _naming(source, event.node)
        if event.name not in signature.mut_names:
            yield MeaninglessMut.at(
                span,
                f"`{event.name}` marks arguments; here it gets another meaning",
                fix="choose another name",
            )
            continue
        argument = argument_node(signature.definition.node, event.name)
        labels = [Label(source.span(argument), "declared here")] if argument else []
        yield ReboundMut.at(
            span,
            f"`{event.form}` binds the name `{event.name}` to something else; the caller's object stays as it is",
            fix=f"set what should change: `{event.name}.field = value`; or use another name",
            labels=labels,
        )


def _naming(source: Source, node: ast.AST) -> Span:
    """Return the first line of a statement that binds a name, the whole of an expression."""
    span = source.span(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
        line = source.lines[span.start.line - 1]
        return Span(span.path, span.start, Position(span.start.line, len(line)))
    return span
