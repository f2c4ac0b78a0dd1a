"""Mutation that shows, and optimizers in ten lines: a small language inside PyTorch.

The public names are loaded on first use: ``import dslmut`` itself imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dslmut.checking.modules import check as check
    from dslmut.diagnostics.exceptions import CheckError as CheckError
    from dslmut.diagnostics.exceptions import DslmutError as DslmutError
    from dslmut.diagnostics.exceptions import FieldError as FieldError
    from dslmut.diagnostics.exceptions import MissingError as MissingError
    from dslmut.diagnostics.exceptions import MutationError as MutationError
    from dslmut.diagnostics.exceptions import OptimizerError as OptimizerError
    from dslmut.functions.config import config as config
    from dslmut.functions.decorate import extern as extern
    from dslmut.functions.decorate import fn as fn
    from dslmut.functions.fields import set_field as set_field
    from dslmut.functions.gradients import grad as grad
    from dslmut.functions.gradients import value_and_grad as value_and_grad
    from dslmut.functions.models import Model as Model
    from dslmut.functions.models import buffer as buffer
    from dslmut.functions.models import param as param
    from dslmut.functions.modes import eval_mode as eval_mode
    from dslmut.functions.records import Gradient as Gradient
    from dslmut.optim.binding import OptState as OptState
    from dslmut.optim.context import Ctx as Ctx
    from dslmut.optim.context import Curriculum as Curriculum
    from dslmut.optim.context import Hyper as Hyper
    from dslmut.optim.context import Stage as Stage
    from dslmut.optim.define import Configured as Configured
    from dslmut.optim.define import optimizer as optimizer
    from dslmut.optim.functional import update as update
    from dslmut.optim.grouping import group as group
    from dslmut.optim.grouping import groups as groups
    from dslmut.optim.reporting import diagnostic as diagnostic
    from dslmut.optim.reporting import metric as metric
    from dslmut.optim.reporting import record as record
    from dslmut.optim.states import Update as Update
    from dslmut.optim.states import defstate as defstate
    from dslmut.optim.states import optimizer_update as optimizer_update
    from dslmut.vocabulary import FRESH as FRESH
    from dslmut.vocabulary import MUT as MUT
    from dslmut.vocabulary import Fresh as Fresh
    from dslmut.vocabulary import Index as Index
    from dslmut.vocabulary import Mut as Mut
    from dslmut.vocabulary import mut as mut

_HOMES = {
    "dslmut.checking.modules": "check",
    "dslmut.vocabulary": "FRESH Fresh MUT Index Mut mut",
    "dslmut.diagnostics.exceptions": "CheckError DslmutError FieldError MissingError MutationError OptimizerError",
    "dslmut.functions.config": "config",
    "dslmut.functions.decorate": "extern fn",
    "dslmut.functions.fields": "set_field",
    "dslmut.functions.gradients": "grad value_and_grad",
    "dslmut.functions.models": "Model buffer param",
    "dslmut.functions.modes": "eval_mode",
    "dslmut.functions.records": "Gradient",
    "dslmut.optim.binding": "OptState",
    "dslmut.optim.context": "Ctx Curriculum Hyper Stage",
    "dslmut.optim.define": "Configured optimizer",
    "dslmut.optim.functional": "update",
    "dslmut.optim.grouping": "group groups",
    "dslmut.optim.reporting": "diagnostic metric record",
    "dslmut.optim.states": "Update defstate optimizer_update",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "FRESH",
    "MUT",
    "CheckError",
    "Configured",
    "Ctx",
    "Curriculum",
    "DslmutError",
    "FieldError",
    "Fresh",
    "Gradient",
    "Hyper",
    "Index",
    "MissingError",
    "Model",
    "Mut",
    "MutationError",
    "OptState",
    "OptimizerError",
    "Stage",
    "Update",
    "buffer",
    "check",
    "config",
    "defstate",
    "diagnostic",
    "eval_mode",
    "extern",
    "fn",
    "grad",
    "group",
    "groups",
    "metric",
    "mut",
    "optimizer",
    "optimizer_update",
    "param",
    "record",
    "set_field",
    "update",
    "value_and_grad",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dslmut' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
