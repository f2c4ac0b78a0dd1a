"""Random function bodies: every statement and expression of Python, over numbers and lists.

They end, and they tell what they do: `log` notes a value and gives it back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
NAMES = ["a", "b", "c", "xs", "d", "o"]
ERRORS = ["ValueError", "TypeError", "(KeyError, IndexError)", "Exception"]

MODEL_EXPRESSIONS = [
    "m", "n", "m.w", "n.w", "m.enc", "n.enc.w.T", "m.w[0]", "mut(m)", "mut(n)", "mut(a)", "m(x)",
    "bump(mut(m), 2)", "bump(m, 2)", "bump(n, b)", "plain(m)", "m.parameters()", "copy.deepcopy(n)",
    "m.state_dict()", "n.w.mul_(2)", "m.enc.w.add_(x)", "x", "x.T", "x.add_(1)", "m.missing",
    "value_and_grad(loss, m, x)", "value_and_grad(bump, mut(m), 2)", "functools.partial(bump, m)",
    "dict(m.named_parameters())", "getattr(m, 'w')", "m.train()", "n.eval()", "Net.init(seed=0)",
]  # fmt: skip
MODEL_TARGETS = [
    "m.w",
    "n.w",
    "m.enc.w",
    "m.w[0]",
    "n.enc.w[:]",
    "x",
    "x[0]",
    "m",
    "mut",
    "m.missing",
]


class Bodies:
    """Draws one body.

    Args:
        draw: Hypothesis's.
        models: Whether it is about models too; then it is not for running.
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int], models: bool) -> None:
        self._draw, self.models = draw, models
        self.in_loop = self.in_async = False
        self.inside = 0  # how many functions and classes stand around

    def below(self, n: int) -> int:
        return self._draw(st.integers(0, n - 1))

    def pick(self, things: Sequence[T]) -> T:
        return things[self.below(len(things))]

    # -- expressions -------------------------------------------------------------------------

    def e(self, depth: int = 2) -> str:
        if self.models and not self.below(3):
            return self.pick(MODEL_EXPRESSIONS)
        if depth == 0:
            return self.pick(
                [*NAMES, "0", "1", "2", "[]", "None", "'s'", "...", "1.5", "b'b'", "2j"]
            )
        e = lambda: self.e(depth - 1)  # noqa: E731
        forms: list[Callable[[], str]] = [
            lambda: self.pick(NAMES),
            lambda: f"log({e()})",
            lambda: (
                f"({e()} {self.pick(['+', '-', '*', '//', '%', '&', '|', '^', '@', '/'])} {e()})"
            ),
            lambda: f"({self.pick(['-', 'not ', '~', '+'])}{e()})",
            lambda: f"({e()} {self.pick(['and', 'or'])} {e()} or {e()})",
            lambda: f"({e()} {self.pick(['<', '==', 'is', 'in', 'not in', 'is not'])} {e()})",
            lambda: f"({e()} < {e()} <= {e()})",
            lambda: f"({e()} if {e()} else {e()})",
            lambda: f"({self.pick(NAMES)} := {e()})",
            lambda: f"[{e()}, *{self.some()}, {e()}]",
            lambda: f"({e()}, {e()})",
            lambda: f"{{{self.hashable()}, {self.hashable()}}}",
            lambda: f"{{{self.hashable()}: {e()}, **d}}",
            lambda: f"{self.some()}[{self.index(depth)}]",
            lambda: f"o.{self.pick(['f', 'g', '__p', 'self'])}",
            lambda: f"[{e()} for a in {self.some()} if {e()}]",
            lambda: f"[(a, b) for a, *b in [{e()}, (1, 2)] for c in {self.some()}]",
            lambda: f"sum(a for a in {self.some()} if log(a))",
            lambda: f"{{a: {e()} for a in range(2)}}",
            lambda: f"(lambda a, *b, c={e()}, **d: {e()})({e()})",
            lambda: f"(lambda: {e()})()",
            lambda: "f'{log(a)!r:>{b}} {c=} {b:}'",
            lambda: f"takes({e()}, *{self.some()}, k={e()}, **d)",
            lambda: f"list(map(lambda a: {e()}, {self.some()}))",
        ]
        if self.in_async:
            forms.append(lambda: f"(await later({e()}))")
        return self.pick(forms)()

    def some(self) -> str:
        """Something that can mostly be iterated over."""
        return self.pick(["xs", "xs", "range(3)", "[1, 2]", "[a, *xs]", "log(xs)"])

    def hashable(self) -> str:
        return self.pick(["a", "b", "0", "'k'", "log(1)"])

    def index(self, depth: int) -> str:
        return self.pick(
            ["0", "-1", "1:", "::2", f"{self.e(depth - 1)}:{self.e(depth - 1)}", "a", "..., 0"]
        )

    def target(self, depth: int = 1) -> str:
        if self.models and not self.below(3):
            return self.pick(MODEL_TARGETS)
        forms = [*NAMES, "a", "b", "xs[0]", "d['k']", "o.f", "log(o).g", "xs[log(0)]"]
        if depth:
            forms += [
                f"{self.target(0)}, {self.target(0)}",
                f"[{self.target(0)}, *{self.target(0)}]",
            ]
            forms.append(f"{self.target(0)}, (*{self.target(0)}, b)")
        return self.pick(forms)

    def single(self) -> str:
        return self.pick(
            ["a", "b", "xs", "xs[0]", "d['k']", "o.f", "log(o).g", "xs[log(1)]", "xs[:1]"]
        )

    # -- statements --------------------------------------------------------------------------

    def block(self, depth: int, most: int = 3) -> list[str]:
        return [line for _ in range(1 + self.below(most)) for line in self.statement(depth)]

    def inner(self, depth: int, loop: bool | None = None) -> list[str]:
        before = self.in_loop
        self.in_loop = before if loop is None else loop
        lines = [f"    {line}" for line in self.block(depth)]
        self.in_loop = before
        return lines

    def statement(self, depth: int) -> list[str]:
        plain = [self.simple, self.simple, self.assign, self.assign]
        nesting = [
            self.branch,
            self.loop,
            self.guarded,
            self.with_,
            self.match,
            self.define,
            self.class_,
        ]
        return self.pick([*plain, *nesting] if depth else plain)(depth)

    def simple(self, depth: int) -> list[str]:
        forms = [
            lambda: f"log({self.e()})",
            lambda: self.e(),
            lambda: f"del {self.pick(['a', 'xs[0]', 'o.f', 'b, c', 'd[0]'])}",
            lambda: f"assert {self.e()}, {self.e(1)}",
            lambda: "pass",
            lambda: f"raise {self.pick(['ValueError', 'KeyError(a)', 'TypeError from None'])}",
            lambda: f"import {self.pick(['math', 'os.path', 'math as a', 'collections.abc as b'])}",
            lambda: "from math import floor as b, pi",
            lambda: "...",
            lambda: "break" if self.in_loop else "pass",
            lambda: "continue" if self.in_loop else "pass",
            lambda: f"return {self.e(2)}" if self.inside or not self.below(4) else "log(a)",
        ]
        if sys.version_info >= (3, 12):
            forms.append(lambda: "type Alias[T] = list[T]")
        return [self.pick(forms)()]

    def assign(self, depth: int) -> list[str]:
        sign = self.pick(["+", "-", "*", "//", "|", "&"])
        forms = [
            lambda: f"{self.target()} = {self.e()}",
            lambda: f"{self.target()} = {self.target()} = {self.e()}",
            lambda: f"{self.target(1)} = {self.e(1)}, {self.e(1)}",
            lambda: f"{self.single()} {sign}= {self.e()}",
            lambda: f"{self.pick(['a', 'o.f', 'xs[0]'])}: int = {self.e()}",
            lambda: "a: int",
            lambda: f"{self.pick(MODEL_TARGETS)} {sign}= {self.e(1)}" if self.models else "b = a",
        ]
        return [self.pick(forms)()]

    def branch(self, depth: int) -> list[str]:
        lines = [f"if {self.e()}:", *self.inner(depth - 1)]
        if self.below(2):
            lines += [f"elif {self.e()}:", *self.inner(depth - 1)]
        return [*lines, "else:", *self.inner(depth - 1)] if self.below(2) else lines

    def loop(self, depth: int) -> list[str]:
        if self.below(2):
            lines = [f"for {self.target()} in {self.some()}[:3]:", *self.inner(depth - 1, True)]
        else:
            lines = [
                "for _ in range(2):",
                f"    if {self.e()}:",
                "        break",
                *self.inner(depth - 1, True),
            ]
        if not self.below(3):
            lines = ["count = 3", "while (count := count - 1) > 0:", *self.inner(depth - 1, True)]
        if self.in_async and not self.below(2):
            lines = [
                f"async for {self.target(0)} in slowly({self.some()}):",
                *self.inner(depth - 1, True),
            ]
        return [*lines, "else:", *self.inner(depth - 1)] if not self.below(3) else lines

    def guarded(self, depth: int) -> list[str]:
        lines = ["try:", *self.inner(depth - 1)]
        form = self.below(4)
        if form == 0:
            handler = [x for x in self.inner(0, False) if "return" not in x]
            return [*lines, "except* ValueError as c:", "    log(c)", *handler]
        if form != 1:
            lines += [
                f"except {self.pick(ERRORS)}{self.pick(['', ' as b'])}:",
                *self.inner(depth - 1),
            ]
            lines += self.pick([[], ["    raise"], ["    raise KeyError from None"]])
        if form == 2:
            lines += ["except:", *self.inner(depth - 1), "else:", *self.inner(depth - 1)]
        if form in (1, 3):
            lines += ["finally:", *self.inner(depth - 1)]
        return lines

    def with_(self, depth: int) -> list[str]:
        head = self.pick(
            [
                "with contextlib.suppress(Exception):",
                f"with contextlib.nullcontext({self.e(1)}) as {self.target(0)}:",
                "with contextlib.nullcontext((1, 2)) as (a, b), contextlib.suppress(ValueError):",
                f"with contextlib.nullcontext({self.e(1)}):",
            ]
        )
        if self.in_async and self.below(2):
            head = f"async {head.split(', contextlib.supp')[0].rstrip(':')}:".replace(
                "suppress(Exception)", "nullcontext(1)"
            )
        return [head, *self.inner(depth - 1)]

    def match(self, depth: int) -> list[str]:
        patterns = [
            "0 | 1", "[a, *b]", "(1, _)", "{'k': a, **d}", "int(a)", "None", "'s'", "[int() as a, b]",
            "Point(f=a)", "-1", "a if a", "[[a], *_]", "Point.zero", "str() | bytes()", "{}",
        ]  # fmt: skip
        lines = [f"match {self.e()}:"]
        for _ in range(1 + self.below(3)):
            lines += [
                f"    case {self.pick(patterns)}:",
                *(f"    {x}" for x in self.inner(depth - 1)),
            ]
        return [*lines, "    case _:", *(f"    {x}" for x in self.inner(depth - 1))]

    def define(self, depth: int) -> list[str]:
        """A function inside, which is called at once."""
        before = self.in_loop, self.in_async
        self.inside, self.in_loop = self.inside + 1, False
        name, kind = self.pick(["g", "h"]), self.below(4)
        self.in_async = kind == 0
        first = self.pick([[], ["nonlocal c"], ["global G", "G = a"], ["'''Says what.'''"]])
        if self.inside > 1 and first == ["nonlocal c"]:
            first = []
        body = [*(f"    {x}" for x in first), *self.inner(depth - 1, False)]
        if kind == 1:
            body.append(f"    a = yield {self.e(1)}")
            body.append(f"    yield from {self.some()}")
        heads = [
            f"(b={self.e(1)}, *b1, k: int = {self.e(1)}, **d)",
            "(b=0, /, b1=1)",
            "(*, k=2) -> int",
        ]
        head = f"def {name}{self.pick(['()', *heads])}:"
        decorators = self.pick([[], ["@same"], ["@log", "@same"]])
        self.inside -= 1
        self.in_loop, self.in_async = before
        call = {0: f"log(drive({name}()))", 1: f"log(list({name}()))"}.get(kind, f"log({name}())")
        return [*decorators, f"async {head}" if kind == 0 else head, *body, call]

    def class_(self, depth: int) -> list[str]:
        before = self.in_loop, self.in_async, self.models
        self.inside, self.in_loop, self.in_async = self.inside + 1, False, False
        body = [f"    {x}" for x in self.assign(0)]
        method = [f"    {x}" for x in self.inner(depth - 1, False)]
        self.inside -= 1
        self.in_loop, self.in_async, self.models = before
        return [
            f"class C{self.pick(['', '(Point)', '(Point, metaclass=type)'])}:",
            f"    __p = f = {self.e(1)}",
            *[line for line in body if "return" not in line],
            f"    both = [a for a in {self.some()}]",
            "    def method(self, a=1):",
            *method,
            "        self.__p = log(self.__p)",
            "        return super().__init__ and __class__.__name__",
            "log(C().method())",
        ]


@st.composite
def bodies(draw: Callable[..., int], models: bool) -> str:
    """Draw the body of a function of `a` and `b`, numbers, `xs`, a list, `d`, a dict, and `o`."""
    made = Bodies(draw, models)
    lines = ["c = 0", *made.block(2, 5)]
    return "\n".join([*lines, f"return {made.e(1)}, log(a)"])
