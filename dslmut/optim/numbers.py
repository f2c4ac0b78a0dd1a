"""The numbers of a step: what the scalar programs read, and where the kernels find the results."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dslmut.diagnostics.codes.optimizers import BadContext, BadOption
from dslmut.diagnostics.raising import user_span
from dslmut.optim.context import PROGRESS, Ctx, Curriculum
from dslmut.optim.expressions import Number, compiled, evaluate
from dslmut.optim.hyperparameters import check_spelling, fitted, normalised

if TYPE_CHECKING:
    from dslmut.optim.define import Optimizer


@dataclass(frozen=True, eq=False)
class Item:
    """One parameter of an optimizer.

    Args:
        number: Of the parameter.
        group: Of its group.
        parameter: The tensor itself.
        name: Its full name.
        apart: Whether it shares memory with another one, so that they are updated one by one.
    """

    number: int
    group: int
    parameter: Tensor
    name: str
    apart: bool = False


class ParamGroup(dict[str, Any]):
    """A group of parameters as torch keeps it, which knows its rule and the schedules in it.

    Attributes:
        definition: The rule.
        schedules: The hyperparameters that are, or contain, functions of ``ctx``; numbers stand in
            their places.
    """

    definition: Optimizer[...]
    schedules: dict[str, Any]

    def __init__(self, group: Mapping[str, Any], definition: Optimizer[...]) -> None:
        super().__init__(group)
        self.definition, self.schedules = definition, {}
        self.follow(self)

    def follow(self, values: Mapping[str, Any]) -> None:
        """Take the schedules among the values of hyperparameters; their numbers come at a step."""
        known = self.definition.hyperparameters
        found = {n: v for n, v in values.items() if n in known and known[n].scheduled}
        self.schedules |= {n: v for n, v in found.items() if is_schedule(v)}
        self.update({n: _number(v) for n, v in found.items() if is_schedule(v)})


def is_schedule(value: Any) -> bool:
    """Say whether a value is a function, or a tuple with one in it."""
    return callable(value) or (isinstance(value, tuple | list) and any(map(is_schedule, value)))


def _number(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_number, value))
    return 0.0 if callable(value) else value


def _is_plain(value: Any) -> bool:
    """Say whether a value stays what it is, as no tensor does."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return type(value) in (float, int, bool, str, type(None))


Inputs = Mapping[str, Number]
"""What scalar programs read: hyperparameters by their names, and those of ``ctx``."""

_NOTHING = object()


class Group:
    """A group's rule and hyperparameters.

    Args:
        shown: Torch's dictionary, into which schedulers and people write.
    """

    def __init__(self, shown: ParamGroup) -> None:
        self.definition, self.shown = shown.definition, shown
        self._seen: list[Any] = []
        self._size = len(shown)
        self._values: dict[str, Any] = {}
        self._fixed: tuple[Any, ...] | None = None

    def hyperparameters(self) -> Mapping[str, Any]:
        """Return what the rule is called with.

        Raises:
            OptimizerError: E-OPT-002 for a value in the group that does not fit, and for a new
                key that is a misspelt hyperparameter.
        """
        if len(self.shown) != self._size:
            check_spelling(self.definition, self.shown)
            self._size = len(self.shown)
        known = self.definition.hyperparameters
        written = [self.shown.get(n) for n in known]
        if len(written) != len(self._seen) or not all(a is b for a, b in zip(written, self._seen)):
            before = self._seen or [_NOTHING] * len(known)
            own = {
                n: self._values[n] if value is old else fitted(self.definition, h, value)
                for (n, h), value, old in zip(known.items(), written, before)
                if n not in self.shown.schedules or is_schedule(value)
            }
            self.shown.follow(own)
            self._values = {n: self.shown.schedules.get(n, own.get(n)) for n in known}
            # What may change without being replaced, as tensors do, is looked at each time.
            self._seen = written if all(map(_is_plain, written)) else []
            self._fixed = None
        return self._values

    def fixed(self) -> tuple[Any, ...]:
        """Return what a trace depends on: hyperparameters but for the numbers that are inputs."""
        values = self.hyperparameters().values()
        if self._fixed is None:
            self._fixed = tuple(_fixed(v) for v in values)
        return self._fixed


def _fixed(value: Any) -> Any:
    if isinstance(value, float):
        return float
    if isinstance(value, tuple):
        return tuple(_fixed(v) for v in value)
    return Called(value) if callable(value) else (type(value), value)


class Called:
    """A function as a part of a key: it is told from others by its identity, and so kept alive.

    Args:
        function: It, or something else that can be called.
    """

    def __init__(self, function: Any) -> None:
        self._function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Called) and self._function is other._function

    def __hash__(self) -> int:
        return id(self._function)


class Numbers:
    """All numbers that a run's bodies and schedules may read.

    Args:
        groups: In order.
        curriculum: What progress is counted from.
        extra: The further keys of ``ctx`` with their values.

    Attributes:
        reads_identity: Whether a schedule that is called has asked which parameter it is for.
    """

    def __init__(
        self, groups: Sequence[Group], curriculum: Curriculum | None, extra: Mapping[str, float]
    ) -> None:
        self.groups, self._curriculum = groups, curriculum
        self.extra = dict(extra)
        self.reads_identity = False
        self.keys = ("step", "updates", *self.extra, *(PROGRESS if curriculum else ()))

    @property
    def extra(self) -> dict[str, float]:
        """Return the further keys of ``ctx`` with their values."""
        return self._extra

    @extra.setter
    def extra(self, values: dict[str, float]) -> None:
        self._extra = values
        for group in self.groups if values else ():
            group.shown["ctx"] = (
                values  # so that they are saved, and a resumed run goes on with them
            )

    def adopt(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Take the values of the declared keys of ``ctx`` from the groups of a file.

        Raises:
            OptimizerError: E-OPT-011 for one that is no number.
        """
        found = next((g["ctx"] for g in saved if isinstance(g.get("ctx"), Mapping)), {})
        self.extra = {n: context_number(n, found.get(n, v)) for n, v in self.extra.items()}

    def of(self, group: int, updates: int, ahead: int = 0) -> dict[str, Number]:
        """Return the numbers of a group at this step.

        Args:
            group: Its number.
            updates: The number of the update, from 1.
            ahead: By how much the number of the step is ahead of the count in the group.
        """
        step = self.groups[group].shown["step"] + ahead
        context: dict[str, Any] = {"step": step, "updates": updates, **self.extra}
        if self._curriculum is not None:
            context |= self._curriculum.at(step)
        numbers = {f"ctx.{name}": value for name, value in context.items()}
        for name, value in self.groups[group].hyperparameters().items():
            if isinstance(value, float):
                numbers[name] = value
            elif isinstance(value, tuple):
                numbers |= _parts(name, value)
        return numbers

    def context(self, item: Item, inputs: Mapping[str, Number]) -> Ctx:
        """Return a ``ctx`` of plain numbers, for schedules that are called at each step."""
        constants = {"name": item.name, "index": item.number, "group": item.group}

        def read(name: str) -> Any:
            self.reads_identity = self.reads_identity or name in constants
            return constants.get(name, inputs.get(f"ctx.{name}"))

        return Ctx(read, self.keys)

    def with_keys(self, ctx: Mapping[str, float] | None) -> dict[str, float]:
        """Return the further keys of ``ctx`` with new values.

        Raises:
            OptimizerError: E-OPT-006 for one that is not declared, E-OPT-011 for no number.
        """
        ctx = context_keys(ctx)
        for name in ctx:
            if name not in self.extra:
                raise BadContext.raised(
                    user_span(),
                    f"`{name}` is no declared key of `ctx`",
                    fix=f'declare it: `rule.bind(model, ctx={{"{name}": 0.0}})`',
                    why="a misspelt key would silently leave the old number in force",
                )
        return {**self.extra, **{n: context_number(n, v) for n, v in ctx.items()}}


def _parts(name: str, values: tuple[Any, ...]) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for i, value in enumerate(values):
        if isinstance(value, float):
            found[f"{name}.{i}"] = value
        elif isinstance(value, tuple):
            found |= _parts(f"{name}.{i}", value)
    return found


def context_keys(given: Any) -> Mapping[str, Any]:
    """Return keys of ``ctx`` with their values (E-OPT-006 for anything but a dictionary)."""
    if given is None or isinstance(given, Mapping):
        return given or {}
    raise BadContext.raised(
        user_span(),
        f"`ctx` is a dictionary of numbers, not a `{type(given).__name__}`",
        fix='write `ctx={"loss": 0.0}`',
    )


def context_number(name: str, value: Any) -> float:
    """Return the value of a key of ``ctx`` as it is kept.

    Raises:
        OptimizerError: E-OPT-011 if it is no number.
    """
    value = normalised(value)
    if not isinstance(value, float):
        raise BadOption.raised(
            user_span(),
            f"`{name}` of `ctx` is a number, and got a `{type(value).__name__}`",
            fix=f"give a number: `ctx={{{name!r}: 0.0}}`",
        )
    return value


class Slot:
    """A vector of scalars, in memory that the kernels read and the host writes.

    Args:
        expressions: The scalar program.

    Attributes:
        vector: Of its results, float64 (float32 on a device without it).
    """

    def __init__(self, expressions: Sequence[Any]) -> None:
        self._expressions = tuple(expressions)
        self._run = compiled(self._expressions)
        self._format = f"{len(expressions)}d"
        self._memory = bytearray(8 * max(len(expressions), 1))
        self.vector = torch.frombuffer(self._memory, dtype=torch.float64)[: len(expressions)]

    def values(self, inputs: Mapping[str, Number], ctx: Any) -> Sequence[Number]:
        """Return the scalars for these numbers."""
        return self._run(inputs, ctx)

    def fill(self, inputs: Mapping[str, Number], ctx: Any) -> None:
        """Evaluate the scalars for this step."""
        try:
            struct.pack_into(self._format, self._memory, 0, *self._run(inputs, ctx))
        except (OverflowError, struct.error):  # a whole number beyond all doubles
            numbers = map(double, evaluate(self._expressions, inputs, ctx))
            struct.pack_into(self._format, self._memory, 0, *numbers)


def double(number: Number) -> float:
    """Return a number as a double; a whole one beyond all of them is infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
