"""Definitions, as the trace sees them: zero constants, results, and what a body must not do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, OptimizerError, OptState, Update, defstate, optimizer, optimizer_update


def bound(rule: Any, *shape: int, dtype: torch.dtype = torch.float32) -> OptState[Any]:
    p = nn.Parameter(torch.ones(shape or (3, 2), dtype=dtype))
    return rule().bind([("w", p)], compile=False)


def keeping(make: Callable[[Tensor], Any]) -> Any:
    """Return a rule with one state, which starts as *make* says."""

    @optimizer
    def kept(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        s = defstate("s", make(param))
        return optimizer_update(param - grad, (s, s))

    return kept


# -- zero constants ------------------------------------------------------------------------------

ZEROS: dict[str, Callable[[Tensor], Tensor]] = {
    "full 0": lambda p: torch.full((3,), 0),
    "full False": lambda p: torch.full((3,), False),
    "full 0j": lambda p: torch.full((3,), 0j),
    "full by name": lambda p: torch.full(size=(3,), fill_value=0.0),
    "full_like False": lambda p: torch.full_like(p, False, dtype=torch.bool),
    "new_full": lambda p: p.new_full((3,), 0),
    "no dimension": lambda p: torch.zeros(()),
    "no element": lambda p: torch.zeros(0, 2),
    "zeros_like of anything": lambda p: torch.zeros_like(p * 2),
    "to dtype": lambda p: torch.zeros(2).to(torch.int8),
    "type": lambda p: torch.zeros(2).type(torch.float64),
    "type_as": lambda p: torch.zeros(2, dtype=torch.int64).type_as(p),
    "float": lambda p: torch.zeros(2, dtype=torch.int64).float(),
    "bool": lambda p: torch.zeros(2).bool(),
    "cfloat": lambda p: torch.zeros(2).cfloat(),
    "cpu": lambda p: torch.zeros(2).cpu(),
    "view dtype": lambda p: torch.zeros(3, 2).view(torch.int32),
    "view_as": lambda p: torch.zeros(6).view_as(p),
    "reshape_as": lambda p: torch.zeros(6).reshape_as(p),
    "reshape of a transpose": lambda p: torch.zeros(3, 2).T.reshape(-1),
    "flatten": lambda p: torch.zeros(3, 2).T.flatten(),
    "unflatten": lambda p: torch.zeros(6).unflatten(0, (3, 2)),
    "ravel": lambda p: torch.zeros(3, 2).T.ravel(),
    "t": lambda p: torch.zeros(3, 2).t(),
    "mT": lambda p: torch.zeros(4, 3, 2).mT,
    "H": lambda p: torch.zeros(3, 2).H,
    "swapaxes": lambda p: torch.zeros(3, 2).swapaxes(0, 1),
    "swapdims": lambda p: torch.zeros(3, 2).swapdims(0, 1),
    "moveaxis": lambda p: torch.zeros(3, 2).moveaxis(0, 1),
    "movedim": lambda p: torch.zeros(3, 2).movedim(0, 1),
    "squeeze of several": lambda p: torch.zeros(1, 3, 1).squeeze((0, 2)),
    "unsqueeze": lambda p: torch.zeros(3).unsqueeze(-1),
    "atleast_2d": lambda p: torch.atleast_2d(torch.zeros(3)),
    "expand_as": lambda p: torch.zeros(1, 2).expand_as(p),
    "broadcast_tensors": lambda p: torch.broadcast_tensors(torch.zeros(2), p)[0],
    "memory format": lambda p: torch.zeros(1, 2, 3, 3).contiguous(
        memory_format=torch.channels_last
    ),
    "to memory format": lambda p: torch.zeros(1, 2, 3, 3).to(memory_format=torch.channels_last),
    "clone": lambda p: torch.zeros(3).clone(),
    "detach": lambda p: torch.zeros(3).detach(),
}


@pytest.mark.parametrize("name", ZEROS)
def test_a_zero_constant_starts_as_it_is_declared(name: str) -> None:
    made = ZEROS[name](torch.ones(3, 2))
    opt = bound(keeping(ZEROS[name]))
    state = next(iter(opt.state.values()))["s"]
    assert (state.shape, state.dtype) == (made.shape, made.dtype)
    assert not state.any()
    if not any(s == 0 for s in made.stride()):
        assert state.stride() == made.stride()


OTHERS: dict[str, Callable[[Tensor], Any]] = {
    "`mul`": lambda p: p * 0,
    "`sub`": lambda p: p - p,
    "`add`": lambda p: torch.zeros(3) + torch.zeros(3),
    "`neg`": lambda p: -torch.zeros(3),
    "`xor`": lambda p: torch.zeros(3, dtype=torch.int32) ^ 0,
    "`ne`": lambda p: p != p,
    "`abs`": lambda p: torch.zeros_like(p).abs(),
    "`sum`": lambda p: torch.zeros(3).sum(),
    "`where`": lambda p: torch.where(p > 0, 0.0, 0.0),
    "`tensor`": lambda p: torch.tensor(0.0),
    "`as_tensor`": lambda p: torch.as_tensor(0.0),
    "`new_tensor`": lambda p: p.new_tensor([0.0]),
    "`scalar_tensor`": lambda p: torch.scalar_tensor(0.0),
    "`empty`": lambda p: torch.empty(3),
    "`ones_like`": lambda p: torch.ones_like(p),
    "`eye`": lambda p: torch.eye(3),
    "`arange`": lambda p: torch.arange(1),
    "`full`": lambda p: torch.full((3,), 1e-300),
    "`new_full`": lambda p: p.new_full((3,), -0.0),
    "`full_like`": lambda p: torch.full_like(p, math.nan),
    "`getitem`": lambda p: torch.zeros(3)[:2],
    "`select`": lambda p: torch.zeros(3).select(0, 0),
    "`narrow`": lambda p: torch.zeros(3).narrow(0, 0, 1),
    "`diagonal`": lambda p: torch.zeros(2, 2).diagonal(),
    "`unbind`": lambda p: torch.zeros(4).unbind()[0],
    "`chunk`": lambda p: torch.zeros(4).chunk(2)[0],
    "`cat`": lambda p: torch.cat([torch.zeros(3), torch.zeros(3)]),
    "`stack`": lambda p: torch.stack([torch.zeros(3)]),
    "`repeat`": lambda p: torch.zeros(3).repeat(2),
    "`tile`": lambda p: torch.zeros(3).tile(2),
    "`flip`": lambda p: torch.zeros(3).flip(0),
    "`pad`": lambda p: nn.functional.pad(torch.zeros(3), (1, 1)),
    "`real`": lambda p: torch.zeros(3, dtype=torch.complex64).real,
    "`view_as_real`": lambda p: torch.view_as_real(torch.zeros(3, dtype=torch.complex64)),
    "`softplus`": lambda p: nn.functional.softplus(p),
    "in place by `zero_`": lambda p: torch.empty(3).zero_(),
    "in place by `fill_`": lambda p: torch.zeros(3).fill_(0),
    "in place by `copy_`": lambda p: torch.empty(3).copy_(torch.zeros(3)),
    "it is the parameter itself": lambda p: p.T,
}


@pytest.mark.parametrize("words", OTHERS)
def test_any_other_start_is_refused_by_the_name_of_what_made_it(words: str) -> None:
    with pytest.raises(OptimizerError, match="E-OPT-003") as caught:
        bound(keeping(OTHERS[words]))
    (d,) = caught.value.diagnostics
    assert words in d.message
    assert d.span is not None
    assert d.span.path == __file__
    assert 's = defstate("s", make(param))' in str(caught.value)


def test_a_state_is_no_start_of_another_one() -> None:
    def start_of(states: list[Tensor]) -> Tensor:
        return states[0]

    @optimizer
    def chained(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        a = defstate("a", torch.zeros_like(param))
        b = defstate("b", start_of([a]))
        return optimizer_update(param, a=a, b=b)

    with pytest.raises(OptimizerError, match="E-OPT-003(.|\n)*it is the state `a` itself"):
        bound(chained)


def test_a_helper_a_branch_and_a_closure_may_give_the_zeros() -> None:
    def empty_like(value: Tensor) -> Tensor:
        return torch.zeros_like(value)

    wide = 4

    def closed(value: Tensor) -> Tensor:
        return torch.zeros(wide, dtype=value.dtype)

    for make in (
        empty_like,
        closed,
        lambda p: empty_like(p) if p.ndim == 2 else closed(p),
        lambda p: [torch.ones(2), torch.zeros(2)][p.ndim - 1],
    ):
        opt = bound(keeping(make))
        assert not next(iter(opt.state.values()))["s"].any()


# -- states and results --------------------------------------------------------------------------


def moment(value: Tensor, beta: float) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    old = defstate(torch.zeros_like(value))
    new = beta * old + value
    return new, (old, new)


def test_states_may_come_from_loops_generators_and_dictionaries() -> None:
    @optimizer
    def many(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        named = {f"m{i}": defstate(f"m{i}", torch.zeros_like(param)) for i in range(3)}
        new = {name: 0.5 * old + grad for name, old in named.items()}
        moments = [moment(grad, b) for b in (0.5, 0.25)]
        pairs = (pair for _, pair in moments)
        return optimizer_update(param - sum(new.values()), *pairs, **new)

    opt = bound(many)
    (state,) = opt.state.values()
    assert list(state) == ["m0", "m1", "m2", "state.0", "state.1", "updates"]
    (p,) = opt.param_groups[0]["params"]
    for _ in range(2):
        p.grad = torch.ones_like(p)
        opt.step()
    assert [state[n][0, 0].item() for n in list(state)[:5]] == [1.5, 1.5, 1.5, 1.5, 1.25]


def test_unnamed_states_are_counted_in_the_order_of_declaration_among_named_ones() -> None:
    @optimizer
    def mixed(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        a = defstate(torch.zeros(1))
        b = defstate("b", torch.zeros(2))
        c = defstate(torch.zeros(3))
        return optimizer_update(param, (c, c), (a, a), b=b)

    (state,) = bound(mixed).state.values()
    assert {n: len(v) for n, v in state.items() if n != "updates"} == {
        "state.0": 1,
        "b": 2,
        "state.1": 3,
    }


def test_each_path_is_checked_when_it_is_taken() -> None:
    @optimizer
    def forked(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        s = defstate("s", torch.zeros_like(param))
        result = {"param": param - grad, "pairs": [(s, s)]}
        if param.ndim == 1:
            result["pairs"] = []
        return optimizer_update(result["param"], *result["pairs"])

    bound(forked)
    with pytest.raises(OptimizerError, match="E-OPT-004(.|\n)*`s` is not returned"):
        bound(forked, 3)


SHAPES: list[tuple[Callable[[Tensor], Tensor], str]] = [
    (lambda p: p.T, "shape \\[2, 3\\], what it replaces \\[3, 2\\](.|\n)*write `.T`"),
    (lambda p: p.flatten(), "shape \\[6\\](.|\n)*`.reshape\\(3, 2\\)`"),
    (lambda p: p.sum(1), "shape \\[3\\](.|\n)*keepdim=True"),
    (lambda p: p.sum(), "shape \\[\\](.|\n)*nothing is broadcast"),
    (lambda p: p.repeat(2, 1), "shape \\[6, 2\\](.|\n)*in the same shape"),
    (lambda p: p * 1j, "torch.complex64, what it replaces torch.float32(.|\n)*take `.real`"),
]


@pytest.mark.parametrize(("make", "message"), SHAPES)
def test_a_result_of_another_shape_or_kind_says_how_to_write_it(
    make: Callable[[Tensor], Tensor], message: str
) -> None:
    @optimizer
    def shaped(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(make(param))

    with pytest.raises(OptimizerError, match=f"E-OPT-004(.|\n)*{message}") as caught:
        bound(shaped)
    assert "return optimizer_update(make(param))" in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.bfloat16, torch.float64])
def test_a_result_of_a_lesser_kind_stands_for_the_declared_one(dtype: torch.dtype) -> None:
    @optimizer
    def cast(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        s = defstate("s", torch.zeros_like(param))
        return optimizer_update(param - grad, s=(s + 1).to(dtype))

    opt = bound(cast)
    (p,) = opt.param_groups[0]["params"]
    p.grad = torch.ones_like(p)
    opt.step()
    assert opt.state[p]["s"].dtype is torch.float32
    assert (opt.state[p]["s"] == 1).all()


# -- what a body must not do ---------------------------------------------------------------------

IMPURE: list[tuple[str, Callable[[Tensor, Tensor], Any]]] = [
    ("E-OPT-020", lambda p, g: p.data.T.add_(1)),
    ("E-OPT-020", lambda p, g: p.requires_grad_()),
    ("E-OPT-021", lambda p, g: g.equal(p)),
    ("E-OPT-021", lambda p, g: torch.allclose(g, p)),
    ("E-OPT-021", lambda p, g: g.is_nonzero()),
    ("E-OPT-021", lambda p, g: 1.0 in g),
    ("E-OPT-021", lambda p, g: max(g.norm(), 1.0)),
    ("E-OPT-021", lambda p, g: not g.norm()),
    ("E-OPT-022", lambda p, g: p[p > 0]),
    ("E-OPT-022", lambda p, g: p.nonzero()),
    ("E-OPT-022", lambda p, g: p.unique()),
    ("E-OPT-022", lambda p, g: p.masked_select(p > 0)),
    ("E-OPT-022", lambda p, g: range(g.norm())),
    ("E-OPT-022", lambda p, g: p.requires_grad),
    ("E-OPT-023", lambda p, g: np.linalg.norm(g)),
]


@pytest.mark.parametrize(("code", "make"), IMPURE)
def test_what_needs_values_is_refused_where_it_is_written(
    code: str, make: Callable[[Tensor, Tensor], Any]
) -> None:
    @optimizer
    def impure(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        make(param, grad)
        return optimizer_update(param)

    with pytest.raises(OptimizerError, match=code) as caught:
        bound(impure)
    (d,) = caught.value.diagnostics
    assert d.span is not None
    assert d.span.path == __file__
    assert d.span.start.line == make.__code__.co_firstlineno, "the line of the helper"
