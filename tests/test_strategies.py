"""Compiled updates equal uncompiled ones, for every rule, layout and dtype; no write is lost.

Where both compute in the same order, they are equal to the last bit: compiled code contracts no
product and sum, divides as torch does, and rounds square roots as the standard says, so that those
of the uncompiled run are too (``ExactRoots``). Else the bound is stated beside its reason.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, Update, defstate, optim, optimizer, optimizer_update
from tests.conformance import ROWS, Row
from tests.strategies import (
    DENSE,
    LAYOUTS,
    OTHERS,
    STRATEGIES,
    Pair,
    gradients,
    leaf,
    no_compilation,
    parameters,
)

STEPS = 4

BOUNDS = {
    # The norm of a parameter is summed up in another order: in vectors of another length.
    "lars": 4.0,
    "lamb": 4.0,
    # So are the means of rows and columns.
    "adafactor": 8.0,
    # Products of matrices are the same; those of states laid out with gaps are not.
    "soap": 16.0,
    "muon_float64": 4.0,
    # Iterated five times in bfloat16, where the sum of a product of matrices and another one is
    # rounded once instead of twice: a sixtieth of the last place there.
    "muon": 1000.0,
}
"""By how many units in the last place of the largest element a rule may be off after some steps."""

OTHER_DTYPES = (torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)

MOVED = ("weight_decay", "momentum", "amsgrad", "centered", "nesterov")


def configured(row: Row) -> Any:
    """Return the rule of a row, with all of its arithmetic in use."""
    moved = {n: v for n, v in row.moved.items() if n in MOVED and row.rule is not optim.muon}
    return row.rule(**dict(row.base), **moved)


def chosen(number: int, row: Row) -> list[Tensor]:
    """Return parameters for a rule: all dense layouts, and others in turn, so that few are compiled."""
    dtypes = [d for d in OTHER_DTYPES if row.elementwise or not d.is_complex]
    others, dense = list(OTHERS.values()), list(DENSE.values())
    found = [make(torch.float32) for make in DENSE.values()]
    if not row.elementwise:  # each layout is a kernel
        found = [dense[number % 4](torch.float32), DENSE["in several threads"](torch.float32)]
    found.append(others[number % len(others)](torch.float32))
    found.append(dense[number % 4](dtypes[number % len(dtypes)]))
    return [v for v in found if row.takes(v.ndim)]


def compared(row: Row, values: list[Tensor], option: Any = True, bound: float = 0.0) -> None:
    pair = Pair.of(configured(row), [{"params": values}], option)
    bound = BOUNDS.get(row.name, bound)
    for step in range(STEPS):
        pair.step(gradients(values, step))
        assert {(n, w): d for n, w, d in pair.deviations() if d > bound} == {}
    filled = [(v, p) for v, p in zip(values, parameters(pair.compiled)) if v.numel()]
    stayed = [v for v, p in filled if torch.equal(v, p)]
    low = (torch.bfloat16, torch.float16)  # in which a small update may be rounded away
    assert not [v for v in stayed if v.dtype not in low], "these have not been updated"
    assert len(stayed) < len(filled)


@pytest.mark.parametrize(
    ("number", "row"), [*enumerate(ROWS)], ids=lambda x: getattr(x, "name", "")
)
def test_every_rule(number: int, row: Row) -> None:
    compared(row, chosen(number, row))


# Complex parameters are for rules that treat each element by itself; the others refuse them.
WHOLE = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype}")
    for row in ROWS
    for dtype in (torch.float32, *OTHER_DTYPES)
    if row.elementwise or not dtype.is_complex
]


@pytest.mark.long
@pytest.mark.parametrize(("row", "dtype"), WHOLE)
def test_every_rule_in_every_layout_and_dtype(row: Row, dtype: torch.dtype) -> None:
    values = [make(dtype) for make in LAYOUTS.values()]
    compared(row, [v for v in values if row.takes(v.ndim)])


@pytest.mark.parametrize("name", [n for n in STRATEGIES if n != "quick"])
def test_every_strategy(name: str) -> None:
    row = next(r for r in ROWS if r.rule is optim.adamw)
    values = [DENSE["transposed"](torch.float32), OTHERS["rows with gaps"](torch.float32)]
    bound = 1.0 if name == "AOT" else 0.0  # its square roots are torch's
    compared(row, [*values, torch.randn(17), torch.randn(17)], STRATEGIES[name], bound)


def test_numbers_that_are_none_and_infinite_ones_arrive_as_they_are() -> None:
    for rule in (optim.adamw(amsgrad=True), optim.rprop(), optim.lion()):
        pair = Pair.of(rule, [{"params": [torch.randn(9)]}], True)
        for odd in (1.0, float("nan"), float("inf"), -float("inf"), 1e-42, -0.0):
            gradient = torch.randn(9)
            gradient[[0, 4]] = odd
            pair.step([gradient])
            assert {w: d for _, w, d in pair.deviations() if d} == {}


def test_a_product_of_low_precision_with_a_number_is_rounded_once() -> None:
    @optimizer
    def low(param: Tensor, grad: Tensor, ctx: Ctx, *, a: float = 3.4445) -> Update:
        g = grad.to(torch.bfloat16)
        product, quotient = a * g, g / a
        return optimizer_update(param - product.float() - quotient.float())

    pair = Pair.of(low(), [{"params": [torch.zeros(24)]}], True)
    gradient = torch.randn(24)
    pair.step([gradient])
    assert {w: d for _, w, d in pair.deviations() if d} == {}
    g = gradient.bfloat16().float()
    expected = -(3.4445 * g).bfloat16().float() - (g / 3.4445).bfloat16().float()
    assert torch.equal(parameters(pair.compiled)[0], expected)


# -- what is written -----------------------------------------------------------------------------


@optimizer
def juggler(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
    """Passes old values on, in all ways in which a compiler has lost one."""
    a, b, kept, last, older = (
        defstate(n, torch.zeros_like(param)) for n in ("a", "b", "kept", "last", "older")
    )
    return optimizer_update(param - 0.5 * grad, a=b, b=param + a, kept=kept, last=grad, older=last)


def juggled(p: Tensor, g: Tensor, s: dict[str, Tensor]) -> Tensor:
    s["a"], s["b"], s["last"], s["older"] = s["b"], p + s["a"], g, s["last"]
    return p - 0.5 * g


SHAPES = [(3,), (2, 2), (5,)]


def many(count: int, kinds: int) -> list[Tensor]:
    return [torch.randn(SHAPES[n % kinds]) for n in range(count)]


@pytest.mark.parametrize(
    ("name", "count", "kinds"),
    [
        *(("quick", count, kinds) for count, kinds in
          [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (12, 1), (20, 1), (2, 2), (5, 2), (12, 3)]),
        ("torch.compile", 5, 2),
        ("AOT", 12, 3),
    ],
)  # fmt: skip
def test_old_values_reach_the_states_of_any_number_of_parameters(
    name: str, count: int, kinds: int
) -> None:
    values = many(count, kinds)
    opt = juggler().bind([leaf(v) for v in values], compile=STRATEGIES[name])
    states = [dict.fromkeys(("a", "b", "kept", "last", "older"), 0 * v) for v in values]
    for step in range(4):
        given = gradients(values, step)
        for n, (p, g) in enumerate(zip(parameters(opt), given)):
            p.grad = g
            values[n] = juggled(values[n], g, states[n])
        opt.step()
        for p, v, s in zip(parameters(opt), values, states):
            assert torch.equal(p, v)
            assert all(torch.equal(opt.state[p][k], s[k]) for k in s)


@pytest.mark.parametrize("name", STRATEGIES)
def test_memory_that_is_shared(name: str) -> None:
    """Parameters in one buffer, states in one, and a gradient that is a state or the parameter."""
    found = []
    for option in (STRATEGIES[name], False):
        torch.manual_seed(3)
        buffer, room = torch.randn(40), torch.zeros(2, 8)
        views = [buffer[:8], buffer[8:16], buffer[12:20], buffer[20::2], buffer[21::2], buffer[1:9]]
        made = [nn.Parameter(v) for v in views]
        opt = juggler().bind(made, compile=option)
        opt.state[made[0]].update(a=room[0], b=room[1])
        for step in range(3):
            for p, g in zip(made, gradients(views, 2 * step)):
                p.grad = g
            if step:
                made[1].grad = opt.state[made[1]]["last"]
            opt.step()
        found.append(
            [buffer, room, *(s[k] for s in opt.state.values() for k in ("a", "b", "last"))]
        )
    assert all(map(torch.equal, *found))


def test_parameters_that_are_not_trained_stay_as_they_are() -> None:
    values = many(6, 2)
    opt = juggler().bind([leaf(v).requires_grad_(n % 3 > 0) for n, v in enumerate(values)])
    for _ in range(2):
        for p in parameters(opt):
            p.grad = torch.ones_like(p) if p.requires_grad else None
        opt.step()
    for n, (p, v) in enumerate(zip(parameters(opt), values)):
        torch.testing.assert_close(p.detach(), v - float(n % 3 > 0))


# -- which gradients there are -------------------------------------------------------------------


def test_gradients_that_come_and_go_compile_nothing_and_change_nothing() -> None:
    torch.manual_seed(5)
    values = [*many(7, 2), torch.randn(5, 4)[:, ::2], torch.randn(5, 4)[:, ::2],
              torch.randn(3, dtype=torch.bfloat16), torch.randn(())]  # fmt: skip
    groups = [{"params": values[:4]}, {"params": values[4:], "lr": 0.02, "weight_decay": 0.3}]
    pair = Pair.of(optim.adamw(lr=0.1), groups, True)
    pair.step(gradients(values, 0))
    chance = random.Random(7)
    with no_compilation():
        for step in range(1, 31):
            share = chance.random()
            given = [g if chance.random() < share else None for g in gradients(values, step)]
            pair.step(given)
            assert {(n, w): d for n, w, d in pair.deviations() if d} == {}


# -- many shapes ---------------------------------------------------------------------------------


def test_more_shapes_than_any_limit_allows() -> None:
    """The lengths are all those around vectors of instructions, too."""
    values = [torch.randn(n) for n in range(1, 81)]
    opt = optim.sgd(lr=0.5).bind([leaf(v) for v in values])
    for p in parameters(opt):
        p.grad = torch.ones_like(p)
    opt.step()
    assert all(torch.equal(p, v - 0.5) for p, v in zip(parameters(opt), values))


def test_more_kinds_than_dynamo_compiles_of_one_function() -> None:
    kinds = [torch.float32, torch.float64, torch.bfloat16, torch.complex64]
    values = [torch.randn([2] * (n % 6) + [n + 1], dtype=kinds[n % 4])[..., ::2] for n in range(70)]
    opt = optim.sgd(lr=0.5).bind([leaf(v) for v in values], compile={"backend": "eager"})
    for p in parameters(opt):
        p.grad = torch.ones_like(p)
    opt.step()
    assert all(torch.equal(p, v - 0.5) for p, v in zip(parameters(opt), values))
