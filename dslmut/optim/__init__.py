"""Optimizers: their standard library, and what rules are written with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dslmut.optim.chains import chain as chain
    from dslmut.optim.hidden import muon_groups as muon_groups
    from dslmut.optim.interchange import TorchFormat as TorchFormat
    from dslmut.optim.interchange import TorchState as TorchState
    from dslmut.optim.ranges import Range as Range
    from dslmut.optim.reporting import update_diagnostics as update_diagnostics
    from dslmut.optim.rules.accumulating import adadelta as adadelta
    from dslmut.optim.rules.accumulating import adagrad as adagrad
    from dslmut.optim.rules.accumulating import rmsprop as rmsprop
    from dslmut.optim.rules.adaptive import adam as adam
    from dslmut.optim.rules.adaptive import adamax as adamax
    from dslmut.optim.rules.adaptive import adamw as adamw
    from dslmut.optim.rules.adaptive import radam as radam
    from dslmut.optim.rules.clipping import adaptive_clip as adaptive_clip
    from dslmut.optim.rules.clipping import clip_by_global_norm as clip_by_global_norm
    from dslmut.optim.rules.clipping import clip_by_norm as clip_by_norm
    from dslmut.optim.rules.clipping import clip_by_value as clip_by_value
    from dslmut.optim.rules.clipping import clip_update as clip_update
    from dslmut.optim.rules.descent import momentum_sgd as momentum_sgd
    from dslmut.optim.rules.descent import sgd as sgd
    from dslmut.optim.rules.factored import adafactor as adafactor
    from dslmut.optim.rules.matrices import muon as muon
    from dslmut.optim.rules.matrices import soap as soap
    from dslmut.optim.rules.nesterov import adan as adan
    from dslmut.optim.rules.nesterov import nadam as nadam
    from dslmut.optim.rules.shaping import cautious as cautious
    from dslmut.optim.rules.shaping import centralised as centralised
    from dslmut.optim.rules.signs import lion as lion
    from dslmut.optim.rules.signs import rprop as rprop
    from dslmut.optim.rules.signs import signum as signum
    from dslmut.optim.rules.trust import lamb as lamb
    from dslmut.optim.rules.trust import lars as lars
    from dslmut.optim.scheduling import schedule_value as schedule_value
    from dslmut.optim.transforms import gradient_transform as gradient_transform
    from dslmut.optim.transforms import transformed as transformed
    from dslmut.optim.transforms import update_transform as update_transform

_HOMES = {
    "dslmut.optim.hidden": "muon_groups",
    "dslmut.optim.chains": "chain",
    "dslmut.optim.interchange": "TorchFormat TorchState",
    "dslmut.optim.ranges": "Range",
    "dslmut.optim.reporting": "update_diagnostics",
    "dslmut.optim.rules.accumulating": "adadelta adagrad rmsprop",
    "dslmut.optim.rules.adaptive": "adam adamax adamw radam",
    "dslmut.optim.rules.clipping": "adaptive_clip clip_by_global_norm clip_by_norm clip_by_value clip_update",
    "dslmut.optim.rules.descent": "momentum_sgd sgd",
    "dslmut.optim.rules.factored": "adafactor",
    "dslmut.optim.rules.matrices": "muon soap",
    "dslmut.optim.rules.nesterov": "adan nadam",
    "dslmut.optim.rules.shaping": "cautious centralised",
    "dslmut.optim.rules.signs": "lion rprop signum",
    "dslmut.optim.rules.trust": "lamb lars",
    "dslmut.optim.scheduling": "schedule_value",
    "dslmut.optim.transforms": "gradient_transform transformed update_transform",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Range",
    "TorchFormat",
    "TorchState",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "adan",
    "adaptive_clip",
    "cautious",
    "centralised",
    "chain",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "clip_update",
    "gradient_transform",
    "lamb",
    "lars",
    "lion",
    "momentum_sgd",
    "muon",
    "muon_groups",
    "nadam",
    "radam",
    "rmsprop",
    "rprop",
    "schedule_value",
    "sgd",
    "signum",
    "soap",
    "transformed",
    "update_diagnostics",
    "update_transform",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dslmut.optim' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
