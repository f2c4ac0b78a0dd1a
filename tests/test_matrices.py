"""Muon and SOAP: what a matrix is, stacks of them, and what is none."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import Configured, OptimizerError
from dslmut.optim import muon, soap

EXACT = {"ns_dtype": "float64"}


def stepped(configured: Configured, start: Tensor, steps: int = 3, **options: Any) -> Tensor:
    """Return a parameter after steps with drawn gradients of unit size."""
    p = nn.Parameter(start.clone())
    opt = configured.bind([p], compile=False, **options)
    draw = torch.Generator().manual_seed(1)
    for _ in range(steps):
        p.grad = torch.randn(p.shape, dtype=p.dtype, generator=draw)
        opt.step()
    return p.detach()


def test_the_scale_of_tall_and_of_wide_matrices() -> None:
    """Singular values near 1, times the root of rows over columns where there are more rows."""
    for shape, scale in [((8, 2), 2.0), ((2, 8), 1.0), ((8, 2, 1, 1), 2.0), ((2, 2, 2, 2), 1.0)]:
        start = torch.zeros(shape, dtype=torch.float64)
        moved = stepped(muon(lr=1.0, weight_decay=0.0, ns_steps=10, **EXACT), start, 1)
        values = torch.linalg.svdvals(moved.flatten(1))
        assert (values / scale - 1).abs().max() < 0.4
        rms = muon(lr=1.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw", **EXACT)
        ratio = stepped(rms, start, 1) / stepped(muon(lr=1.0, weight_decay=0.0, **EXACT), start, 1)
        rows, columns = moved.flatten(1).shape
        expected = torch.full_like(ratio, 0.2 * max(rows, columns) ** 0.5 / scale)
        torch.testing.assert_close(ratio, expected)


def test_a_convolution_is_its_outputs_by_all_the_rest() -> None:
    start = torch.randn(4, 3, 2, 2, dtype=torch.float64)
    one = stepped(muon(**EXACT), start)
    p = nn.Parameter(start.clone().flatten(1))
    opt = muon(**EXACT).bind([p], compile=False)
    draw = torch.Generator().manual_seed(1)
    for _ in range(3):
        p.grad = torch.randn(start.shape, dtype=p.dtype, generator=draw).flatten(1)
        opt.step()
    torch.testing.assert_close(one, p.detach().reshape(start.shape))


@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 6, 4), (2, 3, 4, 5), (3, 4, 2, 3, 1)])
def test_stacked_matrices_are_those_one_by_one(shape: tuple[int, ...]) -> None:
    """Whatever stands behind the counting dimension: a matrix, or a convolution's weight."""
    stack = nn.Parameter(torch.randn(shape, dtype=torch.float64))
    single = [nn.Parameter(m.detach().clone()) for m in stack]
    configured = muon(lr=0.1, **EXACT)
    opt = muon(lr=0.1, batch_dims=1, **EXACT).bind([stack], compile=False)
    other = configured.bind(single, compile=False)
    for _ in range(3):
        stack.grad = torch.randn_like(stack)
        for p, g in zip(single, stack.grad):
            p.grad = g.clone()
        opt.step()
        other.step()
    torch.testing.assert_close(stack.detach(), torch.stack([p.detach() for p in single]))


@pytest.mark.parametrize(
    ("given", "shape", "words"),
    [
        ({}, (3,), r"`weight` of shape \[3\]: it updates matrices alone, .*muon_groups\("),
        ({}, (), r"`weight` of shape \[\]: it updates matrices alone"),
        ({"batch_dims": 1}, (3, 4), r"of shape \[3, 4\]: .* behind 1 that count them"),
        ({"adjust_lr_fn": "other"}, (3, 4), '"original" or "match_rms_adamw", not \'other\''),
        ({"ns_dtype": "float8"}, (3, 4), "`ns_dtype` is .* not 'float8'"),
    ],
)
def test_what_muon_refuses_when_it_is_bound(given: Any, shape: Any, words: str) -> None:
    with pytest.raises(
        OptimizerError, match=f"`muon` refuses the parameter(.|\n)*{words}"
    ) as caught:
        muon(**given).bind([("weight", nn.Parameter(torch.zeros(shape)))], compile=False)
    assert [d.code for d in caught.value.diagnostics] == ["E-OPT-028"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_muon_iterates_in_the_dtype_that_is_asked_for(dtype: torch.dtype) -> None:
    opt = muon().bind([("w", nn.Parameter(torch.randn(4, 3, dtype=dtype)))], compile=False)
    assert "bfloat16" in opt.graph("w")
    start = torch.randn(6, 4, dtype=dtype)
    coarse, fine = stepped(muon(lr=1.0), start), stepped(muon(lr=1.0, ns_dtype="float32"), start)
    assert not torch.equal(coarse, fine)
    assert (coarse - fine).norm() < 0.05 * (fine - start).norm()


def test_soap_finds_its_bases_first_and_corrects_them_now_and_then() -> None:
    p = nn.Parameter(torch.randn(3, 3, dtype=torch.float64))
    start = p.detach().clone()
    opt = soap(precondition_frequency=3).bind([p], compile=False)
    state, bases = opt.state[p], []
    for _ in range(8):
        p.grad = torch.randn_like(p)
        opt.step()
        bases.append(state["basis.0"].clone())
        if len(bases) == 1:
            assert torch.equal(p, start)
            rotated = bases[0].T @ state["gram.0"] @ bases[0]
            assert (rotated - torch.diag(rotated.diagonal())).abs().max() < 1e-12
    kept = [torch.equal(a, b) for a, b in itertools.pairwise(bases)]
    assert kept == [True, True, False, True, True, False, True]
    for basis in bases:
        torch.testing.assert_close(basis.T @ basis, torch.eye(3, dtype=torch.float64))


def test_soap_without_bases_is_adam_from_the_second_update_on() -> None:
    p, q = (nn.Parameter(torch.ones(5, dtype=torch.float64)) for _ in range(2))
    opt = soap(lr=0.1, weight_decay=0.0).bind([p], compile=False)
    adam = torch.optim.Adam([q], lr=0.1, betas=(0.95, 0.95), eps=1e-300)
    for step in range(10):
        p.grad = torch.randn(5, dtype=torch.float64)
        q.grad = p.grad.clone() if step else None
        opt.step()
        adam.step()
    torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-6, atol=0)
