"""What differentiates, and the changes that it would lose, repeat or get wrong: facts for E1106."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from dslmut.checking import knowledge as kn
from dslmut.checking.entities import Function
from dslmut.checking.facts import Late, Write
from dslmut.checking.lattice import Given, Partial, Value, graph_of
from dslmut.checking.origins import Origin
from dslmut.checking.running import writes_inside
from dslmut.checking.summaries import bound, effects, summary_of
from dslmut.checking.walk import Walk


def backward(walk: Walk, node: ast.AST, values: Iterable[Value]) -> None:
    """Record that values are differentiated after the parameters they come from were changed."""
    for use in graph_of(values):
        if use.changed is not None:
            walk.facts.record(Late(node, use.changed, min(use.origins, key=str)))


def note_writes(
    walk: Walk,
    node: ast.Call,
    function: Function,
    given: list[Given],
    receiver: Value | None = None,
) -> None:
    """Note the tensors of models that a call writes.

    Args:
        walk: The walk.
        node: The call.
        function: What is called.
        given: The arguments.
        receiver: Of a method.
    """
    if function.qualified in kn.PARAMETER_WRITERS and given:
        walk.rewritten(node, given[0].value.origins, trained=True)
    for origin, write in _effects(walk, function, given, receiver):
        walk.rewritten(node, [origin], write.trained)


def _effects(
    walk: Walk, function: Function, given: list[Given], receiver: Value | None = None
) -> Iterable[tuple[Origin, Write]]:
    arguments = bound(function, given, receiver)
    if arguments is None or not any(v.inside_model for v in arguments.values()):
        return ()
    found = summary_of(walk, function, arguments)
    return effects(function, found, arguments) if found is not None else ()


def check_differentiated(walk: Walk, node: ast.Call, by: Function, given: list[Given]) -> None:
    """Record what a function changes that is given to one which differentiates or repeats it.

    Args:
        walk: The walk.
        node: The call.
        by: ``value_and_grad``, a transform of ``torch.func``, ``checkpoint``, ``vmap``.
        given: The arguments; the first is the function.
    """
    given = _opened(given)
    function = given[0].value.entity if given else None
    if not isinstance(function, Function):
        return
    repeats = by.qualified in kn.REPEATING
    arguments = given[1:] if by.passes or repeats else None
    own = arguments[0].value.origins if by.passes and arguments else frozenset[Origin]()
    for origin, write in sorted(
        _writes(walk, node, function, arguments).items(), key=lambda w: str(w[0])
    ):
        differentiated = write.trained and (not own or any(origin.overlaps(o) for o in own))
        if repeats or differentiated:
            walk.facts.record(Late(node, write.place, origin, by.name))
            return
    changes = any(p.mut for p in function.parameters or ())
    if repeats and changes and function.definition is not None:
        origin = next((o for g in given[1:] if g.marked for o in g.value.origins), None)
        if origin is not None:
            walk.facts.record(Late(node, function.definition, origin, by.name))


def _opened(given: list[Given]) -> list[Given]:
    """Put a ``partial`` that is differentiated in as its function and the arguments it keeps."""
    entity = given[0].value.entity if given else None
    if not isinstance(entity, Partial):
        return given
    function, *values = given[0].value.contents
    kept = [g._replace(value=v) for g, v in zip(entity.given, values)]
    passed = sorted([*kept, *given[1:]], key=lambda g: g.keyword is not None)
    return _opened([given[0]._replace(value=function), *passed])


def _writes(
    walk: Walk, node: ast.Call, function: Function, arguments: list[Given] | None
) -> Mapping[Origin, Write]:
    """Return what a function writes: one that is defined here, or elsewhere."""
    inside = writes_inside(walk, function, arguments, node)
    if inside is not None:
        return inside
    return dict(_effects(walk, function, arguments or []))
