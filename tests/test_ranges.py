"""Ranges: numbers that would spoil a run are refused wherever they come from."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Ctx, Hyper, OptimizerError, Update, optimizer, optimizer_update
from dslmut import optim as ours
from dslmut.optim import Range, adamw, chain, clip_by_global_norm, gradient_transform, sgd
from dslmut.optim.define import Optimizer
from dslmut.optim.hyperparameters import Hyperparameter
from dslmut.optim.schedules import constant, linear
from dslmut.optim.transforms import TransformDefinition

NAN, INF = math.nan, math.inf
DEFINITIONS = [
    found
    for found in (getattr(ours, name) for name in ours.__all__)
    if isinstance(found, Optimizer | TransformDefinition)
]
PAIRS = [(d, h) for d in DEFINITIONS for h in d.hyperparameters.values()]


def numbers(h: Hyperparameter) -> bool:
    return h.kind is float or (h.kind is tuple and any(isinstance(v, float) for v in h.default))


def given(definition: Any, h: Hyperparameter, value: Any) -> dict[str, Any]:
    """Return all that a definition needs, with this value in place of each number of ``h``."""
    others = {n: 1.0 for n, o in definition.hyperparameters.items() if o.required}
    whole = isinstance(h.default, tuple)
    return {**others, h.name: (value,) * len(h.default) if whole else value}


def code(call: Callable[[], Any]) -> str:
    with pytest.raises(OptimizerError) as found:
        call()
    return found.value.diagnostics[0].code


def message(call: Callable[[], Any]) -> str:
    with pytest.raises(OptimizerError) as found:
        call()
    return str(found.value)


# -- the standard library ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "h"), [p for p in PAIRS if numbers(p[1])], ids=lambda x: getattr(x, "name", None)
)
def test_no_number_of_a_standard_rule_is_nan(definition: Any, h: Hyperparameter) -> None:
    assert code(lambda: definition(**given(definition, h, NAN))) == "E-OPT-002"
    assert code(lambda: definition(**given(definition, h, -INF))) == "E-OPT-002"


TORCHS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "rmsprop": torch.optim.RMSprop,
    "rprop": torch.optim.Rprop,
    "adafactor": torch.optim.Adafactor,
    "muon": torch.optim.Muon,
    "sgd": torch.optim.SGD,
}
TRIED = (-1.0, -1e-9, 0.0, 0.5, 1.0, 1.5, 2.0)


@pytest.mark.parametrize("name", TORCHS)
def test_what_torch_refuses_is_refused_and_what_it_takes_is_taken(name: str) -> None:
    definition, theirs, seen = getattr(ours, name), TORCHS[name], 0
    for h in definition.hyperparameters.values():
        for value in TRIED if numbers(h) else ():
            tried = [value]
            if isinstance(h.default, tuple):
                tried = [
                    (*h.default[:i], value, *h.default[i + 1 :]) for i in range(len(h.default))
                ]
            for each in tried:
                try:
                    theirs([nn.Parameter(torch.ones(2, 2))], **{"lr": 0.1, h.name: each})
                except ValueError:
                    seen += 1
                    assert code(partial(definition, **{h.name: each})) == "E-OPT-002"
                else:
                    if not refused_on_purpose(name, h.name, each):
                        assert definition(**{h.name: each})
    assert seen


def refused_on_purpose(name: str, hyperparameter: str, value: Any) -> bool:
    """Say whether torch forgot to check it: a step size below 0, a negative eps."""
    negative = min(v for v in (value if isinstance(value, tuple) else (value,)) if v is not None)
    return (name, hyperparameter) in {("rprop", "step_sizes"), ("muon", "eps")} and negative < 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: adamw(betas=(0.9, 1.0)),
        lambda: adamw(lr=-1.0),
        lambda: adamw(lr=torch.tensor(-1.0)),
        lambda: adamw(lr=INF),
        lambda: clip_by_global_norm(-1.0),
        lambda: ours.clip_by_value(NAN),
        lambda: ours.soap(precondition_frequency=0),
        lambda: ours.muon(ns_steps=100),
        lambda: chain(clip_by_global_norm(1.0), sgd(lr=-0.1)),
        lambda: adamw(betas=(constant(0.9), 1.0)),
    ],
)
def test_refused_when_it_is_configured(call: Callable[[], Any]) -> None:
    assert code(call) == "E-OPT-002"


def test_an_infinite_limit_bounds_nothing() -> None:
    rule = chain(clip_by_global_norm(INF), sgd(lr=1.0))
    model = nn.Linear(2, 2, bias=False)
    before, grad = model.weight.detach().clone(), torch.randn(2, 2)
    model.weight.grad = grad.clone()
    rule.bind(model, compile=False).step()
    assert torch.equal(model.weight.detach(), before - grad)


def test_the_error_says_which_number_and_what_to_write() -> None:
    assert "`betas[1]` of `adamw` is at least 0 and below 1, not 1.0" in message(
        lambda: adamw(betas=(0.9, 1.0))
    )
    assert "`lr` of `adamw` is at least 0, not nan" in message(lambda: adamw(lr=NAN))
    assert "write `lr=1.0, maximize=True`" in message(lambda: adamw(lr=-1.0))
    assert "write `max_norm=1.0`" in message(lambda: clip_by_global_norm(-1.0))


# -- where they come from ------------------------------------------------------------------------


def test_a_number_in_a_group_is_refused_before_anything_changes() -> None:
    model = nn.Linear(3, 2)
    opt = adamw(lr=0.1).bind(model, compile=False)
    model(torch.ones(1, 3)).sum().backward()
    opt.step()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for key, value in {"lr": NAN, "betas": (0.9, 1.0), "weight_decay": -0.1}.items():
        kept, opt.param_groups[0][key] = opt.param_groups[0][key], value
        assert code(opt.step) == "E-OPT-002"
        assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())
        assert opt.param_groups[0]["step"] == 1
        opt.param_groups[0][key] = kept
    opt.step()
    assert opt.param_groups[0]["step"] == 2


def test_torch_style_groups_and_later_ones() -> None:
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    assert code(lambda: sgd([{"params": [a], "lr": -1.0}])) == "E-OPT-002"
    opt = sgd(lr=0.1).bind([a], compile=False)
    assert code(lambda: opt.add_param_group({"params": [b], "lr": NAN})) == "E-OPT-002"
    assert len(opt.param_groups) == 1


def test_a_file_with_such_a_number_changes_nothing() -> None:
    model = nn.Linear(3, 2)
    opt = adamw(lr=0.1).bind(model, compile=False)
    saved = opt.state_dict()
    saved["param_groups"][0]["lr"] = torch.tensor(NAN)
    saved["param_groups"][0]["eps"] = 1e-3
    assert code(lambda: opt.load_state_dict(saved)) == "E-OPT-002"
    assert opt.param_groups[0]["lr"] == 0.1
    assert opt.param_groups[0]["eps"] == 1e-8


def test_what_a_schedule_computes_is_its_own_affair() -> None:
    p = nn.Parameter(torch.ones(1))
    opt = sgd(lr=linear(-1.0, 1.0, steps=2)).bind([p], compile=False)
    p.grad = torch.ones(1)
    opt.step()
    assert p.item() == 2.0


# -- a rule of one's own -------------------------------------------------------------------------


@optimizer
def ranged(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Annotated[Hyper, Range()] = 0.1,
    share: Annotated[Hyper, Range(above=0, most=1)] = 0.5,
    pair: tuple[Annotated[Hyper, Range(most=0)], Hyper] = (-1.0, 1.0),
    times: Annotated[int, Range(least=1)] = 1,
    cap: Hyper = INF,
    least: Annotated[Hyper, Range(least=0)] | None = None,
    shift: Hyper = 0.0,
) -> Update:
    return optimizer_update(param - lr * share * grad * times)


@gradient_transform
def softened(param: Tensor, grad: Tensor, ctx: Ctx, by: Annotated[Hyper, Range(least=0)]) -> Tensor:
    return grad / (1 + by)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": NAN},
        {"share": 0.0},
        {"share": 1.5},
        {"pair": (1.0, 1.0)},
        {"pair": (-1.0, INF)},
        {"times": 0},
        {"cap": NAN},
        {"least": -1.0},
        {"shift": INF},
    ],
    ids=str,
)
def test_ranges_of_a_rule_of_ones_own(wrong: dict[str, Any]) -> None:
    assert code(lambda: ranged(**wrong)) == "E-OPT-002"
    assert code(lambda: chain(softened(1.0), ranged(**wrong))) == "E-OPT-002"


@pytest.mark.parametrize(
    "right",
    [
        {"lr": -1.0},  # the annotation goes before what the name means elsewhere
        {"share": 1.0},
        {"share": constant(3.0)},
        {"pair": (0.0, 5.0)},
        {"times": 3},
        {"cap": -INF},  # its default says that infinities may be given
        {"least": None},
        {"least": 0.0},
    ],
    ids=str,
)
def test_what_is_in_range_is_taken(right: dict[str, Any]) -> None:
    assert ranged(**right).hyperparameters.items() >= right.items()


def test_a_part_of_a_chain_keeps_its_range() -> None:
    p = nn.Parameter(torch.ones(2))
    opt = chain(softened(1.0), sgd(lr=0.1)).bind([p], compile=False)
    p.grad = torch.ones(2)
    opt.param_groups[0]["softened.by"] = -1.0
    assert "`softened.by`" in message(opt.step)
    assert torch.equal(p.detach(), torch.ones(2))


def test_a_default_out_of_range_is_found_where_it_stands() -> None:
    def body(
        param: Tensor, grad: Tensor, ctx: Ctx, *, betas: tuple[Hyper, Hyper] = (0.9, 1.0)
    ) -> Update:
        return optimizer_update(param)

    with pytest.raises(OptimizerError, match=r"`betas\[1\]` is at least 0 and below 1") as found:
        optimizer(body)
    assert found.value.diagnostics[0].code == "E-OPT-001"


def test_an_annotation_that_cannot_be_evaluated_is_no_range_silently() -> None:
    def body(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1) -> Update:
        return optimizer_update(param)

    body.__annotations__["lr"] = "Annotated[Hyper, Range(least=here)]"
    assert code(lambda: optimizer(body)) == "E-OPT-001"
    # Another annotation that cannot be evaluated takes no range away.
    body.__annotations__ |= {"lr": "Annotated[Hyper, Range(least=1)]", "param": "Nowhere"}
    body.__kwdefaults__ = {"lr": 2.0}
    assert code(lambda: optimizer(body)(lr=0.5)) == "E-OPT-002"


def test_a_range_has_numbers_in_it() -> None:
    for wrong in ({"least": 1, "most": 0}, {"least": NAN}, {"above": 1, "below": 1}):
        with pytest.raises(ValueError, match="no number"):
            Range(**wrong)
    with pytest.raises(ValueError, match="two bounds"):
        Range(least=0, above=0)
    assert repr(Range(least=0, below=1)) == "Range(least=0, below=1)"
    assert 0.0 not in Range(above=0)
    assert 5e-324 in Range(above=0)
