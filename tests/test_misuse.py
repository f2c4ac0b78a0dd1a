"""Calls that are easily got wrong: the error has a code, and its fix works when it is pasted."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Ctx,
    Curriculum,
    DslmutError,
    Hyper,
    OptimizerError,
    Stage,
    Update,
    defstate,
    group,
    groups,
    optimizer,
    optimizer_update,
)
from dslmut.optim import adamw, cautious, chain, clip_by_global_norm, schedule_value, schedules, sgd
from dslmut.optim.schedules import constant, cosine, join, one_cycle, staircase, warm_up

MODEL = nn.Linear(3, 2)


def found(call: Callable[[], Any]) -> tuple[str, str]:
    """Return the code of an error, and its fix."""
    with pytest.raises(DslmutError) as error:
        call()
    diagnostic = error.value.diagnostics[0]
    assert diagnostic.fix is not None
    return diagnostic.code, str(getattr(diagnostic.fix, "text", diagnostic.fix))


def pasted(fix: str, **names: Any) -> Any:
    """Return the value of the first code in a fix."""
    code = re.findall(r"`([^`]*)`", fix)[-1]
    return eval(code.removeprefix("opt = "), globals() | {"model": MODEL} | names)


# -- schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", schedules.__all__)
def test_a_schedule_says_how_it_is_called(name: str) -> None:
    made = getattr(schedules, name)
    if not inspect.isclass(made):
        return
    for call in (lambda: made(no_such_thing=1), lambda: made(at=1, no_such_thing=2)):
        with pytest.raises(OptimizerError, match=f"write `{name}\\(") as error:
            call()
        assert error.value.diagnostics[0].code == "E-OPT-009"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cosine(1e-3, T_max=10), "`T_max` is `steps` here"),  # pyright: ignore
        (lambda: staircase(1.0, step_size=3), "`step_size` is `every` here"),  # pyright: ignore
        (lambda: one_cycle(max_lr=1.0), "`max_lr` is `peak` here"),  # pyright: ignore
        (lambda: warm_up(cosine(1e-3), 10), "write `warm_up(then, *, steps=..., start=0.0)`"),  # pyright: ignore
        (lambda: join(cosine(1e-3), 0.0), "write `join(*pieces, at=...)`"),  # pyright: ignore
    ],
)
def test_names_of_torch_and_arguments_by_position(call: Callable[[], Any], words: str) -> None:
    code, fix = found(call)
    assert code == "E-OPT-009"
    assert words in fix


def test_schedules_are_copied_pickled_and_documented_as_before() -> None:
    rate = warm_up(cosine(1e-3), steps=10)
    assert pickle.loads(pickle.dumps(rate)) == copy.deepcopy(rate) == rate
    assert list(inspect.signature(cosine).parameters) == ["start", "end", "steps"]


# -- curricula and groups ------------------------------------------------------------------------


def test_curricula_and_stages() -> None:
    code, fix = found(lambda: Curriculum(100))  # pyright: ignore
    assert (code, pasted(fix)) == ("E-OPT-011", Curriculum(steps=100))
    code, fix = found(lambda: Stage(10, "a"))  # pyright: ignore
    assert (code, pasted(fix)) == ("E-OPT-011", Stage("a", 10))
    assert found(lambda: Curriculum(3.5))[0] == "E-OPT-011"  # pyright: ignore
    assert found(lambda: Curriculum([Stage("a", 1)], steps=3))[0] == "E-OPT-011"


@pytest.mark.parametrize(
    "call",
    [
        lambda: group("w", optimizer=adamw(), lr=0.1),  # pyright: ignore
        lambda: group("w"),  # pyright: ignore
        lambda: group("w", adamw()),  # pyright: ignore
    ],
)
def test_a_group_says_where_rule_and_hyperparameters_belong(call: Callable[[], Any]) -> None:
    code, fix = found(call)
    assert code == "E-OPT-005"
    assert pasted(fix) == group("*.bias", optimizer=adamw(lr=1e-3))


def test_a_function_that_cannot_be_asked_is_no_selector() -> None:
    for wrong in (lambda name: True, lambda: True, lambda name, p, more: True):
        code, fix = found(lambda wrong=wrong: group(wrong, optimizer=sgd()))  # pyright: ignore
        assert code == "E-OPT-005"
        assert groups(group(pasted(fix), optimizer=sgd()), group(optimizer=sgd()))
    assert group(lambda name, p=None: True, optimizer=sgd())


def test_an_error_of_ones_own_function_stays_what_it_is() -> None:
    def broken(name: str, p: Tensor) -> bool:
        return len(p.ndim) > 0  # pyright: ignore

    with pytest.raises(TypeError, match="has no len"):
        groups(MODEL, group(broken, optimizer=sgd()), group(optimizer=sgd()))


# -- stages of the making ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bind", "step", "param_groups", "zero_grad", "state_dict"])
@pytest.mark.parametrize("made", [adamw, clip_by_global_norm, clip_by_global_norm(1.0), cautious()])
def test_what_is_not_bound_says_how_to_bind_it(made: Any, name: str) -> None:
    code, fix = found(lambda: getattr(made, name))
    assert code == "E-OPT-005"
    assert pasted(fix).param_groups
    assert not hasattr(made, name)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        made.other


def test_what_is_bound_is_not_bound_again() -> None:
    opt = sgd(lr=0.1).bind(MODEL, compile=False)
    assert found(lambda: opt.bind(MODEL))[0] == "E-OPT-005"  # pyright: ignore
    assert copy.deepcopy(opt).param_groups[0]["lr"] == 0.1
    with pytest.raises(AttributeError):
        opt.other  # pyright: ignore


def test_bind_says_what_it_takes() -> None:
    for call in (lambda: sgd().bind(), lambda: sgd().bind(MODEL, 100)):  # pyright: ignore
        code, fix = found(call)
        assert code == "E-OPT-005"
        assert "bind(target, *, curriculum=None" in fix


@pytest.mark.parametrize("made", [adamw, clip_by_global_norm, cautious])
def test_a_part_of_a_chain_that_is_not_configured(made: Any) -> None:
    parts = {adamw: [], clip_by_global_norm: [sgd()], cautious: [sgd()]}[made]
    code, fix = found(lambda: chain(made, *parts))
    assert code == "E-OPT-010"
    assert pasted(fix) == made(**{n: 1.0 for n, h in made.hyperparameters.items() if h.required})


# -- a number over a schedule --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "key", "value"),
    [
        (adamw(lr=cosine(1e-3)), "lr", 1.0),
        (adamw(betas=(constant(0.8), 0.99)), "betas", (0.9, 0.999)),
    ],
)
def test_the_fix_puts_a_number_in_place_of_a_schedule(rule: Any, key: str, value: Any) -> None:
    model = nn.Linear(3, 2)
    opt = rule.bind(model, curriculum=10, compile=False)
    model(torch.ones(1, 3)).sum().backward()
    opt.param_groups[0][key] = value
    code, fix = found(opt.step)
    assert code == "E-OPT-008"
    [statement] = re.findall(r"`(param_groups.*?)`", fix)
    exec(f"opt.{statement}", {"opt": opt, "constant": constant})
    opt.step()
    assert opt.param_groups[0][key] == value


# -- bodies --------------------------------------------------------------------------------------


def decorated(source: str) -> tuple[str, str]:
    """Return code and fix of a rule whose source is not at hand: the trace alone can say it."""
    names = dict(globals())
    exec("def rule(param, grad, ctx, *, lr: Hyper = 0.1):\n" + source, names)
    return found(lambda: optimizer(names["rule"])([nn.Parameter(torch.ones(2))], lr=0.2))


def test_the_new_parameter_comes_first_and_by_position() -> None:
    def by_name() -> None:
        @optimizer
        def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
            v = defstate("v", torch.zeros_like(param))
            return optimizer_update(new=param - lr * grad, v=v)  # pyright: ignore

    code, fix = found(by_name)
    assert code == "E-OPT-004"
    assert fix == "write `optimizer_update(param - lr * grad, v=v)`"
    code, fix = decorated("    return optimizer_update(param=param - lr * grad)")
    assert code == "E-OPT-004"
    assert "by position" in fix


def test_a_number_is_no_start_of_a_state() -> None:
    def seen() -> None:
        @optimizer
        def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
            t = defstate("t", 0)  # pyright: ignore
            return optimizer_update(param - lr * grad, t=t + 1)

    traced = "    t = defstate('t', float(0))\n    return optimizer_update(param, t=t + 1)"
    for code, fix in (found(seen), decorated(traced)):
        assert code == "E-OPT-003"
        assert "torch.zeros(())" in fix
        assert "ctx.updates" in fix


def test_schedule_value_gets_the_hyperparameter_first() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        return optimizer_update(param - schedule_value(ctx, lr) * grad)  # pyright: ignore

    code, fix = found(lambda: rule(MODEL))
    assert code == "E-OPT-002"
    assert fix.endswith("`schedule_value(lr, ctx)`")


def test_max_and_min_of_tensors_say_the_shorter_way() -> None:
    def one() -> None:
        @optimizer
        def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
            return optimizer_update(param - lr * grad / max(1.0, grad.norm()))

    def two() -> None:
        @optimizer
        def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
            return optimizer_update(param - lr * min(param + grad, grad))

    def less() -> None:
        @optimizer
        def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
            return optimizer_update(param - lr * min(2 * grad.norm(), lr))

    assert found(one) == ("E-OPT-021", "write `grad.norm().clamp(min=1.0)`")
    assert found(two) == ("E-OPT-021", "write `torch.minimum((param + grad), grad)`")
    assert found(less) == ("E-OPT-021", "write `(2 * grad.norm()).clamp(max=lr)`")
