"""The words of the language in a body: states, results, diagnostics."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslmut.checking.tracing.refusals import Refusal, no_zero, no_zero_number
from dslmut.checking.tracing.things import (
    UNKNOWN,
    Declared,
    Sort,
    Thing,
)
from dslmut.diagnostics.codes.bodies import MetricInBody
from dslmut.diagnostics.codes.optimizers import BadResult, BadState
from dslmut.diagnostics.model import Diagnostic, Edit, Fix, Label

if TYPE_CHECKING:
    from dslmut.checking.tracing.body import Body

RESERVED = re.compile(r"state\.\d+")
"""The names of unnamed states."""


def call(body: Body, node: ast.Call, word: str) -> Thing:
    """Return what a word of the language gives when it is called."""
    if word == "defstate":
        return _defstate(body, node)
    things = [body.evaluate(a) for a in node.args]
    for keyword in node.keywords:
        body.evaluate(keyword.value)
    if word == "metric":
        _metric(body, node)
    elif word in ("optimizer_update", "transformed"):
        return Thing(Sort.UPDATE, problems=tuple(_problems(body, node, things)))
    elif word == "schedule_value" and things:
        return things[0] if things[0].is_scalar else UNKNOWN
    return UNKNOWN


def _metric(body: Body, node: ast.Call) -> None:
    name = body.source.segment(node.func)
    new = name.replace("metric", "diagnostic")
    fix = Fix(f"write `{new}(...)`", (Edit(body.source.span(node.func), new),))
    message = "`metric` is called in an optimizer's body"
    body.report(MetricInBody.at(body.source.span(node), message, fix=fix))


# -- states --------------------------------------------------------------------------------------


def _defstate(body: Body, node: ast.Call) -> Thing:
    things = [body.evaluate(a) for a in node.args]
    plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
    if not plain or len(things) not in (1, 2):
        body.path.open = True
        return UNKNOWN
    init = things[-1]
    name = _name_of(body, node, things)
    if name is None:
        body.path.open = True
        return Thing(Sort.TENSOR, given="a state")
    _check_name(body, node, name, named=len(things) == 2)
    _check_start(body, node, name, init)
    body.path.states[name] = Declared(body.source.span(node))
    return Thing(Sort.TENSOR, given=f"the state `{name}`", state=name)


def _name_of(body: Body, node: ast.Call, things: list[Thing]) -> str | None:
    """Return the name of a state, where it is known."""
    if len(things) == 1:
        return f"state.{sum(bool(RESERVED.fullmatch(n)) for n in body.path.states)}"
    value = things[0].value
    if not things[0].is_constant:
        return None
    if not isinstance(value, str) or not value:
        message = f"the name of a state is a string, and this is a `{type(value).__name__}`"
        fix = 'write `defstate("velocity", torch.zeros_like(param))`'
        body.say(Refusal(BadState, message, fix), node)
        return None
    return value


def _check_name(body: Body, node: ast.Call, name: str, named: bool) -> None:
    if named and (RESERVED.fullmatch(name) or name == "updates"):
        message = (
            f"the name `{name}` is taken: unnamed states are called `state.N`, "
            "and `updates` is the count of updates"
        )
        body.say(Refusal(BadState, message, "choose another name"), node)
        return
    known = body.path.states.get(name)
    if known is not None and known.certain:
        message = f"the state `{name}` is declared twice"
        refusal = Refusal(BadState, message, "declare it once, and pass its value on")
        body.say(refusal, node, [Label(known.place, "first declared here")])


def _check_start(body: Body, node: ast.Call, name: str, init: Thing) -> None:
    reason = init.made
    if init.is_tensor and init.given:
        reason = f"it is {init.given} itself"
    elif init.is_scalar or init.is_constant:
        kind = "Scalar" if init.is_scalar else type(init.value).__name__
        reason = f"it is a `{kind}`"
    if reason:
        refuse = no_zero_number if init.is_constant else no_zero
        body.say(refuse(name, reason), node)


# -- results -------------------------------------------------------------------------------------


def _without_parameter(body: Body, node: ast.Call) -> tuple[str, str] | None:
    """Say what is wrong with a result whose first argument is missing, or given by name."""
    if node.args:
        return None
    word = ast.unparse(node.func)
    given = [k for k in node.keywords if k.arg is not None and k.arg not in body.path.states]
    value = ast.unparse(given[0].value) if len(given) == 1 else "new"
    rest = [ast.unparse(k) for k in node.keywords if len(given) != 1 or k is not given[0]]
    return (
        f"`{word}` gets what is new first, by position, and nothing stands there",
        f"write `{word}({', '.join([value, *rest])})`",
    )


def _problems(body: Body, node: ast.Call, things: list[Thing]) -> Iterator[Diagnostic]:
    """Say what is wrong with a result on the path that leads to it."""
    span = body.source.span(node)

    def wrong(message: str, fix: str, labels: list[Label] | None = None) -> Diagnostic:
        return BadResult.at(span, message, fix=fix, labels=labels or [])

    unplaced = _without_parameter(body, node)
    if unplaced is not None:
        yield wrong(*unplaced)
        return
    result = _Result(body)
    for argument, thing in zip(node.args[1:], things[1:]):
        problem = result.add_pairs(argument, thing)
        if problem is not None:
            yield wrong(*problem)
    for keyword in node.keywords:
        problem = result.add_named(keyword)
        if problem is not None:
            yield wrong(*problem)
    if not result.open:
        for state, declared in body.path.states.items():
            if declared.certain and state not in result.values:
                labels = [Label(declared.place, "declared here")]
                fix = returning(state, body.source.segment(node.func))
                yield wrong(f"the state `{state}` is not returned", fix, labels)
    parameter = {"parameter": things[0]} if things else {}
    states = {f"state `{s}`": v for s, v in result.values.items()}
    for what, value in {**parameter, **states}.items():
        kind = _no_tensor(value)
        if kind:
            yield wrong(f"the new {what} is a `{kind}`, not a tensor", "compute it from tensors")


def returning(state: str, word: str) -> str:
    """Say how a state is returned by ``optimizer_update`` or ``transformed``."""
    if state.isidentifier():
        return f"write `{word}(..., {state}=...)` with its new value"
    return f"return it as a pair: `{word}(new, (declared, new_value))`"


def _no_tensor(thing: Thing) -> str:
    """Name the type of what is certainly no tensor; else return nothing."""
    if thing.is_constant:
        return type(thing.value).__name__
    return {Sort.SCALAR: "Scalar", Sort.TUPLE: "tuple"}.get(thing.sort, "")


class _Result:
    """The states that a result gives."""

    def __init__(self, body: Body) -> None:
        self.body, self.open = body, False
        self.values: dict[str, Thing] = {}

    def add_pairs(self, argument: ast.expr, thing: Thing) -> tuple[str, str] | None:
        """Add what one positional argument gives; return what is wrong with it."""
        if isinstance(argument, ast.Starred):
            inner = self.body.evaluate(argument.value)
            pairs = inner.parts if inner.sort is Sort.TUPLE else None
            if isinstance(argument.value, ast.List):
                pairs = tuple(map(self.body.evaluate, argument.value.elts))
            if pairs is None:
                self.open = True
                return None
            return next((p for p in map(self._add_pair, pairs) if p is not None), None)
        return self._add_pair(thing)

    def _add_pair(self, thing: Thing) -> tuple[str, str] | None:
        fix = "write `optimizer_update(new, (declared, new_value))`, or give the state by name"
        if thing.sort is Sort.TUPLE and len(thing.parts) == 2:
            return self._add_known(*thing.parts)
        self.open = True
        if thing.is_tensor or thing.is_constant or thing.sort is Sort.TUPLE:
            kind = type(thing.value).__name__ if thing.is_constant else thing.sort.value
            return f"behind the new parameter come pairs, and this is a `{kind}`", fix
        return None

    def _add_known(self, declared: Thing, value: Thing) -> tuple[str, str] | None:
        if declared.state:
            return self._put(declared.state, value)
        self.open = True
        if (declared.is_tensor and declared.made) or declared.is_constant:
            kind = f": it is a `{type(declared.value).__name__}`" if declared.is_constant else ""
            return (
                f"the first part of a pair is not a declared state{kind or ', but computed'}",
                "keep what `defstate` returned, and give that as the first part",
            )
        return None

    def add_named(self, keyword: ast.keyword) -> tuple[str, str] | None:
        """Add what one keyword argument gives; return what is wrong with it."""
        if keyword.arg is not None:
            return self._add_name(keyword.arg, self.body.evaluate(keyword.value))
        match keyword.value:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values):
                    name = self.body.evaluate(key).value if key is not None else None
                    if not isinstance(name, str):
                        self.open = True
                        continue
                    problem = self._add_name(name, self.body.evaluate(value))
                    if problem is not None:
                        return problem
            case _:
                self.open = True
        return None

    def _add_name(self, name: str, value: Thing) -> tuple[str, str] | None:
        path = self.body.path
        if name not in path.states and not path.open:
            known = ", ".join(f"`{s}`" for s in path.states) or "none"
            return (
                f"`{self._rule}` declares no state `{name}`; it declares {known}",
                f'declare it: `{name} = defstate("{name}", torch.zeros_like(param))`',
            )
        return self._put(name, value)

    @property
    def _rule(self) -> str:
        return getattr(self.body.around[0], "name", "the rule")

    def _put(self, state: str, value: Thing) -> tuple[str, str] | None:
        twice = state in self.values
        self.values[state] = value
        return (f"the state `{state}` is returned twice", "return it once") if twice else None
