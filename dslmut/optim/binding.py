"""``OptState``: a rule bound to parameters, which is a ``torch.optim.Optimizer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from dslmut.checking.wellknown import well_known
from dslmut.diagnostics.codes.optimizers import BadBinding
from dslmut.diagnostics.codes.values import ForeignGradient
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.functions.gradients import Gradient, Grads
from dslmut.functions.spec import Spec
from dslmut.optim import checkpoint, compiling
from dslmut.optim.context import Curriculum
from dslmut.optim.define import FOREIGN, RESERVED, Configured, checked, unknown_hyperparameter
from dslmut.optim.programs import readable
from dslmut.optim.running import Group, Item, Runner
from dslmut.vocabulary import Mut, Token

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Options:
    """What belongs to a run and not to a rule; see ``Configured.bind``."""

    curriculum: Curriculum | None = None
    diagnostics_every: int | None = None
    ctx: dict[str, float] = field(default_factory=dict)
    compile: bool | dict[str, Any] = True


class OptState(torch.optim.Optimizer, Generic[M]):
    """A rule bound to parameters: its states, its groups and its step.

    It *is* a ``torch.optim.Optimizer``: ``loss.backward(); opt.step()``, LR schedulers,
    ``GradScaler``, hooks and ``state_dict()`` work as with torch's own. ``update(mut(m),
    mut(opt), g)`` applies the record of ``value_and_grad``. The states exist from the start, in
    ``opt.state[p]`` under their declared names, beside ``updates``, the number of updates.

    Args:
        configured: The rule.
        target: A model, its parameters, named parameters, or torch-style groups.
        options: Of the run.

    Raises:
        OptimizerError: E-OPT-002 to E-OPT-006 and E-OPT-020 to E-OPT-026.
    """

    def __init__(self, configured: Configured, target: Any, options: Options | None = None) -> None:
        self._configured, self._options = configured, options or Options()
        groups, self._model_name = _groups_of(target)
        self._schedules: list[dict[str, Any]] = []
        self._named = any("param_names" in g for g in groups)
        self._runner: Runner | None = None
        super().__init__(groups, dict(_shown(configured.hyperparameters)))
        self._prepare()

    # -- groups ------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as torch's optimizers do.

        Args:
            param_group: ``params``, and hyperparameters that differ from the defaults.

        Raises:
            OptimizerError: E-OPT-002 for an unknown or unfitting hyperparameter, E-OPT-005 for
                parameters that cannot be optimized; nothing was added then.
        """
        group = dict(param_group)
        definition = self._configured.definition
        given = {}
        for name, value in group.items():
            known = definition.hyperparameters.get(name)
            if known is not None:
                given[name] = checked(definition, known, value)
            elif name not in RESERVED | FOREIGN:
                raise unknown_hyperparameter(definition, name)
        values = {**self._configured.hyperparameters, **given}
        for name in given:
            del group[name]
        group.update(_shown(values))
        group.setdefault("step", 0)
        before = len(self.param_groups)
        parameters = _listed(group)
        _check_parameters(parameters, self.param_groups)
        self._name(group, parameters)
        super().add_param_group(group)
        added = self.param_groups[before]
        self._schedules.append({n: v for n, v in values.items() if callable(v)})
        try:
            if self._runner is not None:
                self._prepare()
        except DslmutError:
            self.param_groups.remove(added)
            self._schedules.pop()
            raise

    def _name(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """Give a further group names if the others have some: states are saved by name."""
        named = "param_names" in group or any(isinstance(i, tuple) for i in group["params"])
        if self._named and not named:
            number = len(self.param_groups)
            group["param_names"] = [f"group{number}.{i}" for i in range(len(parameters))]
        elif named and self.param_groups and not self._named:
            raise _bad(
                "this group has names, and the parameters before it have none",
                "give all of them names, as `named_parameters()` does, or none",
            )

    def _prepare(self) -> None:
        """Trace every body, make the states, and plan the step."""
        items = [Item(i, number, p, name) for i, (number, p, name) in enumerate(self._parameters())]
        groups = [
            Group(self._configured.definition, g, s)
            for g, s in zip(self.param_groups, self._schedules)
        ]
        runner = Runner(groups, items, self._options, self._compile_option(items))
        if self._runner is not None:
            runner.inherit(self._runner)
        for item in items:
            if item.parameter.requires_grad and not _is_lazy(item.parameter):
                runner.make_states(item, self.state[item.parameter])
        self._runner = runner

    def _parameters(self) -> Iterator[tuple[int, Tensor, str]]:
        """Yield group number, parameter and name of every parameter."""
        count = 0
        for number, group in enumerate(self.param_groups):
            names = group.get("param_names")
            for i, p in enumerate(group["params"]):
                yield number, p, names[i] if names else f"{count}"
                count += 1

    def _compile_option(self, items: Sequence[Item]) -> bool | dict[str, Any]:
        option = self._options.compile
        if option is not True:
            return option
        for device in {i.parameter.device.type for i in items}:
            reason = compiling.missing_compiler(device)
            if reason is not None:
                compiling.warn_uncompiled(self._configured.definition.__name__, reason)
                return False
        return True

    # -- the step ----------------------------------------------------------------------------

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        closure: Callable[[], Any] | None = None,
        *,
        diagnostics: bool | None = None,
        ctx: Mapping[str, float] | None = None,
        gradients: Gradient[Any] | None = None,
    ) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: Computes the loss and the gradients anew; it is called once, first.
            diagnostics: Whether the bodies' diagnostics are computed; by default on the steps
                that ``diagnostics_every`` names.
            ctx: New values of the keys that ``bind(..., ctx={...})`` declared.
            gradients: The record to use instead of ``.grad``.

        Returns:
            What the closure returns.

        Raises:
            OptimizerError: E-OPT-006 for a key of ``ctx``, E-OPT-008 for a hyperparameter that is
                driven from two sides; nothing was changed then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        runner = self._current_runner()
        if gradients is None:
            given = [item.parameter.grad for item in runner.items]
        else:
            found = dict(zip(gradients._parameters, gradients._gradients))
            given = [found.get(item.parameter) for item in runner.items]  # pyright: ignore
        runner.step(self.state, given, diagnostics, ctx)
        return loss

    def _current_runner(self) -> Runner:
        """Return the runner, made anew if somebody replaced parameters in the groups."""
        assert self._runner is not None
        if not self._runner.matches(self.param_groups):
            self._prepare()
        return self._runner

    @property
    def diagnostics(self) -> Mapping[str, Mapping[str, float]]:
        """Return the diagnostics of the last step that computed them: name, parameter, number."""
        assert self._runner is not None
        return self._runner.diagnostics()

    def graph(self, name: str) -> str:
        """Return the update graph of one parameter, for people.

        Args:
            name: Of the parameter.
        """
        assert self._runner is not None
        item = next((i for i in self._runner.items if i.name == name), None)
        if item is None:
            known = ", ".join(i.name for i in self._runner.items)
            raise KeyError(f"no parameter {name!r}; there are {known}")
        return readable(self._runner.program(item))

    # -- checkpoints -------------------------------------------------------------------------

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load states and hyperparameters, by name where both sides have names.

        Args:
            state_dict: From ``state_dict()`` of an optimizer with the same rule.

        Raises:
            OptimizerError: E-OPT-007; nothing was changed then.
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = changed if changed is not None else state_dict
        runner = self._current_runner()
        checkpoint.load(self.param_groups, self.state, runner, state_dict)
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        kept = super().__getstate__()
        own = ("_configured", "_options", "_model_name", "_schedules", "_named")
        return {**kept, **{name: self.__dict__[name] for name in own}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._runner = None
        super().__setstate__(state)
        if "_configured" in self.__dict__:
            self._prepare()

    def __repr__(self) -> str:
        count = sum(len(g["params"]) for g in self.param_groups)
        bound = f" of {self._model_name}" if self._model_name else ""
        return f"<{self._configured} for {count} parameters{bound}>"


# -- what an optimizer is bound to ---------------------------------------------------------------


def _groups_of(target: Any) -> tuple[list[dict[str, Any]], str]:
    """Return torch-style groups, and the name of the model if there is one."""
    if isinstance(target, nn.Module):
        named = list(target.named_parameters())
        if not named:
            raise _bad(
                f"`{type(target).__name__}` has no parameters", "bind it to a model that has some"
            )
        group = {"params": [p for _, p in named], "param_names": [n for n, _ in named]}
        return [group], type(target).__name__
    if isinstance(target, Tensor):
        raise _bad("this is a single tensor", "put it into a list: `[tensor]`")
    if not isinstance(target, Iterable):
        raise _bad(
            f"this is a `{type(target).__name__}`",
            "give a model, its parameters, named parameters, or groups of them",
        )
    items = list(target)
    if not items:
        raise _bad("there are no parameters", "give a model; an iterator can be used only once")
    if all(isinstance(i, dict) for i in items):
        return [_group(i) for i in items], ""
    return [_group({"params": items})], ""


def _group(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group with its parameters in a list, and their names in another if they have any."""
    if "params" not in group:
        raise _bad("a group has no `params`", 'write `{"params": [...], "lr": 0.1}`')
    params = group["params"]
    items = [params] if isinstance(params, Tensor) else list(params)
    if items and all(isinstance(i, tuple) and len(i) == 2 for i in items):
        return {**group, "params": [p for _, p in items], "param_names": [n for n, _ in items]}
    return {**group, "params": items}


def _listed(group: dict[str, Any]) -> list[Any]:
    params = group.get("params", ())
    if isinstance(params, Tensor):
        return [params]
    group["params"] = list(params)
    return [i[1] if isinstance(i, tuple) else i for i in group["params"]]


def _check_parameters(parameters: list[Any], groups: list[dict[str, Any]]) -> None:
    seen = {id(p) for g in groups for p in g["params"]}
    for p in parameters:
        if not isinstance(p, Tensor):
            raise _bad(
                f"a `{type(p).__name__}` stands among the parameters",
                "give a model, its parameters, or pairs of name and parameter",
            )
        if not p.is_leaf:
            raise _bad(
                f"a tensor of shape {list(p.shape)} was computed from others, so that it is no parameter",
                "give the parameter itself, made with `requires_grad=True` or as `nn.Parameter`",
            )
        if id(p) in seen:
            raise _bad(
                f"a parameter of shape {list(p.shape)} is given twice",
                "give each parameter once; a tied one stands in `named_parameters()` once already",
            )
        if not _is_lazy(p) and any(s == 0 and n > 1 for s, n in zip(p.stride(), p.shape)):
            raise _bad(
                f"a parameter of shape {list(p.shape)} is expanded: several elements share one place",
                "make it dense: `nn.Parameter(tensor.clone())`",
            )
        if not (p.is_floating_point() or p.is_complex()):
            raise _bad(f"a parameter holds {p.dtype}, which has no gradient", "leave it out")
        seen.add(id(p))


def _is_lazy(p: Tensor) -> bool:
    return nn.parameter.is_lazy(p) or p.is_meta


def _shown(hyperparameters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a group shows: numbers; a schedule's is filled in at each step."""
    for name, value in hyperparameters.items():
        if isinstance(value, tuple):
            yield name, tuple(0.0 if callable(v) else v for v in value)
        else:
            yield name, 0.0 if callable(value) else value


def _bad(message: str, fix: str) -> DslmutError:
    return BadBinding.raised(user_span(), message, fix=fix)


# -- the functional style ------------------------------------------------------------------------


def update(m: Mut[M], opt: Mut[OptState[M]], g: Grads[M], /) -> None:
    """Update a model by a gradient record: ``update(mut(m), mut(opt), g)``.

    Args:
        m: The model, marked.
        opt: The optimizer state that was made for it, marked.
        g: From ``value_and_grad``. Parameters that the loss does not depend on are skipped, as
            after ``loss.backward()``.

    Raises:
        CheckError: E1103 for an argument that is not marked.
        MutationError: E0702 where state or gradient belong to another model; nothing was changed.
    """
    from dslmut.functions import runtime

    model = m._o if type(m) is Token else runtime.missing(_UPDATE, "m", m)
    state = opt._o if type(opt) is Token else runtime.missing(_UPDATE, "opt", opt)
    if not isinstance(g, Gradient):
        raise ForeignGradient.raised(
            user_span(),
            f"the third argument is a gradient record, and this is a `{type(g).__name__}`",
            fix="give what `value_and_grad` or `grad` returned",
        )
    _check_belongs(model, state, g)
    state.step(gradients=g)


_UPDATE = Spec(well_known("dslmut.update"), frozenset({"m", "opt"}))  # pyright: ignore[reportArgumentType]
update.__dslmut__ = _UPDATE  # pyright: ignore[reportFunctionMemberAccess]


def _check_belongs(model: Any, state: Any, g: Gradient[Any]) -> None:
    if not isinstance(state, OptState) or not isinstance(model, nn.Module):
        raise ForeignGradient.raised(
            user_span(),
            f"`update` takes a model and its optimizer state, and got `{type(model).__name__}` and `{type(state).__name__}`",
            fix="write `update(mut(m), mut(opt), g)`",
        )
    own = set(map(id, model.parameters()))
    name = type(model).__name__
    if not all(id(p) in own for p in g._parameters):
        raise ForeignGradient.raised(
            user_span(),
            f"the gradient was taken of another model than this `{name}`",
            fix="take it of the model that is updated: `value_and_grad(loss_of, m, ...)`",
        )
    held = {id(p) for group in state.param_groups for p in group["params"]}
    if not all(id(p) in held for p in g._parameters):
        bound = state._model_name or "other parameters"
        raise ForeignGradient.raised(
            user_span(),
            f"the state is bound to another `{bound}`, not to this `{name}`",
            fix=f"bind one to this model: `{state._configured.definition.__name__}(m, ...)`",
        )
