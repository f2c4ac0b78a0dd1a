"""Ready sinks: where diagnostics and metrics can go.

A sink is any function ``(step, {name: {parameter: number}})``. ``opt.attach(sink)`` gives it the
diagnostics of each step that computes them, ``record(sink)`` the metrics of a block, whose one
number stands under the empty name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any, Protocol

from dslmut.optim.reports import Numbers, Reported, Sink


class Writer(Protocol):
    """What ``torch.utils.tensorboard.SummaryWriter`` and others have."""

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None) -> Any:
        """Write one number."""
        ...


def tensorboard(writer: Writer) -> Sink:
    """Return a sink that writes each number as a scalar, tagged ``name/parameter``.

    Args:
        writer: A ``torch.utils.tensorboard.SummaryWriter`` (``pip install 'dslmut[tensorboard]'``),
            or anything with its ``add_scalar``.

    Example:
        ``opt.attach(tensorboard(SummaryWriter("runs/1")))``
    """

    def write(step: int, numbers: Numbers) -> None:
        for name, values in numbers.items():
            for parameter, number in values.items():
                writer.add_scalar(f"{name}/{parameter}" if parameter else name, number, step)

    return write


def jsonl(path: str | PathLike[str]) -> Sink:
    """Return a sink that appends a line of JSON for each step: ``{"step": 0, "values": {...}}``.

    Not-a-number and infinity are written as Python's ``json`` does.

    Args:
        path: Of the file; its folder must exist.
    """

    def append(step: int, numbers: Numbers) -> None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "values": numbers}) + "\n")

    return append


class History(Mapping[str, Mapping[str, list[tuple[int, float]]]]):
    """A sink that remembers: for each name and parameter the steps and their numbers.

    Example:
        >>> history = History()
        >>> history(0, {"grad_norm": {"weight": 2.0}})
        >>> history(100, {"grad_norm": {"weight": 1.5}})
        >>> history["grad_norm"]["weight"]
        [(0, 2.0), (100, 1.5)]
    """

    def __init__(self) -> None:
        self._rows: Reported[dict[str, list[tuple[int, float]]]] = Reported()

    def __call__(self, step: int, numbers: Numbers) -> None:
        """Remember the numbers of a step."""
        for name, values in numbers.items():
            for parameter, number in values.items():
                self._rows.setdefault(name, {}).setdefault(parameter, []).append((step, number))

    def __getitem__(self, name: str) -> Mapping[str, list[tuple[int, float]]]:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def plot(self, *names: str, ax: Any = None, log: bool = True) -> Any:
        """Draw the numbers over the steps, a line for each name and parameter.

        Args:
            names: Of what to draw; all of it by default.
            ax: The axes of matplotlib to draw on; by default those of a new figure.
            log: Whether the numbers stand on a logarithmic scale.

        Returns:
            The axes; ``history.plot("update_ratio").figure.savefig("ratio.png")``.

        Raises:
            ImportError: Without matplotlib, which the extra ``plot`` installs.
            KeyError: For a name that was never reported.
        """
        lines = [(n, p, rows) for n in names or self for p, rows in self[n].items()]
        if ax is None:
            ax = _figure().subplots()
        for name, parameter, rows in lines:
            label = f"{name}/{parameter}" if parameter else name
            ax.plot([s for s, _ in rows], [v for _, v in rows], label=label)
        ax.set_xlabel("step")
        if log:
            ax.set_yscale("log")
        if lines:
            ax.legend()
        return ax


def _figure() -> Any:
    """Return a figure that no window shows and nothing else holds."""
    try:
        from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "a plot is drawn by matplotlib, which is not there: `pip install 'dslmut[plot]'`"
        ) from None
    return Figure(layout="constrained")


__all__ = ["History", "Sink", "Writer", "jsonl", "tensorboard"]
