"""What a body must not do, and what to write instead: the same words from the source and the trace."""

from __future__ import annotations

from typing import NamedTuple

from dslmut.diagnostics.codes.base import Code
from dslmut.diagnostics.codes.bodies import (
    ArrayFromTensor,
    BranchOnTensor,
    CannotBeTraced,
    CapturedTensor,
    ChangingTrace,
    InPlaceInBody,
    NumberFromTensor,
    RandomInBody,
)
from dslmut.diagnostics.codes.optimizers import BadState
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.model import Span


class Refusal(NamedTuple):
    """A code, what was done, and what to write instead."""

    code: type[Code]
    message: str
    fix: str

    def raised(self, span: Span | None) -> DslmutError:
        """Return the error, for a place."""
        return self.code.raised(span, self.message, fix=self.fix)


BRANCH = Refusal(
    BranchOnTensor,
    "the truth of a tensor is asked, which has no value yet",
    "write `torch.where(condition, a, b)`; for a choice by shape use `param.shape` or `param.ndim`",
)
ITEM = Refusal(
    NumberFromTensor,
    "a number is asked of a tensor, which has no value yet",
    "compute with the tensor as it is; to look at it, report it: `diagnostic(name, value)`",
)
ARRAY = Refusal(
    ArrayFromTensor,
    "a tensor is given to NumPy, and has no value yet",
    "use the function of the same name in `torch`",
)
ABSENT = Refusal(
    NumberFromTensor,
    "something is asked of a tensor in the body that only the parameter itself has",
    "a body sees values, shapes, dtypes and devices alone; decide the rest by groups",
)
GRAD = Refusal(
    NumberFromTensor,
    "`.grad` is asked of a tensor in the body, which has none",
    "use the gradient that the body gets as its second argument",
)
WRITE = Refusal(
    InPlaceInBody,
    "a tensor is changed in a way that the update graph cannot hold",
    "compute a new value, and return it by `optimizer_update`",
)


def writes(operation: str, into: str = "the parameter, the gradient or a state") -> Refusal:
    """Refuse an operation that changes what the body was given (E-OPT-020)."""
    new = f"`x.{operation.rstrip('_')}(...)`" if operation.isidentifier() else "`x = x - y`"
    message = f"`{operation}` writes into {into}"
    return Refusal(InPlaceInBody, message, f"compute a new value: {new}")


def draws(operation: str) -> Refusal:
    """Refuse an operation that draws from a global generator (E-OPT-024)."""
    return Refusal(
        RandomInBody,
        f"`{operation}` draws from the global generator",
        "draw by `ctx.rand_like(t)` or `ctx.randn_like(t)`, which depend on seed, step and parameter alone",
    )


def needs_number(how: str, what: str) -> Refusal:
    """Refuse to make a number of a scalar (E-OPT-022)."""
    return Refusal(
        NumberFromTensor,
        f"{how} needs the number of `{what}`, which changes from step to step",
        "compute with it as it is: `x ** 0.5` or `torch.sqrt(x)` for a root, `torch.where` for a choice",
    )


def depends_on_values(operation: str) -> Refusal:
    """Refuse a shape that is not known while the body is traced (E-OPT-022)."""
    return Refusal(
        NumberFromTensor,
        f"`{operation}` gives a tensor whose shape depends on values",
        "keep the shape, and choose by `torch.where(condition, a, b)`",
    )


def changes(operation: str) -> Refusal:
    """Refuse what differs from one trace to the next (E-OPT-026)."""
    return Refusal(
        ChangingTrace,
        f"`{operation}` gives something else whenever the body is traced",
        "let it depend on `ctx`, on hyperparameters, and on the parameter's shape and name alone",
    )


def runs_functions(operation: str) -> Refusal:
    """Refuse an operation that runs functions as values decide, such as ``torch.cond`` (E-OPT-029)."""
    return Refusal(
        CannotBeTraced,
        f"`{operation}` runs functions of the body, which an update graph cannot hold",
        "compute all cases, and choose by `torch.where(condition, a, b)`; repeat by a plain `for` loop",
    )


def says_no_shape(operation: str) -> Refusal:
    """Refuse an operation that does not say what it gives for a tensor without values (E-OPT-029)."""
    return Refusal(
        CannotBeTraced,
        f"`{operation}` does not say which shape and dtype its result has",
        f'say it by a function: `@torch.library.register_fake("{operation}")`',
    )


def packs(operation: str) -> Refusal:
    """Refuse an operation that gives a quantized tensor, or one in a library's own layout (E-OPT-029)."""
    return Refusal(
        CannotBeTraced,
        f"`{operation}` gives a tensor whose numbers are packed, which an update graph cannot hold",
        "round to a dtype of whole numbers instead: `(x / scale).round().clamp(-128, 127).to(torch.int8)`",
    )


OUTSIDE = Refusal(
    CapturedTensor,
    "the body uses a tensor that it did not get or make",
    'make it a hyperparameter, a number, or a state: `defstate("name", torch.zeros_like(param))`',
)


def extreme(name: str, operands: list[str], tensors: int) -> Refusal:
    """Refuse Python's ``max`` and ``min`` of tensors, which compare them (E-OPT-021).

    Args:
        name: ``max`` or ``min``.
        operands: What is compared, as it is written, a tensor first.
        tensors: How many of them are tensors.
    """
    if len(operands) != 2:
        return BRANCH
    first, second = operands
    bound = "min" if name == "max" else "max"
    fix = f"write `torch.{name}imum({first}, {second})`"
    if tensors == 1:
        fix = f"write `{first}.clamp({bound}={second})`"
    return BRANCH._replace(fix=fix)


def no_zero_number(state: str, reason: str) -> Refusal:
    """Refuse a plain number as the start of a state (E-OPT-003)."""
    fix = "write `torch.zeros(())` for one number; the count of updates is there: `ctx.updates`"
    return no_zero(state, reason)._replace(fix=fix)


def no_zero(state: str, reason: str) -> Refusal:
    """Refuse a state with another start (E-OPT-003)."""
    return Refusal(
        BadState,
        f"the state `{state}` does not start as a zero constant: {reason}",
        "start it with `torch.zeros_like(param)`; to begin elsewhere, keep the difference: "
        '`slow = param + defstate("ahead", torch.zeros_like(param))` begins at the parameter, if the '
        "update returns `ahead=slow - new`",
    )
