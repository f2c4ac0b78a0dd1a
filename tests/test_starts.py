"""States that start elsewhere than at zero: kept as the difference, as the error and its page say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import dslmut as dm
from dslmut import Ctx, OptimizerError, Update, defstate, optimizer, optimizer_update
from dslmut.diagnostics.registry import explain


def test_the_page_has_a_lookahead_that_equals_plain_torch(tmp_path, monkeypatch) -> None:
    page = explain("E-OPT-003")
    assert page is not None
    [block] = [b for b in page.split("```")[1::2] if "def lookahead" in b]
    (tmp_path / "lookahead_page.py").write_text(block.removeprefix("python"))
    monkeypatch.syspath_prepend(tmp_path)
    from lookahead_page import lookahead  # pyright: ignore

    p = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    opt = lookahead(lr=0.1).bind([p], compile=False)
    fast, slow = p.detach().clone(), p.detach().clone()
    for step in range(1, 13):
        p.grad = p.detach() ** 3
        opt.step()
        fast -= 0.1 * fast**3
        if step % 5 == 0:
            slow += 0.5 * (fast - slow)
            fast.copy_(slow)
        torch.testing.assert_close(p.detach(), fast)
        torch.testing.assert_close(p.detach() + opt.state[p]["ahead"], slow)


@optimizer
def from_one(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
    total = 1 + defstate("total", torch.zeros_like(param)) + grad * grad
    return optimizer_update(param - lr * grad / total.sqrt(), total=total - 1)


def test_a_state_that_starts_at_one() -> None:
    p = nn.Parameter(torch.ones(2, dtype=torch.float64))
    opt = from_one().bind([p], compile=False)
    plain, total = p.detach().clone(), torch.ones(2, dtype=torch.float64)
    for _ in range(5):
        p.grad = p.detach() * 2
        opt.step()
        total += (plain * 2) ** 2
        plain -= 0.1 * 2 * plain / total.sqrt()
        torch.testing.assert_close(p.detach(), plain)


@pytest.mark.parametrize("start", ["param", "grad * 0", "torch.ones_like(param)"])
def test_the_error_says_how_to_start_elsewhere(start: str) -> None:
    starts = {
        "param": lambda p, g: p,
        "grad * 0": lambda p, g: g * 0,
        "torch.ones_like(param)": lambda p, g: torch.ones_like(p),
    }

    @optimizer
    def started(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        s = defstate("s", starts[start](param, grad))
        return optimizer_update(param - s, s=s)

    with pytest.raises(OptimizerError, match="E-OPT-003") as caught:
        started().bind([nn.Parameter(torch.ones(2))], compile=False)
    [found] = caught.value.diagnostics
    assert found.fix is not None
    assert 'slow = param + defstate("ahead", torch.zeros_like(param))' in found.fix.text
    assert "`ahead=slow - new`" in found.fix.text


def test_what_ctx_does_not_have_is_an_attribute_that_is_missing() -> None:
    @optimizer
    def asking(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(param - getattr(ctx, "scale", 0.5) * grad - ctx.other)

    with pytest.raises(dm.MissingError, match="E-OPT-006(.|\n)*`other`") as caught:
        asking().bind([nn.Parameter(torch.ones(2))], compile=False)
    assert isinstance(caught.value, AttributeError)
    assert isinstance(caught.value, OptimizerError)
