"""Random words for the elements of a tensor: one operation, plain and in compiled kernels.

Compiled, it is lowered here to integer arithmetic in the loop over the elements. Left to itself the
compiler would write each round of the generator anew wherever its two words are used.
"""

from __future__ import annotations

import functools
import logging
import math
from typing import Any

import torch
from torch import Tensor

from dslmut.optim.threefry import LOW, Words, threefry

_DRAWS = 256


def keyed(key: Words, step: Any, draw: int, place: Any) -> Words:
    """Return two random words, with all that decides them in a key and a counter.

    Args:
        key: Of the parameter.
        step: Its number.
        draw: The number of the draw in the step; -1 is a draw of its own.
        place: The number of the element.
    """
    block, number = divmod(draw + 1, _DRAWS)
    counter = (place & LOW, ((step & 0xFFFFFF) << 8) | number)
    # What is beyond the counter, steps behind the 16 millionth for instance, gets another key.
    return threefry((key[0] ^ (place >> 32) ^ (block << 16), key[1] ^ (step >> 24)), counter)


@torch.library.custom_op("dslmut::random_words", mutates_args=())
def random_words(key: Tensor, step: Tensor, draw: int, shape: list[int], which: int) -> Tensor:
    """Return a word of 32 random bits for each element, in int64.

    Args:
        key: Two words, int64, shape [2].
        step: The number of the step, a double, shape [].
        draw: The number of the draw.
        shape: Of the result.
        which: 0 or 1, for the first or the second of two words.
    """
    place = torch.arange(math.prod(shape), device=key.device).reshape(shape)
    steps = step.to(key.device, torch.int64)
    return keyed((key[0], key[1]), steps, draw, place)[which]


@random_words.register_fake
def _(key: Tensor, step: Tensor, draw: int, shape: list[int], which: int) -> Tensor:
    return key.new_empty(shape)


WORDS = torch.ops.dslmut.random_words.default


# -- compiled ------------------------------------------------------------------------------------


class _Value:
    """An integer of a kernel, with operators."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __add__(self, other: Any) -> _Value:
        return self._with("add", other)

    def __and__(self, other: Any) -> _Value:
        return self._with("bitwise_and", other)

    def __or__(self, other: Any) -> _Value:
        return self._with("bitwise_or", other)

    def __xor__(self, other: Any) -> _Value:
        return self._with("bitwise_xor", other)

    def __lshift__(self, other: Any) -> _Value:
        return self._with("bitwise_left_shift", other)

    def __rshift__(self, other: Any) -> _Value:
        return self._with("bitwise_right_shift", other)

    def _with(self, operation: str, other: Any) -> _Value:
        from torch._inductor.virtualized import ops

        operand = other.value if isinstance(other, _Value) else ops.constant(other, torch.int64)
        return _Value(getattr(ops, operation)(self.value, operand))


@functools.cache
def teach_compiler() -> None:
    """Tell the compiler how random words are computed in a loop.

    Where its insides have changed it calls the plain operation instead: slower, and the same bits.
    """
    try:
        import sympy
        from torch._inductor.ir import Pointwise
        from torch._inductor.lowering import register_lowering
        from torch._inductor.virtualized import ops
    except ImportError as error:
        logging.getLogger(__name__).info("random numbers are not fused: %s", error)
        return

    @register_lowering(WORDS, type_promotion_kind=None)
    def lowered(key: Any, step: Any, draw: int, shape: list[int], which: int) -> Any:
        load_key, load_step = key.make_loader(), step.make_loader()

        def word(index: Any) -> Any:
            place: Any = sympy.S.Zero
            for i, n in zip(index, shape):
                place = place * n + i
            steps = _Value(ops.to_dtype(load_step(()), torch.int64))
            keys = _Value(load_key((0,))), _Value(load_key((1,)))
            places = _Value(ops.index_expr(place, torch.int64))
            return keyed(keys, steps, draw, places)[which].value

        return Pointwise.create(
            device=key.get_device(), dtype=torch.int64, inner_fn=word, ranges=list(shape)
        )
