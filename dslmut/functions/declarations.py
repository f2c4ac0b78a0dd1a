"""What a model class declares of its fields: dimensions, domains and host scalars."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from dslmut.vocabulary import Domain


@dataclass(frozen=True)
class Declared:
    """One annotated field of a class.

    Args:
        hint: Its annotation, evaluated; a string where that is not possible yet.
        dimensions: The names and numbers in it, as in ``("D", "H")``; None if it has none.
        domain: What its elements index, as in ``"C"``.
    """

    hint: object
    dimensions: tuple[str, ...] | None = None
    domain: str | None = None

    @property
    def is_tensor(self) -> bool:
        """Say whether the field is a tensor of a declared shape."""
        return self.dimensions is not None


@functools.lru_cache(maxsize=1024)
def declarations(cls: type[nn.Module]) -> Mapping[str, Declared]:
    """Return the fields that a model class and its bases annotate, in order.

    torch's own classes annotate what they register anyway; those are left out.
    """
    fields: dict[str, Declared] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, nn.Module) or _is_foundation(base):
            continue
        for name, annotation in inspect.get_annotations(base).items():
            if not name.startswith("_"):
                declared = declared_by(annotation, base)
                if declared is not None:
                    fields[name] = declared
    return fields


def _is_foundation(cls: type) -> bool:
    package = cls.__module__.partition(".")[0]
    return package == "torch" or cls.__module__.startswith("dslmut.functions")


def declared_by(annotation: object, cls: type) -> Declared | None:
    """Return what an annotation declares of a field; None for a class variable."""
    hint = evaluated(annotation, cls)
    if typing.get_origin(hint) is typing.ClassVar:
        return None
    domain = None
    if typing.get_origin(hint) is typing.Annotated:
        domain = next((m.size for m in hint.__metadata__ if isinstance(m, Domain)), None)  # pyright: ignore
        hint = typing.get_args(hint)[0]
    text = getattr(hint, "dim_str", None)
    return Declared(hint, None if text is None else tuple(text.split()), domain)


def evaluated(annotation: object, cls: type) -> object:
    """Evaluate a postponed annotation in the module of its class; where that fails, keep it."""
    if not isinstance(annotation, str):
        return annotation
    names = dict(vars(sys.modules[cls.__module__])) if cls.__module__ in sys.modules else {}
    names.setdefault(cls.__name__, cls)
    try:
        return eval(annotation, names)
    except Exception:  # whatever the annotation does; it is only a hint
        return annotation


def evaluate_annotations(cls: type, surroundings: Mapping[str, object]) -> None:
    """Evaluate the postponed annotations of a class with the names of where it is defined.

    What uses a name that does not exist yet stays as it is, and is tried again later.
    """
    annotations = inspect.get_annotations(cls)
    if not any(isinstance(a, str) for a in annotations.values()):
        return
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    names = {**surroundings, **vars(cls)}
    for name, annotation in annotations.items():
        if isinstance(annotation, str):
            try:
                annotations[name] = eval(annotation, dict(module), names)
            except Exception:  # whatever it does; it is only a hint
                continue
    cls.__annotations__ = annotations


def sizes_of(model: nn.Module) -> dict[str, int]:
    """Return the sizes that a model's declared fields give to dimension names.

    A host scalar binds its own name, a tensor those of its dimensions.
    """
    sizes: dict[str, int] = {}
    for name, declared in declarations(type(model)).items():
        value = getattr(model, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            sizes.setdefault(name, value)
        elif isinstance(value, Tensor) and declared.dimensions is not None:
            sizes.update(bind(declared.dimensions, tuple(value.shape)))
    return sizes


def bind(dimensions: tuple[str, ...], shape: tuple[int, ...]) -> dict[str, int]:
    """Return the sizes that a shape gives to the plain names among declared dimensions."""
    if any(d.startswith("*") or "..." in d for d in dimensions):
        return {}
    pairs = zip(dimensions, shape) if len(dimensions) == len(shape) else ()
    return {name: size for name, size in pairs if name.isidentifier()}
