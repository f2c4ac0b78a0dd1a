"""Update graphs for people: plain notation, in the names that the body gives its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, fx

from dslmut.optim.drawing import KEY
from dslmut.optim.expressions import Expression, in_order
from dslmut.optim.notation import ATOM, Words, scalar, written
from dslmut.optim.programs import Program

LONGEST = 96
"""So wide does a line become by writing one operation into another."""


def readable(program: Program, parameter: str, rule: str, updates: int) -> str:
    """Write an update graph as text.

    Args:
        program: What is computed.
        parameter: The name of the parameter that it is for.
        rule: The name of the rule.
        updates: The number of the update that it is for.
    """
    text = _Text(program)
    sections = [
        (f"{parameter}, updated by {rule}", text.inputs()),
        ("numbers of the step, in float64 on the host", text.scalars()),
        (f"branches of the body, as update {updates} takes them", text.branches()),
        ("the update", text.update()),
        ("results", text.results()),
        ("diagnostics, on the steps that ask for them", text.diagnostics()),
    ]
    return "\n".join(
        "\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in sections if lines
    )


class _Text:
    """The lines of one program.

    Args:
        program: What is computed.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        nodes = list(program.graph.nodes)
        self._inputs = [n for n in nodes if n.op == "placeholder"]
        self._nodes = [n for n in nodes if n.op == "call_function"]
        self._outputs: list[fx.Node] = list(nodes[-1].args[0])
        self._targets = ["param", *(s.name for s in program.states)]
        self._taken: set[str] = set()
        self._scalar_names = self._name_scalars()
        self._words: dict[fx.Node, Words] = self._name_inputs()
        self._lines = self._write()

    # -- names -------------------------------------------------------------------------------

    def _new(self, wanted: str) -> str:
        """Return a name that nothing else has."""
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name

    def _name_inputs(self) -> dict[fx.Node, Words]:
        fixed = ["param", "grad", *(s.name for s in self._program.states)]
        self._taken.update(fixed)
        fixed += [KEY] * self._program.draws  # what draws is written without it
        fixed += [f"ctx.{name}" for name in self._program.wide]
        scalars = [self._of_scalar(e) for e in self._program.scalars]
        names = [*fixed, *scalars]
        return {node: (name, ATOM) for node, name in zip(self._inputs, names, strict=True)}

    def _name_scalars(self) -> dict[Expression, str]:
        """Name the scalars that the tensors need, and those that the body gives names."""
        used = [e for e in self._program.scalars if isinstance(e, Expression)]
        self._taken.update(_input_name(e) for e in in_order(used) if e.op == "input")
        own, names, count = self._program.names, {}, 0
        for e in in_order(used):
            if e.op != "input" and (e in own or e in used):
                names[e] = self._new(own.get(e) or f"s{count}")
                count += e not in own
        return names

    def _of_scalar(self, e: Any) -> str:
        if not isinstance(e, Expression):
            return repr(e)
        return self._scalar_names.get(e) or _input_name(e)

    # -- sections ----------------------------------------------------------------------------

    def inputs(self) -> list[str]:
        """Return a line for each tensor that goes in."""
        tensors = self._inputs[: 1 + len(self._targets)]
        names = [self._words[n][0] for n in tensors]
        width = max(map(len, names))
        notes = ["", "", *[", a state"] * len(self._program.states)]
        return [
            f"{name:{width}}  {_kind(node.meta['val'])}{text}"
            for name, node, text in zip(names, tensors, notes)
        ]

    def branches(self) -> list[str]:
        """Return a line for each condition that decided which way the body went."""
        return [
            f"{_expression(e, self._scalar_names)} is {'true' if outcome else 'false'}"
            for e, outcome in self._program.branches
        ]

    def scalars(self) -> list[str]:
        """Return a line for each number that is computed for the step."""
        return [
            f"{name} = {_expression(e, {k: v for k, v in self._scalar_names.items() if k is not e})}"
            for e, name in self._scalar_names.items()
        ]

    def update(self) -> list[str]:
        """Return the lines that the results need."""
        return [line for node, line in self._lines if node in self._needed]

    def results(self) -> list[str]:
        """Return where the new values go."""
        return [
            f"{target} <- {self._words[value][0]}"
            for target, value in zip(self._targets, self._outputs)
        ]

    def diagnostics(self) -> list[str]:
        """Return the lines that nothing else needs, and what is reported."""
        own = {node: line for node, line in self._lines if node not in self._needed}
        reported = zip(self._program.diagnostics, self._outputs[len(self._targets) :])
        return [*own.values()] + [
            f"{name} <- {self._words[value][0]}"
            for name, value in reported
            if value not in own or self._words[value][0] != name
        ]

    # -- operations --------------------------------------------------------------------------

    def _write(self) -> list[tuple[fx.Node, str]]:
        """Write each operation; one that is used once, and has no name, into that which uses it."""
        self._needed = _ancestors(self._outputs[: len(self._targets)])
        reported = dict(
            zip(self._outputs[len(self._targets) :], self._program.diagnostics, strict=True)
        )
        changing = any(_changes(n) for n in self._nodes)
        lines: list[tuple[fx.Node, str]] = []
        for node in self._nodes:
            words = written(node, self._words)
            reports = reported.get(node) if node not in self._needed else None
            wanted = node.meta.get("variable") or (reports if reports not in self._taken else None)
            once = len(node.users) == 1 and self._outputs.count(node) <= 1
            if not wanted and once and not changing and len(words[0]) <= LONGEST:
                self._words[node] = words
                continue
            name = self._new(wanted or f"v{sum(1 for _ in _numbered(self._taken))}")
            self._words[node] = (name, ATOM)
            lines.append((node, f"{name} = {words[0]}"))
        return lines


def _numbered(taken: set[str]) -> Iterator[str]:
    return (n for n in taken if n[0] == "v" and n[1:].isdigit())


def _ancestors(nodes: list[fx.Node]) -> set[fx.Node]:
    found, waiting = set(nodes), list(nodes)
    while waiting:
        new = [n for n in waiting.pop().all_input_nodes if n not in found]
        found.update(new)
        waiting += new
    return found


def _changes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


# -- scalars -------------------------------------------------------------------------------------


def _input_name(e: Expression) -> str:
    """Write an input as the body reads it: ``betas[0]`` for the first of several numbers."""
    name = e.args[0]
    if name.startswith("ctx."):
        return name
    first, *rest = name.split(".")
    while rest and not rest[0].isdigit():  # of a part of a chain, which has a label
        first = f"{first}.{rest.pop(0)}"
    return first + "".join(f"[{i}]" for i in rest)


def _expression(e: Any, names: Mapping[Expression, str]) -> str:
    return scalar(e, names, _input_name)[0]
