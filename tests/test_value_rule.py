"""A field read is a value: random programs do under `@fn` what they do on a model of values."""

from __future__ import annotations

import contextlib
import copy
import linecache
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jaxtyping import Float
from torch import Tensor, nn

from dslmut import Model, Mut, fn, mut, set_field
from dslmut.functions import runtime
from tests.value_model import Handle, Values, as_values, as_written, flat, values_of
from tests.value_programs import programs


class Layer(Model):
    w: Float[Tensor, "2 2"]
    b: Float[Tensor, "2"]


class Net(Model):
    w: Float[Tensor, "2 2"]
    b: Float[Tensor, "2"]
    enc: Layer
    dec: Layer


class Plain(nn.Module):
    def __init__(self, start: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.arange(4.0).reshape(2, 2) + start)
        self.b = nn.Parameter(torch.arange(2.0) - start)


def plain_net(start: int) -> nn.Module:
    m = Plain(start)
    m.enc, m.dec = Plain(start + 1), Plain(start + 2)
    return m


def net(start: int) -> Net:
    def layer(start: int) -> dict[str, Tensor]:
        return {k: p.detach() for k, p in Plain(start).named_parameters()}

    return Net(**layer(start), enc=Layer(**layer(start + 1)), dec=Layer(**layer(start + 2)))


def bump(m: Mut[nn.Module], by: float) -> Tensor:
    """Change every field, and return an old value."""
    old = m.w
    m.w = m.w * by + 1
    m.b = m.b + by
    return old


def rotate(m: Mut[nn.Module], new: Tensor) -> Tensor:
    """Write into a view, and return what it was."""
    row = m.w[0]
    m.w[0] = m.w[1]
    m.w[1] = row
    m.w = m.w + new
    return torch.stack([row, m.b])


def rotate_values(m: Values, new: Tensor) -> Tensor:
    row = m.w[0]
    m.w = m.w[[1, 0]] + new
    return torch.stack([row, m.b])


def double(x: Tensor) -> Tensor:
    return x * 2


def fail() -> None:
    raise ValueError


def grow(m: Mut[nn.Module]) -> None:
    """Change every parameter there is."""
    for p in m.parameters():
        p.mul_(2)


SHARED = {
    "torch": torch,
    "Tensor": Tensor,
    "nn": nn,
    "copy": copy,
    "contextlib": contextlib,
    "Mut": Mut,
    "Net": Net,
    "double": double,
    "fail": fail,
}
UNDER_FN = {
    **SHARED,
    "fn": fn,
    "mut": mut,
    "bump": fn(bump),
    "rotate": fn(rotate),
    "grow": fn(grow),
    "set_field": set_field,
}
ON_VALUES = {
    **SHARED,
    "fn": lambda f: f,
    "mut": lambda m: m,
    "bump": bump,
    "rotate": rotate_values,
    "grow": grow,
    "set_field": setattr,
    "Handle": Handle,
}
HEADS = {True: "m: Mut[Net], n: Net", False: "m: Mut[nn.Module], n: Net"}


def compiled(body: str, head: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Define a function as a module would that has this text."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    text = f"@fn\ndef program({head}, x: Tensor, y: Tensor, c0: bool, c1: bool):\n{lines}\n"
    path = f"<program {hash(text):x}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    namespace = {**names, "__name__": "programs"}
    try:
        exec(compile(text, path, "exec"), namespace)
    finally:
        linecache.cache.pop(path)
    return namespace["program"]


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return flat(function(*args))
    except (ValueError, KeyError) as error:
        return type(error).__name__


def check(body: str, flags: tuple[bool, bool], declared: bool) -> None:
    """Run a program both ways, and compare all that can be seen afterwards."""
    m, n = net(1) if declared else plain_net(1), net(5)
    values = values_of(m), values_of(n)
    x, y = torch.tensor([[2.0, -3.0], [5.0, 1.0]]), torch.tensor([-1.0, 4.0])
    given = flat((x, y))
    before = [(id(p), p.data_ptr(), p.requires_grad, p.is_leaf) for p in m.parameters()]

    theirs = compiled(as_values(body), "m, n", ON_VALUES)
    expected = outcome(theirs, *values, x.clone(), y.clone(), *flags)
    ours = compiled(as_written(body), HEADS[declared], UNDER_FN)
    result = outcome(ours, mut(m), n, x, y, *flags)

    # By text, where nan equals nan.
    assert repr(result) == repr(expected)
    assert repr(flat((m, n))) == repr(flat(values))
    assert flat((x, y)) == given
    after = [(id(p), p.data_ptr(), p.requires_grad, p.is_leaf) for p in m.parameters()]
    assert after == before


# -- random programs -----------------------------------------------------------------------------

QUICK = settings(
    max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
LONG = settings(QUICK, max_examples=20_000)
FLAGS = st.tuples(st.booleans(), st.booleans())


@QUICK
@given(programs(), FLAGS, st.booleans())
def test_programs_mean_what_they_mean_on_values(
    body: str, flags: tuple[bool, bool], declared: bool
) -> None:
    check(body, flags, declared)


@pytest.mark.long
@LONG
@given(programs(), FLAGS, st.booleans())
def test_many_programs_mean_what_they_mean_on_values(
    body: str, flags: tuple[bool, bool], declared: bool
) -> None:
    check(body, flags, declared)


FOUND = """
a1 = m.dec if c0 else m; «a1|w|».add_(x)
for i, a1 in enumerate((m, m.dec)): «a1|w|».mul_(2)
l1 = [e.w for e in (m.dec, m)]; grow(mut(m)); return l1
a1 = copy.deepcopy(m.enc); «a1|w|»[1] += x[0]; return a1.w * 1
a1 = copy.deepcopy(m.dec); «a1|w|»[0], «a1|w|»[1] = a1.w[1], a1.w[0]; «a1|w|.T»[1] = y; return a1.w * 1
«m.enc|w|»[:, 0] = y; «m|w|.T»[1] = y
m.dec.w, m.w = m.w, m.dec.w; «m.enc|w|.T».zero_()
m.enc.w = m.w = m.enc.w.T
«m.enc|w|.T».copy_(m.enc.w)
«m|w|.T».lerp_(m.w, 0.5)
«m.dec|w|.detach()».add_(m.dec.w.T)
p1 = «m|w|»; p1 += m.w.T
p1 = «m|w|.data»; l1 = [m.w.T]; p1 += x; return l1
return rotate(mut(m), m.w.T)
t1 = m.w; return rotate(mut(m), t1), t1
return rotate(mut(m), new=m.w[:])
l1 = [m.w]; l1.append(m.w); m.w = x; return l1
g1 = lambda: bump(mut(m), 3); return m.w, g1()
"""


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("body", FOUND.strip().splitlines())
def test_what_random_programs_found(body: str, declared: bool) -> None:
    for flags in ((True, True), (False, False)):
        check(body.replace("; ", "\n"), flags, declared)


WAYS_OUT = {
    "a result is computed before what `finally` changes": """
try:
    return m.w, m.w.T
finally:
    m.w = x
""",
    "and through two of them": """
try:
    try:
        return m.enc.w
    finally:
        m.w = x
finally:
    m.enc.w = x
""",
    "a loop is left through what `finally` changes": """
t1 = x
for i in range(3):
    try:
        t1 = m.w
        if c0:
            break
        continue
    finally:
        m.w = m.w * 2
return t1
""",
    "a handler that raises leaves through it too": """
t1 = x
try:
    try:
        fail()
    except ValueError:
        t1 = m.w
        raise KeyError from None
    finally:
        m.w = x
except KeyError:
    return t1
""",
    "an error that no handler takes comes from the middle of the body": """
t1 = x
try:
    try:
        t1 = m.w
        m.w = m.w * 2
        raise KeyError
    except ValueError:
        t1 = x
except KeyError:
    return t1
""",
    "an error that a manager ends, too": """
t1 = x
with contextlib.suppress(ValueError):
    t1 = m.w
    m.w = m.w * 2
    fail()
    t1 = x
return t1
""",
}


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("what", WAYS_OUT)
def test_ways_out_of_a_block(what: str, declared: bool) -> None:
    for flags in ((True, True), (False, False)):
        check(WAYS_OUT[what].strip(), flags, declared)


# -- as few copies as possible -------------------------------------------------------------------

PARTS = ["m.enc", "m.dec"]
"""Of one model: a change of either may be one of the other, since parameters may be tied."""

CHANGES = [
    "{p}.w = x",
    "{p}.w += x",
    "{p}.w[0] = y",
    "{p}.w[0] -= y",
    "{p}.w.mul_(2)",
    "{p}.w.T.add_(x)",
    "p = {p}.w; p += 1",
    "set_field({p}, 'w', x)",
    "a = {p}; a.w = x",
]
READS = ["t{k} = {p}.w", "t{k} = {p}.w.T[0]", "t{k} = [{p}.w]", "t{k} = {p}.w.detach()"]
USES = ["kept += t{k}[0] * 1,", "kept += torch.stack([*t{k}]),", "kept += double(t{k}[-1]),"]


@st.composite
def straight(draw: Callable[..., Any]) -> tuple[str, int]:
    """Draw reads, changes and uses, and how many of the reads are used after a change."""
    lines, own, changed, copied = [], set(), set(), set()
    for k in range(draw(st.integers(2, 10))):
        part, kind = draw(st.sampled_from(PARTS)), draw(st.integers(0, 3))
        if kind == 0:
            source = draw(st.sampled_from([*PARTS, "n.enc"]))
            lines.append(draw(st.sampled_from(READS)).format(k=k, p=source))
            own |= {k} if source in PARTS else {-k - 1}
        elif kind == 1 and own:
            k = draw(st.sampled_from(sorted(own)))
            lines.append(draw(st.sampled_from(USES)).format(k=k if k >= 0 else -k - 1))
            copied |= {k} & changed
        else:
            everything = draw(st.integers(0, 4)) == 0
            lines.append(
                "grow(mut(m))" if everything else draw(st.sampled_from(CHANGES)).format(p=part)
            )
            changed |= {k for k in own if k >= 0}
    return "\n".join(["kept = ()", *lines, "return kept"]), len(copied)


@QUICK
@given(straight(), st.booleans())
def test_a_read_is_copied_if_it_is_used_after_a_change_and_only_then(
    drawn: tuple[str, int], declared: bool
) -> None:
    body, needed = drawn
    function = compiled(body, HEADS[declared], UNDER_FN)
    copies = []

    def snapshot(value: object) -> object:
        if isinstance(value, Tensor):
            copies.append(value)
            return value.clone()
        return value

    with mock.patch.object(runtime, "snapshot", snapshot):
        m, x = net(1) if declared else plain_net(1), torch.ones(2, 2)
        function(mut(m), net(5), x, x[0], True, True)
    assert len(copies) == needed
