"""The scalar program: all that depends on ``ctx`` and hyperparameters alone, evaluated on the host.

Once per step it is evaluated in double precision, by a function that is written for it; so bias
corrections and schedules never stand in the loop over a tensor's elements.
"""

from __future__ import annotations

import functools
import math
import operator
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Final

import torch

from dslmut.diagnostics.codes.optimizers import BadHyperparameter
from dslmut.diagnostics.raising import user_span

Number = int | float | bool

LONGEST: Final = 200
"""So many characters of an expression are shown to people."""


class Expression:
    """A node of the scalar program. Equal ones are the same object, so that they hash by identity.

    Attributes:
        op: An operator, ``input`` or ``call``.
        args: Expressions and numbers; for an input its name, for a call its function.
        kind: What it gives at every step: ``bool``, ``int`` or ``float``.
        text: It, written for people; long ones are cut.
    """

    __slots__ = ("__weakref__", "args", "kind", "op", "text")
    op: str
    args: tuple[Any, ...]
    kind: type
    text: str

    def __new__(cls, op: str, args: tuple[Any, ...], kind: type = float) -> Expression:
        """Return the one node of this kind."""
        key = (op, *(_identity(a) for a in args))
        known = _EXPRESSIONS.get(key)
        if known is None:
            known = _EXPRESSIONS[key] = super().__new__(cls)
            known.op, known.args = op, args
            known.kind = kind if op in ("input", "call") else _kind(op, args)
            known.text = _text(op, args)
        return known

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


_EXPRESSIONS: weakref.WeakValueDictionary[Any, Expression] = weakref.WeakValueDictionary()


def _identity(argument: Any) -> Any:
    """Return what tells an argument from others: ``0``, ``0.0``, ``-0.0`` and False are four."""
    if isinstance(argument, int | float | str):
        return (type(argument), repr(argument))
    return id(argument)


_LOGICAL = frozenset("lt le gt ge eq ne not and or xor".split())
_WHOLE = frozenset("add sub mul neg abs floordiv mod minimum maximum where".split())


def _kind(op: str, args: tuple[Any, ...]) -> type:
    if op in _LOGICAL:
        return bool
    kinds = {a.kind if isinstance(a, Expression) else type(a) for a in args[op == "where" :]}
    return int if op in _WHOLE and kinds <= {int, bool} else float


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def _text(op: str, args: tuple[Any, ...]) -> str:
    if op == "input":
        return str(args[0])
    if op == "call":
        return f"{getattr(args[0], '__name__', type(args[0]).__name__)}(ctx)"
    texts = [str(a) for a in args]
    text = (
        f"({texts[0]} {_INFIX[op]} {texts[1]})"
        if op in _INFIX and len(texts) == 2
        else f"{op}({', '.join(texts)})"
    )
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


# -- arithmetic ----------------------------------------------------------------------------------


def _power(a: float, b: float) -> float:
    result = a**b
    return math.nan if isinstance(result, complex) else result


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _extreme(choose: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return the smaller or larger of two numbers, as torch does: not-a-number wins."""
    return lambda a, b: a if a != a else b if b != b else choose(a, b)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": _power, "neg": operator.neg,
    "abs": abs, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "not": operator.not_,
    "and": lambda a, b: bool(a) and bool(b), "or": lambda a, b: bool(a) or bool(b),
    "xor": lambda a, b: bool(a) is not bool(b),
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log2": math.log2, "log10": math.log10,
    "log1p": math.log1p, "expm1": math.expm1, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "tanh": math.tanh, "erf": math.erf, "sigmoid": _sigmoid, "square": lambda x: x * x,
    "rsqrt": lambda x: 1 / math.sqrt(x), "reciprocal": lambda x: 1 / x,
    "floor": lambda x: float(math.floor(x)), "ceil": lambda x: float(math.ceil(x)),
    "trunc": lambda x: float(math.trunc(x)),
    "round": lambda x, digits=0: float(round(x, digits)),
    "minimum": _extreme(min), "maximum": _extreme(max), "where": lambda c, a, b: a if c else b,
}  # fmt: skip
"""What each operator does to Python numbers."""


def _quotient(a: float, b: float) -> float:
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def _overflow(a: float, b: float) -> float:
    odd = float(b).is_integer() and b % 2 == 1
    return -math.inf if a < 0 and odd else math.inf


def _logarithm(x: float) -> float:
    return -math.inf if x == 0 else math.nan


_LIMITS: dict[str, Callable[..., float]] = {
    "div": _quotient, "reciprocal": lambda x: _quotient(1.0, x), "pow": _overflow,
    "exp": lambda x: math.inf, "expm1": lambda x: math.inf, "sigmoid": lambda x: 0.0,
    "log": _logarithm, "log2": _logarithm, "log10": _logarithm,
    "log1p": lambda x: _logarithm(x + 1), "rsqrt": lambda x: math.inf if x == 0 else math.nan,
    "floor": float, "ceil": float, "trunc": float, "round": lambda x, digits=0: float(x),
}  # fmt: skip
"""What torch gives where Python raises; what does not stand here is not-a-number."""


def calls(expressions: Iterable[Any]) -> bool:
    """Say whether a schedule is called where these expressions are evaluated."""
    return any(e.op == "call" for e in in_order(expressions))


def apply(op: str, numbers: Sequence[Any]) -> Any:
    """Return what an operator gives for numbers; where Python would raise, what torch gives."""
    try:
        return FUNCTIONS[op](*numbers)
    except (ZeroDivisionError, OverflowError, ValueError):
        return _LIMITS.get(op, lambda *_: math.nan)(*numbers)


def called(function: Callable[[Any], Any], ctx: Any) -> float:
    """Call a schedule with the numbers of this step.

    Raises:
        OptimizerError: E-OPT-002 if it returns no number.
    """
    value = function(ctx)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if not isinstance(value, Real):
        name = getattr(function, "__name__", type(function).__name__)
        raise BadHyperparameter.raised(
            user_span(),
            f"the schedule `{name}` returned a `{type(value).__name__}`, not a number",
            fix="return a number, or a tensor with one element, on every path",
            why="a schedule gives one number for each step",
        )
    number: Any = value
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


# -- evaluation ----------------------------------------------------------------------------------


def in_order(expressions: Iterable[Any]) -> list[Expression]:
    """Return all nodes of expressions, each once and behind those that it is computed from."""
    found: dict[Expression, None] = {}
    waiting = [e for e in reversed(list(expressions)) if isinstance(e, Expression)]
    while waiting:
        e = waiting[-1]
        missing = (
            [a for a in e.args if isinstance(a, Expression) and a not in found]
            if e not in found
            else []
        )
        waiting.extend(reversed(missing))
        if not missing:
            found[waiting.pop()] = None
    return list(found)


def evaluate(expressions: Sequence[Any], inputs: Mapping[str, Number], ctx: Any) -> list[Number]:
    """Return the numbers that expressions stand for.

    Args:
        expressions: Expressions and numbers.
        inputs: The numbers of ``ctx`` and of the hyperparameters.
        ctx: What schedules are called with.

    Raises:
        KeyError: If an input is missing.
    """
    known: dict[Expression, Number] = {}
    for e in in_order(expressions):
        if e.op == "input":
            known[e] = inputs[e.args[0]]
        elif e.op == "call":
            known[e] = called(e.args[0], ctx)
        else:
            known[e] = apply(e.op, [known[a] if isinstance(a, Expression) else a for a in e.args])
    return [known[e] if isinstance(e, Expression) else e for e in expressions]


@functools.lru_cache(maxsize=256)
def compiled(
    expressions: tuple[Any, ...],
) -> Callable[[Mapping[str, Number], Any], Sequence[float]]:
    """Return a function that evaluates expressions together, each common part once.

    It is written as Python source: for AdamW that takes two microseconds a step.
    """
    scope: dict[str, Any] = {"_call": called, **{f"_{n}": f for n, f in FUNCTIONS.items()}}
    names: dict[Expression, str] = {}

    def name_of(argument: Any) -> str:
        if isinstance(argument, Expression):
            return names[argument]
        finite = isinstance(argument, int) or math.isfinite(argument)
        return f"({argument!r})" if finite else f"float('{argument}')"

    lines = []
    for number, e in enumerate(in_order(expressions)):
        names[e] = f"t{number}"
        lines.append(f"    t{number} = {_source(e, name_of, scope)}")
    results = "".join(f"{name_of(e)}, " for e in expressions)
    body = "\n".join([*lines, f"    return ({results})"])
    exec(f"def program(inputs, ctx):\n{body}", scope)
    program, kept = scope["program"], tuple(expressions)

    def run(inputs: Mapping[str, Number], ctx: Any) -> Sequence[float]:
        try:
            return program(inputs, ctx)
        except (ZeroDivisionError, OverflowError, ValueError, TypeError):
            return evaluate(kept, inputs, ctx)

    return run


def _source(e: Expression, name_of: Callable[[Any], str], scope: dict[str, Any]) -> str:
    if e.op == "input":
        return f"inputs[{e.args[0]!r}]"
    if e.op == "call":
        name = f"_schedule{len(scope)}"
        scope[name] = e.args[0]
        return f"_call({name}, ctx)"
    arguments = [name_of(a) for a in e.args]
    sign = _INFIX.get(e.op) if e.op != "pow" else None
    return f"{arguments[0]} {sign} {arguments[1]}" if sign else f"_{e.op}({', '.join(arguments)})"
