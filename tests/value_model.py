"""What a model means if fields are values: the meaning that `@fn` has to keep, on 60 lines.

A program runs as plain Python on a model of this kind. Reading a field gives a copy, setting one
replaces it, and what writes in place goes through a handle, which knows where it writes to.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

View = Callable[[Tensor], Tensor]


class Values:
    """A model whose fields are values."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__["fields"] = fields

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__["fields"]:
            raise AttributeError(name)
        value = self.fields[name]
        return copied(value) if isinstance(value, Tensor) else value

    def __setattr__(self, name: str, value: Tensor) -> None:
        self.fields[name] = copied(value)

    def __deepcopy__(self, memo: object) -> Values:
        return Values(**copy.deepcopy(self.fields))

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Handle]]:
        for name, value in self.fields.items():
            if isinstance(value, Values):
                yield from value.named_parameters(f"{prefix}{name}.")
            else:
                yield prefix + name, Handle(self, name)

    def parameters(self) -> Iterator[Handle]:
        return (handle for _, handle in self.named_parameters())


class Handle:
    """A field, or a view of one, as the tensor that is written into."""

    def __init__(self, model: Values, name: str, view: View = lambda t: t) -> None:
        self.__dict__.update(model=model, name=name, view=view)

    def now(self) -> Tensor:
        return self.view(getattr(self.model, self.name))

    def write(self, change: Callable[[Tensor], object]) -> None:
        whole = getattr(self.model, self.name)
        change(self.view(whole))
        setattr(self.model, self.name, whole)

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_"):
            return getattr(self.now(), name)
        return lambda *args: self.write(lambda t: getattr(t, name)(*map(plain, args)))

    def __mul__(self, other: Any) -> Tensor:
        return self.now() * other

    def __iadd__(self, other: Any) -> Handle:
        self.add_(other)
        return self

    def __getitem__(self, index: Any) -> Tensor:
        return self.now()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.write(lambda t: t.__setitem__(index, value))


def copied(value: Tensor) -> Tensor:
    return value.clone(memory_format=torch.contiguous_format)


def plain(value: object) -> object:
    return value.now() if isinstance(value, Handle) else value


HANDLE = re.compile(r"«(.*?)\|(\w+)\|(.*?)»")
"""How a program writes a field, or a view of one, that is needed to write into: «m.enc|w|.T»."""


def as_written(program: str) -> str:
    """Return a program as a user writes it."""
    return HANDLE.sub(r"\1.\2\3", program)


def as_values(program: str) -> str:
    """Return a program as it is run on values."""
    return HANDLE.sub(r"Handle(\1, '\2', lambda t: t\3)", program)


def values_of(model: torch.nn.Module) -> Values:
    """Return a model as values."""
    own = {n: p.detach().clone() for n, p in model.named_parameters(recurse=False)}
    return Values(**own, **{n: values_of(c) for n, c in model.named_children()})


def flat(value: Any) -> Any:
    """Return a result in a form that can be compared: numbers, and tuples of such."""
    value = plain(value)
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Values):
        return tuple(flat(v) for v in value.fields.values())
    if isinstance(value, torch.nn.Module):
        return flat(values_of(value))
    if isinstance(value, list | tuple):
        return tuple(map(flat, value))
    return value
