"""``Gradient``: the record of gradients that is shaped like a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from dslmut.diagnostics.wording import an

M = TypeVar("M", bound=nn.Module)


class Layout:
    """The names of a record's gradients, and where each is.

    Args:
        places: Each name within the record with the position of its gradient. A tied parameter
            has several names; the first one counts, the others lead to it too.
        prefix: What the names of a part begin with in the model.
    """

    def __init__(self, places: dict[str, int], prefix: str = "") -> None:
        self.positions, self.prefix = places, prefix
        first: dict[int, str] = {}
        for name, position in places.items():
            first.setdefault(position, name)
        self.names = tuple(first[i] for i in range(len(first)))
        # Fields that have the name of one of the record's methods.
        self.clashes = frozenset(n.partition(".")[0] for n in places) & _METHODS

    def within(self, part: str) -> dict[str, int]:
        """Return the names that lie in a part, as they are called there, with their positions."""
        start = f"{part}."
        places = self.positions.items()
        return {n.removeprefix(start): i for n, i in places if n.startswith(start)}


class Gradient(Generic[M]):
    """The gradient of a loss by the parameters of a model, shaped like the model.

    ``g.w1`` and ``g.encoder.weight`` are the gradients of the fields of that name, ``g.layers[0]``
    is the record of a part. As a mapping it goes from full names to tensors, in the order of
    ``named_parameters()``; a tied parameter is in it once, under its first name, and found under
    each of its names.

    A field of the model goes before a method of that name. ``Gradient.norm(g)`` and
    ``Gradient.items(g)`` are the methods whatever the fields are called, for type checkers too.

    A parameter that the loss does not depend on has a gradient of zeros.

    Args:
        layout: The names of the trainable parameters.
        parameters: The parameters themselves.
        gradients: For each a tensor like it, or None where the loss does not depend on it.
    """

    def __init__(
        self,
        layout: Layout,
        parameters: tuple[nn.Parameter, ...],
        gradients: tuple[Tensor | None, ...],
    ) -> None:
        self._layout, self._parameters, self._gradients = layout, parameters, gradients
        for name in layout.clashes:
            # A field of the model goes before a method: the instance's own attribute wins.
            self.__dict__[name] = self._part(name)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, name: str | int) -> Any: ...

    else:

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return self._part(name)

        def __getitem__(self, name):
            return self._part(str(name))

    def _part(self, name: str) -> Any:
        layout = self._layout
        position = layout.positions.get(name)
        if position is not None:
            return self._at(position)
        places = layout.within(name)
        if not places:
            known = ", ".join(layout.positions)
            raise AttributeError(f"this gradient has no {layout.prefix + name!r}; it has {known}")
        chosen = tuple(dict.fromkeys(places.values()))
        numbers = {old: new for new, old in enumerate(chosen)}
        return Gradient(
            Layout({n: numbers[i] for n, i in places.items()}, f"{layout.prefix}{name}."),
            tuple(self._parameters[i] for i in chosen),
            tuple(self._gradients[i] for i in chosen),
        )

    def _at(self, i: int) -> Tensor:
        found = self._gradients[i]
        return torch.zeros_like(self._parameters[i]).detach() if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.names)

    def __len__(self) -> int:
        return len(self._parameters)

    def __contains__(self, name: object) -> bool:
        return name in self._layout.positions

    def keys(self: _Itself) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return _record(self)._layout.names

    def values(self: _Itself) -> tuple[Tensor, ...]:
        """Return the gradients, in the order of the names."""
        record = _record(self)
        return tuple(map(record._at, range(len(record))))

    def items(self: _Itself) -> tuple[tuple[str, Tensor], ...]:
        """Return pairs of name and gradient."""
        return tuple(zip(Gradient.keys(self), Gradient.values(self)))

    def norm(self: _Itself, order: float = 2.0) -> Tensor:
        """Return the norm over all elements of all gradients, a tensor without dimensions.

        Args:
            order: Of the norm; 2 is the Euclidean one.
        """
        present = [g for g in _record(self)._gradients if g is not None]
        if any(g.requires_grad for g in present):  # torch's own cannot be differentiated
            norms = torch.stack([torch.linalg.vector_norm(g, order) for g in present])
            return torch.linalg.vector_norm(norms, order)
        return nn.utils.get_total_norm(present, norm_type=order)

    def into_grad(self: _Itself, *, accumulate: bool = False) -> None:
        """Put the gradients where ``loss.backward()`` does: into ``.grad`` of the parameters.

        Args:
            accumulate: Add to what is there instead of replacing it.
        """
        record = _record(self)
        for parameter, gradient in zip(record._parameters, record._gradients):
            if gradient is None:
                if not accumulate:
                    parameter.grad = None
            elif accumulate and parameter.grad is not None:
                parameter.grad = parameter.grad + gradient
            else:
                parameter.grad = gradient

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{n}: {list(p.shape)}" for n, p in zip(self._layout.names, self._parameters)
        )
        return f"Gradient({shapes})"


Grads: TypeAlias = M | Gradient[M]
"""What ``value_and_grad`` gives: for type checkers it has the model's fields too."""
_Itself: TypeAlias = nn.Module | Gradient[Any]
"""A record, as type checkers know it: they take ``Gradient.norm(g)`` for any ``Grads``."""


def _record(g: _Itself) -> Gradient[Any]:
    """Return what a method is called on, which a type checker may take for the model."""
    if not isinstance(g, Gradient):
        raise TypeError(f"this is a method of a gradient record, not of {an(type(g).__name__)}")
    return g


_METHODS = frozenset(n for n in vars(Gradient) if not n.startswith("_"))

__all__ = ["Gradient", "Grads", "Layout"]


def in_order(gradients: Gradient[Any], parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """Return the gradient of each parameter, or None."""
    own, found = gradients._parameters, gradients._gradients
    if len(own) == len(parameters) and all(map(is_, own, parameters)):
        return [*found]  # as nearly always
    known = dict(zip(map(id, own), found))
    return [known.get(id(p)) for p in parameters]
