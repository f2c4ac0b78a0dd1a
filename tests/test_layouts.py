"""Compiled updates get the memory that they were compiled for, and lose no write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, OptimizerError, OptState, Update, defstate, optimizer, optimizer_update
from dslmut.optim import momentum_sgd, sgd
from dslmut.optim.parameters import overlapping


def matrix(*shape: int, start: float = 1.0) -> nn.Parameter:
    count = torch.Size(shape).numel()
    return nn.Parameter(torch.linspace(start, start + 1, count).reshape(shape))


def stepped(opt: OptState[Any], gradient: Callable[[Tensor], Tensor] = torch.ones_like) -> None:
    for group in opt.param_groups:
        for p in group["params"]:
            p.grad = gradient(p)
    opt.step()


# -- what changes its layout ---------------------------------------------------------------------

CHANGES: dict[str, Callable[[OptState[Any], nn.Parameter], object]] = {
    "state to float64": lambda o, p: o.state[p].update(velocity=o.state[p]["velocity"].double()),
    "state to float16": lambda o, p: o.state[p].update(velocity=o.state[p]["velocity"].half()),
    "state transposed": lambda o, p: o.state[p].update(velocity=o.state[p]["velocity"].t().contiguous().t()),
    "state's data": lambda o, p: setattr(o.state[p]["velocity"], "data", o.state[p]["velocity"].double()),
    "state expanded": lambda o, p: o.state[p].update(velocity=torch.ones(()).expand(3, 4)),
    "state deleted": lambda o, p: o.state[p].pop("velocity"),
    "all states deleted": lambda o, p: o.state.clear(),
    "parameter to float64": lambda o, p: setattr(p, "data", p.data.double()),
    "parameter transposed": lambda o, p: setattr(p, "data", p.data.t().contiguous().t()),
    "parameter with gaps": lambda o, p: setattr(p, "data", torch.zeros(3, 8)[:, ::2].copy_(p.data)),
    "parameter of another shape": lambda o, p: (setattr(p, "data", torch.ones(5, 7)), o.state.clear()),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_step_after_a_change_of_layout(change: Any) -> None:
    found = []
    for option in (True, False):
        p = matrix(3, 4)
        opt = momentum_sgd(lr=0.1).bind([p], compile=option)
        for _ in range(2):
            stepped(opt)
        change(opt, p)
        for _ in range(2):
            stepped(opt)
        velocity = opt.state[p]["velocity"]
        assert (velocity.dtype, velocity.shape) == (p.dtype, p.shape)
        found.append((p.detach(), velocity))
    torch.testing.assert_close(*found)


GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": torch.ones_like,
    "transposed": lambda p: torch.ones(p.shape[::-1]).t(),
    "expanded": lambda p: torch.ones(()).expand(p.shape),
    "with gaps": lambda p: torch.ones(*p.shape, 2)[..., 0],
}


@pytest.mark.parametrize("parameter", ["dense", "transposed", "gaps"])
def test_gradients_of_any_layout(parameter: str) -> None:
    values = matrix(3, 4).detach()
    if parameter == "transposed":
        values = values.t().contiguous().t()
    elif parameter == "gaps":
        values = torch.zeros(3, 8)[:, ::2].copy_(values)
    results = []
    for option in (True, False):
        p = nn.Parameter(values.clone(memory_format=torch.preserve_format))
        p.data = torch.empty_strided(values.shape, values.stride()).copy_(values)
        opt = momentum_sgd(lr=0.1).bind([p], compile=option)
        for make in GRADIENTS.values():
            with torch.no_grad():
                p.grad = None
            stepped(opt, make)
        results.append(p.detach().contiguous())
    torch.testing.assert_close(*results)


def test_a_state_of_another_shape_is_refused_before_anything_changed() -> None:
    p = matrix(3, 4)
    opt = momentum_sgd(lr=0.1).bind([p], compile=False)
    opt.state[p]["velocity"] = torch.zeros(3)
    before = p.detach().clone()
    with pytest.raises(OptimizerError, match="E-OPT-007"):
        stepped(opt)
    assert torch.equal(p, before)
    assert opt.param_groups[0]["step"] == 0


def test_parameters_that_share_memory_are_updated_one_after_the_other() -> None:
    flat = torch.zeros(10)
    parts = [nn.Parameter(flat[:4]), nn.Parameter(flat[4:])]
    assert overlapping(parts) == set()
    assert overlapping([parts[0], nn.Parameter(flat[2:6])]) == {0, 1}
    for option in (True, False):
        w = torch.ones(3)
        opt = sgd(lr=0.1).bind([nn.Parameter(w), nn.Parameter(w)], compile=option)
        stepped(opt)
        torch.testing.assert_close(w, torch.full((3,), 0.8))


# -- results that are inputs ---------------------------------------------------------------------


def _swapped(p: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return s.clone(), p.clone()


MOVES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "itself": lambda p, s: (p - 1, p),
    "clone": lambda p, s: (p - 1, p.clone()),
    "copying cast": lambda p, s: (p - 1, p.to(p.dtype, copy=True)),
    "there and back": lambda p, s: (p - 1, p.double().float()),
    "reshape": lambda p, s: (p - 1, p.reshape(-1).clone().reshape(p.shape)),
    "concatenation of one": lambda p, s: (p - 1, torch.cat([p])),
    "concatenation": lambda p, s: (p - 1, torch.cat([p[:1], p[1:]])),
    "stack": lambda p, s: (p - 1, torch.stack([p])[0]),
    "padding": lambda p, s: (p - 1, nn.functional.pad(p, (0, 0))),
    "unbinding": lambda p, s: (p - 1, torch.stack(list(p.unbind(0)))),
    "chunk": lambda p, s: (p - 1, p.chunk(1)[0]),
    "split": lambda p, s: (p - 1, torch.cat(p.split(1))),
    "times one": lambda p, s: (p - 1, p * 1.0),
    "plus zeros": lambda p, s: (p - 1, p + torch.zeros_like(p)),
    "times ones": lambda p, s: (p - 1, p * torch.ones_like(p)),
    "choice": lambda p, s: (p - 1, torch.where(torch.ones_like(p) > 0, p, s)),
    "flip": lambda p, s: (p.flip(0), p.flip(1)),
    "roll": lambda p, s: (p.roll(1, 0) + s, p.roll(1, 1)),
    "transposed": lambda p, s: (p.t(), s.t()),
    "transposed sum": lambda p, s: (p.t() + s, s.t() + p),
    "swap": lambda p, s: (s, p),
    "swap of clones": _swapped,
    "copy in place": lambda p, s: (p - 1, torch.empty_like(p).copy_(p)),
    "in place on a clone": lambda p, s: (p - 1, p.clone().add_(0.0)),
    "product": lambda p, s: (p @ s, s @ p),
    "sum over both": lambda p, s: (p - p.sum(), s + p.sum()),
    "foreach": lambda p, s: (p - 1, _foreach(p)),
}  # fmt: skip


def _foreach(p: Tensor) -> Tensor:
    new = p.clone()
    torch._foreach_mul_([new], 5.0)
    return new


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_old_values_reach_the_states(move: Any) -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        old = defstate("old", torch.zeros_like(param))
        new, kept = move(param, old + 0 * grad if move is MOVES["product"] else old)
        return optimizer_update(new, old=kept)

    p, q = matrix(3, 3), matrix(3, 3).detach()
    opt = rule().bind([p], compile=True)
    plain = rule().bind([r := matrix(3, 3)], compile=False)
    state = torch.zeros(3, 3)
    for _ in range(3):
        stepped(opt)
        stepped(plain)
        q, state = (x.clone() for x in move(q, state))
        for parameter, own in ((p, opt), (r, plain)):
            torch.testing.assert_close(parameter.detach(), q)
            torch.testing.assert_close(own.state[parameter]["old"], state)


def test_operations_that_return_nothing_are_kept() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(param - torch.linalg.cholesky(grad))

    p = matrix(2, 2)
    opt = rule().bind([p], compile=False)
    with pytest.raises(torch.linalg.LinAlgError):
        stepped(opt, lambda p: -torch.eye(2))
