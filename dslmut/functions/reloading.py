"""Functions that are defined again: IPython's ``%autoreload`` puts new code into old functions.

It cannot change their cells, so that the new code finds what the old function declared. A call that
was not seen before compares the two, and takes over what the new function declares.
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType
from typing import Any

from dslmut.functions.slots import Checks, resolve
from dslmut.functions.spec import Spec


def forget_calls_of_older(function: FunctionType) -> None:
    """Forget which calls of an older definition fitted, when there is a new one."""
    older = _found(function.__globals__, function.__qualname__)
    if older is not None and isinstance(older.checks, Checks):
        older.checks.seen.clear()


def keep_up(spec: Spec, code: CodeType) -> None:
    """Make a spec what the newer definition declares that a code belongs to."""
    module = sys.modules.get(str(spec.module.get("__name__")))
    newer = _found(vars(module), code.co_qualname) if module is not None else None
    if newer is not None and newer.code is code:
        newer.checks = newer.checks or resolve(newer)  # shared, to be forgotten together
        vars(spec).update(vars(newer))


def _found(names: dict[str, Any], qualified: str) -> Spec | None:
    first, *rest = qualified.split(".")
    found = names.get(first)
    for name in rest:
        found = vars(found).get(name) if isinstance(found, type) else None
    found = getattr(found, "__func__", found)
    spec = getattr(found, "__dslmut__", None)
    return spec if isinstance(spec, Spec) else None
