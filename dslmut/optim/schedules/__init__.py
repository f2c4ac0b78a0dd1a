"""Ready schedules: functions of ``ctx`` for any hyperparameter, such as ``adamw(lr=cosine(1e-3))``.

Update number k, from 0, uses what the schedule gives for ``ctx.step == k``. Each schedule agrees
with the scheduler of ``torch.optim.lr_scheduler`` that its docstring names, step for step.
"""

from dslmut.optim.schedules.cycles import cosine_restarts, one_cycle
from dslmut.optim.schedules.decays import (
    constant,
    cosine,
    exponential,
    inverse_sqrt,
    linear,
    piecewise,
    polynomial,
    staircase,
)
from dslmut.optim.schedules.joining import by_stage, join, stable_then_decay, warm_up
from dslmut.optim.schedules.previewing import preview

__all__ = [
    "by_stage",
    "constant",
    "cosine",
    "cosine_restarts",
    "exponential",
    "inverse_sqrt",
    "join",
    "linear",
    "one_cycle",
    "piecewise",
    "polynomial",
    "preview",
    "stable_then_decay",
    "staircase",
    "warm_up",
]
