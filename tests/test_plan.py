"""Which parameters are updated together: a plan as data, and what it never does, compile later."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dslmut import OptState
from dslmut.optim import adamw, sgd
from dslmut.optim.plan import Entry, plan


def entries(*slots: int, layout: str = "3x2") -> list[Entry]:
    """Return parameters with these vectors of scalars, each in a group of its own."""
    return [Entry(n, "sgd", layout, slot, n) for n, slot in enumerate(slots)]


def sizes(found: Any) -> list[int]:
    return [len(call.members) for call in found.calls]


def test_equal_ones_share_calls_of_four() -> None:
    found = plan(entries(0, 0, 1, 0, 0, 0, 0))
    assert [call.members for call in found.calls] == [(0, 1, 3, 4), (5, 6), (2,)]
    assert [call.slot for call in found.calls] == [0, 0, 1]


def test_what_shares_memory_is_alone() -> None:
    apart = Entry(7, "sgd", "3x2", 0, 7, apart=True)
    assert sizes(plan([*entries(0, 0), apart])) == [2, 1]


def test_a_kernel_for_one_is_compiled_along_where_groups_may_come_apart() -> None:
    assert [s.kernel[2] for s in plan(entries(0, 0, 0)).spares] == [1]
    assert plan(entries(0, 1, 2)).spares == ()
    one_group = [Entry(n, "sgd", "3x2", 0, 0) for n in range(3)]
    assert plan(one_group).spares == ()
    assert plan(entries(0, 0, 0, 0, 0)).spares == ()  # one of five is alone already


@pytest.mark.parametrize(
    ("count", "compiled", "expected"),
    [
        (7, set(), [4, 3]),
        (7, {4, 3}, [4, 3]),
        (7, {4, 1}, [4, 1, 1, 1]),
        (3, {4, 2, 1}, [2, 1]),
        (2, {4, 1}, [1, 1]),
        (3, {4}, [3]),  # there is no way around
        (8, {4}, [4, 4]),
        (5, {1}, [1] * 5),
    ],
)
def test_compiled_sizes_are_used_again(count: int, compiled: set[int], expected: list[int]) -> None:
    found = plan(entries(*[0] * count), {("sgd", "3x2"): compiled})
    assert sizes(found) == expected
    assert [m for call in found.calls for m in call.members] == list(range(count))


# -- in an optimizer -----------------------------------------------------------------------------


def many(settings: int, parameters: int) -> tuple[OptState[Any], list[nn.Parameter]]:
    """Return an optimizer with a group for each parameter, of which many have equal settings."""
    torch.manual_seed(0)
    made = [nn.Parameter(torch.randn(3)) for _ in range(parameters)]
    groups = [{"params": [p], "lr": 0.01 * (1 + n % settings)} for n, p in enumerate(made)]
    return adamw(weight_decay=0.1).bind(groups, compile=False), made


def step(opt: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
    for p in parameters:
        p.grad = torch.full_like(p, 0.5)
    opt.step()


def test_many_groups_of_few_settings_share_their_calls() -> None:
    """flashoptim 1, rf-detr 1409: 465 groups of 28 settings, one launch for each."""
    opt, parameters = many(28, 465)
    step(opt, parameters)
    assert opt._runner is not None
    (steps,) = next(iter(opt._runner._steps.values()))
    assert len(steps.calls) == 17 * 5 + 11 * 4  # 17 or 16 parameters with each setting, in fours
    assert len(steps.slots) == 28


def test_groups_that_come_apart_and_together_equal_those_of_their_own() -> None:
    opt, parameters = many(2, 9)
    own, others = many(9, 9)
    for k in range(12):
        for n, (group, other) in enumerate(zip(opt.param_groups, own.param_groups)):
            group["lr"] = other["lr"] = 0.01 * (1 + (n % (1 + k % 4)))
            group["weight_decay"] = other["weight_decay"] = 0.1 * (k % 3)
        step(opt, parameters)
        for n, p in enumerate(others):  # one by one, so that nothing is shared
            for q in others:
                q.grad = None
            p.grad = torch.full_like(p, 0.5)
            alone = adamw(**{h: own.param_groups[n][h] for h in ("lr", "weight_decay")})
            single = alone.bind([p], compile=False)
            if own.state[p]["updates"]:
                single.state[p].update(own.state[p])
            single.step()
            own.state[p].update(single.state[p])
        assert all(map(torch.equal, parameters, others))


def test_nothing_is_compiled_when_groups_come_apart_or_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dslmut.optim import compiling

    made: list[int] = []
    original = compiling.kernel

    def counted(program: Any, count: int, *rest: Any) -> Any:
        made.append(count)
        return original(program, count, *rest)

    monkeypatch.setattr(compiling, "kernel", counted)
    parameters = [nn.Parameter(torch.randn(3)) for _ in range(7)]
    opt = sgd(lr=0.1).bind([{"params": [p]} for p in parameters], compile=False)
    shown = opt.explain()
    step(opt, parameters)
    assert sorted(made) == [1, 3, 4]
    assert shown.graphs == 1
    made.clear()
    for k in range(1, 8):
        for n, group in enumerate(opt.param_groups):
            group["lr"] = 0.1 * (1 + n % k)
        step(opt, parameters)
    for k in range(1, 7):  # gradients that go and come
        for p in parameters:
            p.grad = None
        for p in parameters[:k]:
            p.grad = torch.ones_like(p)
        opt.step()
    assert made == []
