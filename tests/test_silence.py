"""Sinks that would hear nothing, and names that were never reported: said at once."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dslmut import OptimizerError, metric, record
from dslmut.optim import momentum_sgd
from dslmut.optim.sinks import History, jsonl, tensorboard


def bound(**options: Any):
    return momentum_sgd(lr=0.1).bind(nn.Linear(3, 2), compile=False, **options)


def stepped(opt, count: int = 1, **options: Any) -> None:
    for _ in range(count):
        for p in opt.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        opt.step(**options)


def test_a_sink_that_nobody_reports_to_is_said_once() -> None:
    opt = bound()
    opt.attach(History())
    with pytest.warns(RuntimeWarning, match="no step computes diagnostics.*diagnostics_every=100"):
        stepped(opt)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepped(opt, 2)


@pytest.mark.parametrize(
    ("bind", "first"),
    [({"diagnostics_every": 100}, {}), ({}, {"diagnostics": True}), ({}, {"diagnostics": False})],
)
def test_no_word_where_the_steps_that_report_are_chosen(bind: Any, first: Any) -> None:
    opt = bound(**bind)
    opt.attach(History())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepped(opt, **first)
        stepped(opt, 3)
        stepped(bound())


class Writer:
    """As TensorBoard's: it cannot be called."""

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None) -> None:
        raise AssertionError


NO_SINKS = [
    ("x.jsonl", "jsonl('x.jsonl')"),
    (Path("x.jsonl"), "jsonl("),
    (Writer(), "tensorboard(writer)"),
    (History, "History(...)"),
    (jsonl, "jsonl(...)"),
    (tensorboard, "tensorboard(...)"),
    (lambda step: None, "(step, numbers)"),
    (None, "(step, numbers)"),
]


@pytest.mark.parametrize(("given", "fix"), NO_SINKS, ids=lambda x: str(x)[:20])
def test_what_is_no_sink_is_refused_where_it_is_given(given: Any, fix: str) -> None:
    opt = bound(diagnostics_every=1)
    for give in (opt.attach, lambda sink: record(sink).__enter__()):
        with pytest.raises(OptimizerError, match="E-OPT-011") as caught:
            give(given)
        [found] = caught.value.diagnostics
        assert found.fix is not None
        assert fix in found.fix.text
    stepped(opt)
    metric("loss", 1.0)


def test_whatever_can_be_called_with_both_is_a_sink() -> None:
    seen: list[Any] = []
    more: list[Any] = []
    opt = bound(diagnostics_every=1)
    opt.attach(more.insert)
    opt.attach(lambda *both: seen.append(both))
    opt.attach(lambda step, numbers, scale=1.0: seen.append((step, numbers)))
    stepped(opt)
    assert [step for step, _ in seen] == [0, 0]
    assert more == [opt.diagnostics]


def test_names_that_were_not_reported() -> None:
    opt, history = bound(diagnostics_every=1), History()
    opt.attach(history)
    for found in (history, opt.diagnostics):
        with pytest.raises(KeyError, match="nothing was reported yet.*diagnostics_every=100"):
            found["grad_norm"]
    stepped(opt)
    with record() as seen:
        metric("loss", 1.0)
    for found, wrong, right in (
        (history, "gradnorm", "write `grad_norm`"),
        (opt.diagnostics, "gradnorm", "write `grad_norm`"),
        (history, "colour", "there are param_norm, grad_norm"),
        (seen, "los", "write `loss`"),
    ):
        with pytest.raises(KeyError, match=f"{wrong}: this was not reported; {right}"):
            found[wrong]
        assert wrong not in found
        assert found.get(wrong) is None
    with pytest.raises(KeyError, match="write `grad_norm`"):
        history.plot("gradnorm", ax=object())
    for other in (copy.deepcopy(history), pickle.loads(pickle.dumps(history))):
        assert dict(other) == dict(history)
