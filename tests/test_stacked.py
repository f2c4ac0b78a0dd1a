"""Products of matrices of several parameters at once, and Newton-Schulz iterations on Gram matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from dslmut import Ctx, Update, optimizer, optimizer_update
from dslmut.optim import adafactor, lamb, lars, muon, soap
from dslmut.optim.rules.matrices import orthogonalized
from dslmut.optim.stacked import LARGEST
from dslmut.optim.updating import update_graph

# -- stacks --------------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[], Tensor]] = {
    "square": lambda: torch.randn(6, 6),
    "tall": lambda: torch.randn(9, 4),
    "wide": lambda: torch.randn(4, 9),
    "transposed": lambda: torch.randn(5, 8).T,
    "convolution": lambda: torch.randn(4, 3, 2, 2),
    "channels last": lambda: torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last),
}

RULES: dict[str, Any] = {
    "muon": muon(lr=0.1),
    "muon in float32": muon(lr=0.1, ns_dtype="float32"),
    "muon in float64": muon(lr=0.1, ns_dtype="float64"),
    # Of longer sides the first gradient leaves a part open, whose basis depends on each bit.
    "soap": soap(lr=0.1, precondition_frequency=2, max_precond_dim=6),
    "lars": lars(lr=0.1),
    "lamb": lamb(lr=0.1),
    "adafactor": adafactor(lr=0.1),
}


def gradients(starts: Sequence[Tensor], steps: int = 4) -> list[list[Tensor]]:
    """Return the gradients of some parameters at each step."""
    return [[torch.randn_like(p) for p in starts] for _ in range(steps)]


def stepped(
    rule: Any, groups: list[dict[str, Any]], grads: list[list[Tensor]], **options: Any
) -> Any:
    """Return an optimizer after a step for each list of gradients."""
    opt = rule.bind(groups, **{"compile": False, **options})
    for step in grads:
        for group, g in zip(opt.param_groups, step):
            group["params"][0].grad = g.clone()
        opt.step()
    return opt


def products(opt: Any, together: int) -> Counter[str]:
    """Return how many products stand in the kernel for so many parameters."""
    program = opt._runner.program(opt._runner.items[0])
    names = (str(n.target) for n in update_graph([program] * together, False).graph.nodes)
    return Counter(n.split(".")[1] for n in names if n in ("aten.mm.default", "aten.bmm.default"))


def alone_and_together(
    rule: Any, starts: list[Tensor], settings: Sequence[dict[str, Any]], **options: Any
) -> tuple[list[Tensor], list[Tensor], Any]:
    """Return parameters that were updated one by one, and the same ones updated together."""
    grads = gradients(starts)
    alone, together = ([nn.Parameter(p.clone()) for p in starts] for _ in range(2))
    for number, (p, given) in enumerate(zip(alone, settings)):
        stepped(rule, [{"params": [p], **given}], [[step[number]] for step in grads])
    groups = [{"params": [p], **given} for p, given in zip(together, settings)]
    opt = stepped(rule, groups, grads, **options)
    return [p.detach() for p in alone], [p.detach() for p in together], opt


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", RULES)
def test_several_parameters_together_are_those_one_by_one(rule: str, shape: str) -> None:
    torch.manual_seed(0)
    starts = [SHAPES[shape]().double() for _ in range(3)]
    alone, together, opt = alone_and_together(RULES[rule], starts, [{}] * 3)
    bound = 1e-5 if rule in ("muon", "muon in float32") else 1e-9
    for one, other in zip(alone, together):
        torch.testing.assert_close(one, other, rtol=bound, atol=bound)
    single, several = products(opt, 1), products(opt, 3)
    assert not single["bmm"]
    assert not several["mm"]
    assert several["bmm"] == single["mm"]
    assert bool(single["mm"]) == rule.startswith(("muon", "soap"))


def test_each_has_numbers_of_its_own() -> None:
    torch.manual_seed(0)
    settings = [{"lr": 0.1 * k, "momentum": 0.5 / k, "ns_coefficients": (2.0 - k / 10, -1.5, 0.5)}
                for k in (1, 2, 3)]  # fmt: skip
    starts = [torch.randn(4, 9) for _ in settings]
    alone, together, opt = alone_and_together(RULES["muon in float32"], starts, settings)
    assert len(opt._runner.kernels) == 1
    for one, other in zip(alone, together):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_compiled_ones_are_those_of_plain_operations() -> None:
    torch.manual_seed(0)
    settings = [{"lr": 0.1}, {"lr": 0.2}]
    starts = [torch.randn(4, 9) for _ in settings]
    rule = RULES["muon in float32"]
    alone, together, _ = alone_and_together(rule, starts, settings, compile=True)
    for one, other in zip(alone, together):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_large_matrices_are_multiplied_one_by_one() -> None:
    side = int(LARGEST**0.5) + 1
    rule = muon(ns_steps=1, ns_dtype="float32")
    for rows, stacked in ((side, False), (side - 1, True)):
        opt = rule.bind([nn.Parameter(torch.randn(rows, rows))], compile=False)
        assert bool(products(opt, 2)["bmm"]) == stacked
        assert bool(products(opt, 2)["mm"]) == (not stacked)


@optimizer
def doubling(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
    """Change an operand between two products."""
    x = grad * 1
    first = x @ x.mT
    x.mul_(2)
    return optimizer_update(param - lr * (first @ param + x @ x.mT @ param))


@optimizer
def shaken(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
    """Multiply by random numbers, which each parameter has of its own."""
    return optimizer_update(param - lr * (ctx.rand_like(grad) @ grad.mT @ param))


@pytest.mark.parametrize("rule", [doubling(), shaken()], ids=lambda r: r.definition.__name__)
def test_bodies_that_change_their_own_tensors_or_draw(rule: Any) -> None:
    torch.manual_seed(0)
    starts = [torch.randn(4, 6) for _ in range(3)]
    grads = gradients(starts)
    together = [nn.Parameter(p.clone()) for p in starts]
    named = [(f"p{n}", p) for n, p in enumerate(together)]
    opt = rule.bind([{"params": [pair]} for pair in named], seed=3, compile=False)
    for step in grads:
        for p, g in zip(together, step):
            p.grad = g.clone()
        opt.step()
    assert bool(products(opt, 3)["bmm"]) == (rule.definition.__name__ == "shaken")
    for number, start in enumerate(starts):
        p = nn.Parameter(start.clone())
        alone = rule.bind([(f"p{number}", p)], seed=3, compile=False)
        for step in grads:
            p.grad = step[number].clone()
            alone.step()
        torch.testing.assert_close(p.detach(), together[number].detach())


# -- Gram matrices -------------------------------------------------------------------------------

COEFFICIENTS = [3.4445, -4.775, 2.0315]


def with_values(rows: int, columns: int, values: Tensor) -> Tensor:
    """Return a matrix with these singular values."""
    left, right = (torch.linalg.qr(torch.randn(n, len(values)).double()).Q for n in (rows, columns))
    return left @ torch.diag(values.double()) @ right.mT


def exact(matrix: Tensor, steps: int) -> Tensor:
    """Return the matrix whose singular values are iterated, each by itself."""
    left, x, right = torch.linalg.svd(matrix, full_matrices=False)
    x = x / torch.linalg.vector_norm(x)
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        x = a * x + b * x**3 + c * x**5
    return left @ torch.diag(x) @ right


@pytest.mark.parametrize("shape", [(12, 48), (48, 12), (12, 12), (12, 17), (12, 19)])
@pytest.mark.parametrize("power", [0, 1, 4])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_small_singular_values_are_as_exact_as_float32_is(
    shape: tuple[int, int], power: int, steps: int
) -> None:
    """Five iterations on Gram matrices alone would be off by 5e-4."""
    torch.manual_seed(0)
    matrix = with_values(*shape, torch.arange(1, 13.0) ** -power)
    expected = exact(matrix, steps)
    for dtype, bound in ((torch.float32, 4e-5), (torch.float64, 4e-13)):
        found = orthogonalized(matrix.to(dtype), COEFFICIENTS, steps, 1e-7).double()
        assert (found - expected).norm() <= bound * expected.norm()


def test_matrices_with_a_long_side_take_fewer_operations() -> None:
    """Multiplications for the default five iterations, beside those on the matrix itself."""
    for rows, columns, share in ((16, 16, 1.0), (16, 64, 0.67), (64, 16, 0.67), (16, 48, 0.75)):
        short, long = sorted((rows, columns))
        with FlopCounterMode(display=False) as counter:
            orthogonalized(torch.randn(rows, columns), COEFFICIENTS, 5, 1e-7)
        on_itself = 5 * 2 * (2 * short**2 * long + short**3)
        assert counter.get_total_flops() <= share * on_itself
