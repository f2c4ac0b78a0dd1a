"""What a decorated function carries with it, as ``__dslmut__``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CellType, CodeType

from dslmut.checking.entities import Function
from dslmut.diagnostics.model import Span


@dataclass(eq=False, repr=False)
class Spec:
    """A decorated function, as its own run time and the checker of its callers see it.

    Args:
        entity: Its signature for the checker.
        mut: The names of its ``Mut`` parameters.
        optional: Those of them that may be None.
        unmarked: The receiver, if frameworks call the method, without a marker.
        module: The names of its module, for its annotations.
        names: The local names where it was decorated, those that its annotations use.
        cells: Its free variables.
        annotations: Of its parameters and, as ``return``, of its result; as written.
        check: Whether arguments and result are checked against them.
        places: Where each parameter is declared.
        checks: The annotations evaluated, from the first call on; they replace `names` and `cells`.
        code: The rewritten code that it belongs to.
    """

    entity: Function
    mut: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    unmarked: frozenset[str] = frozenset()
    module: dict[str, object] = field(default_factory=dict)
    names: Mapping[str, object] = field(default_factory=dict)
    cells: Mapping[str, CellType] = field(default_factory=dict)
    annotations: Mapping[str, object] = field(default_factory=dict)
    check: bool = True
    places: Mapping[str, Span] = field(default_factory=dict)
    checks: object = None
    code: CodeType | None = None

    def __repr__(self) -> str:
        """Name it: debuggers show it, and it leads to the whole module."""
        return f"<spec of {self.entity.name}>"

    @property
    def marks_receiver(self) -> bool:
        """Say whether it is a method whose receiver is marked at the call."""
        return self.entity.marks_receiver


def spec_of(function: object) -> Spec | None:
    """Return what a function, method or wrapper of one carries, or None for a plain one."""
    found = getattr(function, "__dslmut__", None)
    while found is None and hasattr(function, "func"):  # functools.partial
        function = function.func  # pyright: ignore[reportAttributeAccessIssue]
        found = getattr(function, "__dslmut__", None)
    return found if isinstance(found, Spec) else None
