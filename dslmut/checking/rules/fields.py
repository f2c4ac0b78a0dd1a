"""E0303, E0901 and E0403 where the source shows them: what can be assigned as a field."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from dslmut.checking import knowledge as kn
from dslmut.checking.entities import Kind
from dslmut.checking.facts import Facts, FieldSet
from dslmut.checking.origins import Origin, Root
from dslmut.checking.source import Source
from dslmut.checking.wellknown import MODULE_NAMES, ModuleMembers
from dslmut.diagnostics.codes.fields import NoSuchField, NotAField, RankDiffers
from dslmut.diagnostics.model import Diagnostic, Edit, Fix, Position, Span
from dslmut.diagnostics.wording import listed


def check_fields(facts: Facts, source: Source) -> Iterator[Diagnostic]:
    """Check the assignments ``owner.name = value`` of a function."""
    for event in facts.of(FieldSet):
        found = _value_has_no_fields(event, source) or _no_such_field(event, source)
        found = found or _replaced_submodule(event, source) or _wrong_rank(event, source)
        if found is not None:
            yield found


def _value_has_no_fields(event: FieldSet, source: Source) -> Diagnostic | None:
    kind = event.owner.type.kind
    text = source.segment(event.node.value)
    if kind in (Kind.TENSOR, Kind.FIELD) and event.name not in kn.TENSOR_ATTRIBUTES:
        return NotAField.at(
            source.span(event.node),
            f"`{text}` is a tensor, and `{event.name}` is no field of it",
            fix="compute a new tensor and bind it to a name, or assign a field of the model that holds it",
        )
    if kind is Kind.STATE and event.name != "param_groups":
        return NotAField.at(
            source.span(event.node),
            f"`{text}` is an optimizer state, and `{event.name}` is no field of it",
            fix=f'set a hyperparameter in its groups: `{text}.param_groups[0]["{event.name}"] = ...`',
        )
    return None


def _no_such_field(event: FieldSet, source: Source) -> Diagnostic | None:
    cls = event.owner.type.cls
    if event.owner.type.kind is not Kind.MODEL or cls is None:
        return None
    if isinstance(cls.members, ModuleMembers):
        return None  # any module at all, of whatever subclass
    names = cls.members.names()
    if names is None or event.name in names:
        return None
    own = sorted(n for n in names - MODULE_NAMES | {"training"} if cls.members.field(n) is not None)
    near = difflib.get_close_matches(event.name, own, n=1)
    span = _attribute_name(event.node, source)
    fix = Fix(f"declare it in the class: `{event.name}: ...`")
    if near:
        fix = Fix(f"write `{source.segment(event.node.value)}.{near[0]}`", (Edit(span, near[0]),))
    public = sorted(n for n in names - MODULE_NAMES if not n.startswith("_"))
    fields = listed(n for n in public if cls.members.field(n) is not None)
    known = f"; its fields are {fields}" if fields and not near else ""
    return NoSuchField.at(span, f"`{cls.name}` declares no field `{event.name}`{known}", fix=fix)


def _replaced_submodule(event: FieldSet, source: Source) -> Diagnostic | None:
    cls = event.owner.type.cls
    declared = cls.members.field(event.name) if cls else None
    is_module = event.value.type.kind is Kind.MODEL
    if event.owner.type.kind not in (Kind.MODEL, Kind.PART) or not is_module:
        return None
    if declared is not None and declared.kind not in (Kind.MODEL, Kind.PART, Kind.UNKNOWN):
        return None
    owned = [o for o in event.owner.origins if o.root is not Root.FRESH]
    # What must not be changed at all is E1102's.
    if not owned or not all(o.changeable for o in owned):
        return None
    return NotAField.at(
        source.span(event.node),
        f"this replaces a submodule of {_named(owned)}, whose old parameters an optimizer may still hold",
        why="an optimizer that exists already would go on training the old parameters",
        fix=f"set the parameters of `{source.segment(event.node)}`, or build the model with the new part before its optimizer",
    )


def _named(origins: list[Origin]) -> str:
    return str(min(origins, key=str))


def _wrong_rank(event: FieldSet, source: Source) -> Diagnostic | None:
    """E0403 for a number or a literal tensor that cannot have the declared rank."""
    cls = event.owner.type.cls
    shape = cls.members.shape(event.name) if cls else None
    rank = _literal_rank(event.literal)
    if shape is None or rank is None or any(sign in shape for sign in ("...", "*")):
        return None
    declared = len(shape.split())
    if declared == rank:
        return None
    target = source.segment(event.node)
    return RankDiffers.at(
        source.span(event.literal) if event.literal is not None else source.span(event.node),
        f'this has {rank} dimensions, `{target}` has {declared}: "{shape}"',
        fix=f"write `torch.full_like({target}, {source.segment(event.literal)})`"
        if rank == 0 and event.literal is not None
        else "make the value in the shape of the field",
    )


def _literal_rank(node: ast.expr | None) -> int | None:
    match node:
        case ast.Constant(value=int() | float()):
            return 0
        case ast.UnaryOp(operand=ast.Constant(value=int() | float())):
            return 0
    return None


def _attribute_name(node: ast.Attribute, source: Source) -> Span:
    """Return the range of the name behind the last dot."""
    span = source.span(node)
    start = Position(span.end.line, span.end.column - len(node.attr))
    return Span(span.path, start, span.end)
