"""Keys of a group that leave out, or misspell, which part of a chain they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dslmut import OptimizerError
from dslmut.optim import adamw, chain, clip_by_global_norm, clip_by_value, sgd


def stepped(**keys: Any) -> Callable[[], None]:
    """Return a step of a chain with these keys written into its group."""
    p = nn.Parameter(torch.ones(2))
    rule = chain(clip_by_global_norm(1.0), clip_by_value(1.0), clip_by_value(2.0), sgd(lr=0.1))
    opt = rule.bind([p], compile=False)
    p.grad = torch.ones(2)
    opt.param_groups[0].update(keys)

    def step() -> None:
        try:
            opt.step()
        except OptimizerError:
            assert torch.equal(p.detach(), torch.ones(2))
            raise

    return step


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("max_norm", ['"clip_by_global_norm.max_norm"']),
        ("maxnorm", ['"clip_by_global_norm.max_norm"']),
        ("limit", ['"clip_by_value.limit"', '"clip_by_value_2.limit"']),
        ("clip_by_global_norm.maxnorm", ['"clip_by_global_norm.max_norm"']),
        ("clip_by_global_nrm.max_norm", ['"clip_by_global_norm.max_norm"']),
    ],
)
def test_the_error_names_the_key_with_its_part(key: str, names: list[str]) -> None:
    with pytest.raises(OptimizerError) as found:
        stepped(**{key: 1e-9})()
    assert found.value.diagnostics[0].code == "E-OPT-002"
    assert all(f"`{name}`" in str(found.value) for name in names)


def test_keys_that_belong_to_others_stay() -> None:
    stepped(note="mine", max_lr=1.0, initial_lr=0.1, foreach=None)()
    stepped(**{"clip_by_global_norm.max_norm": 1e-9})()


def test_a_torch_style_group_is_told_too() -> None:
    rule = chain(clip_by_global_norm(1.0), adamw())
    with pytest.raises(OptimizerError, match=r'write `"clip_by_global_norm.max_norm"`'):
        rule.bind([{"params": [nn.Parameter(torch.ones(2))], "max_norm": 1.0}], compile=False)
