"""What a rule refuses by a `raise` of its own, and errors in a body that are none."""

from __future__ import annotations

import fractions
import inspect
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Ctx,
    DslmutError,
    OptimizerError,
    Update,
    group,
    groups,
    optimizer,
    optimizer_update,
)
from dslmut.optim import adamw, chain, clip_by_norm, muon, sgd


class Unfit(ValueError):
    """An exception of the user's own kind."""


def checked(param: Tensor, how: str) -> None:
    if param.ndim != 2 and how == "a value":
        raise ValueError(f"rows are needed, and {param.ndim} is no number of dimensions for that.")
    if param.ndim != 2 and how == "a type":
        try:
            "a" + 1  # pyright: ignore
        except TypeError as error:
            raise TypeError("rows are needed") from error


@optimizer
def by_rows(
    param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1, how: str = "a value"
) -> Update:
    checked(param, how)
    if how == "own":
        raise Unfit("not this")
    if how == "python":
        math.sqrt(-1)
    if how == "torch":
        grad = grad @ torch.ones(7, 7)
    if how == "library":
        fractions.Fraction("no number")
    return optimizer_update(param - lr * grad)


def bound(rule, model: nn.Module | None = None):
    return rule.bind(model or nn.Linear(3, 2), compile=False)


@pytest.mark.parametrize("how", ["a value", "a type"])
@pytest.mark.parametrize("chained", [False, True])
def test_a_refusal_names_rule_parameter_shape_and_line(how: str, chained: bool) -> None:
    rule = by_rows(how=how)
    with pytest.raises(OptimizerError) as caught:
        bound(chain(clip_by_norm(1.0), rule) if chained else rule)
    [found] = caught.value.diagnostics
    assert found.code == "E-OPT-028"
    assert "by_rows" in found.message
    assert "refuses the parameter `bias` of shape [2]: rows are needed" in found.message
    assert not found.message.endswith(".")
    assert found.span is not None
    lines, start = inspect.getsourcelines(checked)
    assert found.span.path == __file__
    assert "raise" in lines[found.span.start.line - start]
    assert type(caught.value.__cause__) is (ValueError if how == "a value" else TypeError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_refusal_of_the_library_points_to_the_call_and_to_what_works() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(OptimizerError) as caught:
        bound(muon(lr=0.02), model)
    [found] = caught.value.diagnostics
    assert found.span is not None
    assert found.span.path == __file__
    assert "muon_groups(" in found.message
    assert found.fix is not None
    written = found.fix.text.split("`")[1]
    names = {"groups": groups, "group": group, "adamw": adamw, "model": model}
    opt = eval(written.replace("muon(...)", "muon()"), {**names, "muon": muon})
    assert {g["rule"]: g["param_names"] for g in opt.param_groups} == {
        "adamw": ["bias"],
        "muon": ["weight"],
    }


@pytest.mark.parametrize(
    ("how", "kind"),
    [("own", Unfit), ("python", ValueError), ("torch", RuntimeError), ("library", ValueError)],
)
def test_other_errors_of_a_body_pass_as_they_are(how: str, kind: type[Exception]) -> None:
    model = nn.Linear(3, 2, bias=False)
    with pytest.raises(kind) as caught:
        bound(by_rows(how=how), model)
    assert not isinstance(caught.value, DslmutError)
    assert any("`by_rows` for the parameter `weight`" in n for n in caught.value.__notes__)


def test_a_refused_group_leaves_nothing() -> None:
    model = nn.Linear(3, 2)
    opt = sgd(lr=0.1).bind([("weight", model.weight)], compile=False)
    with pytest.raises(OptimizerError, match="E-OPT-028"):
        opt.add_param_group(
            {"params": [model.bias], "param_names": ["bias"], "optimizer": by_rows()}
        )
    assert len(opt.param_groups) == 1
    assert list(opt.state) == [model.weight]
