"""What to write instead of a change that a function may not make."""

from __future__ import annotations

import ast
import re

from dslmut.checking import knowledge as kn
from dslmut.checking.entities import MARKABLE, Kind, Parameter
from dslmut.checking.facts import Change, Signature, Verb
from dslmut.checking.origins import Origin
from dslmut.checking.scopes import arguments_of
from dslmut.checking.source import Definition, FunctionNode, Source
from dslmut.checking.trees import root_name
from dslmut.diagnostics.model import Edit, Fix


def fix_for(
    change: Change,
    origin: Origin,
    parameter: Parameter | None,
    signature: Signature,
    source: Source,
) -> Fix:
    """Say what to write instead of a change that is not allowed."""
    name = origin.name
    if origin.kind is Kind.MODEL and _evaluates(change):
        return Fix(
            f"write `with eval_mode({name}):` (`from dslmut import eval_mode`), which restores the mode of every module"
        )
    argument = argument_node(signature.definition.node, name)
    if parameter is not None and holds_models(parameter) and argument and argument.annotation:
        wanted = module_container(argument.annotation, source)
        return Fix(
            f"keep the modules in one model: write `{name}: {wanted}`, and `mut({name})` at the calls"
        )
    if origin.kind not in MARKABLE:
        if parameter is not None and parameter.type.kind is Kind.MODEL:  # *ms: Net
            return Fix(
                f"keep the modules in one model: write `{name}: Mut[nn.ModuleList]`, and `mut({name})` at the calls"
            )
        value = origin.kind in (Kind.TENSOR, Kind.FIELD, Kind.UNKNOWN)
        kept = change.verb is Verb.ARGUMENT or not value
        return Fix(_KEPT if kept else _value_fix(change, source))
    if parameter is None:
        return Fix(
            f"pass it as a parameter `{name}: Mut[...]`, and write `mut({name})` at the calls"
        )
    if argument is None or argument.annotation is None:
        definition = signature.definition
        if definition.owner is not None and arguments_of(definition.node)[0] is argument:
            return _receiver_fix(name, definition.owner.name, definition)
        return Fix(
            f"annotate the parameter: `{name}: Mut[...]`, and write `mut({name})` at the calls"
        )
    text = source.segment(argument.annotation)
    edit = Edit(source.span(argument.annotation), f"Mut[{text}]")
    return Fix(f"write `{name}: Mut[{text}]`, and `mut({name})` at the calls", (edit,))


_KEPT = (
    "take the model and the state as `Mut` parameters of their own; or leave `@fn` away from a "
    "method of an object that keeps them: plain code may change anything"
)


def _receiver_fix(name: str, owner: str, definition: Definition) -> Fix:
    """Say how a method declares that it changes its receiver."""
    annotated = f'annotate the receiver: `{name}: Mut["{owner}"]`'
    if definition.called_by_frameworks:
        return Fix(f"{annotated}; calls stay as they are")
    return Fix(f"{annotated}, and write `mut(m).{definition.name}(...)` at the calls")


def _evaluates(change: Change) -> bool:
    """Say whether a change puts a model into evaluation mode: `m.eval()`, `m.train(False)`."""
    if change.verb is not Verb.METHOD or not isinstance(change.node, ast.Call):
        return False
    given = [*change.node.args, *(k.value for k in change.node.keywords)]
    off = len(given) == 1 and isinstance(given[0], ast.Constant) and given[0].value is False
    return change.name == "eval" or (change.name == "train" and off)


def _value_fix(change: Change, source: Source) -> str:
    """Say how to make a new tensor instead of changing one that was given."""
    name = root_name(change.subject) or "x"
    match change.verb:
        case Verb.AUGMENT:
            return f"make a new tensor: `{name} = {name} {change.name} ...`"
        case Verb.METHOD if change.name in kn.OWN_ATTRIBUTES:
            return f"make a tensor of your own on the same values: `{name} = {name}.detach().requires_grad_()`"
        case Verb.METHOD if kn.in_place(change.name):
            new = change.name.rstrip("_")
            return f"make a new tensor: `{name} = {name}.{new}(...)`, or copy it first: `{name} = {name}.clone()`"
    return f"copy it first: `{name} = {name}.clone()`"


def holds_models(parameter: Parameter) -> bool:
    """Say whether a parameter is a container of Python with models in it."""
    item = parameter.type.item
    return item is not None and item.kind is Kind.MODEL


def module_container(annotation: ast.expr, source: Source) -> str:
    """Return the annotation for torch's own container of what a Python container holds."""
    by_key = re.search(r"dict|Mapping", source.segment(annotation), re.IGNORECASE)
    return "Mut[nn.ModuleDict]" if by_key else "Mut[nn.ModuleList]"


def argument_node(node: FunctionNode, name: str) -> ast.arg | None:
    """Return the parameter of that name in the text of a function."""
    return next((a for a in arguments_of(node) if a.arg == name), None)
