"""What the checker knows by dotted name, without reading any file: dslmut, torch, jaxtyping."""

from __future__ import annotations

import builtins
import functools

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.entities import (
    Annotation,
    Class,
    Entity,
    Function,
    Kind,
    Members,
    Parameter,
    Passing,
    Role,
    Type,
    Word,
)

WORDS = frozenset(
    "mut Mut MUT Index Fresh fn extern optimizer defstate optimizer_update metric diagnostic "
    "gradient_transform update_transform transformed "
    "schedule_value update_diagnostics".split()
)
"""The words of the language, which rules look for by name."""

_KINDS = {
    "torch.nn.Module": Kind.MODEL,
    "torch.nn.modules.module.Module": Kind.MODEL,
    "torch.Tensor": Kind.TENSOR,
    "torch._tensor.Tensor": Kind.TENSOR,
    "torch.nn.Parameter": Kind.TENSOR,
    "torch.nn.parameter.Parameter": Kind.TENSOR,
    "torch.nn.Buffer": Kind.TENSOR,
    "torch.nn.parameter.Buffer": Kind.TENSOR,
    "torch.optim.Optimizer": Kind.STATE,
    "torch.optim.optimizer.Optimizer": Kind.STATE,
    "dslmut.Model": Kind.MODEL,
    "dslmut.OptState": Kind.STATE,
    "dslmut.groups": Kind.STATE,
    "dslmut.Ref": Kind.REFERENCE,
}

_CONTAINERS = frozenset({f"collections.{name}" for name in ("deque", "OrderedDict", "defaultdict")})

MODULE_NAMES = frozenset(
    "training forward call_super_init dump_patches add_module apply bfloat16 buffers children "
    "compile cpu cuda double eval extra_repr float get_buffer get_extra_state get_parameter "
    "get_submodule half ipu load_state_dict modules mtia named_buffers named_children "
    "named_modules named_parameters parameters register_backward_hook register_buffer "
    "register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_full_backward_pre_hook register_load_state_dict_post_hook "
    "register_load_state_dict_pre_hook register_module register_parameter "
    "register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state "
    "set_submodule share_memory state_dict to to_empty train type xpu zero_grad init".split()
)
"""What every ``nn.Module`` has."""


class ModuleMembers(en.NoMembers):
    """What ``nn.Module`` itself has."""

    def names(self) -> frozenset[str] | None:
        """Return all of them."""
        return MODULE_NAMES


@functools.lru_cache(maxsize=4096)
def well_known(dotted: str) -> Entity | None:
    """Return what a dotted name stands for, if it is known without reading a file.

    Args:
        dotted: From the module that a program imports it from, or that defines it.
    """
    package, _, rest = dotted.partition(".")
    bare = dotted.rpartition(".")[2]
    if package == "dslmut" and rest:
        return _dslmut(bare)
    if package == "jaxtyping" and bare[:1].isupper():
        return Class(bare, Kind.TENSOR, key=f"jaxtyping.{bare}")
    if dotted in _KINDS:
        return _class(dotted, bare)
    if package == "builtins":
        return _builtin(bare)
    if dotted in ("operator.setitem", "operator.delitem"):
        return Function(dotted, Role.BUILTIN, qualified=dotted)
    if dotted in _CONTAINERS:
        return Class(bare, Kind.OBJECT, key=dotted)
    if package == "itertools" and rest in kn.ITERATORS:
        return Function(bare, Role.BUILTIN, qualified=dotted)
    if dotted == "functools.partial":
        return Function("partial", Role.PLAIN, qualified=dotted, passes=True)
    if dotted in ("copy.copy", "copy.deepcopy"):
        return Function(dotted, Role.PLAIN, qualified=dotted)
    return None


@functools.cache
def _class(dotted: str, bare: str) -> Class:
    kind = _KINDS[dotted]
    members: Members = ModuleMembers() if kind is Kind.MODEL else en.NoMembers()
    key = "torch.nn.Module" if kind is Kind.MODEL else bare
    key = dotted if dotted == "dslmut.Model" else key
    return Class(bare, kind, key=key, members=members)


def _dslmut(bare: str) -> Entity | None:
    if bare in WORDS:
        return Word(bare)
    if f"dslmut.{bare}" in _KINDS:
        return _class(f"dslmut.{bare}", bare)
    if bare in _FUNCTIONS:
        return _FUNCTIONS[bare]
    return None


def _builtin(bare: str) -> Entity | None:
    found = getattr(builtins, bare, None)
    if isinstance(found, type):
        return Class(bare, Kind.OBJECT, key=f"builtins.{bare}")
    if callable(found):
        return Function(bare, Role.BUILTIN, qualified=f"builtins.{bare}")
    return None


def _parameter(name: str, kind: Kind, mut: bool = False) -> Parameter:
    return Parameter(name, Passing.POSITIONAL, Annotation(Type(kind), mut=mut), annotated=True)


_FUNCTIONS = {
    "value_and_grad": Function("value_and_grad", Role.BUILTIN, passes=True),
    "grad": Function("grad", Role.BUILTIN, passes=True, result=en.OBJECT, result_known=True),
    "update": Function(
        "update",
        Role.FN,
        (
            _parameter("m", Kind.MODEL, mut=True),
            _parameter("opt", Kind.STATE, mut=True),
            _parameter("g", Kind.OBJECT),
        ),
        en.PLAIN,
        True,
        qualified="dslmut.update",
    ),
    "eval_mode": Function("eval_mode", Role.BUILTIN, result=en.OBJECT, result_known=True),
    "set_field": Function("set_field", Role.PLAIN, qualified="dslmut.set_field"),
}


def torch_function(dotted: str, written_in_python: bool) -> Function:
    """Return one of torch's functions, about which ``knowledge`` says what it does."""
    role = Role.PLAIN if written_in_python else Role.BUILTIN
    return Function(dotted.removeprefix("torch.nn.functional.") or dotted, role, qualified=dotted)
