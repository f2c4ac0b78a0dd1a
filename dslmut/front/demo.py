"""``dslmut demo``: train on handwritten digits, then look at a mistake. Needs the extra ``demo``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor

import dslmut.examples
from dslmut.checking.analysis import check_file
from dslmut.checking.static import Project
from dslmut.diagnostics.render import COLOURED, PLAIN, full
from dslmut.examples.digits import Mlp, accuracy, fit, momentum_sgd
from dslmut.optim.context import Ctx

EPOCHS = 30


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the digits as images in [0, 1] of 64 pixels, and their numbers: train x, y, test x, y."""
    images, numbers = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(numbers)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return x[train], y[train], x[test], y[test]


def cosine(ctx: Ctx) -> Tensor:
    """Fall from 0.1 to 0 along half a cosine."""
    return 0.05 * (1 + torch.cos(torch.pi * ctx.progress))


def run(epochs: int | None = None) -> int:
    """Train, and print what a user wants to know."""
    started, epochs = time.perf_counter(), epochs or EPOCHS
    console = Console(highlight=False)
    x, y, test_x, test_y = digits()
    steps = epochs * len(torch.split(x, 32))
    torch.manual_seed(0)
    m = Mlp.init(seed=0)
    every = max(1, (steps - 1) // 4)
    middle, ratios = every * ((steps - 1) // every // 2), Table()
    opt = momentum_sgd(lr=cosine).bind(m, curriculum=steps, diagnostics_every=every)
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps, loss {task.fields[loss]:.4f},"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=steps, loss=float("nan"))
        for step, loss in enumerate(fit(m, opt, x, y, epochs)):
            bar.update(task, advance=1, loss=loss.item())
            if step in (0, middle, steps - 1):
                bar.console.print(f"step {step}: loss {loss.item():.4f}")
            if step == middle:
                ratios = _ratios(opt.diagnostics, step)
    console.print(ratios)
    console.print("And this is what the checker says to a step with three mistakes:\n")
    wrong = Path(next(iter(dslmut.examples.__path__))) / "digits_wrong.py"
    for d in check_file(wrong, Project()):
        print(full(d, style=COLOURED if console.is_terminal else PLAIN), end="\n\n")
    print(f"trained and checked in {time.perf_counter() - started:.1f} s")
    print(f"accuracy {accuracy(m, test_x, test_y):.4f}")
    return 0


def _ratios(diagnostics: Mapping[str, Mapping[str, float]], step: int) -> Table:
    table = Table(title=f"step {step}, reported from inside of the update")
    table.add_column("parameter")
    for name in ("|weight|", "|gradient|", "|update|", "update / weight"):
        table.add_column(name, justify="right")
    names = ("param_norm", "grad_norm", "update_norm", "update_ratio")
    for parameter in diagnostics["param_norm"]:
        numbers = [diagnostics[n][parameter] for n in names]
        table.add_row(parameter, *(f"{n:.3e}" for n in numbers))
    return table
