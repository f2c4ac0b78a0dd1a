"""The kernels of one optimizer: which there are, and what stands in for parameters that are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dslmut.optim import compiling
from dslmut.optim.building import built
from dslmut.optim.layouts import Layout, layout
from dslmut.optim.numbers import Item
from dslmut.optim.pairs import as_reals
from dslmut.optim.plan import Entry, Family, KernelKey, Kind, Plan, kernels_for, plan
from dslmut.optim.programs import Program
from dslmut.optim.ready import Member
from dslmut.optim.stacked import stacks
from dslmut.optim.stepwide import wide_dtype
from dslmut.optim.updating import aside, update_graph

LARGE = 2**18
"""A parameter with more elements has a call of its own: what is saved by sharing one is nothing beside
the update itself, and scratch memory in its place would be large."""

ALONE = Family("alone", most=1)

OTHERS = {"most": 4, "weight": 4}
"""Of updates that see the shape of a parameter: so many of one kind at once."""

STACKED = {"most": 6, "weight": 0}
"""Of updates that multiply stacks of small matrices: each product is one call for all of them. More
would save a tenth of the time of a step, and double that of compiling."""

Version = tuple[KernelKey, bool, bool]
"""A kernel, whether it reports diagnostics, and whether a flag decides if anything changes."""


def entry(item: Item, program: Program) -> Entry:
    """Return what the plan has to know of a parameter."""
    parameter, own = item.parameter, layout(item.parameter)
    if not program.flat or parameter.is_neg():
        kind = (program.text, own)
        together = STACKED if stacks(program) else OTHERS
        return Entry(item.number, kind, ALONE if item.apart else Family(kind, **together))
    size, place = parameter.numel(), (parameter.dtype, parameter.device)
    alone = item.apart or size > LARGE
    return Entry(item.number, (program.text, (size, *place)), ALONE if alone else Family(place))


class Kernels:
    """What is compiled for one optimizer, and what is to be.

    Args:
        option: How updates are compiled.
    """

    def __init__(self, option: bool | dict[str, Any]) -> None:
        self.option = option
        self._known: Counter[KernelKey] = Counter()
        self._admitted: set[tuple[int, Kind, Family]] = set()
        self._compiled: dict[Version, compiling.Kernel] = {}
        self._models: dict[Kind, tuple[Program, list[Layout]]] = {}
        self._scratch: dict[Kind, tuple[Tensor, ...]] = {}
        self._told: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._compiled)

    def inherit(self, before: Kernels) -> None:
        """Take over what has been compiled for another run of the same parameters."""
        self._known += before._known
        self._admitted |= before._admitted
        self._compiled.update(before._compiled)
        self._models.update(before._models)
        self._told |= before._told

    # -- planning ----------------------------------------------------------------------------

    def admit(self, found: Iterable[tuple[Entry, Item, Program]]) -> None:
        """Decide on kernels for parameters that are new, or have a new kind of update."""
        new: list[Entry] = []
        for own, item, program in found:
            if own.kind not in self._models:
                self._models[own.kind] = (program, _layouts(item.parameter, program))
            key = (own.number, own.kind, own.family)
            if key not in self._admitted:
                self._admitted.add(key)
                new.append(own)
        self._known += kernels_for(new, self._known)

    def plan(self, entries: Iterable[Entry]) -> Plan:
        """Return the calls that update parameters which have been admitted."""
        return plan(entries, self._known)

    def program(self, kind: Kind) -> Program:
        """Return what is computed for parameters of a kind."""
        return self._models[kind][0]

    def stand_in(self, kind: Kind, model: int | None = None) -> Member:
        """Return scratch memory in the place of a parameter, its gradient and its states.

        Args:
            kind: Of the parameter.
            model: The number of the parameter in the same call that its values are copied from.
        """
        program, layouts = self._models[kind]
        if kind not in self._scratch:
            self._scratch[kind] = tuple(map(_zeros, layouts))
        return Member(None, program, self._scratch[kind], model)

    def aside(self, kind: Kind, guarded: bool) -> list[Tensor]:
        """Return what an update of scratch memory reads besides that."""
        program, (own, *_) = self._models[kind]
        return [_zeros(_aside(name, program, own)) for name in aside(program, guarded)]

    # -- compiling ---------------------------------------------------------------------------

    def get(self, key: KernelKey, reporting: bool, guarded: bool) -> compiling.Kernel:
        """Return a compiled kernel; one whose reports nobody has announced computes them plainly."""
        version = (key, self._reports(key, reporting), guarded)
        if version not in self._compiled:
            self._compiled[version] = self._looking(key, guarded)
        return self._compiled[version]

    def _looking(self, key: KernelKey, guarded: bool) -> compiling.Kernel:
        """Return a kernel that reports by plain operations, before it changes anything.

        So nothing is compiled when somebody asks for diagnostics once in a while.
        """
        programs = [self.program(kind) for kind in key]
        look = compiling.kernel(update_graph(programs, True, guarded, writing=False), (), False)
        change = self._compiled[key, False, guarded]

        def both(inputs: list[Tensor]) -> Sequence[Tensor]:
            found = look(inputs)
            change(inputs)
            return found

        return both

    def _reports(self, key: KernelKey, reporting: bool) -> bool:
        return reporting and any(self.program(kind).diagnostics for kind in key)

    def compile(self, reporting: bool, guarded: bool) -> None:
        """Compile all kernels that there are and that are not yet compiled.

        Args:
            reporting: Whether they compute diagnostics.
            guarded: Whether a flag decides if anything changes.
        """
        versions = [(key, self._reports(key, reporting), guarded) for key in self._known]
        missing = [version for version in versions if version not in self._compiled]
        makers = {version: partial(self._kernel, version) for version in missing}
        if makers and self.option is not False:
            inputs = (own for key, *_ in missing for own in self._inputs(key, guarded))
            beside = self.option is True and compiling.on_cpu(inputs)
            rules = _names(self.program(kind) for key, *_ in missing for kind in key)
            self._compiled |= built(makers, rules, beside)
        else:
            self._compiled |= {version: make() for version, make in makers.items()}

    def _inputs(self, key: KernelKey, guarded: bool) -> list[Layout]:
        """Return the layouts of what a kernel takes, in the order of ``update_graph``."""
        models = [self._models[kind] for kind in key]
        tensors = [layout for _, layouts in models for layout in layouts]
        return tensors + [_aside(n, p, own) for p, (own, *_) in models for n in aside(p, guarded)]

    def _kernel(self, version: Version) -> compiling.Kernel:
        """Compile an update graph; if that fails, say so and leave it as it is."""
        key, reports, guarded = version
        programs, examples = [self.program(kind) for kind in key], self._inputs(key, guarded)
        graph = update_graph(programs, reports, guarded)
        known = self.option is True and any(p.obstacle for p in programs)
        try:
            return compiling.kernel(graph, examples, False if known else self.option)
        except Exception as error:  # whatever a compiler or its toolchain may raise
            if self.option is not True:
                raise
            reason = f"the compiler failed with {type(error).__name__}: {error}"
            if compiling.works():
                self._tell(programs, reason)
            else:  # nor will it with any other
                self._tell([p for p, _ in self._models.values()], reason)
                self.option = False
            return compiling.kernel(update_graph(programs, reports, guarded), examples, False)

    def notice(self, program: Program) -> None:
        """Say at once what is known to keep a program from being compiled."""
        if self.option is True and program.obstacle:
            self._tell([program], program.obstacle)

    def _tell(self, programs: Sequence[Program], reason: str) -> None:
        rules = _names(programs)
        if (rules, reason) not in self._told:
            self._told.add((rules, reason))
            compiling.warn_uncompiled(rules, reason)


def _names(programs: Iterable[Program]) -> str:
    return ", ".join(sorted({p.rule for p in programs}))


def _layouts(parameter: Tensor, program: Program) -> list[Layout]:
    """Return the layouts of a parameter, its gradient and its states, as a kernel sees them."""
    states = [s.make(torch.device("meta")) for s in program.states]
    found = [layout(as_reals(t.detach())) for t in (parameter, parameter, *states)]
    found = [own._replace(device=parameter.device) for own in found]
    return [own.row() if program.flat and own.shape else own for own in found]


def _aside(name: str, program: Program, own: Layout) -> Layout:
    """Return the layout of one of the things that ``aside`` names.

    Args:
        name: Of it.
        program: That reads it.
        own: The layout of the parameter.
    """
    number = torch.float32 if own.device.type == "mps" else torch.float64
    kinds: dict[str, tuple[int, torch.dtype]] = {
        "key": (2, torch.int64),
        "scalars": (len(program.scalars), number),
    }
    if name in kinds:
        length, dtype = kinds[name]
        return Layout((length,), (1,), dtype, own.device)
    return Layout((), (), torch.bool if name == "finite" else wide_dtype(own.dtype), own.device)


def _zeros(own: Layout) -> Tensor:
    with torch.inference_mode(False):  # it must outlive such a block
        return own.blank().zero_()
