"""What calls in a body give and do: methods of tensors, functions of torch and Python, helpers."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.resolve import entity_of, last_name
from dslmut.checking.tracing import expressions, following, words
from dslmut.checking.tracing import tables as tb
from dslmut.checking.tracing.refusals import (
    ABSENT,
    ARRAY,
    BRANCH,
    ITEM,
    OUTSIDE,
    WRITE,
    Refusal,
    depends_on_values,
    draws,
    extreme,
    needs_number,
    writes,
)
from dslmut.checking.tracing.things import (
    NUMBER,
    TENSOR,
    UNKNOWN,
    Sort,
    Thing,
    computed,
)

if TYPE_CHECKING:
    from dslmut.checking.tracing.body import Body


def call(body: Body, node: ast.Call) -> Thing:
    """Return what a call gives for certain, and say what it does wrong."""
    func = node.func
    if isinstance(func, ast.Name) and (func.id in body.path.names or func.id in body.own):
        return _of_local(body, node, body.path.names.get(func.id, UNKNOWN))
    if isinstance(func, ast.Attribute):
        owner = body.evaluate(func.value)
        if owner.is_tensor:
            return _method(body, node, func.attr, owner)
        if owner.sort is Sort.CTX:
            things = arguments(body, node)
            noise = func.attr in ("rand_like", "randn_like") and things
            return computed(func.attr) if noise else UNKNOWN
    elif not isinstance(func, ast.Name):
        body.evaluate(func)
    return _of_entity(body, node, _entity(body, func))


def _of_local(body: Body, node: ast.Call, callee: Thing) -> Thing:
    things = arguments(body, node)
    if callee.node is not None:
        return following.follow(body, node, things, callee.node)
    body.path.open = True
    return UNKNOWN


def arguments(body: Body, node: ast.Call) -> list[Thing]:
    """Evaluate all arguments; return the positional ones."""
    positional = [body.evaluate(a) for a in node.args]
    for keyword in node.keywords:
        body.evaluate(keyword.value)
    return positional


def _entity(body: Body, func: ast.expr) -> en.Entity | str | None:
    """Return what is called: something known, or its dotted name in a module."""
    if isinstance(func, ast.Attribute):
        owner = None if _is_local(body, func) else entity_of(func.value, body.resolver)
        if isinstance(owner, en.Module):
            found = body.resolver.member(owner, func.attr)
            text = isinstance(found, en.Function) and found.text is not None
            ours = owner.name.partition(".")[0] not in _LIBRARIES
            known = isinstance(found, en.Word) or (text and ours)
            return found if known else f"{owner.name}.{func.attr}"
        return None
    found = entity_of(func, body.resolver)
    if isinstance(found, en.Function) and found.text is None:
        return found.qualified
    if isinstance(found, en.Function) and found.qualified.partition(".")[0] in _LIBRARIES:
        return found.qualified
    return str(found.key) if isinstance(found, en.Class) else found


_LIBRARIES = frozenset("torch numpy math random time builtins".split())


def _is_local(body: Body, func: ast.Attribute) -> bool:
    root: ast.expr = func
    while isinstance(root, ast.Attribute):
        root = root.value
    return not isinstance(root, ast.Name) or root.id in body.own or root.id in body.path.names


def _of_entity(body: Body, node: ast.Call, entity: en.Entity | str | None) -> Thing:
    if isinstance(entity, en.Word):
        return words.call(body, node, entity.name)
    things = arguments(body, node)
    if isinstance(entity, en.Function):
        text = entity.text() if entity.text is not None else None
        if text is not None and getattr(text.node, "name", "") == last_name(node.func):
            # Another name would be a variable, which may stand for something else by then.
            return following.follow_text(body, node, things, text)
    if isinstance(entity, str):
        package, _, name = entity.rpartition(".")
        for prefix, handler in _HANDLERS.items():
            if package == prefix or package.startswith(prefix + "."):
                return handler(body, node, things, package, name)
    harmless = isinstance(node.func, ast.Attribute) and node.func.attr in tb.HARMLESS
    body.path.open = body.path.open or not harmless
    return UNKNOWN


# -- tensors -------------------------------------------------------------------------------------


def refuse_outside(body: Body, node: ast.expr) -> None:
    """Say that a tensor from outside is computed with."""
    body.say(OUTSIDE, node)


def _method(body: Body, node: ast.Call, name: str, owner: Thing) -> Thing:
    things = arguments(body, node)
    refused = _refused_method(name)
    if refused is not None:
        body.say(refused, node)
        return NUMBER
    if name in tb.RANDOM:
        body.say(draws(name), node)
        return computed(name)
    if kn.in_place(name):
        assert isinstance(node.func, ast.Attribute)
        return body.write(node.func.value, name, node)
    if owner.outside and name not in tb.NUMBERS:
        refuse_outside(body, node)
    if name in tb.NUMBERS:
        return NUMBER
    return _operation(body, node, name, [owner, *things])


def _refused_method(name: str) -> Refusal | None:
    if name in tb.READING:
        return ITEM
    if name in tb.BRANCHING:
        return BRANCH
    if name in tb.ARRAYS:
        return ARRAY
    if name in tb.ABSENT:
        return ABSENT
    return WRITE if name in tb.WRITING else None


def _operation(body: Body, node: ast.Call, name: str, things: Sequence[Thing]) -> Thing:
    """Return what an operation gives, as a method or as a function; its tensor stands first."""
    first = things[0] if things else UNKNOWN
    if name in tb.SHAPED and first.is_tensor:
        body.say(depends_on_values(name), node)
        return UNKNOWN
    if name in tb.ZEROS:
        return TENSOR
    if name in tb.FILLED:
        return _filled(node, name, things)
    if name in tb.MADE:
        return computed(name)
    if not any(t.is_tensor for t in things):
        return (
            UNKNOWN if any(t.sort is Sort.UNKNOWN for t in things) else _scalar(body, node, things)
        )
    if name in tb.VIEWS and first.is_tensor:
        return expressions.view(first, name)
    if name in tb.ZERO_KEEPING and first.is_tensor:
        made = first.made or (f"it is {first.given} itself" if first.given else "")
        return Thing(Sort.TENSOR, made=made)
    if name in tb.MANY or (name in tb.REDUCING and (len(things) > 1 or node.keywords)):
        return UNKNOWN
    return computed(name)


def _filled(node: ast.Call, name: str, things: Sequence[Thing]) -> Thing:
    place = tb.FILLED[name] + (name == "new_full")
    value = things[place] if len(things) > place else UNKNOWN
    if not value.is_constant or any(k.arg == "fill_value" for k in node.keywords):
        return TENSOR
    zero = isinstance(value.value, int | float) and value.value == 0
    return TENSOR if zero else computed(name)


def _scalar(body: Body, node: ast.Call, things: Sequence[Thing]) -> Thing:
    scalar = any(t.is_scalar for t in things)
    return Thing(Sort.SCALAR, text=body.source.segment(node)) if scalar else UNKNOWN


# -- functions of libraries ----------------------------------------------------------------------


def _torch(body: Body, node: ast.Call, things: list[Thing], package: str, name: str) -> Thing:
    if name in tb.RANDOM and package in ("torch", "torch.random", "torch.nn.init"):
        body.say(draws(name), node)
        return computed(name)
    if name in tb.DROPPING and _in_training(node, things, tb.DROPPING[name]):
        body.say(draws(name), node)
        return computed(name)
    first = things[0] if things else UNKNOWN
    if kn.in_place(name) and node.args:
        return _written_first(body, node, name)
    for keyword in node.keywords:
        if keyword.arg == "out" and body.evaluate(keyword.value).given:
            body.say(writes(name, body.evaluate(keyword.value).given), node)
    if name in tb.BRANCHING:
        if any(t.is_tensor for t in things):
            body.say(BRANCH, node)
        return NUMBER
    for argument, thing in zip(node.args, things):
        if thing.outside and name not in tb.NUMBERS:
            refuse_outside(body, argument)
    if not kn.gives_tensors(f"{package}.{name}") or name in tb.NUMBERS:
        return NUMBER if first.is_tensor else UNKNOWN
    return _operation(body, node, name, things)


def _in_training(node: ast.Call, things: list[Thing], place: int) -> bool:
    """Say whether a function that drops elements is certainly told to do so."""
    told = things[place] if len(things) > place else None
    named = [k.value for k in node.keywords if k.arg in ("training", "p")]
    return not named and (told is None or told.value is True)


def _written_first(body: Body, node: ast.Call, name: str) -> Thing:
    """``torch.sqrt_(t)``, ``nn.init.zeros_(t)`` and ``torch._foreach_add_([t], ...)``."""
    target = node.args[0]
    if name in tb.RANDOM or ((name not in _QUIET_INITS and "uniform" in name) or "normal" in name):
        body.say(draws(name), node)
        return computed(name)
    if isinstance(target, ast.List | ast.Tuple):
        for element in target.elts:
            body.write(element, name, node)
        return UNKNOWN
    return body.write(target, name, node)


_QUIET_INITS = frozenset("zeros_ ones_ constant_ eye_ dirac_".split())


def _numpy(body: Body, node: ast.Call, things: list[Thing], package: str, name: str) -> Thing:
    if name in tb.RANDOM_MODULES.get(package, ()):
        body.say(draws(f"{package}.{name}"), node)
        return NUMBER
    if any(t.is_tensor for t in things):
        body.say(ARRAY, node)
    elif any(t.is_scalar for t in things):
        scalar = next(t for t in things if t.is_scalar)
        body.say(needs_number("NumPy", scalar.text), node)
    return UNKNOWN


def _random(body: Body, node: ast.Call, things: list[Thing], package: str, name: str) -> Thing:
    if package == "random" and name in tb.RANDOM_MODULES["random"]:
        body.say(draws(f"random.{name}"), node)
    return UNKNOWN


def _time(body: Body, node: ast.Call, things: list[Thing], package: str, name: str) -> Thing:
    return Thing(Sort.NUMBER, clock=name in tb.CLOCKS)


def _math(body: Body, node: ast.Call, things: list[Thing], package: str, name: str) -> Thing:
    for thing in things:
        if thing.is_tensor:
            body.say(ITEM, node)
        elif thing.is_scalar and name not in ("floor", "ceil", "trunc"):
            body.say(needs_number("float(...)", thing.text), node)
    return UNKNOWN


_NUMBER_OF = frozenset("float int complex range".split())
_TEXT_OF = frozenset("str repr format print".split())


def _builtin(body: Body, node: ast.Call, things: list[Thing], package: str, name: str) -> Thing:
    for thing in things:
        if thing.is_tensor and name in _NUMBER_OF | _TEXT_OF:
            body.say(ITEM, node)
        elif thing.is_scalar and name in _NUMBER_OF | (_TEXT_OF - {"repr"}):
            body.say(needs_number(_how(name), thing.text), node)
    if any(t.is_tensor for t in things):
        if name == "bool":
            body.say(BRANCH, node)
        elif name in ("max", "min") and len(things) > 1:
            body.say(_extreme(body, node, things, name), node)
        if name in ("abs", "pow", "sum"):
            return computed(name) if things[0].is_tensor or name == "pow" else UNKNOWN
    elif name in ("abs", "pow", "round") and any(t.is_scalar for t in things):
        return Thing(Sort.SCALAR, text=body.source.segment(node))
    body.path.open = body.path.open or name in tb.CALLING or any(k.arg for k in node.keywords)
    return NUMBER if name in ("len", "isinstance", "hasattr", "id") else UNKNOWN


def _extreme(body: Body, node: ast.Call, things: list[Thing], name: str) -> Refusal:
    pairs = sorted(zip(node.args, things), key=lambda p: not p[1].is_tensor)
    simple = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
    texts = [body.source.segment(a) for a, _ in pairs]
    texts = [t if isinstance(a, simple) else f"({t})" for t, (a, _) in zip(texts, pairs)]
    plain = len(things) == len(node.args) and not node.keywords
    return extreme(name, texts if plain else [], sum(t.is_tensor for t in things))


def _how(name: str) -> str:
    return "a text" if name in _TEXT_OF else f"{name}(...)"


_HANDLERS = {
    "torch": _torch,
    "numpy": _numpy,
    "math": _math,
    "random": _random,
    "time": _time,
    "builtins": _builtin,
}
