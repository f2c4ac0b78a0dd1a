"""What cannot be compiled is said, once and where it is known first, and gives the same numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Ctx,
    OptimizerError,
    OptState,
    Update,
    defstate,
    group,
    groups,
    optimizer,
    optimizer_update,
)
from dslmut.optim import compiling, momentum_sgd, sgd
from tests.strategies import Pair

Body = Callable[[Tensor, Tensor], Tensor]


def rule_of(body: Body) -> Any:
    """Return a rule with a state, which keeps the sum of what the body gives."""

    @optimizer
    def odd(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        total = defstate("total", torch.zeros_like(param))
        new = body(param, grad)
        return optimizer_update(new, total=total + new)

    return odd


def values() -> list[dict[str, Any]]:
    return [{"params": [torch.randn(4, 4), torch.randn(4, 4)]}]


def trained(opt: OptState[Any], steps: int = 2) -> None:
    """Step, with gradients of one."""
    for _ in range(steps):
        for g in opt.param_groups:
            for p in g["params"]:
                p.grad = torch.ones_like(p)
        opt.step()


def compared(rule: Any, bound: Any = 0.0) -> None:
    """Step three times, and compare with the uncompiled updates."""
    pair = Pair.of(rule, values(), True)
    for _ in range(3):
        pair.step([torch.randn(4, 4), torch.randn(4, 4)])
        assert {n: d for _, n, d in pair.deviations() if d > bound} == {}


def line(body: Body) -> str:
    return f"{Path(__file__).name}:{body.__code__.co_firstlineno}"


# -- known when the rule is bound ----------------------------------------------------------------

SPARSE: dict[str, Body] = {
    "to_sparse": lambda p, g: p - g.to_sparse().to_dense(),
    "to_sparse_csr": lambda p, g: p - g.to_sparse_csr() @ g,
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("name", SPARSE)
def test_what_the_compiler_does_not_take_is_said_when_the_rule_is_bound(name: str) -> None:
    body = SPARSE[name]
    with pytest.warns(RuntimeWarning, match="`odd` runs uncompiled") as told:
        compared(rule_of(body)())
    (message,) = [str(w.message) for w in told if "dslmut" in str(w.message)]
    assert f"`{name}` ({line(body)}) gives a tensor of layout" in message
    assert "compile=False" in message


def test_a_state_in_a_dtype_without_code_is_said_when_the_rule_is_bound() -> None:
    @optimizer
    def scaled(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        scale = defstate("scale", torch.zeros(param.shape, dtype=torch.float8_e8m0fnu))
        new = scale.float() + grad.abs()
        return optimizer_update(param - new, scale=new.to(torch.float8_e8m0fnu))

    p = nn.Parameter(torch.zeros(3))
    with pytest.warns(RuntimeWarning, match="`scale` holds torch.float8_e8m0fnu") as w:
        opt = scaled().bind([p])
    assert w[0].filename == __file__
    p.grad = torch.full((3,), 4.0)
    opt.step()
    assert opt.state[p]["scale"].float().tolist() == [4.0] * 3
    assert p.tolist() == [-4.0] * 3


def test_the_other_rules_of_an_optimizer_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = groups(
        group("0.*", optimizer=rule_of(SPARSE["to_sparse"])()), group(optimizer=sgd(lr=0.3))
    )
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 7, bias=False))
    with pytest.warns(RuntimeWarning, match="`odd` runs uncompiled") as told:
        opt = rule.bind(model)
    assert len(told) == 1
    compiled = successes(monkeypatch)
    model(torch.randn(5, 3)).sum().backward()
    opt.step()
    assert len(compiled) == 1
    further = {"params": [("x", nn.Parameter(torch.ones(3, 3)))]}
    with pytest.warns(RuntimeWarning, match="`odd` runs uncompiled"):
        opt.add_param_group(
            {**further, "optimizer": rule_of(lambda p, g: g.to_sparse().to_dense())()}
        )


# -- found by the compiler -----------------------------------------------------------------------


def test_what_only_the_compiler_finds_is_said_at_the_first_step_and_the_rest_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, compiled = torch.float8_e4m3fn, successes(monkeypatch)

    @optimizer
    def chosen(param: Tensor, grad: Tensor, ctx: Ctx) -> Update:
        return optimizer_update(torch.where(grad > 0, grad.to(kind), param.to(kind)).float())

    first = nn.Parameter(torch.ones(3))
    second = nn.Parameter(torch.ones(11, dtype=torch.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt = groups(group("a", optimizer=chosen()), group(optimizer=sgd(lr=0.7))).bind(
            _named(a=first, b=second)
        )
    with pytest.warns(RuntimeWarning, match="`chosen` runs uncompiled(.|\n)*Float8") as told:
        trained(opt)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert len(compiled) == 2, "a sum, which shows that the compiler works, and the other rule"
    assert first.tolist() == [1.0] * 3
    torch.testing.assert_close(second.detach(), torch.full((11,), -0.4).double())


def successes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets each graph that has been compiled."""
    original, compiled = compiling._quick, list[Any]()

    def counted(module: Any, *rest: Any) -> Any:
        kernel = original(module, *rest)
        compiled.append(module)
        return kernel

    monkeypatch.setattr(compiling, "_quick", counted)
    return compiled


def _named(**parameters: nn.Parameter) -> nn.Module:
    model = nn.Module()
    for name, parameter in parameters.items():
        model.register_parameter(name, parameter)
    return model


def test_a_compiler_that_can_do_nothing_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    def broken(*arguments: object) -> None:
        tried.append(1)
        raise RuntimeError("no Python.h")

    monkeypatch.setattr(compiling, "_quick", broken)
    made = {f"p{n}": nn.Parameter(torch.ones(n + 1)) for n in range(6)}
    rule = groups(group("p[0-2]", optimizer=momentum_sgd(lr=0.1)), group(optimizer=sgd(lr=0.1)))
    opt = rule.bind(_named(**made))
    with pytest.warns(RuntimeWarning) as told:
        trained(opt)
    assert len(told) == 1
    assert "`momentum_sgd, sgd` runs uncompiled" in str(told[0].message)
    assert "no Python.h" in str(told[0].message)
    assert len(tried) == 2, "the first kernel, and whether anything can be compiled"
    assert made["p5"].tolist() == pytest.approx([0.8] * 6)


@pytest.mark.parametrize("known", [True, False])
def test_where_warnings_are_errors_nothing_has_changed(known: bool) -> None:
    kind = torch.float8_e4m3fn
    late: Body = lambda p, g: torch.where(g > 0, g.to(kind), p.to(kind)).float()  # noqa: E731
    rule = rule_of(SPARSE["to_sparse"] if known else late)()
    p, q = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(5))
    made = [{"params": [q], "optimizer": sgd(lr=1.0)}, {"params": [p]}]

    def stepped() -> None:
        opt = rule.bind(made)
        found.append(opt)
        p.grad, q.grad = torch.ones(2, 2), torch.ones(5)
        opt.step()

    found: list[OptState[Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="runs uncompiled"):
            stepped()
    assert p.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert q.tolist() == [1.0] * 5
    assert [opt.param_groups[0]["step"] for opt in found] == ([] if known else [0])


# -- what is compiled is what was written --------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float8_e5m2, torch.int8])
def test_a_cast_that_the_body_writes_is_kept(kind: torch.dtype) -> None:
    compared(rule_of(lambda p, g: p - g.to(kind).to(p.dtype))())


@torch.library.custom_op("tests::turned", mutates_args=())
def turned(x: Tensor) -> Tensor:
    """Double, in another layout than it says."""
    return (2 * x).t().contiguous().t()


@turned.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("tests::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    """Double."""
    return 2 * x


@doubled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_operations_of_ones_own_are_right_or_refused() -> None:
    compared(rule_of(lambda p, g: p - doubled(g))())
    p = nn.Parameter(torch.randn(4, 4))
    before = p.detach().clone()
    opt = rule_of(lambda p, g: p - turned(g))().bind([p])
    p.grad = torch.randn(4, 4)
    with pytest.raises(AssertionError, match=r"(?s)stride.*tests\.turned"):
        opt.step()
    assert torch.equal(p, before)


COMPLEX: dict[str, Body] = {
    "power": lambda p, g: p - (torch.complex(p, g) ** 0.5).abs(),
    "spectrum": lambda p, g: p - torch.fft.ifft2(torch.fft.fft2(g)).real,
    "trace": lambda p, g: p - torch.trace(g),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_the_compilers_warnings_about_itself_are_nobodys_business(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compared(rule_of(COMPLEX[name])(), bound=2.0)


# -- transforms of functions ---------------------------------------------------------------------

TRANSFORMED: dict[str, Body] = {
    "vmap": lambda p, g: p - torch.vmap(lambda row: row / torch.linalg.vector_norm(row))(g),
    "grad": lambda p, g: p - torch.func.grad(lambda x: (x**3 * g).sum())(p),
    "jvp": lambda p, g: p - torch.func.jvp(lambda x: x * x, (p,), (g,))[1],
    "vjp": lambda p, g: p - torch.func.vjp(lambda x: x * x, p)[1](g)[0],
    "nested": lambda p, g: p - torch.vmap(torch.func.grad(lambda x: (x**3).sum()))(g),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_of_functions_have_a_place_in_bodies(name: str) -> None:
    body = TRANSFORMED[name]
    p, g = nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)
    expected = body(p.detach().clone(), g)
    opt = rule_of(body)().bind([p], compile=False)
    p.grad = g
    opt.step()
    torch.testing.assert_close(p.detach(), expected)


OUTSIDE = torch.ones(4)

REFUSED: list[tuple[str, Body]] = [
    ("E-OPT-021", lambda p, g: torch.vmap(lambda row: row if row.sum() > 0 else -row)(g)),
    ("E-OPT-021", lambda p, g: torch.func.grad(lambda x: x.sum() if x.sum() > 0 else x[0, 0])(g)),
    ("E-OPT-022", lambda p, g: torch.vmap(lambda row: row * row.sum().item())(g)),
    ("E-OPT-020", lambda p, g: torch.vmap(lambda row: row.add_(1))(g)),
    ("E-OPT-025", lambda p, g: torch.vmap(lambda row: row + OUTSIDE)(g)),
    ("E-OPT-025", lambda p, g: torch.func.grad(lambda x: (x * OUTSIDE).sum())(g)),
]


@pytest.mark.parametrize(("code", "body"), REFUSED)
def test_what_a_body_must_not_do_it_must_not_do_in_them_either(code: str, body: Body) -> None:
    with pytest.raises(OptimizerError) as caught:
        rule_of(body)().bind([nn.Parameter(torch.randn(4, 4))], compile=False)
    (d,) = caught.value.diagnostics
    assert d.code == code
    assert d.span is not None
    assert d.span.start.line == body.__code__.co_firstlineno


@torch.library.custom_op("tests::untold", mutates_args=())
def untold(x: Tensor) -> Tensor:
    """Double, and say nothing about it."""
    return 2 * x


LIBRARY = torch.library.Library("tests_untold", "DEF")
LIBRARY.define("bare(Tensor x) -> Tensor")
LIBRARY.impl("bare", lambda x: 2 * x, "CPU")

UNTRACEABLE: dict[str, tuple[str, Body]] = {
    "cond": ("`cond` runs", lambda p, g: torch.cond(g.sum() > 0, lambda x: -x, lambda x: 2 * x, (p,))),
    "no fake": ("`tests::untold` does not say", lambda p, g: p - untold(g)),
    "bare": ("`tests_untold::bare` does not say", lambda p, g: p - torch.ops.tests_untold.bare(g)),
    "quantized": ("packed", lambda p, g: torch.quantize_per_tensor(g, 0.1, 0, torch.qint8).dequantize()),
    "quantized part": ("packed", lambda p, g: torch.quantize_per_tensor(g, 0.1, 0, torch.quint8)[:1].dequantize()),
    "channels": ("packed", lambda p, g: torch.quantize_per_channel(g, torch.ones(4), torch.zeros(4), 0, torch.qint8).dequantize()),
    "mkldnn": ("packed", lambda p, g: g.to_mkldnn().to_dense()),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTRACEABLE)
def test_what_no_trace_can_follow_is_refused_where_it_is_written(name: str) -> None:
    message, body = UNTRACEABLE[name]
    with pytest.raises(OptimizerError) as caught:
        rule_of(body)().bind([nn.Parameter(torch.randn(4, 4))], compile=False)
    (d,) = caught.value.diagnostics
    assert d.code == "E-OPT-029"
    assert message in d.message
    assert d.fix
    assert d.span is not None
    assert d.span.path == __file__
    assert d.span.start.line == body.__code__.co_firstlineno
