"""Where diagnostics and metrics go: sinks, histories, plots."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Ctx,
    OptimizerError,
    OptState,
    Update,
    diagnostic,
    metric,
    optimizer,
    optimizer_update,
    record,
)
from dslmut.optim import adamw, compiling, momentum_sgd
from dslmut.optim.reports import Reports, read
from dslmut.optim.sinks import History, jsonl, tensorboard


@optimizer
def reporting(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
    diagnostic("largest", grad.abs().max())
    diagnostic("step", ctx.step * 1.0)
    return optimizer_update(param - lr * grad)


def bound(rule: Any = reporting, **options: Any) -> OptState[Any]:
    return rule().bind(nn.Linear(3, 2), compile=False, **options)


def stepped(opt: OptState[Any], *values: float, **options: Any) -> None:
    for value in values:
        for p in opt.param_groups[0]["params"]:
            p.grad = torch.full_like(p, value)
        opt.step(**options)


class Calls(list[tuple[int, Mapping[str, Any]]]):
    """A sink that keeps its calls."""

    def __call__(self, step: int, numbers: Mapping[str, Any]) -> None:
        self.append((step, copy.deepcopy(numbers)))


# -- diagnostics ---------------------------------------------------------------------------------


def test_a_sink_gets_the_steps_that_compute_diagnostics() -> None:
    opt, calls = bound(diagnostics_every=2), Calls()
    opt.attach(calls)
    stepped(opt, 1.0, 2.0, 3.0)
    assert calls == [
        (0, {"largest": {"weight": 1.0, "bias": 1.0}, "step": {"weight": 0.0, "bias": 0.0}}),
        (2, {"largest": {"weight": 3.0, "bias": 3.0}, "step": {"weight": 2.0, "bias": 2.0}}),
    ]
    stepped(opt, 4.0, diagnostics=True)
    stepped(opt, 5.0, diagnostics=False)
    assert [step for step, _ in calls] == [0, 2, 3]
    opt.detach(calls)
    stepped(opt, 1.0, diagnostics=True)
    assert len(calls) == 3
    with pytest.raises(ValueError, match="is not attached"):
        opt.detach(calls)


def test_nothing_is_read_before_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr("dslmut.optim.reports.read", lambda v: reads.append(len(v)) or read(v))
    opt = bound(diagnostics_every=1)
    stepped(opt, 1.0, 2.0)
    assert reads == []
    assert opt.diagnostics["largest"] == {"weight": 2.0, "bias": 2.0}
    assert opt.diagnostics["step"] == {"weight": 1.0, "bias": 1.0}
    assert reads == [2], "once for all parameters and names"


def test_numbers_are_read_together_by_device_and_dtype() -> None:
    values = [torch.tensor([1.0, 2.0]), torch.tensor(3, dtype=torch.int64), torch.tensor(4.0)]
    assert read(values) == [[1.0, 2.0], [3.0], [4.0]]
    assert read([]) == []
    assert read([torch.tensor(True), torch.tensor(0.5, dtype=torch.bfloat16)]) == [[1.0], [0.5]]


def test_parameters_of_several_devices_report_together() -> None:
    """Each device and dtype is read by itself; here dtypes stand for devices."""
    runner = bound(diagnostics_every=1)._runner
    assert runner is not None
    dtypes = (torch.float32, torch.float64)
    vectors = [torch.tensor([1.0, 2.0], dtype=d) for d in dtypes]
    rows = [([i], ("a", "b"), [v]) for i, v in zip(reversed(runner.items), vectors)]
    reports = Reports(0, rows)
    assert reports.numbers() == {
        "a": {"weight": 1.0, "bias": 1.0},
        "b": {"weight": 2.0, "bias": 2.0},
    }
    assert list(reports.numbers()["a"]) == ["weight", "bias"]


def test_a_sink_that_raises_is_taken_away_and_the_step_stands() -> None:
    def full(step: int, numbers: Mapping[str, Any]) -> None:
        raise OSError("no space left")

    opt, calls = bound(diagnostics_every=1), Calls()
    opt.attach(full)
    opt.attach(calls)
    (p, _) = opt.param_groups[0]["params"]
    before = p.detach().clone()
    with pytest.warns(RuntimeWarning, match="`full` raised OSError: no space left.*was made"):
        stepped(opt, 1.0)
    torch.testing.assert_close(p.detach(), before - 0.1)
    stepped(opt, 1.0)
    assert [step for step, _ in calls] == [0, 1]
    assert opt.state[p]["updates"] == 2


def test_copies_and_pickles_have_no_sinks() -> None:
    model = nn.Linear(3, 2)
    opt, calls = adamw(lr=0.1).bind(model, compile=False, diagnostics_every=1), Calls()
    opt.attach(calls)
    for other in (copy.deepcopy((model, opt))[1], pickle.loads(pickle.dumps((model, opt)))[1]):
        stepped(other, 1.0)
        assert set(other.diagnostics) == {"param_norm", "grad_norm", "update_norm", "update_ratio"}
    assert calls == []
    stepped(opt, 1.0)
    assert len(calls) == 1


def test_diagnostics_outlive_a_new_group() -> None:
    opt = bound(diagnostics_every=1)
    stepped(opt, 2.0)
    opt.add_param_group({"params": [("more", nn.Parameter(torch.zeros(2)))]})
    assert opt.diagnostics["largest"] == {"weight": 2.0, "bias": 2.0}


@pytest.mark.parametrize("device_decides", [False, True])
def test_a_step_that_is_skipped_reports_nothing(
    device_decides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device_decides:  # as with gradients that are not in the host's memory
        monkeypatch.setattr("dslmut.optim.counting.decides_on_host", lambda present: False)
    opt, calls = bound(diagnostics_every=1, skip_nonfinite=True), Calls()
    opt.attach(calls)
    stepped(opt, 1.0, float("inf"), 3.0)
    assert opt.skipped == 1
    assert [step for step, _ in calls] == [0, 1]
    assert calls[-1][1]["largest"]["weight"] == 3.0


def test_the_cadence_goes_on_after_a_resume() -> None:
    opt = bound(diagnostics_every=3)
    stepped(opt, 1.0, 1.0)
    other, calls = bound(diagnostics_every=3), Calls()
    other.load_state_dict(copy.deepcopy(opt.state_dict()))
    other.attach(calls)
    stepped(other, *[1.0] * 5)
    assert [step for step, _ in calls] == [3, 6]


def test_rules_without_diagnostics_call_no_sink() -> None:
    @optimizer
    def silent(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(param - grad)

    opt, calls = bound(silent, diagnostics_every=1), Calls()
    opt.attach(calls)
    stepped(opt, 1.0)
    assert opt.diagnostics == {}
    assert calls == []


def test_diagnostics_that_are_off_are_not_in_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[str] = []

    def kernel(module: Any, examples: Any, option: Any) -> Any:
        graphs.append(str(module.graph))
        return original(module, examples, option)

    original = compiling.kernel
    monkeypatch.setattr(compiling, "kernel", kernel)
    opt = momentum_sgd().bind(nn.Linear(3, 2), compile=False)
    stepped(opt, 1.0)
    assert ["norm" in graph for graph in graphs] == [False]
    stepped(opt, 1.0, diagnostics=True)
    assert ["norm" in graph for graph in graphs] == [False, True]


# -- ready sinks ---------------------------------------------------------------------------------


def test_tensorboard_writes_scalars() -> None:
    class Writer:
        seen: list[tuple[str, float, int]] = []

        def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None) -> None:
            self.seen.append((tag, scalar_value, global_step))

    opt = bound(diagnostics_every=2)
    opt.attach(tensorboard(Writer()))
    stepped(opt, 1.0, 2.0, 3.0)
    with record(tensorboard(Writer())):
        metric("loss", 0.5)
    assert Writer.seen == [
        ("largest/weight", 1.0, 0), ("largest/bias", 1.0, 0),
        ("step/weight", 0.0, 0), ("step/bias", 0.0, 0),
        ("largest/weight", 3.0, 2), ("largest/bias", 3.0, 2),
        ("step/weight", 2.0, 2), ("step/bias", 2.0, 2),
        ("loss", 0.5, 0),
    ]  # fmt: skip


def test_the_real_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    opt = bound(diagnostics_every=1)
    with SummaryWriter(str(tmp_path)) as writer:
        opt.attach(tensorboard(writer))
        stepped(opt, 1.0)
    assert list(tmp_path.iterdir())


def test_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    opt = bound(diagnostics_every=1)
    opt.attach(jsonl(path))
    stepped(opt, 1.0, 2.0)
    with record(jsonl(path)):
        metric("loss", torch.tensor(0.25))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 0]
    assert lines[1]["values"]["largest"] == {"weight": 2.0, "bias": 2.0}
    assert lines[2] == {"step": 0, "values": {"loss": {"": 0.25}}}


def test_a_history_remembers() -> None:
    opt, history = bound(diagnostics_every=2), History()
    opt.attach(history)
    stepped(opt, 1.0, 2.0, 3.0)
    assert history["largest"] == {"weight": [(0, 1.0), (2, 3.0)], "bias": [(0, 1.0), (2, 3.0)]}
    assert list(history) == ["largest", "step"]
    with pytest.raises(KeyError):
        history["smallest"]


class Axes:
    """Records what is drawn, as matplotlib's axes would."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[list[int], list[float]]] = {}
        self.scale = "linear"

    def plot(self, x: list[int], y: list[float], label: str) -> None:
        self.lines[label] = (x, y)

    def set_xlabel(self, text: str) -> None:
        assert text == "step"

    def set_yscale(self, scale: str) -> None:
        self.scale = scale

    def legend(self) -> None:
        assert self.lines


def test_a_history_is_drawn_on_any_axes() -> None:
    history, axes = History(), Axes()
    for step in range(3):
        history(step, {"ratio": {"weight": 0.1 * step}, "loss": {"": 1.0}})
    assert history.plot(ax=axes) is axes
    assert axes.lines == {
        "ratio/weight": ([0, 1, 2], [0.0, 0.1, 0.2]),
        "loss": ([0, 1, 2], [1.0] * 3),
    }
    assert axes.scale == "log"
    only = history.plot("loss", ax=Axes(), log=False)
    assert set(only.lines) == {"loss"}
    assert only.scale == "linear"
    with pytest.raises(KeyError):
        history.plot("los", ax=Axes())


def test_a_plot_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'dslmut\[plot\]'"):
        History().plot()


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
def test_a_plot_by_matplotlib(tmp_path: Path) -> None:
    opt, history = bound(diagnostics_every=1), History()
    opt.attach(history)
    stepped(opt, 1.0, 2.0, 3.0)
    axes = history.plot("largest")
    assert [line.get_label() for line in axes.lines] == ["largest/weight", "largest/bias"]
    assert list(axes.lines[0].get_ydata()) == [1.0, 2.0, 3.0]
    axes.figure.savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


# -- metrics -------------------------------------------------------------------------------------


def test_metrics_reach_sinks_together_and_in_order() -> None:
    calls = Calls()
    with record(calls, every=4) as seen:
        for i in range(3):
            metric("loss", torch.tensor(float(i)))
            metric("rate", 0.5)
            assert len(calls) == (2 if i >= 1 else 0)
        assert seen["loss"] == [0.0, 1.0, 2.0]
    assert calls == [(i, {"loss": {"": float(i)}, "rate": {"": 0.5}}) for i in range(3)]


def test_a_block_that_ends_in_an_error_is_flushed() -> None:
    calls = Calls()
    with pytest.raises(ZeroDivisionError), record(calls):
        metric("loss", 1)
        metric("loss", 1 / 0)
    assert calls == [(0, {"loss": {"": 1.0}})]


def test_metrics_may_say_their_step() -> None:
    calls = Calls()
    with record(calls):
        for step in (10, 20):
            metric("loss", 1.0, step=step)
            metric("norm", 2.0, step=step)
        metric("test", 3.0, step=20)
    assert calls == [
        (10, {"loss": {"": 1.0}, "norm": {"": 2.0}}),
        (20, {"loss": {"": 1.0}, "norm": {"": 2.0}, "test": {"": 3.0}}),
    ]


def test_nested_blocks_have_sinks_of_their_own() -> None:
    outer, inner = Calls(), Calls()
    with record(outer):
        metric("loss", 1.0)
        with record(inner):
            metric("loss", 2.0)
        metric("loss", 3.0)
    assert [n["loss"][""] for _, n in outer] == [1.0, 2.0, 3.0]
    assert inner == [(0, {"loss": {"": 2.0}})]


def test_a_metric_is_one_number() -> None:
    with record() as seen, pytest.raises(OptimizerError, match=r"E-OPT-027(.|\n)*shape \[2\]"):
        metric("loss", torch.ones(2))
    assert dict(seen) == {}


def measured(*sinks: Any) -> None:
    with record(*sinks):
        metric("loss", 1.0)
        metric("loss", 2.0)


def test_a_sink_of_metrics_that_raises_is_taken_away() -> None:
    def broken(step: int, numbers: Mapping[str, Any]) -> None:
        raise RuntimeError("closed")

    calls = Calls()
    with pytest.warns(RuntimeWarning, match="`broken` raised RuntimeError: closed"):
        measured(broken, calls)
    assert len(calls) == 2
