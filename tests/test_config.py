"""`dm.config`: checks turned off and on, for the process and for a block."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import dslmut as dm
from dslmut import CheckError, Index, Mut, fn, mut


@fn
def before(x: Float[Tensor, "3"]) -> Float[Tensor, "3"]:
    return x


def is_checked(f: Callable[..., Any], value: object = None) -> bool:
    """Say whether a function refuses what does not fit its parameter."""
    try:
        f(torch.ones(4) if value is None else value)
    except CheckError as error:
        return [d.code for d in error.diagnostics] == ["E0601"]
    return False


@pytest.fixture(autouse=True)
def _restored() -> Any:
    assert dm.config.checks is True
    yield
    dm.config.checks = True


def test_for_functions_that_are_there_and_for_later_ones() -> None:
    assert is_checked(before)
    dm.config.checks = False
    assert not is_checked(before)

    @fn
    def after(x: Float[Tensor, "3"]) -> None: ...

    @fn(check=False)
    def never(x: Float[Tensor, "3"]) -> None: ...

    assert not is_checked(after)
    dm.config.checks = True
    assert is_checked(before)
    assert is_checked(after)
    assert not is_checked(never)


def test_for_a_block() -> None:
    with dm.config(checks=False):
        assert not is_checked(before)
        with dm.config(checks=True):
            assert is_checked(before)
        assert not is_checked(before)
        with dm.config():
            assert not is_checked(before)
    assert is_checked(before)
    with pytest.raises(KeyError), dm.config(checks=False):
        raise KeyError
    assert dm.config.checks is True, "an error restores it too"
    block = dm.config(checks=False)
    assert is_checked(before), "what is made is not entered yet"
    with block:
        assert not is_checked(before)


def test_results_and_domains() -> None:
    @fn
    def widened(x: Tensor) -> Float[Tensor, "3"]:
        return x

    @fn
    def chosen(i: Index[Tensor, "b -> 4"]) -> None: ...

    assert is_checked(widened)
    assert is_checked(chosen, torch.tensor([4]))
    with dm.config(checks=False):
        assert not is_checked(widened)
        assert not is_checked(chosen, torch.tensor([4]))


def test_while_a_call_is_under_way() -> None:
    @fn
    def turned(x: Tensor, checks: bool) -> Float[Tensor, "3"]:
        dm.config.checks = checks
        return x

    assert turned(torch.ones(3), False) is not None
    assert turned(torch.ones(4), True) is not None, "a call that was not checked stays so"


def test_markers_and_fields_are_always_checked() -> None:
    @fn
    def zero(m: Mut[nn.Linear], w: Tensor) -> None:
        m.weight = w

    m = nn.Linear(2, 2)
    with dm.config(checks=False):
        with pytest.raises(CheckError, match="E1103"):
            zero(m, torch.zeros(2, 2))
        with pytest.raises(dm.FieldError, match="E0401"):
            zero(mut(m), torch.zeros(3, 3))
        zero(mut(m), torch.zeros(2, 2))
    assert not m.weight.any()


def test_a_compiler_sees_no_setting() -> None:
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    @fn
    def doubled(x: Float[Tensor, "3"]) -> Float[Tensor, "3"]:
        return 2 * x

    compiled = torch.compile(doubled, backend=backend, fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    with dm.config(checks=False):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert len(graphs) == 1, "turning it off compiles nothing again"


@pytest.mark.parametrize("setting", [None, "1", "0", "false", "False", "off", "no"])
@pytest.mark.parametrize("name", ["checks", "progress"])
def test_the_environment_gives_the_first_value(name: str, setting: str | None) -> None:
    code = (
        f"import sys, dslmut as dm; first = dm.config.{name}; assert 'torch' not in sys.modules\n"
        f"dm.config.{name} = True; print(first, dm.config)"
    )
    env = {} if setting is None else {f"DSLMUT_{name.upper()}": setting}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{setting in (None, '1')} config(checks=True, progress=True)\n"


def test_mistakes_change_nothing() -> None:
    config: Any = dm.config
    with pytest.raises(AttributeError, match="no setting `chekcs`; did you mean `checks`"):
        config.chekcs = False
    with pytest.raises(AttributeError, match="no setting `guard`; there are checks, progress"):
        config.guard = True
    with pytest.raises(AttributeError, match="chekcs"):
        _ = config.chekcs
    with pytest.raises(AttributeError, match="did you mean `checks`"):
        config(checks=False, check=False)
    for wrong in (None, 0, "off"):
        with pytest.raises(TypeError, match="`dm.config.checks` is True or False, not"):
            config.checks = wrong
        with pytest.raises(TypeError, match="is True or False"):
            config(checks=wrong)
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del config.checks
    assert dm.config.checks is True
