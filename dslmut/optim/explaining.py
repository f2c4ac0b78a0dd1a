"""``explain()``: what an optimizer will do to each parameter, before it does anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from dslmut.optim.define import shown_value
from dslmut.optim.parameters import is_lazy

if TYPE_CHECKING:
    from dslmut.optim.numbers import Group, Item
    from dslmut.optim.running import Runner

_HEADINGS = ("parameter", "shape", "dtype", "decay", "states", "bytes", "graph", "note")
_NUMBERS = frozenset({"bytes", "graph"})


@dataclass(frozen=True)
class Row:
    """One parameter.

    Args:
        parameter: Its name.
        shape: Its sizes; None if it does not exist yet.
        dtype: Its dtype.
        decay: The ``weight_decay`` that it gets; None if its rule knows none.
        states: The dtype of each state, by its name.
        bytes: What the states take.
        graph: The number of its update graph, from 1; None as long as it is not updated.
        note: Whatever else there is to say: why it is in this group, what it is tied to.
    """

    parameter: str
    shape: tuple[int, ...] | None
    dtype: str
    decay: Any
    states: Mapping[str, str]
    bytes: int
    graph: int | None
    note: str

    def cells(self) -> tuple[str, ...]:
        """Return what is printed, in the order of the headings."""
        shape = "?" if self.shape is None else "x".join(map(str, self.shape)) or "scalar"
        decay = "" if self.decay is None else shown_value(self.decay)
        states = ", ".join(f"{n} ({d})" for n, d in self.states.items())
        graph = "" if self.graph is None else str(self.graph)
        return (self.parameter, shape, self.dtype, decay, states, f"{self.bytes:,}", graph, self.note)  # fmt: skip


@dataclass(frozen=True)
class Section:
    """One group.

    Args:
        group: Its number.
        rule: The rule with its hyperparameters; a schedule is shown by its name.
        rows: Its parameters.
    """

    group: int
    rule: str
    rows: tuple[Row, ...]

    @property
    def heading(self) -> str:
        """Return the line above the group."""
        return f"group {self.group}: {self.rule}"


@dataclass(frozen=True)
class Explanation:
    """A table of all parameters, as text and, in a notebook, as HTML.

    Args:
        sections: The groups.
        bytes: What all states take.
        graphs: How many update graphs there are.
        kernels: How many kernels are compiled of them at the first step; 0 without a compiler.
        options: Those of the run that are not at their defaults.
    """

    sections: tuple[Section, ...]
    bytes: int
    graphs: int
    kernels: int
    options: str = ""

    @property
    def summary(self) -> str:
        """Return the last line."""
        count = sum(len(s.rows) for s in self.sections)
        how = (
            f"compiled into {_count(self.kernels, 'kernel')} at the first step"
            if self.kernels
            else "computed by plain operations"
        )
        bound = f"; bound with {self.options}" if self.options else ""
        return f"{_count(count, 'parameter')}, {_count(self.graphs, 'update graph')} {how}; states take {self.bytes:,} bytes{bound}"

    def __str__(self) -> str:
        cells = [row.cells() for s in self.sections for row in s.rows]
        used = [i for i, _ in enumerate(_HEADINGS) if any(c[i] for c in cells)]
        widths = {i: max(len(c[i]) for c in (_HEADINGS, *cells)) for i in used}
        lines = [_line(_HEADINGS, widths)]
        for section in self.sections:
            lines += [section.heading, *(_line(row.cells(), widths) for row in section.rows)]
        return "\n".join([*lines, self.summary])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(_html(self))


def explained(
    runner: Runner, notes: Mapping[str, str], schedules: Sequence[str], compiled: bool
) -> Explanation:
    """Return the table of an optimizer.

    Args:
        runner: Of the optimizer.
        notes: What is to be said of parameters, by their names.
        schedules: The rule of each group, with its hyperparameters.
        compiled: Whether the updates are.
    """
    plan, programs = runner.first_plan()
    texts = list(dict.fromkeys(program.text for program in programs.values()))
    numbers = {number: texts.index(program.text) + 1 for number, program in programs.items()}
    sections = tuple(
        Section(
            number,
            rule,
            tuple(
                _row(runner, group, item, numbers.get(item.number), notes)
                for item in runner.items
                if item.group == number
            ),
        )
        for number, (group, rule) in enumerate(zip(runner.groups, schedules))
    )
    total = sum(row.bytes for section in sections for row in section.rows)
    kernels = len(plan.kernels) if compiled else 0
    return Explanation(sections, total, len(texts), kernels, runner.options.chosen())


def _row(
    runner: Runner, group: Group, item: Item, graph: int | None, notes: Mapping[str, str]
) -> Row:
    parameter, lazy = item.parameter, is_lazy(item.parameter)
    states = runner.program(item).states if graph is not None else ()
    said = [notes[item.name]] if item.name in notes else []
    if lazy:
        said.append("does not exist yet")
    elif not parameter.requires_grad:
        said.append("frozen")
    return Row(
        item.name,
        None if lazy else tuple(parameter.shape),
        _short(parameter.dtype),
        group.shown.schedules.get("weight_decay", group.shown.get("weight_decay")),
        {s.name: _short(s.dtype) for s in states},
        sum(s.bytes for s in states),
        graph,
        "; ".join(said),
    )


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _line(cells: Sequence[str], widths: Mapping[int, int]) -> str:
    parts = [
        cells[i].rjust(width) if _HEADINGS[i] in _NUMBERS else cells[i].ljust(width)
        for i, width in widths.items()
    ]
    return f"  {'  '.join(parts)}".rstrip()


def _html(explanation: Explanation) -> Iterator[str]:
    yield "<table><thead><tr>"
    yield from (f"<th>{h}</th>" for h in _HEADINGS)
    yield "</tr></thead><tbody>"
    for section in explanation.sections:
        yield f'<tr><th colspan="{len(_HEADINGS)}" style="text-align: left">{escape(section.heading)}</th></tr>'
        for row in section.rows:
            yield "<tr>"
            for heading, cell in zip(_HEADINGS, row.cells()):
                side = "right" if heading in _NUMBERS else "left"
                yield f'<td style="text-align: {side}">{escape(cell)}</td>'
            yield "</tr>"
    yield f"</tbody></table><p>{escape(explanation.summary)}</p>"
