"""Random programs of field reads, views, aliases, changes and control flow, all of them legal.

Names say what they hold: `t0` a matrix, `v0` a vector, `a0` a part of the model, `l0` a list of
two or more matrices, `p0` a field that is written into, `f0` a matrix that the program made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
MATRIX_VIEWS = [".T", ".view(2, 2)", ".detach()", ".reshape(2, 2)", ".T.contiguous()", "[:]"]
VECTOR_VIEWS = ["[0]", "[1]", "[:, 0]", ".T[1]", ".diagonal()", ".unbind(0)[1]", ".reshape(4)[1:3]"]


@dataclass
class Scope:
    """The names that are bound at one point, by what they hold."""

    names: dict[str, list[str]] = field(default_factory=lambda: {k: [] for k in "tvalpf"})
    loop: str = ""  # the counter of the loop around
    functions: list[str] = field(default_factory=list)
    fixed: bool = False  # in a function inside, binding a name would make another one

    def inner(self) -> Scope:
        names = {k: list(v) for k, v in self.names.items()}
        return replace(self, names=names, functions=list(self.functions))


class Programs:
    """Draws one program."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self._draw = draw
        self._made = 0

    def below(self, n: int) -> int:
        return self._draw(st.integers(0, n - 1))

    def pick(self, things: Sequence[T]) -> T:
        return things[self.below(len(things))]

    def known(self, scope: Scope, kind: str) -> list[str]:
        return scope.names[kind]

    def new(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def target(self, scope: Scope, kind: str) -> str:
        """A name to bind: sometimes one that is bound already, so that loops carry values."""
        old = scope.names[kind]
        return self.pick(old) if old and not scope.fixed and self.below(2) else self.new(kind)

    def bound(self, scope: Scope, name: str) -> str:
        if name not in scope.names[name[0]]:
            scope.names[name[0]].append(name)
        return name

    # -- expressions -------------------------------------------------------------------------

    def part(self, scope: Scope) -> str:
        return self.pick(["m", "m.enc", "m.dec", *scope.names["a"]])

    def named_part(self, scope: Scope) -> str:
        return self.pick(["m", *scope.names["a"]])

    def number(self) -> str:
        return self.pick(["2", "3", "-1", "0.5"])

    def condition(self, scope: Scope) -> str:
        forms = ["c0", "c1", "not c0", f"bool({self.part(scope)}.b.sum() > 3)"]
        if scope.loop:
            forms += [f"{scope.loop} == 0", f"{scope.loop} == 1"]
        return self.pick(forms)

    def matrix(self, s: Scope, depth: int = 2) -> str:
        leaves = [
            lambda: f"{self.part(s)}.w",
            lambda: f"{self.part(s)}.w{self.pick(MATRIX_VIEWS)}",
            lambda: self.pick([*s.names["t"], "x"]),
            # Not `n.w` itself: of a plain module that may be a module, which a copy comes to hold.
            lambda: self.pick([*s.names["t"], *s.names["f"], "(n.w * 1)", "(n.enc.w * 1).T"]),
            lambda: f"{self.pick(s.names['l'])}[{self.below(2)}]" if s.names["l"] else "m.dec.w",
            lambda: f"({self.pick(s.names['p'])} * 2)" if s.names["p"] else "m.enc.w",
            lambda: f"{self.pick(s.functions)}()" if s.functions else "m.enc.w.T",
            lambda: f"getattr({self.part(s)}, 'w')",
            lambda: f"{self.part(s)}.w[[1, 0]]",
        ]
        deeper = [
            lambda: f"({self.matrix(s, depth - 1)} + {self.matrix(s, depth - 1)})",
            lambda: f"({self.matrix(s, depth - 1)} * {self.number()})",
            lambda: f"({self.matrix(s, depth - 1)}).T",
            lambda: f"torch.stack([{self.vector(s, depth - 1)}, {self.vector(s, depth - 1)}])",
            lambda: f"torch.add({self.matrix(s, depth - 1)}, {self.matrix(s, depth - 1)})",
            lambda: (
                f"({self.matrix(s, depth - 1)} if {self.condition(s)} else {self.matrix(s, depth - 1)})"
            ),
            lambda: f"double({self.matrix(s, depth - 1)})",
            lambda: f"bump(mut({self.named_part(s)}), {self.number()})",
            lambda: f"rotate(mut({self.named_part(s)}), {self.matrix(s, depth - 1)})",
            lambda: f"({self.matrix(s, depth - 1)}, {self.matrix(s, depth - 1)})[{self.below(2)}]",
            lambda: f"dict(k={self.matrix(s, depth - 1)}, o={self.matrix(s, depth - 1)})['k']",
            lambda: f"sum([{self.matrix(s, depth - 1)} for _ in range(2)])",
        ]
        return self.pick(leaves if depth == 0 else [*leaves, *deeper])()

    def vector(self, s: Scope, depth: int = 1) -> str:
        leaves = [
            lambda: f"{self.part(s)}.b",
            lambda: f"{self.part(s)}.w{self.pick(VECTOR_VIEWS)}",
            lambda: self.pick([*s.names["v"], "y"]),
            lambda: f"{self.pick([*s.names['t'], 'x'])}{self.pick(VECTOR_VIEWS)}",
        ]
        deeper = [
            lambda: f"({self.vector(s, depth - 1)} + {self.vector(s, depth - 1)})",
            lambda: f"({self.vector(s, depth - 1)} * {self.number()})",
            lambda: f"{self.matrix(s, depth - 1)}.sum(0)",
        ]
        return self.pick(leaves if depth == 0 else [*leaves, *deeper])()

    # -- statements --------------------------------------------------------------------------

    def block(self, scope: Scope, depth: int, most: int = 4) -> list[str]:
        lines: list[str] = []
        for _ in range(1 + self.below(most)):
            lines += self.statement(scope, depth)
        return lines

    def indented(self, scope: Scope, depth: int, most: int = 3) -> list[str]:
        return [f"    {line}" for line in self.block(scope.inner(), depth, most)]

    def statement(self, s: Scope, depth: int) -> list[str]:
        plain = [self.bind, self.set_field, self.set_item, self.in_place, self.alias, self.items]
        nesting = [self.branch, self.loop, self.guarded, self.inside, self.leave]
        return self.pick([*plain, *plain, *nesting] if depth else plain)(s, depth)

    def bind(self, s: Scope, depth: int) -> list[str]:
        e = self.matrix(s)
        form = self.below(9)
        if form == 0:
            line = f"{(v := self.target(s, 'v'))} = {self.vector(s)}"
            self.bound(s, v)
            return [line]
        if form == 1:
            line = f"{(f := self.new('f'))} = {e} * 1"
            self.bound(s, f)
            return [line, self.pick([f"{f}.mul_(2)", f"{f} += 1", f"{f}[0] = 5.0"])]
        if form == 2 and s.functions:
            return [f"{self.pick(s.functions)}()"]
        t = self.target(s, "t")
        if form == 3:
            other, more = self.target(s, "t"), self.matrix(s)
            lines = [f"{t}, {other} = {e}, {more}"]
            self.bound(s, other)
        elif form == 4:
            lines = [f"{t} = {self.part(s)}.w = {e}"]
        elif form == 5:
            lines = [f"({t} := {e})"]
        elif form == 6:
            lines = [f"{t}: Tensor = {e}"]
        else:
            lines = [f"{t} = {e}"]
        self.bound(s, t)
        return lines

    def set_field(self, s: Scope, depth: int) -> list[str]:
        a, b = self.part(s), self.part(s)
        forms = [
            lambda: f"{a}.w = {self.matrix(s)}",
            lambda: f"{a}.b = {self.vector(s)}",
            lambda: f"{a}.w {self.pick(['+', '-', '*'])}= {self.matrix(s)}",
            lambda: f"{a}.b += {self.vector(s)}",
            lambda: f"{a}.w, {b}.w = {b}.w, {a}.w",
            lambda: f"{a}.w, {b}.b = {self.matrix(s)}, {self.vector(s)}",
            lambda: f"{a}.w = {b}.w = {self.matrix(s)}",
            lambda: f"{a}.w: Tensor = {self.matrix(s)}",
            lambda: f"set_field({a}, 'w', {self.matrix(s)})",
        ]
        return [self.pick(forms)()]

    def set_item(self, s: Scope, depth: int) -> list[str]:
        a, b, i = f"«{self.part(s)}|w|»", f"«{self.part(s)}|w|»", self.below(2)
        forms = [
            lambda: f"{a}[{i}] = {self.vector(s)}",
            lambda: f"{a}[:, {i}] = {self.vector(s)}",
            lambda: f"{a}[{i}] += {self.vector(s)}",
            lambda: f"{a}[0], {b}[1] = {as_read(b)}[1], {as_read(a)}[0]",
            lambda: f"{a}[:] = {self.matrix(s)}",
            lambda: f"«{self.part(s)}|w|.T»[{i}] = {self.vector(s)}",
            lambda: f"{a}[{i}], {self.part(s)}.b = {self.vector(s)}, {self.vector(s)}",
            lambda: f"{a}[0, {i}] = 7.0",
        ]
        return [self.pick(forms)()]

    def in_place(self, s: Scope, depth: int) -> list[str]:
        handle = f"«{self.part(s)}|w|{self.pick(['', '.T', '.data', '.view(2, 2)', '.detach()'])}»"
        forms = ["mul_(2)", f"add_({self.matrix(s)})", f"lerp_({self.matrix(s)}, 0.5)"]
        forms += [f"copy_({self.matrix(s)})", "zero_()", "neg_()"]
        form = self.below(6)
        if form == 0:
            p = self.bound(s, self.new("p"))
            return [f"{p} = {handle}", f"{p}.{self.pick(forms)}"]
        if form == 1 and s.names["p"]:
            p = self.pick(s.names["p"])
            return [f"{p} += {self.matrix(s)}"]
        if form == 2:
            a, p, q = self.part(s), self.new("p"), self.new("p")
            return self.pick(
                [
                    [f"for {p} in {a}.parameters():", f"    {p}.mul_(2)"],
                    [f"for {q}, {p} in {a}.named_parameters():", f"    {p}.add_(1)"],
                    [
                        f"for {p}, {q} in zip({a}.parameters(), n.parameters()):",
                        f"    {p}.lerp_({q}, 0.5)",
                    ],
                ]
            )
        return [f"{handle}.{self.pick(forms)}"]

    def alias(self, s: Scope, depth: int) -> list[str]:
        a = self.target(s, "a")
        forms = [
            lambda: f"{a} = {self.part(s)}",
            lambda: f"{a} = {self.part(s)} if {self.condition(s)} else {self.part(s)}",
            lambda: f"{a} = [{self.part(s)}, {self.part(s)}][{self.below(2)}]",
            lambda: f"{a} = copy.deepcopy({self.part(s)})",
            lambda: f"{a}, _ = {self.part(s)}, {self.part(s)}",
        ]
        line = self.pick(forms)()
        self.bound(s, a)
        return [line]

    def items(self, s: Scope, depth: int) -> list[str]:
        known = s.names["l"]
        new = self.target(s, "l")
        forms = [
            lambda: f"{new} = [{self.matrix(s)}, {self.matrix(s)}]",
            lambda: (
                f"{new} = [{(e := self.new('e'))}.w for {e} in ({self.part(s)}, {self.part(s)})]"
            ),
            lambda: f"{new} = [{self.matrix(s)} for _ in range(2)]",
            lambda: f"{new} = [*[{self.matrix(s)}], {self.matrix(s)}]",
        ]
        if not known or self.below(2):
            line = self.pick(forms)()
            self.bound(s, new)
            return [line]
        old, t = self.pick(known), self.target(s, "t")
        forms = [
            lambda: f"{old}.append({self.matrix(s)})",
            lambda: f"{old}[0] = {self.matrix(s)}",
            lambda: f"{t}, {self.new('t')}, *_ = {old}",
            lambda: f"{new} = {old} + [{self.matrix(s)}]",
            lambda: f"{t} = {old}.pop() if len({old}) > 2 else {old}[1]",
            lambda: f"{t} = sum({old})",
            lambda: f"{new} = [{(e := self.new('e'))} * 1 for {e} in {old}]",
        ]
        line = self.pick(forms)()
        if f"{t}," in line or f"{t} =" in line:
            self.bound(s, t)
        if f"{new} =" in line:
            self.bound(s, new)
        return [line]

    def branch(self, s: Scope, depth: int) -> list[str]:
        form = self.below(3)
        if form == 0:
            lines = [f"match {self.pick(['(m.enc, 1)', '[m.dec, 1]'])}:", "    case (e, 1) if c0:"]
            lines += [f"    {line}" for line in self.indented(s, depth - 1)]
            return [*lines, "    case [e, _]:", "        «e|w|».mul_(2)"]
        lines = [f"if {self.condition(s)}:", *self.indented(s, depth - 1)]
        return [*lines, "else:", *self.indented(s, depth - 1)] if form == 1 else lines

    def loop(self, s: Scope, depth: int) -> list[str]:
        form, i = self.below(4), self.new("i")
        inner = replace(s.inner(), loop=i)
        if form == 0:
            head = [f"{i} = -1", f"while ({i} := {i} + 1) < 2:"]
        elif form == 1 and s.names["l"]:
            t = self.new("t")
            head = [f"for {i}, {t} in enumerate({self.pick(s.names['l'])}[:2]):"]
            inner.names["t"].append(t)
        elif form == 2:
            a = self.new("a")
            head = [f"for {i}, {a} in enumerate(({self.part(s)}, {self.part(s)})):"]
            inner.names["a"].append(a)
        else:
            head = [f"for {i} in range({2 + self.below(2)}):"]
        lines = [*head, *self.indented(inner, depth - 1, 4)]
        if self.below(2):
            lines += [
                f"    if {self.condition(inner)}:",
                f"        {self.pick(['break', 'continue'])}",
            ]
            lines += self.indented(inner, depth - 1, 2)
        if not self.below(4):
            lines += ["else:", *self.indented(s, depth - 1, 2)]
        return lines

    def guarded(self, s: Scope, depth: int) -> list[str]:
        """What can be left in the middle: `try` and `with`."""
        body = self.indented(s, depth - 1)
        body += [f"    if {self.condition(s)}:", f"        {self.raising(s)}"]
        body += self.indented(s, depth - 1, 2)
        form = self.below(4)
        if form == 0:
            return ["with contextlib.suppress(ValueError):", *body]
        lines = ["try:", *body]
        if form != 1:
            lines += ["except ValueError:", *self.indented(s, depth - 1, 2)]
            lines += self.pick([[], ["    raise"], ["    raise KeyError from None"]])
        if form == 2:
            lines += ["else:", *self.indented(s, depth - 1, 2)]
        if form in (1, 3):
            lines += ["finally:", *self.indented(s, depth - 1, 2)]
        return lines

    def raising(self, s: Scope) -> str:
        forms = ["raise ValueError", "raise ValueError", "raise KeyError", "fail()"]
        forms += ["break", "continue"] if s.loop else []
        return self.pick([*forms, f"return {self.result(s)}"])

    def inside(self, s: Scope, depth: int) -> list[str]:
        """A function inside, which reads what its names hold when it is called."""
        g = self.new("g")
        inner = replace(s.inner(), loop="")
        inner.names["p"] = []
        form = self.below(3)
        if form == 0:
            lines = [f"{g} = lambda: {self.matrix(inner, 1)}"]
        else:
            inner.fixed = True
            lines = [
                f"def {g}():",
                *self.indented(inner, 0, 2),
                f"    return {self.matrix(inner, 1)}",
            ]
        s.functions.append(g)
        return lines

    def leave(self, s: Scope, depth: int) -> list[str]:
        return [f"if {self.condition(s)}:", f"    {self.raising(s)}"]

    def result(self, s: Scope) -> str:
        kept = [*s.names["t"], *s.names["v"], *s.names["l"], *s.names["f"]]
        kept += [f"{a}.w * 1" for a in s.names["a"]]
        return ", ".join([self.matrix(s), self.matrix(s, 0), *kept])


def as_read(handle: str) -> str:
    return handle.strip("«»").replace("|", ".", 1).replace("|", "")


@st.composite
def programs(draw: Callable[..., int]) -> str:
    """Draw the body of a function of `m` and `n`, models, `x` and `y`, tensors, `c0` and `c1`."""
    made, scope = Programs(draw), Scope()
    lines = made.block(scope, 3, 8)
    return "\n".join([*lines, f"return {made.result(scope)}"])
