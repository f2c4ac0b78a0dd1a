"""Arguments and results against their annotations."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dslmut import CheckError, Index, Model, Mut, OptState, fn, mut
from dslmut.functions import values


class Net(Model):
    D: int = 3
    C: int = 4
    w: Float[Tensor, "D C"]


@fn
def score(
    m: Net, x: Float[Tensor, "b D"], y: Index[Tensor, "b -> C"], scale: float = 1.0
) -> Float[Tensor, "b"]:
    return (x @ m.w)[torch.arange(len(y)), y] * scale


X, Y = torch.ones(2, 3), torch.tensor([0, 3])


def test_fitting_calls_pass() -> None:
    m = Net.init(seed=0)
    for _ in range(3):
        assert score(m, X, Y).shape == (2,)
    assert score(m, torch.ones(5, 3), torch.zeros(5, dtype=torch.int64), scale=2).shape == (5,)
    wide = Net.init(seed=0, D=7)
    assert score(wide, torch.ones(2, 7), Y).shape == (2,)
    half = Net.init(seed=0, dtype=torch.bfloat16)
    assert score(half, torch.ones(2, 3, dtype=torch.bfloat16), Y).shape == (2,)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            dict(x=torch.ones(2, 4)),
            '`x` has shape \\[2, 4\\], declared "b D": `D` is 4 here and 3 in field `w`|in `D`',
        ),
        (dict(x=torch.ones(3)), "`x` has 1 dimension, shape \\[3\\], declared 2"),
        (dict(x=torch.ones(2, 3, dtype=torch.int64)), "`x` holds int64"),
        (dict(x=[[1.0]]), "`x` is a `list`, declared a tensor of shape"),
        (dict(y=torch.tensor([0, 1, 2])), "`y` has shape \\[3\\](.|\n)*`b` is 3 here and 2 in `x`"),
        (dict(y=torch.tensor([0.0, 1.0])), "`y` holds float32"),
        (dict(y=torch.tensor([0, 4])), "`y` holds 0 <= i < C = 4, and contains 4"),
        (dict(y=torch.tensor([-1, 1])), "contains -1"),
        (dict(scale="a"), "`scale` is a `str`, declared `float`"),
        (dict(m=nn.Linear(3, 4)), "`m` is a `Linear`, declared `Net`"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], text: str) -> None:
    good = dict(m=Net.init(seed=0), x=X, y=Y)
    score(**good)
    for _ in range(2):
        with pytest.raises(CheckError, match=f"E0601(.|\n)*({text})") as caught:
            score(**{**good, **arguments})
        (d,) = caught.value.diagnostics
        assert d.span is not None
        assert d.span.path == __file__
        assert d.labels[0].text == "declared here"


def test_results_are_checked() -> None:
    @fn
    def bad(x: Float[Tensor, "b D"]) -> Float[Tensor, "b"]:
        return x.sum(0)

    @fn
    def nothing(x: Tensor) -> Tensor:
        if x.ndim == 7:
            return x
        return None

    assert bad(torch.ones(3, 3)).shape == (3,)
    with pytest.raises(
        CheckError, match="the result has shape \\[3\\](.|\n)*`b` is 3 here and 2 in `x`"
    ) as e:
        bad(torch.ones(2, 3))
    assert "return x.sum(0)" in str(e.value)
    with pytest.raises(CheckError, match="the result is `None`"):
        nothing(torch.ones(1))


def test_dimensions_bind_per_call_and_per_model() -> None:
    @fn
    def two(a: Net, b: Net, x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> None: ...

    two(Net.init(seed=0, D=3), Net.init(seed=0, D=5), torch.ones(2), torch.ones(2))
    two(Net.init(seed=0, D=3), Net.init(seed=0, D=5), torch.ones(4), torch.ones(4))
    with pytest.raises(CheckError, match="`n` is 3 here and 2 in `x`"):
        two(Net.init(seed=0), Net.init(seed=0), torch.ones(2), torch.ones(3))


def test_a_model_that_changes_shape_is_seen() -> None:
    m = Net.init(seed=0)
    score(m, X, Y)
    m.w.data = torch.zeros(5, 4)
    with pytest.raises(CheckError, match="E0601"):
        score(m, X, Y)
    score(m, torch.ones(2, 5), Y)


def test_other_annotations() -> None:
    @fn
    def f(
        names: list[str],
        mode: Literal["a", "b"] = "a",
        maybe: int | None = None,
        call: Callable[[int], int] | None = None,
        pair: tuple[Float[Tensor, "n"], Float[Tensor, "n"]] | None = None,
        anything: Any = 1,
        whatever: object = 2,
    ) -> str:
        return mode

    one, two = torch.ones(2), torch.ones(3)
    assert f(["x"]) == "a"
    assert f([], "b", 3, abs, (one, one)) == "b"
    for bad in (
        dict(names=[1]),
        dict(mode="c"),
        dict(maybe="x"),
        dict(call=3),
        dict(pair=(one, two)),
    ):
        with pytest.raises(CheckError, match=f"E0601(.|\n)*`{next(iter(bad))}`"):
            f(**{"names": ["x"], **bad})
    assert f(["y"]) == "a"


def test_states_and_plain_numbers() -> None:
    @fn
    def f(m: Mut[Net], opt: Mut[OptState[Net]], n: int, rate: float) -> None: ...

    m = Net.init(seed=0)
    from dslmut.optim import sgd

    opt = sgd(m, lr=0.1)
    f(mut(m), mut(opt), 3, 0.5)
    f(mut(m), mut(opt), 3, 1)
    with pytest.raises(CheckError, match="`n` is a `float`"):
        f(mut(m), mut(opt), 3.5, 0.5)
    torch_opt = torch.optim.SGD(m.parameters(), lr=0.1)
    with pytest.raises(CheckError, match="`opt` is an `SGD`"):
        f(mut(m), mut(torch_opt), 3, 0.5)


def test_can_be_turned_off() -> None:
    @fn(check=False)
    def f(x: Float[Tensor, "3"]) -> Int[Tensor, ""]:
        return x

    assert f(torch.ones(4)).shape == (4,)
    assert f("anything") == "anything"
    code = (
        "import torch; from jaxtyping import Float; from torch import Tensor\n"
        "import linecache\n"
        "text = 'def f(x: Float[Tensor, \"3\"]) -> None: ...\\n'\n"
        "linecache.cache['t'] = (len(text), None, text.splitlines(True), 't')\n"
        "scope = {'Float': Float, 'Tensor': Tensor}\n"
        "exec(compile(text, 't', 'exec'), scope)\n"
        "from dslmut import fn\n"
        "fn(scope['f'])(torch.ones(4))\n"
    )
    for setting, status in (("0", 0), ("1", 1)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"DSLMUT_CHECKS": setting},
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stderr
        assert status == 0 or "E0601" in done.stderr


def test_the_memory_of_shapes_is_bounded() -> None:
    @fn
    def f(x: Float[Tensor, "n"]) -> None: ...

    for n in range(values.CACHE + 10):
        f(torch.ones(n))
    assert len(f.__dslmut__.checks.seen) <= values.CACHE


def test_compiled_models_are_what_they_wrap() -> None:
    @fn
    def f(m: Net) -> None: ...

    f(torch.compile(Net.init(seed=0), backend="eager"))


def test_fake_and_mapped_tensors_have_no_values_to_check() -> None:
    @fn
    def f(y: Index[Tensor, "b -> 3"]) -> Tensor:
        return y * 2

    out = torch.vmap(f)(torch.zeros(2, 3, dtype=torch.int64))
    assert out.shape == (2, 3)
    assert f(torch.zeros(2, dtype=torch.int64, device="meta")).is_meta


def test_the_reason_fits_what_is_wrong() -> None:
    @fn
    def f(x: Float[Tensor, "n"], count: int) -> None: ...

    with pytest.raises(CheckError, match="why: a shape that broadcasts by accident"):
        f(torch.ones(2, 3), 1)
    with pytest.raises(CheckError, match="why: a dtype that is cast by accident"):
        f(torch.ones(2, dtype=torch.int64), 1)
    for arguments in ((torch.ones(2), 1.5), (2, 3)):
        with pytest.raises(CheckError, match="why: a value of another kind would fail"):
            f(*arguments)


REDEFINED = """
import torch
from torch import Tensor, nn

from dslmut import Mut, fn, mut


def old():
    return Net()


class Net(nn.Module):
    pass


class Larger(Net):
    pass


first, larger = old(), Larger()


class Net(nn.Module):
    pass


@fn
def use(m: Net) -> None: ...


@fn
def change(m: Mut[Net]) -> None: ...
"""


def test_an_instance_of_an_older_definition_of_its_class(load) -> None:
    module = load(REDEFINED)
    module.use(module.Net())
    older = "older definition of `Net`(.|\n)*fix: make `m` anew"
    for m in (module.first, module.larger):
        with pytest.raises(CheckError, match=older):
            module.use(m)
        with pytest.raises(CheckError, match=older):
            module.change(mut(m))
    with pytest.raises(CheckError) as caught:
        module.use(nn.Linear(2, 2))
    assert "older definition" not in str(caught.value)


M = TypeVar("M", bound=nn.Module)
N = TypeVar("N", int, str)
S = TypeVar("S", bound="Missing")  # pyright: ignore


def test_type_variables_are_checked_by_their_bounds() -> None:
    @fn
    def takes(m: Mut[M], other: M | None, n: N, s: S) -> N:
        return n

    m = nn.Linear(1, 1)
    assert takes(mut(m), nn.Linear(1, 1), 1, object()) == 1
    assert takes(mut(m), None, "a", 2) == "a"
    with pytest.raises(CheckError, match="`m` is an `int`, declared `Module`"):
        takes(mut(3), None, 1, 2)
    with pytest.raises(CheckError, match="`other`"):
        takes(mut(m), 3, 1, 2)  # pyright: ignore
    with pytest.raises(CheckError, match="`n` is a `float`, declared `int | str`"):
        takes(mut(m), None, 1.5, 2)  # pyright: ignore
