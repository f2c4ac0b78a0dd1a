"""Operations and scalar expressions in plain notation, with no more parentheses than they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from dslmut.optim.drawing import DRAWS, ROUNDS
from dslmut.optim.expressions import Expression

Words = tuple[str, int]
"""A text, and how strongly it holds together."""

ATOM = 10
_SIGNS: dict[str, Words] = {
    "eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1),
    "bitwise_or": ("|", 2), "logical_or": ("|", 2), "or": ("|", 2),
    "bitwise_xor": ("^", 3), "logical_xor": ("^", 3), "xor": ("^", 3),
    "bitwise_and": ("&", 4), "logical_and": ("&", 4), "and": ("&", 4),
    "add": ("+", 6), "sub": ("-", 6), "mul": ("*", 7), "div": ("/", 7), "floordiv": ("//", 7),
    "floor_divide": ("//", 7), "mod": ("%", 7), "remainder": ("%", 7),
    "mm": ("@", 7), "mv": ("@", 7), "bmm": ("@", 7), "dot": ("@", 7), "pow": ("**", 9),
}  # fmt: skip
_UNARY = {"neg": "-", "bitwise_not": "~", "logical_not": "~", "not": "~"}
_NEGATION = 8
_ITSELF = frozenset("detach alias lift_fresh lift_fresh_copy".split())
_HIDDEN = frozenset("layout device pin_memory memory_format non_blocking".split())


def written(node: fx.Node, words: Mapping[fx.Node, Words]) -> Words:
    """Write one operation.

    Args:
        node: Of an update graph.
        words: What stands for the nodes before it.
    """
    if node.target in DRAWS or node.target is ROUNDS:
        return _drawn(node, words), ATOM
    name, args = _name(node.target), _arguments(node)
    if name in _ITSELF:
        return words[args[0]]
    if name == "getitem":
        return f"{_held(args[0], words, ATOM)}[{args[1]}]", ATOM
    if name == "_to_copy" and len(args) == 1 and "dtype" in node.kwargs:
        return f"{_held(args[0], words, ATOM)}.to({_value(node.kwargs['dtype'], words)[0]})", ATOM
    alpha = node.kwargs.get("alpha", 1)
    if name in _SIGNS and len(args) == 2 and not set(node.kwargs) - {"alpha"}:
        left, right = (_value(a, words) for a in args)
        if name == "mul" and _is_number(args[1]) and not _is_number(args[0]):
            left, right = right, left
        if alpha != 1:
            right = _binary("mul", (repr(alpha), ATOM), right)
        return _binary(name, left, right)
    if name in _UNARY and len(args) == 1:
        return _UNARY[name] + _held(args[0], words, _NEGATION), _NEGATION
    keywords = [f"{k}={_value(v, words)[0]}" for k, v in node.kwargs.items() if k not in _HIDDEN]
    inside = ", ".join([*(_value(a, words)[0] for a in args), *keywords])
    return f"{name.removeprefix('linalg_').lstrip('_')}({inside})", ATOM


def _drawn(node: fx.Node, words: Mapping[fx.Node, Words]) -> str:
    """Write what draws random numbers, as a body does: key and step are those of the run."""
    _, _, _, shape, *values = node.args
    kind = _value(node.kwargs["dtype"], words)[0]
    if node.target is ROUNDS:
        return f"round_by_chance({_value(values[0], words)[0]}, {kind})"
    return f"ctx.{DRAWS[node.target]}({kind}{list(shape)})"  # pyright: ignore


def _name(target: Any) -> str:
    return getattr(target, "__name__", str(target)).partition(".")[0]


def _arguments(node: fx.Node) -> list[Any]:
    """Return the arguments of an operation, without those at the end that say nothing."""
    args, schema = list(node.args), getattr(node.target, "_schema", None)
    while schema is not None and args:
        argument = schema.arguments[len(args) - 1]
        if not argument.has_default_value() or isinstance(args[-1], fx.Node):
            break
        if args[-1] != argument.default_value:
            break
        args.pop()
    return args


def _is_number(value: Any) -> bool:
    """Say whether an argument is a number, or a scalar of the step."""
    if isinstance(value, fx.Node):
        return value.op == "placeholder" and value.name.startswith("scalar_")
    return isinstance(value, int | float)


def _held(value: Any, words: Mapping[fx.Node, Words], strength: int) -> str:
    text, own = _value(value, words)
    return text if own >= strength else f"({text})"


def _value(value: Any, words: Mapping[fx.Node, Words]) -> Words:
    if isinstance(value, fx.Node):
        return words[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v, words)[0] for v in value)}]", ATOM
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch."), ATOM
    negative = isinstance(value, int | float) and value < 0
    return repr(value), _NEGATION if negative else ATOM


def _binary(name: str, left: Words, right: Words) -> Words:
    sign, strength = _SIGNS[name]
    loose = strength + (name == "pow")
    a = left[0] if left[1] >= loose else f"({left[0]})"
    b = (
        right[0]
        if right[1] > strength or (name == "pow" and right[1] == strength)
        else f"({right[0]})"
    )
    return f"{a} {sign} {b}", strength


def scalar(e: Any, names: Mapping[Expression, str], of_input: Callable[[Expression], str]) -> Words:
    """Write a scalar expression.

    Args:
        e: An expression or a number.
        names: Of those that are written elsewhere.
        of_input: Gives the name of an input.
    """
    if not isinstance(e, Expression):
        return _value(e, {})
    if e in names:
        return names[e], ATOM
    if e.op == "input":
        return of_input(e), ATOM
    if e.op == "call":
        return f"{getattr(e.args[0], '__name__', 'schedule')}(ctx)", ATOM
    parts = [scalar(a, names, of_input) for a in e.args]
    if e.op in _SIGNS and len(parts) == 2:
        return _binary(e.op, *parts)
    if e.op in _UNARY:
        text, strength = parts[0]
        return _UNARY[e.op] + (text if strength >= _NEGATION else f"({text})"), _NEGATION
    return f"{e.op}({', '.join(text for text, _ in parts)})", ATOM
