"""Numbers that are computed on devices, read together, and handed on to sinks."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from typing import Any, NoReturn, TypeAlias, TypeVar

import torch
from torch import Tensor

from dslmut.diagnostics.codes.optimizers import BadOption
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span, warn_user
from dslmut.optim.numbers import Item

Numbers: TypeAlias = Mapping[str, Mapping[str, float]]
"""For each name the number of each parameter; a metric has one number, under the empty name."""

Sink: TypeAlias = Callable[[int, Numbers], object]
"""Takes the number of a step, from 0, and what was reported of it."""


V = TypeVar("V")


class Reported(dict[str, V]):
    """What was reported, by name; asked for another name it says which there are."""

    def __missing__(self, name: object) -> NoReturn:
        if not self:
            raise KeyError(
                f"{name}: nothing was reported yet. `bind(model, diagnostics_every=100)` and "
                "`opt.step(diagnostics=True)` compute diagnostics; `metric` reports inside of `record()`"
            )
        near = difflib.get_close_matches(str(name), self, n=1)
        said = f"write `{near[0]}`" if near else f"there are {', '.join(self)}"
        raise KeyError(f"{name}: this was not reported; {said}")


def read(values: Sequence[Tensor]) -> list[list[float]]:
    """Return the numbers in tensors, with one wait for each device and dtype.

    Args:
        values: Tensors of any number of elements.
    """
    kinds: dict[Any, dict[torch.Size, list[int]]] = {}
    for place, value in enumerate(values):
        shapes = kinds.setdefault((value.device, value.dtype), {})
        shapes.setdefault(value.shape, []).append(place)
    found: list[list[float]] = [[] for _ in values]
    for shapes in kinds.values():
        numbers = _numbers([[values[i] for i in places] for places in shapes.values()])
        for shape, places in shapes.items():
            for i in places:
                found[i] = [*map(float, islice(numbers, shape.numel()))]
    return found


@torch.no_grad()
def _numbers(equals: Iterable[Sequence[Tensor]]) -> Iterator[float]:
    """Yield all numbers in order; tensors of equal shapes are put together in one operation."""
    return iter(torch.cat([torch.stack([*group]).reshape(-1) for group in equals]).tolist())


Row: TypeAlias = tuple[Sequence[Item], Sequence[str], Iterable[Tensor]]
"""Parameters, the names of their diagnostics, and for each parameter a vector of these."""


class Reports:
    """The diagnostics of one step.

    Args:
        step: Its number.
        rows: What its kernels computed; nothing is waited for before somebody asks.
    """

    def __init__(self, step: int = 0, rows: Iterable[Row] = ()) -> None:
        self.step = step
        self._numbers: Numbers | None = None
        self._rows = [(item, names, v) for items, names, vs in rows for item, v in zip(items, vs)]

    def numbers(self) -> Numbers:
        """Return them by name and parameter, in the order of the parameters."""
        if self._numbers is None:
            found: Reported[dict[str, float]] = Reported()
            rows = sorted(self._rows, key=lambda row: row[0].number)
            for (item, names, _), row in zip(rows, read([v for _, _, v in rows])):
                for name, number in zip(names, row):
                    found.setdefault(name, {})[item.name] = number
            self._numbers, self._rows = found, []
        return self._numbers


class Sinks:
    """Where reports go, in order.

    Args:
        sinks: Functions of a step and its numbers.
    """

    def __init__(self, sinks: Iterable[Sink] = ()) -> None:
        self._sinks: list[Sink] = []
        self._asked = False
        for sink in sinks:
            self.attach(sink)

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def attach(self, sink: Sink) -> None:
        """Add one at the end.

        Raises:
            OptimizerError: E-OPT-011 for what cannot take a step and its numbers.
        """
        if not _takes_reports(sink):
            raise _no_sink(sink)
        self._sinks.append(sink)

    def wait(self, asked: bool) -> None:
        """Warn once, where sinks wait for numbers and nobody has asked for any.

        Args:
            asked: Whether the run, or the call of this step, says when diagnostics are computed.
        """
        if not asked and not self._asked:
            warn_user(
                "dslmut: a sink is attached, and no step computes diagnostics for it: bind with "
                "`diagnostics_every=100`, or call `opt.step(diagnostics=True)` now and then",
                RuntimeWarning,
            )
        self._asked = True

    def detach(self, sink: Sink) -> None:
        """Take one away.

        Raises:
            ValueError: If it is not there.
        """
        if sink not in self._sinks:
            raise ValueError(f"{sink!r} is not attached; {len(self._sinks)} others are")
        self._sinks.remove(sink)

    def deliver(self, step: int, numbers: Numbers) -> None:
        """Hand the numbers of a step to each; one that raises is taken away, with a warning.

        What was reported has been done already, so that a full disk must not look like a failed
        step, nor end a training run.
        """
        for sink in tuple(self._sinks):
            try:
                sink(step, numbers)
            except Exception as error:  # whatever a logger may raise
                self._sinks.remove(sink)
                warn_user(
                    f"dslmut: the sink {_name(sink)} raised {type(error).__name__}: {error}. It gets "
                    f"no further reports; step {step} itself was made as always",
                    RuntimeWarning,
                )


def _takes_reports(sink: Any) -> bool:
    """Say whether something can be called with a step and its numbers."""
    try:
        inspect.signature(sink).bind(0, {})
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return True
    return True


def _no_sink(given: Any) -> DslmutError:
    """Return E-OPT-011 for something that is no sink, with the ready one that was meant."""
    fix = "write a function `(step, numbers)`, or take a ready one: `History()`, `jsonl(path)`"
    if isinstance(given, str | PathLike):
        fix = f"write `jsonl({given!r})`, for a file with a line for each step"
    elif hasattr(given, "add_scalar"):
        fix = "write `tensorboard(writer)`"
    elif isinstance(given, type) or getattr(given, "__module__", "") == "dslmut.optim.sinks":
        fix = f"call it first, if it makes one: `{given.__name__}(...)`"
    shown = repr(given) if isinstance(given, str | PathLike) else f"this {_name(given)}"
    return BadOption.raised(
        user_span(),
        f"a sink is a function of a step and its numbers, and {shown} is none",
        fix=f"{fix}; `dslmut.optim.sinks` has them",
        why="it is called behind a step, where an error would come too late",
    )


def _name(sink: Any) -> str:
    return f"`{getattr(sink, '__name__', type(sink).__name__)}`"
