"""The table of standard optimizers, each beside its reference, and how the two are compared.

A row is all that a further optimizer needs: the tests, and the table of the largest deviations,
go over the rows.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dslmut import optim
from tests import references
from tests.references import LOW, Fused, Rounded, by

STEPS = 200

TOLERANCES = {
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.bfloat16: 1e-2,
    torch.complex128: 1e-12,
}
"""How far a parameter may be from its reference, relative to its largest element.

In bfloat16 that is two digits in the last place: where two float32 results lie on both sides of
the middle between two numbers of bfloat16, these differ from then on.
"""


@dataclass(frozen=True)
class Row:
    """A standard optimizer, and what it is held to.

    Args:
        rule: The optimizer.
        reference: Makes the reference of some parameters and hyperparameters.
        moved: For each hyperparameter another value than its default.
        base: Hyperparameters of all groups, the one with the defaults too.
        takes: Says whether it takes parameters of so many dimensions.
        tolerances: Where they are others than the common ones, and why is said beside them.
        steps: How many, where the reference is slow.
        elementwise: Whether it takes complex parameters, as pairs of reals.
    """

    rule: Any
    reference: Callable[..., Any]
    moved: Mapping[str, Any]
    base: Mapping[str, Any] = field(default_factory=dict)
    takes: Callable[[int], bool] = lambda dimensions: True
    tolerances: Mapping[torch.dtype, float] = field(default_factory=dict)
    steps: int = STEPS
    elementwise: bool = True

    @property
    def name(self) -> str:
        return "_".join([self.rule.__name__, *map(str, self.base.values())])

    @property
    def dtypes(self) -> list[torch.dtype]:
        return [d for d in TOLERANCES if self.elementwise or not d.is_complex]

    def tolerance(self, dtype: torch.dtype) -> float:
        return self.tolerances.get(dtype, TOLERANCES[dtype])

    def groups(self) -> dict[str, dict[str, Any]]:
        """Return hyperparameters: the defaults, and each of them moved once; then with a larger lr."""
        moved = {"defaults": {}, "lr": {}, **{n: {n: v} for n, v in self.moved.items()}}
        lr = {"lr": self.moved["lr"]}
        known = {n: h.default for n, h in self.rule.hyperparameters.items()} | dict(self.base)
        return {n: known | (lr if n != "defaults" else {}) | given for n, given in moved.items()}


FUSED = ("Adam", "AdamW", "Adagrad")
"""These compute in float32 and round once also in low precisions, where torch fuses them.

So should SGD, but torch 2.13's is wrong on CPU: with 16 elements of bfloat16 or more, `p - lr * g`
is another number.
"""


def of_torch(name: str) -> Callable[..., Any]:
    """Return what makes torch's optimizer of a name, one parameter after the other."""

    def make(params: Sequence[Tensor], **h: Any) -> Any:
        if params[0].dtype not in LOW:
            return getattr(torch.optim, name)(params, **h, foreach=False)
        if name in FUSED:
            return Fused(getattr(torch.optim, name), params, **h)
        return Rounded(getattr(torch.optim, name), params, **h)

    return make


def _muon_of_torch(params: Sequence[Tensor], **h: Any) -> Any:
    del h["ns_dtype"], h["batch_dims"]
    low = params[0].dtype in LOW
    return Rounded(torch.optim.Muon, params, **h) if low else torch.optim.Muon(params, **h)


ADAM = {"lr": 0.05, "betas": (0.7, 0.95), "eps": 1e-2, "weight_decay": 0.1}

ROWS = [
    Row(
        optim.sgd,
        of_torch("SGD"),
        {"lr": 0.05, "weight_decay": 0.1, "maximize": True},
    ),
    Row(
        optim.momentum_sgd,
        of_torch("SGD"),
        {"lr": 0.05, "momentum": 0.5, "dampening": 0.3, "weight_decay": 0.1, "nesterov": True,
         "maximize": True},
    ),
    Row(
        optim.adam,
        of_torch("Adam"),
        {**ADAM, "amsgrad": True, "maximize": True, "decoupled_weight_decay": True},
    ),
    Row(optim.adamw, of_torch("AdamW"), {**ADAM, "amsgrad": True, "maximize": True}),
    Row(
        optim.nadam,
        of_torch("NAdam"),
        {**ADAM, "momentum_decay": 0.05, "decoupled_weight_decay": True, "maximize": True},
    ),
    Row(
        optim.radam,
        of_torch("RAdam"),
        {**ADAM, "decoupled_weight_decay": True, "maximize": True},
    ),
    Row(optim.adamax, of_torch("Adamax"), {**ADAM, "maximize": True}),
    Row(
        optim.adagrad,
        of_torch("Adagrad"),
        {"lr": 0.05, "lr_decay": 0.01, "weight_decay": 0.1, "initial_accumulator_value": 0.3,
         "eps": 1e-2, "maximize": True},
    ),
    Row(
        optim.adadelta,
        of_torch("Adadelta"),
        {"lr": 0.5, "rho": 0.7, "eps": 1e-4, "weight_decay": 0.1, "maximize": True},
    ),
    Row(
        optim.rmsprop,
        of_torch("RMSprop"),
        {"lr": 0.05, "alpha": 0.9, "eps": 1e-2, "weight_decay": 0.1, "momentum": 0.5,
         "centered": True, "maximize": True},
    ),
    Row(
        optim.rprop,
        of_torch("Rprop"),
        {"lr": 0.05, "etas": (0.6, 1.1), "step_sizes": (1e-3, 0.2), "maximize": True},
    ),
    Row(
        optim.adafactor,
        of_torch("Adafactor"),
        {"lr": 0.05, "beta2_decay": -0.5, "eps": (1e-2, 0.1), "d": 1.5, "weight_decay": 0.1,
         "maximize": True},
        elementwise=False,
    ),
    Row(
        optim.lion,
        by(references.lion),
        {"lr": 0.05, "betas": (0.7, 0.95), "weight_decay": 0.1},
    ),
    Row(
        optim.signum,
        by(references.signum),
        {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.1},
    ),
    Row(
        optim.adan,
        by(references.adan),
        {"lr": 0.05, "betas": (0.9, 0.8, 0.95), "eps": 1e-2, "weight_decay": 0.1},
    ),
    Row(
        optim.lars,
        by(references.lars),
        {"lr": 5.0, "momentum": 0.5, "weight_decay": 0.1, "trust_coefficient": 0.01, "eps": 0.1},
        elementwise=False,
    ),
    Row(optim.lamb, by(references.lamb), ADAM, elementwise=False),
    Row(
        optim.muon,
        _muon_of_torch,
        {"lr": 0.05, "weight_decay": 0.2, "momentum": 0.5, "nesterov": False,
         "ns_coefficients": (2.0, -1.5, 0.5), "eps": 1e-3, "ns_steps": 3,
         "adjust_lr_fn": "match_rms_adamw"},
        takes=lambda dimensions: dimensions == 2,
        # Both iterate in bfloat16, and round at other places: within 2% of a step.
        tolerances=dict.fromkeys(TOLERANCES, 0.05),
        steps=20,
        elementwise=False,
    ),
    Row(
        optim.muon,
        by(references.muon),
        {"lr": 0.05, "weight_decay": 0.2, "momentum": 0.5, "nesterov": False,
         "ns_coefficients": (2.0, -1.5, 0.5), "eps": 1e-3, "ns_steps": 3,
         "adjust_lr_fn": "match_rms_adamw"},
        base={"ns_dtype": "float64"},
        takes=lambda dimensions: dimensions >= 2,
        elementwise=False,
    ),
    Row(
        optim.soap,
        # In the parameter's dtype: in what the first gradient lacks, any basis is an eigenbasis, and
        # which one comes out depends on each bit.
        by(references.soap, exact=False),
        {"lr": 0.05, "betas": (0.8, 0.9), "shampoo_beta": 0.8, "eps": 1e-2, "weight_decay": 0.1,
         "precondition_frequency": 3, "max_precond_dim": 3},
        steps=100,  # of forty operations for each dimension
        elementwise=False,
    ),
]  # fmt: skip


def body_lines(rule: Any) -> int:
    """Return how many lines a rule's body has behind its docstring."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(rule.rule))).body
    assert isinstance(function, ast.FunctionDef)
    statements = function.body[1:]
    return sum((s.end_lineno or s.lineno) - s.lineno + 1 for s in statements)


# -- parameters and gradients --------------------------------------------------------------------

SHAPES: dict[str, Callable[[], Tensor]] = {
    "0-d": lambda: torch.randn(()),
    "vector": lambda: torch.randn(5),
    "square": lambda: torch.randn(4, 4),
    "tall": lambda: torch.randn(8, 2),
    "wide": lambda: torch.randn(2, 8),
    "transposed": lambda: torch.randn(3, 5).T,
    "with gaps": lambda: torch.randn(4, 6)[:, ::2],
    "convolution": lambda: torch.randn(4, 3, 2, 2),
    "channels last": lambda: torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last),
    "zeros": lambda: torch.zeros(3),
    "empty": lambda: torch.randn(0),
    "empty matrix": lambda: torch.randn(0, 3),
}
"""Parameters of all kinds."""

FEW = dict.fromkeys((torch.float64, torch.complex128), ("tall", "channels last"))
"""Those of a group in which one hyperparameter is moved; in other dtypes than these one matrix."""


def gradient(shape: torch.Size, dtype: torch.dtype, step: int) -> Tensor:
    """Return a gradient in one of four layouts: dense, with gaps, in another order, expanded."""
    kind = step % 4
    if kind == 1:
        return torch.randn([*shape, 2], dtype=dtype)[..., 0]
    if kind == 2:
        return torch.randn([*reversed(shape)], dtype=dtype).permute([*reversed(range(len(shape)))])
    if kind == 3 and step > 3:  # at first a matrix rule needs a gradient of full rank
        return torch.randn([1] * len(shape), dtype=dtype).expand(shape)
    return torch.randn(shape, dtype=dtype)


def is_skipped(number: int, step: int) -> bool:
    """Say whether a parameter has no gradient at a step: irregularly, and some at the start."""
    return (7 * step + 3 * number) % 5 == 2 or (number % 3 == 2 and step < 2)


def leaf(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a parameter with the value's layout, gaps between its elements included."""
    base = torch.zeros(4 * max(value.numel(), 1), dtype=dtype)
    own = base.as_strided(value.shape, value.stride())
    return own.copy_(value * (1 + 0.5j) if dtype.is_complex else value).requires_grad_()


# -- comparing -----------------------------------------------------------------------------------


def deviations(row: Row, dtype: torch.dtype, compile: Any = False) -> dict[tuple[str, str], float]:
    """Return how far each parameter of each group is from its reference after some steps.

    Args:
        row: The optimizer.
        dtype: Of the parameters.
        compile: As for ``bind``.
    """
    groups, expected, made = row.groups(), [], []
    kinds: list[tuple[str, str]] = []
    for name, hyperparameters in groups.items():
        few = FEW.get(dtype, ("tall",))
        chosen = [n for n in SHAPES if name == "defaults" or n in few]
        values = {n: SHAPES[n]() for n in chosen}
        values = {n: v for n, v in values.items() if row.takes(v.ndim)}
        own, others = ([leaf(v, dtype) for v in values.values()] for _ in range(2))
        made.append({"params": own, **hyperparameters})
        filled = [p for p in others if p.numel()]  # torch's Adafactor divides by their number
        expected.append((row.reference(filled, **hyperparameters), others))
        kinds += [(name, n) for n in values]
    opt = row.rule().bind(made, compile=compile)
    ours = [p for g in made for p in g["params"]]
    theirs = [p for _, others in expected for p in others]
    sizes = [largest(q) for q in theirs]
    with single_thread(), default_dtype(dtype):
        for step in range(row.steps):
            for number, (p, q) in enumerate(zip(ours, theirs)):
                grad = None if is_skipped(number, step) else gradient(p.shape, dtype, step)
                p.grad, q.grad = grad, None if grad is None else torch.empty_like(q).copy_(grad)
            opt.step()
            for reference, _ in expected:
                reference.step()
            if step % 10 == 9:
                sizes = [max(s, largest(q)) for s, q in zip(sizes, theirs)]
    return {k: deviation(p, q, s) for k, p, q, s in zip(kinds, ours, theirs, sizes)}


def largest(x: Tensor) -> float:
    """Return the largest absolute value."""
    return float(x.detach().abs().max()) if x.numel() else 0.0


def deviation(own: Tensor, other: Tensor, size: float) -> float:
    """Return the largest difference, relative to the largest element that the reference ever had."""
    wide = torch.promote_types(own.dtype, torch.float64)
    found = largest(own.detach().to(wide) - other.detach().to(wide)) / (size or 1.0)
    return found if found == found else float("inf")


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute in one thread: so small matrices take a hundred times longer in several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Let torch keep the numbers beside its states, as NAdam's, in doubles where all is in doubles."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if dtype in FEW else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
