"""Which parameters are updated together: a plan as data, and what it never does, compile later."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, OptState, Update, optimizer, optimizer_update
from dslmut.optim import adamw, compiling, momentum_sgd, muon, sgd
from dslmut.optim.plan import Entry, Family, KernelKey, Plan, kernels_for, plan
from tests.strategies import no_compilation

ROW = Family("row")


def entries(*kinds: str, family: Family = ROW) -> list[Entry]:
    return [Entry(n, ("sgd", kind), family) for n, kind in enumerate(kinds)]


def kinds(key: KernelKey) -> str:
    return "".join(str(layout) for _, layout in key)


def names(keys: Iterable[KernelKey]) -> list[str]:
    return [kinds(key) for key in keys]


def updated(found: Plan) -> list[int]:
    return sorted(m for call in found.calls for m in call.members if m is not None)


def room(found: Plan) -> int:
    """Return how much scratch memory stands in."""
    return sum(m is None for call in found.calls for m in call.members)


def test_a_model_that_repeats_itself_needs_one_kernel_for_its_layers() -> None:
    """GPT-2: two embeddings, twelve layers of twelve parameters, and a last norm."""
    layer = ["a", "a", "b", "c", "d", "a", "a", "a", "e", "f", "g", "a"]
    model = entries("V", "P", *layer * 12, "a", "a")
    kernels = kernels_for(model)
    found = plan(model, kernels)
    assert sorted(map(len, kernels)) == [4, 12]
    assert len(found.calls) == 13
    assert room(found) == 0
    assert updated(found) == list(range(148))


@pytest.mark.parametrize("seed", range(20))
def test_all_are_updated_once_whatever_there_is(seed: int) -> None:
    chance = random.Random(seed)
    families = [Family("row"), Family("few", most=3, weight=4), Family("alone", most=1)]
    model = [Entry(n, ("sgd", chance.randrange(1, 12)), chance.choice(families)) for n in range(90)]
    kernels = kernels_for(model)
    found = plan(model, kernels)
    assert room(found) == 0
    assert updated(found) == list(range(90))
    families_of = {e.number: e.family for e in model}
    for call in found.calls:
        assert len({families_of[m] for m in call.members if m is not None}) == 1
        assert len(call.members) <= min(families_of[m].most for m in call.members if m is not None)
    for _ in range(10):  # gradients that are missing need no further kernels
        some = chance.sample(model, chance.randrange(1, 90))
        assert updated(plan(some, kernels)) == sorted(e.number for e in some)


def test_a_thousand_parameters_of_thirty_kinds_need_three_kernels() -> None:
    model = entries(*(f"{n % 30}," for n in range(1000)))
    kernels = kernels_for(model)
    assert len(kernels) == 3
    assert len(plan(model, kernels).calls) <= 70


def test_no_kernel_updates_more_than_its_family_allows() -> None:
    assert [len(k) for k in kernels_for(entries(*(str(n) for n in range(40))))] == [13, 13, 14]
    alone = entries(*"aabb", family=Family("alone", most=1))
    assert names(kernels_for(alone)) == ["a", "b"]


def test_known_kernels_are_used_where_they_are_filled() -> None:
    known = kernels_for(entries(*"aab"))
    assert kernels_for(entries(*"aabaab"), known) == {next(iter(known)): 2}
    assert names(kernels_for(entries(*"aabc"), known)) == ["aab", "c"]


def test_scratch_memory_stands_in_for_what_is_missing() -> None:
    kernels = kernels_for(entries(*"aabc"))
    assert names(kernels) == ["aabc"]
    (call,) = plan(entries(*"bac"), kernels).calls
    assert call.members == (1, None, 0, 2)


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


def test_many_groups_of_few_settings_share_their_calls_and_numbers() -> None:
    """flashoptim 1, rf-detr 1409: 465 groups of 28 settings, one launch for each."""
    opt, parameters = many(28, 465)
    step(opt, parameters)
    assert opt._runner is not None
    (steps,) = next(iter(opt._runner._steps.values()))
    assert len(steps.calls) <= 35
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


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of inputs of kernels that are made from now on."""
    found: list[int] = []

    def kernel(module: Any, examples: Any, option: Any) -> Any:
        found.append(len(examples))
        return original(module, examples, option)

    original = compiling.kernel
    monkeypatch.setattr(compiling, "kernel", kernel)
    return found


def test_nothing_is_compiled_when_groups_come_apart_or_gradients_go(made: list[int]) -> None:
    parameters = [nn.Parameter(torch.randn(n)) for n in (3, 3, 4, 4, 5, 3, 4)]
    opt = momentum_sgd(lr=0.1).bind([{"params": [p]} for p in parameters], compile=False)
    parameters[1].grad = torch.ones(3)
    opt.step()  # with one gradient alone
    assert len(made) == 1
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


@pytest.mark.parametrize("every", [None, 4])
@pytest.mark.parametrize("first", [None, True])
def test_diagnostics_compile_nothing_later(every: int | None, first: bool | None) -> None:
    torch.manual_seed(0)
    ours, theirs = ([nn.Parameter(torch.linspace(-1, 1, n)) for n in (3, 4)] for _ in range(2))
    opt, other = adamw().bind(ours, diagnostics_every=every), adamw().bind(theirs, compile=False)

    def steps(asked: bool | None) -> None:
        for p, q in zip(ours, theirs):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        opt.step(diagnostics=asked)
        other.step(diagnostics=True)

    steps(first)
    with no_compilation():
        for k in range(9):
            steps(None if k > 4 else k % 2 == 0)
        steps(True)
    assert all(torch.allclose(p, q, rtol=1e-6) for p, q in zip(ours, theirs))
    for name, numbers in other.diagnostics.items():
        assert opt.diagnostics[name] == pytest.approx(dict(numbers), rel=1e-5)


def test_a_further_group_compiles_only_what_is_new(made: list[int]) -> None:
    parameters = [nn.Parameter(torch.randn(3)) for _ in range(4)]
    opt = sgd(lr=0.1).bind(parameters, compile=False)
    step(opt, parameters)
    made.clear()
    opt.add_param_group({"params": [nn.Parameter(torch.randn(3)) for _ in range(4)]})
    step(opt, [p for g in opt.param_groups for p in g["params"]])
    assert made == []
    opt.add_param_group({"params": [nn.Parameter(torch.randn(7))]})
    step(opt, [p for g in opt.param_groups for p in g["params"]])
    assert len(made) == 1


def test_transposed_matrices_share_a_kernel(made: list[int]) -> None:
    shapes = [(6, 4), (4, 6), (24,), (2, 3, 4)]
    parameters = [nn.Parameter(torch.randn(s)) for s in shapes]
    parameters.append(nn.Parameter(torch.randn(6, 4).T))
    opt = momentum_sgd().bind(parameters, compile=False)
    step(opt, parameters)
    assert opt._runner is not None
    ((steps, *_),) = opt._runner._steps.values()
    assert {k for c in steps.calls for k in Counter(c.call.kernel)} == {
        steps.calls[0].call.kernel[0]
    }


@optimizer
def rows(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
    """Moves each row by its norm."""
    return optimizer_update(param - 0.1 * grad / grad.norm(dim=-1, keepdim=True))


@pytest.mark.parametrize("rule", [rows(), muon(ns_dtype="float32"), momentum_sgd(), adamw()])
def test_missing_gradients_of_any_rule_leave_the_others_as_they_would_be(rule: Any) -> None:
    torch.manual_seed(0)
    chance = random.Random(0)
    ours = [nn.Parameter(torch.randn(4, 3 + n % 2)) for n in range(9)]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    opt = rule.bind(ours, compile=False)
    singles = [rule.bind([p], compile=False) for p in theirs]
    bound = 1e-6 if rule.definition is muon else 0  # products of stacks may add in another order
    for _ in range(8):
        for p, q, single in zip(ours, theirs, singles):
            p.grad = torch.randn_like(p) if chance.random() < 0.6 else None
            q.grad = None if p.grad is None else p.grad.clone()
            if q.grad is not None:
                single.step()
        opt.step()
        for p, q in zip(ours, theirs):
            torch.testing.assert_close(p, q, rtol=bound, atol=bound)


@pytest.mark.parametrize("how", [True, False])
def test_autograd_sees_that_parameters_and_states_have_changed(how: bool) -> None:
    """A kernel below autograd moves no counter, and a backward pass would use new values in silence."""
    w = nn.Parameter(torch.ones(3))
    opt = momentum_sgd(lr=0.1).bind([w], compile=how)
    (state,) = (v for v in opt.state[w].values() if isinstance(v, Tensor))
    loss = (w * w * state.detach()).sum() + (w * w).sum()
    w.grad = torch.ones(3)
    before = w._version, state._version
    opt.step()
    assert w._version > before[0]
    assert state._version > before[1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_kernel_that_fails_when_it_is_first_called_leaves_nothing_half_done() -> None:
    """``torch.compile`` compiles at the first call, when others may have been made."""
    made: list[Any] = []

    def backend(module: Any, examples: Any) -> Any:
        made.append(module)
        if len(made) == 2:
            raise RuntimeError("no code for this")
        return module

    ps = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=torch.float64))]
    opt = momentum_sgd(lr=0.1).bind(ps, compile={"backend": backend})
    for p in ps:
        p.grad = torch.ones_like(p)
    for _ in range(2):
        with pytest.raises(Exception, match="no code for this"):
            opt.step()
        made.pop()
        for p in ps:
            assert p.tolist() == [1.0, 1.0, 1.0]
            assert opt.state[p]["velocity"].tolist() == [0.0, 0.0, 0.0]
            assert opt.state[p]["updates"] == 0
    made.append(None)
    opt.step()
    assert [p.tolist() for p in ps] == [pytest.approx([0.9] * 3)] * 2
