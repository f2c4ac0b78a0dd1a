"""The scalar program: all that depends on ``ctx`` and hyperparameters alone, evaluated on the host.

While a body is traced, hyperparameters and the numbers of ``ctx`` are ``Scalar`` objects, and
arithmetic on them builds expressions. Those that meet a tensor become inputs of the tensor
program. Once per step they are evaluated in double precision, by a function that is written for
them; so bias corrections and schedules never stand in the loop over a tensor's elements.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Number = int | float | bool


@dataclass(frozen=True, slots=True)
class Expression:
    """A node of the scalar program.

    Args:
        op: An operator, ``input`` or ``call``.
        args: Expressions and numbers; for an input its name, for a call its function.
    """

    op: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        if self.op == "input":
            return str(self.args[0])
        if self.op == "call":
            return f"{getattr(self.args[0], '__name__', 'schedule')}(ctx)"
        texts = [str(a) for a in self.args]
        if self.op in _INFIX and len(texts) == 2:
            return f"({texts[0]} {_INFIX[self.op]} {texts[1]})"
        return f"{self.op}({', '.join(texts)})"


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def _round(x: float) -> float:
    return float(round(x))


def _power(a: float, b: float) -> float:
    result = a**b
    return math.nan if isinstance(result, complex) else result


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": _power, "neg": operator.neg,
    "abs": abs, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "not": operator.not_, "sqrt": math.sqrt, "exp": math.exp,
    "log": math.log, "cos": math.cos, "sin": math.sin, "tanh": math.tanh,
    "floor": lambda x: float(math.floor(x)), "ceil": lambda x: float(math.ceil(x)),
    "round": _round, "minimum": min, "maximum": max, "where": lambda c, a, b: a if c else b,
    "rsqrt": lambda x: 1 / math.sqrt(x), "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "log1p": math.log1p, "expm1": math.expm1,
    "float": float, "int": int,
}  # fmt: skip
"""What each operator does to Python numbers."""


def _quotient(a: float, b: float) -> float:
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def _overflow(a: float, b: float) -> float:
    odd = float(b).is_integer() and b % 2 == 1
    return -math.inf if a < 0 and odd else math.inf


_LIMITS: dict[str, Callable[..., float]] = {
    "div": _quotient, "reciprocal": lambda x: _quotient(1.0, x), "pow": _overflow,
    "exp": lambda x: math.inf, "expm1": lambda x: math.inf, "sigmoid": lambda x: 0.0,
    "log": lambda x: -math.inf if x == 0 else math.nan,
    "log1p": lambda x: -math.inf if x == -1 else math.nan,
    "rsqrt": lambda x: math.inf if x == 0 else math.nan,
    "floor": float, "ceil": float, "round": float, "int": float,
}  # fmt: skip
"""What torch gives where Python raises; what does not stand here is not-a-number."""


def evaluate(e: Any, inputs: Mapping[str, Number], ctx: Any = None) -> Number:
    """Return the number that an expression stands for.

    Args:
        e: An expression or a number.
        inputs: The numbers of ``ctx`` and of the hyperparameters.
        ctx: What schedules are called with.
    """
    if not isinstance(e, Expression):
        return e
    if e.op == "input":
        return inputs[e.args[0]]
    if e.op == "call":
        return _called(e.args[0], ctx)
    numbers = [evaluate(a, inputs, ctx) for a in e.args]
    try:
        return FUNCTIONS[e.op](*numbers)
    except (ZeroDivisionError, OverflowError, ValueError):
        return _LIMITS.get(e.op, lambda *_: math.nan)(*numbers)


def _called(function: Callable[[Any], Any], ctx: Any) -> Number:
    """Call a schedule with the numbers of this step."""
    value = function(ctx)
    return value.item() if isinstance(value, torch.Tensor) else value


def compiled(
    expressions: Sequence[Any],
) -> Callable[[Mapping[str, Number], Any], tuple[float, ...]]:
    """Return a function that evaluates expressions together, each common part once.

    It is written as Python source: for AdamW that takes two microseconds a step.
    """
    lines: list[str] = []
    names: dict[Any, str] = {}
    scope: dict[str, Any] = {"_call": _called}

    def name_of(e: Any) -> str:
        if not isinstance(e, Expression):
            return f"({float(e)!r})" if math.isfinite(e) else f"_float('{e}')"
        if e not in names:
            text = _source(
                e, [name_of(a) for a in e.args] if e.op not in ("input", "call") else [], scope
            )
            names[e] = f"t{len(names)}"
            lines.append(f"    {names[e]} = {text}")
        return names[e]

    results = [name_of(e) for e in expressions]
    body = "\n".join([*lines, f"    return ({', '.join(results)}{',' if results else ''})"])
    scope |= {"_float": float, **{f"_{n}": f for n, f in FUNCTIONS.items()}}
    exec(f"def program(inputs, ctx):\n{body}", scope)
    program = scope["program"]
    kept = tuple(expressions)

    def run(inputs: Mapping[str, Number], ctx: Any) -> tuple[float, ...]:
        try:
            return program(inputs, ctx)
        except (ZeroDivisionError, OverflowError, ValueError, TypeError):
            return tuple(float(evaluate(e, inputs, ctx)) for e in kept)

    return run


def _source(e: Expression, arguments: list[str], scope: dict[str, Any]) -> str:
    if e.op == "input":
        return f"inputs[{e.args[0]!r}]"
    if e.op == "call":
        name = f"_schedule{len(scope)}"
        scope[name] = e.args[0]
        return f"_call({name}, ctx)"
    sign = _INFIX.get(e.op) if e.op != "pow" else None
    return f"{arguments[0]} {sign} {arguments[1]}" if sign else f"_{e.op}({', '.join(arguments)})"


# -- scalars while tracing -----------------------------------------------------------------------


class NeedsNumber(Exception):
    """A schedule asks for a concrete number: it becomes a node that is called at each step."""


class Scalar:
    """A number of the scalar program: a hyperparameter, a part of ``ctx``, or computed from them.

    Args:
        expression: How it is computed.
        value: What it is at this moment, for branches.
        tracer: Records branches, and turns scalars into inputs of the tensor program.
    """

    __slots__ = ("expression", "tracer", "value")

    def __init__(self, expression: Any, value: Number, tracer: Any) -> None:
        self.expression, self.value, self.tracer = expression, value, tracer

    def __bool__(self) -> bool:
        return self.tracer.branch(self)

    def _number(self, how: str) -> Any:
        return self.tracer.number(self, how)

    def __float__(self) -> float:
        return self._number("float(...)")

    def __int__(self) -> int:
        return self._number("int(...)")

    def __index__(self) -> int:
        return self._number("an index")

    def __round__(self, digits: int = 0) -> Scalar:
        return self.tracer.operation("round", self)

    def __floor__(self) -> Scalar:
        return self.tracer.operation("floor", self)

    def __ceil__(self) -> Scalar:
        return self.tracer.operation("ceil", self)

    def __hash__(self) -> int:
        return hash(self.expression)

    def __pos__(self) -> Scalar:
        return self

    def __repr__(self) -> str:
        return f"Scalar({self.expression} = {self.value})"

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = next(a for a in _flat([args, kwargs or {}]) if isinstance(a, Scalar))
        return found.tracer.torch_call(function, args, kwargs or {})


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [x for item in value for x in _flat(item)]
    if isinstance(value, dict):
        return [x for item in value.values() for x in _flat(item)]
    return [value]


def _binary(op: str, swapped: bool = False) -> Any:
    def method(self: Scalar, other: Any) -> Any:
        if not isinstance(other, Scalar | int | float | bool):
            return NotImplemented
        return self.tracer.operation(op, *((other, self) if swapped else (self, other)))

    return method


def _unary(op: str) -> Any:
    def method(self: Scalar) -> Any:
        return self.tracer.operation(op, self)

    return method


def _define_operators() -> None:
    arithmetic = {"div": "truediv", **{n: n for n in "add sub mul floordiv mod pow".split()}}
    for op, name in arithmetic.items():
        setattr(Scalar, f"__{name}__", _binary(op))
        setattr(Scalar, f"__r{name}__", _binary(op, swapped=True))
    for op in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Scalar, f"__{op}__", _binary(op))
    for op in ("neg", "abs"):
        setattr(Scalar, f"__{op}__", _unary(op))


_define_operators()
