"""Scalars: what a body gets for hyperparameters and the numbers of ``ctx`` while it is traced.

Arithmetic on them builds the scalar program. Those that meet a tensor become inputs of the tensor
program.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, NoReturn, Protocol

from dslmut.diagnostics.codes.optimizers import BadHyperparameter
from dslmut.diagnostics.raising import user_span
from dslmut.optim.expressions import Expression, Number, apply


class NeedsNumber(BaseException):
    """A schedule asks for a concrete number: it becomes a node that is called at each step.

    No ``Exception``, so that the schedule's own ``except Exception`` lets it pass.
    """


class Owner(Protocol):
    """What a scalar asks its trace for."""

    def branch(self, scalar: Scalar) -> bool:
        """Decide a branch."""
        ...

    def number(self, scalar: Scalar, how: str) -> NoReturn:
        """Refuse to give a number."""
        ...

    def torch_call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of torch that got a scalar."""
        ...


class Scalar:
    """A number of the scalar program: a hyperparameter, a part of ``ctx``, or computed from them.

    Args:
        expression: How it is computed.
        value: What it is at this moment, for branches.
        owner: The trace that it belongs to.
    """

    __slots__ = ("expression", "owner", "value")

    def __init__(self, expression: Expression, value: Number, owner: Owner) -> None:
        self.expression, self.value, self.owner = expression, value, owner

    def __bool__(self) -> bool:
        return self.owner.branch(self)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Do what an operator of a NumPy number asks; its functions need the number."""
        op = _UFUNCS.get(function.__name__)
        inputs = tuple(i.item() if getattr(i, "ndim", None) == 0 else i for i in inputs)
        plain = method == "__call__" and not options
        if op is not None and plain and all(isinstance(i, Scalar | Real) for i in inputs):
            return operation(op, *inputs)
        return self.owner.number(self, "NumPy")

    def __pos__(self) -> Scalar:
        return self

    def __round__(self, digits: int = 0) -> Scalar:
        return operation("round", self, digits)

    def __divmod__(self, other: Any) -> tuple[Scalar, Scalar]:
        return self // other, self % other

    def __repr__(self) -> str:
        return f"<Scalar {self.expression}>"

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = next(a for a in _flat([args, kwargs or {}]) if isinstance(a, Scalar))
        return found.owner.torch_call(function, args, kwargs or {})


class Unread:
    """A schedule that a body has not read yet: it can only be called, or read by ``schedule_value``.

    Args:
        name: Of the hyperparameter.
        function: The schedule.
    """

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        self._name, self.function = name, function

    def __call__(self, ctx: Any) -> Any:
        """Call the schedule, as ``schedule_value`` does."""
        return self.function(ctx)

    def _refuse(self, *_: Any) -> NoReturn:
        raise BadHyperparameter.raised(
            user_span(),
            f"`{self._name}` is a schedule here, and the body takes it for a number",
            fix=f"read its number first: `{self._name} = schedule_value({self._name}, ctx)`",
            why="the number of a schedule is another one at each step",
        )

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        next(a for a in _flat([args, kwargs or {}]) if isinstance(a, Unread))._refuse()


def operation(op: str, *operands: Any) -> Any:
    """Return the scalar that an operator gives; of numbers alone, their number.

    Args:
        op: A key of ``expressions.FUNCTIONS``.
        operands: Scalars and numbers.
    """
    operands = tuple(map(_plain, operands))
    owner = next((o.owner for o in operands if isinstance(o, Scalar)), None)
    if owner is None:
        return apply(op, operands)
    parts = tuple(o.expression if isinstance(o, Scalar) else o for o in operands)
    values = [o.value if isinstance(o, Scalar) else o for o in operands]
    return Scalar(Expression(op, parts), apply(op, values), owner)


def _plain(operand: Any) -> Any:
    """Return a number of Python's own for one of another library."""
    if isinstance(operand, Scalar | bool):
        return operand
    return int(operand) if isinstance(operand, Integral) else float(operand)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [x for item in value for x in _flat(item)]
    if isinstance(value, dict):
        return [x for item in value.values() for x in _flat(item)]
    return [value]


# -- operators -----------------------------------------------------------------------------------


def _binary(op: str, swapped: bool = False) -> Callable[[Scalar, Any], Any]:
    def method(self: Scalar, other: Any) -> Any:
        if not isinstance(other, Scalar | Real):
            return NotImplemented
        return operation(op, *((other, self) if swapped else (self, other)))

    return method


def _unary(op: str) -> Callable[[Scalar], Any]:
    return lambda self: operation(op, self)


def _number(how: str) -> Callable[..., Any]:
    return lambda self, *_: self.owner.number(self, how)


def _define_operators() -> None:
    names = {"div": "truediv", **{n: n for n in "add sub mul floordiv mod pow and or xor".split()}}
    for op, name in names.items():
        setattr(Scalar, f"__{name}__", _binary(op))
        setattr(Scalar, f"__r{name}__", _binary(op, swapped=True))
    for op in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Scalar, f"__{op}__", _binary(op))
    for op, name in {"neg": "neg", "abs": "abs", "not": "invert"}.items():
        setattr(Scalar, f"__{name}__", _unary(op))
    for op in ("floor", "ceil", "trunc"):
        setattr(Scalar, f"__{op}__", _unary(op))
    asked = {
        "float": "float(...)",
        "int": "int(...)",
        "index": "an index",
        "complex": "complex(...)",
    }
    asked |= {
        "hash": "a set or a dictionary",
        "str": "a text",
        "format": "a text",
        "array": "NumPy",
    }
    for name, how in asked.items():
        setattr(Scalar, f"__{name}__", _number(how))

    for name in _NUMERIC:
        setattr(Unread, f"__{name}__", Unread._refuse)


_UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "power": "pow",
    "true_divide": "div", "floor_divide": "floordiv", "remainder": "mod",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq",
    "not_equal": "ne",
}  # fmt: skip
_NUMERIC = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos abs "
    "lt le gt ge bool float int round array"
).split()

_define_operators()
