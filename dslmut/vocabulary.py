"""The words that users write in annotations and at calls.

Nothing here has behaviour of its own, and nothing here imports torch: the checker, the command
line and the language server read these words without loading the library that runs them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, final

from dslmut.tokens import Token

__all__ = ["FRESH", "MUT", "Domain", "Fresh", "FreshMarker", "Index", "Mut", "MutMarker", "mut"]

T = TypeVar("T")


@final
class MutMarker:
    """The metadata in ``Mut[M]``, which is ``Annotated[M, MUT]``."""

    def __repr__(self) -> str:
        return "MUT"

    def __reduce__(self) -> str:
        return "MUT"


MUT = MutMarker()

# An alias and not a `type` statement: that one would lose the metadata.
Mut: TypeAlias = Annotated[T, MUT]
"""Annotate a parameter that the function may change: ``m: Mut[Mlp]``."""


@final
class FreshMarker:
    """The metadata in ``Fresh[M]``, which is ``Annotated[M, FRESH]``."""

    def __repr__(self) -> str:
        return "FRESH"

    def __reduce__(self) -> str:
        return "FRESH"


FRESH = FreshMarker()

Fresh: TypeAlias = Annotated[T, FRESH]
"""Annotate a result that shares nothing with the arguments: ``-> Fresh[Mlp]``.

A caller may change what it gets so. The checker holds an ``@fn`` to its word (E1110); a plain
function is believed.
"""


def mut(x: T, /) -> T:
    """Mark an argument that the called function may change: ``step(mut(m), x, y)``.

    Args:
        x: A model, an optimizer state or a reference, given by its name.

    Returns:
        The object, for a type checker. At run time a token, which only the parameter takes
        apart; inside ``@fn`` the rewritten call makes it.

    Raises:
        CheckError: E1101, where a token reaches a parameter without ``Mut`` or plain code.
    """
    return Token(x)  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class Domain:
    """The metadata in ``Index[Tensor, "b -> C"]``: every element is at least 0 and below *size*.

    Args:
        size: A number, or the name of a dimension that the call or the model binds.
    """

    size: str


if TYPE_CHECKING:
    from dslmut._index import Index as Index
else:

    class Index:
        """An integer tensor that indexes: ``Index[Tensor, "b -> C"]`` holds 0 <= i < C.

        The part before the arrow is the tensor's shape, as in jaxtyping; the part after it is
        the size of what is indexed. At run time it is ``Annotated[Int[Tensor, "b"], Domain("C")]``.
        """

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            array, text = item
            return _index(array, text)


@functools.cache
def _index(array: Any, text: str) -> Any:
    from jaxtyping import Int

    shape, arrow, size = text.partition("->")
    if not arrow or len(size.split()) != 1:
        raise TypeError(
            f'Index[..., {text!r}] needs a shape and a size, as in Index[Tensor, "b -> C"]'
        )
    return Annotated[Int[array, shape.strip()], Domain(size.strip())]
