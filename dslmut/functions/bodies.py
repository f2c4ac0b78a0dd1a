"""What must not stand in the body of a ``Model`` class, since torch would not see it (E0902)."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from dslmut.diagnostics.codes.fields import BadDeclaration
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.functions.declarations import Declared, declared_by


def check_body(cls: type[nn.Module]) -> None:
    """Refuse fields that are no fields: assigned types, shared defaults, lists of modules.

    Raises:
        FieldError: E0902.
    """
    annotations = inspect.get_annotations(cls)
    for name, annotation in annotations.items():
        if hasattr(nn.Module, name):
            raise bad_declaration(
                f"a field of `{cls.__name__}` is called `{name}`, as a method of every torch module is",
                f"choose another name: `{name}_: ...`",
            )
        container = _container_of_modules(annotation, cls.__name__)
        if container is not None:
            raise hidden_modules(cls, name, issubclass(container, Mapping))
    for name, value in vars(cls).items():
        annotation = annotations.get(name)
        if typing.ClassVar in (annotation, typing.get_origin(annotation)):
            continue  # meant to be shared
        if isinstance(value, nn.Module | Tensor):
            raise _shared(cls, name, value)
        declared = None if isinstance(value, str) else declared_by(value, cls)
        if declared is None or not declared.is_tensor or _is_alias(name, value, annotations):
            continue
        raise bad_declaration(
            f"`{name}` is assigned a type in `{cls.__name__}`, which declares no field",
            f"write a colon: `{name}: {_written(declared)}`",
        )


def _is_alias(name: str, value: object, annotations: Mapping[str, object]) -> bool:
    """Say whether annotations of the class are written with a name that it gives to a type."""
    return any(
        bool(re.search(rf"\b{name}\b", a)) if isinstance(a, str) else a is value
        for a in annotations.values()
    )


def hidden_modules(cls: type, name: str, by_key: bool) -> DslmutError:
    """Return E0902 for modules in a container of Python."""
    kind = "dict" if by_key else "list"
    made, inside = ("ModuleDict", "{...}") if by_key else ("ModuleList", "[...]")
    return bad_declaration(
        f"`{name}` is a {kind} of modules, whose parameters torch would not see",
        f"write `{name}: nn.{made}`, and `{cls.__name__}.init(..., {name}=nn.{made}({inside}))`",
    )


def holds_modules(value: object) -> bool:
    """Say whether a value is a container of Python with modules in it."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return isinstance(value, list | tuple | set) and any(isinstance(v, nn.Module) for v in value)


def _container_of_modules(hint: object, owner: str) -> type | None:
    """Return the class behind hints such as ``list[Net]``, ``dict[str, list[Net]] | None``."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    inner = [_container_of_modules(a, owner) for a in arguments]
    if origin in (typing.Union, types.UnionType):
        return next((c for c in inner if c is not None), None)
    if not isinstance(origin, type) or not issubclass(origin, Iterable):
        return None
    modules = (isinstance(a, type) and issubclass(a, nn.Module) for a in arguments)
    return origin if owner in arguments or any(modules) or any(inner) else None


def _written(declared: Declared) -> str:
    """Return a tensor type as users write it."""
    if declared.domain is not None:
        return f'Index[Tensor, "{" ".join(declared.dimensions or ())} -> {declared.domain}"]'
    return getattr(declared.hint, "__name__", "Float[Tensor, ...]").replace("'", '"')


def _shared(cls: type, name: str, value: nn.Module | Tensor) -> DslmutError:
    if isinstance(value, Tensor):
        return bad_declaration(
            f"`{name}` is a tensor in the body of `{cls.__name__}`, which all its instances would share",
            f'declare it: `{name}: Float[Tensor, "..."] = param(...)`, or `buffer(...)` if it is not trained',
        )
    kind = type(value).__name__
    return bad_declaration(
        f"`{name}` is a module in the body of `{cls.__name__}`, which all its instances would share",
        f"declare it: `{name}: {kind}`, and give it: `{cls.__name__}.init(..., {name}={kind}(...))`",
    )


def bad_declaration(message: str, fix: str) -> DslmutError:
    """Return E0902."""
    return BadDeclaration.raised(user_span(), message, fix=fix)
