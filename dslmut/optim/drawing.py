"""Random numbers in updates: each is decided by seed, step, parameter name and number of the draw.

In an update graph a draw is one operation. In a kernel it is arithmetic on integers, so that the
compiler fuses it with the update, and its bits are those of plain operations. The key of a
parameter is an input of the kernel, so that parameters share kernels and no step recompiles.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, fx
from torch.fx.proxy import GraphAppendingTracer

from dslmut.diagnostics.codes.optimizers import BadContext
from dslmut.diagnostics.raising import user_span
from dslmut.optim.context import draws_in_a_schedule
from dslmut.optim.randomwords import WORDS, random_words

if TYPE_CHECKING:
    from dslmut.optim.trace import Tracer

KEY = "random_key"
"""The input of an update graph that holds the key: two words."""

ROUNDING = -1
"""The number of the draw by which new values are rounded; those of bodies count from 0."""

_Words: TypeAlias = Callable[[int], Any]
"""Gives the first or the second random word of each element."""


def key_of(seed: int, name: str, device: torch.device) -> Tensor:
    """Return the key of a parameter.

    Args:
        seed: Of the run.
        name: Of the parameter.
        device: Where the parameter is.

    Returns:
        Two words, int64, shape [2].
    """
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4)]
    return torch.tensor(words, dtype=torch.int64, device=device)


# -- in a body -----------------------------------------------------------------------------------


def drawn(tracer: Tracer, name: str, like: Any) -> Tensor:
    """Return the random numbers that a body asks for.

    Args:
        tracer: Of the body.
        name: Of the method of ``ctx``.
        like: Whose shape and dtype they get.

    Raises:
        MissingError: E-OPT-006 in a schedule, or if *like* is no tensor of real numbers.
    """
    if tracer.in_schedule:
        raise draws_in_a_schedule(name)
    if not isinstance(like, Tensor) or not like.is_floating_point():
        kind = str(like.dtype) if isinstance(like, Tensor) else type(like).__name__
        raise BadContext.raised(
            user_span(),
            f"`ctx.{name}` takes a tensor of floating-point numbers, whose shape and dtype it gives, and got `{kind}`",
            fix=f"write `ctx.{name}(param)`, for instance",
            why="each element of a tensor gets a random number of its own",
        )
    key, step = _inputs(tracer)
    draw, tracer.recording.draws = tracer.recording.draws, tracer.recording.draws + 1
    return _OPERATIONS[name](key, step, draw, list(like.shape), dtype=like.dtype)


def stored(tracer: Tracer, new: Tensor) -> Tensor:
    """Return the new parameter as it will be stored: rounded, if it is of a low precision."""
    dtype = tracer.subject.dtype
    if not tracer.by_chance:
        return new.to(dtype)
    return ROUNDS(*_inputs(tracer), ROUNDING, list(new.shape), new, dtype=dtype)


def _inputs(tracer: Tracer) -> tuple[Tensor, Tensor]:
    """Return the key of the parameter, and the number of the step."""
    if tracer.recording.key is None:
        tracer.recording.key = tracer.placeholder(KEY, (2,), (1,), torch.int64)
    return tracer.recording.key, tracer.tensor_of(tracer.context().step)


# -- arithmetic ----------------------------------------------------------------------------------


_DIGITS = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24}


def _uniform(words: _Words, dtype: torch.dtype) -> Any:
    """Return k / 2^n for random k, where n is the number of digits of the dtype: never 1."""
    if dtype is torch.float64:
        whole = ((words(0) >> 5) << 26) | (words(1) >> 6)
        return whole.to(torch.float64) * 2.0**-53
    digits = _DIGITS[dtype]
    return ((words(0) >> (32 - digits)).to(torch.float32) * 2.0**-digits).to(dtype)


def _normal(words: _Words, dtype: torch.dtype) -> Any:
    """Return normal numbers.

    Source: Box and Muller, "A note on the generation of random normal deviates" (1958).
    """
    kind = torch.float64 if dtype is torch.float64 else torch.float32
    radius = torch.sqrt(-2 * torch.log((words(0) + 1).to(kind) * 2.0**-32))
    return (radius * torch.cos(words(1).to(kind) * (2 * math.pi * 2.0**-32))).to(dtype)


def _rounded(words: _Words, dtype: torch.dtype, value: Any) -> Any:
    """Return one of the two neighbours of each value, the nearer one with the higher chance."""
    value = value.to(torch.float32)
    bits = value.view(torch.int32)
    if dtype is torch.bfloat16:  # the upper half of the bits: what is added may carry into it
        found = ((bits + (words(0) >> 16).to(torch.int32)) & -0x10000).view(torch.float32)
    else:
        found = _rounded_to_float16(value, bits, words(0))
    return torch.where(torch.isfinite(value), found, value).to(dtype)


def _rounded_to_float16(value: Any, bits: Any, word: Any) -> Any:
    """Round to whole multiples of the distance of two float16 numbers, 2^-24 at the least."""
    power = torch.clamp(bits & 0x7F800000, min=(127 - 14) << 23)
    distance = (power - (10 << 23)).view(torch.float32)
    chance = (word >> 8).to(torch.float32) * 2.0**-24
    return torch.copysign(torch.floor(value.abs() / distance + chance) * distance, value)


# -- operations of graphs ------------------------------------------------------------------------


@torch.library.custom_op("dslmut::uniform", mutates_args=())
def _uniform_op(
    key: Tensor, step: Tensor, draw: int, shape: list[int], *, dtype: torch.dtype
) -> Tensor:
    return _uniform(lambda n: random_words(key, step, draw, shape, n), dtype)


@torch.library.custom_op("dslmut::normal", mutates_args=())
def _normal_op(
    key: Tensor, step: Tensor, draw: int, shape: list[int], *, dtype: torch.dtype
) -> Tensor:
    return _normal(lambda n: random_words(key, step, draw, shape, n), dtype)


@torch.library.custom_op("dslmut::round_by_chance", mutates_args=())
def _rounded_op(
    key: Tensor, step: Tensor, draw: int, shape: list[int], value: Tensor, *, dtype: torch.dtype
) -> Tensor:
    return _rounded(lambda n: random_words(key, step, draw, shape, n), dtype, value)


@_uniform_op.register_fake
@_normal_op.register_fake
def _(key: Tensor, step: Tensor, draw: int, shape: list[int], *, dtype: torch.dtype) -> Tensor:
    return key.new_empty(shape, dtype=dtype)


@_rounded_op.register_fake
def _(
    key: Tensor, step: Tensor, draw: int, shape: list[int], value: Tensor, *, dtype: torch.dtype
) -> Tensor:
    return torch.empty_like(value, dtype=dtype)


_OPERATIONS = {
    "rand_like": torch.ops.dslmut.uniform.default,
    "randn_like": torch.ops.dslmut.normal.default,
}
"""What the methods of ``ctx`` record."""

DRAWS = {operation: name for name, operation in _OPERATIONS.items()}
"""The operations that give random numbers, and what a body calls them by."""

ROUNDS = torch.ops.dslmut.round_by_chance.default

_ARITHMETIC: dict[Any, Callable[..., Any]] = {
    torch.ops.dslmut.uniform.default: _uniform,
    torch.ops.dslmut.normal.default: _normal,
    ROUNDS: _rounded,
}


def expanded(graph: fx.Graph, node: fx.Node, places: Mapping[fx.Node, fx.Node]) -> fx.Node | None:
    """Write the arithmetic of a draw into a kernel's graph; None for any other operation.

    Args:
        graph: Of the kernel.
        node: Of an update graph.
        places: Where the nodes before it are in the kernel's graph.
    """
    arithmetic = _ARITHMETIC.get(node.target)
    if arithmetic is None:
        return None
    arguments: Any = fx.map_arg((node.args[:4], node.args[4:]), lambda n: places[n])
    keyed, more = arguments
    tracer = GraphAppendingTracer(graph)

    def words(number: int) -> fx.Proxy:
        return fx.Proxy(graph.call_function(WORDS, (*keyed, number)), tracer)

    return arithmetic(words, node.kwargs["dtype"], *(fx.Proxy(n, tracer) for n in more)).node
