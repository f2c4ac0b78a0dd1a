"""Optimizers: their standard library, and what rules are written with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dslmut.optim.interchange import TorchFormat as TorchFormat
    from dslmut.optim.interchange import TorchState as TorchState
    from dslmut.optim.reporting import update_diagnostics as update_diagnostics
    from dslmut.optim.rules.adaptive import adamw as adamw
    from dslmut.optim.rules.descent import momentum_sgd as momentum_sgd
    from dslmut.optim.rules.descent import sgd as sgd
    from dslmut.optim.scheduling import schedule_value as schedule_value

_HOMES = {
    "dslmut.optim.interchange": "TorchFormat TorchState",
    "dslmut.optim.reporting": "update_diagnostics",
    "dslmut.optim.rules.adaptive": "adamw",
    "dslmut.optim.rules.descent": "momentum_sgd sgd",
    "dslmut.optim.scheduling": "schedule_value",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "TorchFormat",
    "TorchState",
    "adamw",
    "momentum_sgd",
    "schedule_value",
    "sgd",
    "update_diagnostics",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dslmut.optim' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
