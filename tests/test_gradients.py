"""`value_and_grad`, `grad` and the record that they give."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dslmut import CheckError, Gradient, Mut, MutationError, fn, grad, mut, value_and_grad


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Linear(3, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.norm = nn.LayerNorm(4)
        self.values = nn.Parameter(torch.ones(4))
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.enc(x)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.norm(x) * self.values * self.frozen


def loss_of(m: Deep, x: Tensor, scale: float = 1.0) -> Tensor:
    return (m(x) ** 2).mean() * scale + m.enc.weight.sum()


X = torch.linspace(-1, 1, 15).reshape(5, 3)


def reference(m: nn.Module, x: Tensor) -> dict[str, Tensor]:
    m.zero_grad()
    loss_of(m, x, scale=2.0).backward()
    found = {n: p.grad for n, p in m.named_parameters() if p.grad is not None}
    m.zero_grad()
    return found


def test_equals_backward_and_leaves_no_trace() -> None:
    m = Deep()
    expected = reference(m, X)
    loss, g = value_and_grad(loss_of, m, X, scale=2.0)
    assert torch.equal(loss, loss_of(m, X, scale=2.0))
    assert loss.grad_fn is None
    assert not loss.requires_grad
    for name, gradient in g.items():
        torch.testing.assert_close(gradient, expected.get(name, torch.zeros_like(gradient)))
        assert not gradient.requires_grad
    assert all(p.grad is None for p in m.parameters())
    assert not m.frozen.requires_grad


def test_the_record_is_shaped_like_the_model() -> None:
    m = Deep()
    _, g = value_and_grad(loss_of, m, X)
    assert isinstance(g, Gradient)
    assert torch.equal(g.enc.weight, g["enc.weight"])
    assert torch.equal(g.layers[1].bias, g["layers.1.bias"])
    assert list(g) == [n for n, p in m.named_parameters() if p.requires_grad]
    assert list(g.keys()) == list(g)
    assert len(g) == 10
    assert "enc.weight" in g
    assert "frozen" not in g
    assert list(g.enc) == ["weight", "bias"]
    assert [t.shape for t in g.layers[0].values()] == [(4, 4), (4,)]
    assert not g.unused.any()
    assert repr(g.enc) == "Gradient(weight: [4, 3], bias: [4])"
    with pytest.raises(AttributeError, match="no 'enc.wieght'; it has weight, bias"):
        _ = g.enc.wieght


def test_a_field_goes_before_a_method_of_the_record() -> None:
    m = Deep()
    _, g = value_and_grad(loss_of, m, X)
    assert g.norm.weight.shape == (4,)
    assert g.values.shape == (4,)
    flat = torch.cat([t.flatten() for _, t in g.items()])
    torch.testing.assert_close(Gradient.norm(g), flat.norm())
    torch.testing.assert_close(
        g.enc.norm(), torch.cat([t.flatten() for t in g.enc.values()]).norm()
    )
    torch.testing.assert_close(
        g.enc.norm(1.0), torch.cat([t.flatten() for t in g.enc.values()]).abs().sum()
    )


def test_into_grad_is_what_backward_leaves() -> None:
    m = Deep()
    expected = reference(m, X)
    _, g = value_and_grad(loss_of, m, X, scale=2.0)
    g.into_grad()
    assert m.unused.grad is None
    for name, p in m.named_parameters():
        if name in expected:
            torch.testing.assert_close(p.grad, expected[name])
    g.into_grad(accumulate=True)
    torch.testing.assert_close(m.enc.weight.grad, 2 * expected["enc.weight"])
    torch.testing.assert_close(g.enc.weight, expected["enc.weight"])


def test_tied_parameters_are_in_it_once() -> None:
    m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    m[1].weight = m[0].weight
    _, g = value_and_grad(lambda m, x: m(x).sum(), m, X)
    assert list(g) == ["0.weight", "0.bias", "1.bias"]
    m(X).sum().backward()
    torch.testing.assert_close(g["0.weight"], m[0].weight.grad)


def test_a_tied_parameter_is_found_under_each_of_its_names() -> None:
    m = Deep()
    m.first, m.again = m.values, m.layers
    m.layers[1].weight = m.layers[0].weight
    _, g = value_and_grad(loss_of, m, X)
    assert "first" not in list(g)
    assert "first" in g
    assert g.first is g.values
    assert g.again[1].weight is g.layers[0].weight
    assert g["layers.1.weight"] is g["layers.0.weight"]
    assert list(g.layers[1]) == ["weight", "bias"]
    assert list(g.layers) == ["0.weight", "0.bias", "1.bias"]
    assert g.layers["1.weight"] is g.layers[0].weight
    assert len(g.layers) == 3
    torch.testing.assert_close(g.again.norm(), g.layers.norm())


def test_under_no_grad_and_inference_mode() -> None:
    m = Deep()
    _, expected = value_and_grad(loss_of, m, X)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            loss, g = value_and_grad(loss_of, m, X)
            assert not torch.is_grad_enabled()
        torch.testing.assert_close(g.enc.weight, expected.enc.weight)
        assert not loss.requires_grad


def test_grad_alone() -> None:
    m = Deep()
    assert torch.equal(grad(loss_of, m, X).enc.weight, value_and_grad(loss_of, m, X)[1].enc.weight)


def test_batch_norm_through_a_marked_model() -> None:
    @fn
    def bn_loss(m: Mut[nn.Sequential], x: Tensor) -> Tensor:
        return (m(x) ** 2).mean()

    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    _, g = value_and_grad(bn_loss, mut(m), X)
    assert m[1].num_batches_tracked == 1
    (m(X) ** 2).mean().backward()
    torch.testing.assert_close(g["0.weight"], m[0].weight.grad)
    for function in (value_and_grad, grad):
        with pytest.raises(CheckError, match="write `function\\(bn_loss, mut\\(m\\), X\\)`"):
            function(bn_loss, m, X)


def test_markers_of_further_arguments_are_told_apart() -> None:
    @fn
    def distance(m: nn.Linear, other: Mut[nn.Linear], x: Tensor) -> Tensor:
        return (m(x) - other(x)).square().mean()

    m, n = nn.Linear(3, 2), nn.Linear(3, 2)
    value_and_grad(distance, m, mut(n), X)
    with pytest.raises(CheckError, match="write `value_and_grad\\(distance, m, mut\\(n\\), X\\)`"):
        value_and_grad(distance, m, n, X)
    with pytest.raises(
        CheckError, match="write `value_and_grad\\(distance, m, mut\\(n\\), x=X\\)`"
    ):
        value_and_grad(distance, mut(m), mut(n), x=X)


def test_a_marker_goes_through_to_plain_functions_as_the_object() -> None:
    seen = []

    def plain_loss(m: nn.Module, x: Tensor) -> Tensor:
        seen.append(type(m))
        return m(x).sum()

    @fn
    def step(m: Mut[nn.Linear], x: Tensor) -> Tensor:
        loss, _ = value_and_grad(plain_loss, mut(m), x)
        return loss

    m = nn.Linear(3, 2)
    step(mut(m), X)
    assert seen == [nn.Linear]


def test_names_follow_a_model_that_changes() -> None:
    m = nn.Sequential(nn.Linear(3, 3))
    _, g = value_and_grad(lambda m, x: m(x).sum(), m, X)
    assert list(g) == ["0.weight", "0.bias"]
    m.append(nn.Linear(3, 1))
    _, h = value_and_grad(lambda m, x: m(x).sum(), m, X)
    assert list(h) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    m[0].weight.requires_grad_(False)
    _, k = value_and_grad(lambda m, x: m(x).sum(), m, X)
    assert list(k) == ["0.bias", "1.weight", "1.bias"]
    assert list(g) == ["0.weight", "0.bias"]


@pytest.mark.parametrize(
    ("function", "model", "text"),
    [
        (
            lambda m, x: m(x),
            nn.Linear(3, 2),
            "shape \\[5, 2\\](.|\n)*`.mean\\(\\)` or `.sum\\(\\)`",
        ),
        (
            lambda m, x: 3.0,
            nn.Linear(3, 2),
            "the loss is a `float`(.|\n)*without `.item\\(\\)`",
        ),
        (
            lambda m, x: (m(x).sum(), m(x)),
            nn.Linear(3, 2),
            'the loss is a `tuple`(.|\n)*`metric\\("name", value\\)`',
        ),
        (lambda m, x: {"loss": m(x).sum()}, nn.Linear(3, 2), "a `dict`(.|\n)*`metric"),
        (lambda m, x: None, nn.Linear(3, 2), "the loss is `None`"),
        (
            torch.ones(()),
            nn.Linear(3, 2),
            "the first argument is the loss function, and this is a `Tensor`"
            "(.|\n)*write the function itself, not its result",
        ),
        (0.5, nn.Linear(3, 2), "and this is a `float`"),
        (lambda m, x: m(x).argmax(), nn.Linear(3, 2), "the loss holds torch.int64"),
        (lambda m, x: x.sum(), nn.Linear(3, 2), "does not depend on any parameter"),
        (lambda m, x: m(x).sum().detach(), nn.Linear(3, 2), "`.detach\\(\\)`"),
        (lambda m, x: x.sum(), nn.ReLU(), "`ReLU` has no parameters"),
        (
            lambda m, x: m(x).sum(),
            nn.Linear(3, 2).requires_grad_(False),
            "2 parameters, all of them frozen",
        ),
        (nn.Linear(3, 2), lambda m, x: x, "Were the arguments swapped"),
        (lambda m, x: x.sum(), torch.ones(3), "this is a `Tensor`"),
    ],
)
def test_what_cannot_be_differentiated(function, model, text: str) -> None:
    with pytest.raises(MutationError, match=f"E0701(.|\n)*{text}"):
        value_and_grad(function, model, X)


def test_gradients_may_be_changed_without_effect_on_later_ones() -> None:
    m = nn.Module()
    m.b = nn.Parameter(torch.zeros(()))
    for _ in range(2):
        _, g = value_and_grad(lambda m: m.b * 1.0, m)
        assert g.b.item() == 1.0
        g.b.mul_(5)
        _, h = value_and_grad(lambda m: m.b + 0, m)
        assert h.b.item() == 1.0
        h.b.zero_()


def test_dtypes_and_autocast() -> None:
    m = nn.Linear(3, 2).to(torch.float64)
    _, g = value_and_grad(lambda m, x: m(x).sum(), m, X.double())
    assert g.weight.dtype is torch.float64
    m = nn.Linear(3, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, g = value_and_grad(lambda m, x: F.mse_loss(m(x).float(), torch.ones(5, 2)), m, X)
    assert g.weight.dtype is torch.float32


class Cubes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))


def cubes(m: Cubes) -> Tensor:
    return (m.w**3).sum()


def test_a_gradient_inside_of_a_loss_is_differentiated_too() -> None:
    m = Cubes()
    w = m.w.detach()

    def penalised(m: Cubes) -> Tensor:
        loss, g = value_and_grad(cubes, m)
        return loss + 0.5 * g.norm() ** 2

    loss, g = value_and_grad(penalised, m)
    torch.testing.assert_close(loss, (w**3).sum() + 0.5 * (9 * w**4).sum())
    torch.testing.assert_close(g.w, 3 * w**2 + 18 * w**3)
    assert not loss.requires_grad
    assert not g.w.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(grad(penalised, m).w, g.w)

    def third(m: Cubes) -> Tensor:
        return grad(lambda m: grad(cubes, m).w.sum(), m).w.sum()

    torch.testing.assert_close(grad(third, m).w, torch.full((3,), 6.0))


def test_a_constant_gradient_and_later_calls() -> None:
    m = Cubes()
    w = m.w.detach()

    def constant(m: Cubes) -> Tensor:
        with torch.no_grad():
            g = grad(cubes, m)
        assert not g.w.requires_grad
        return (m.w * g.w).sum()

    torch.testing.assert_close(grad(constant, m).w, 3 * w**2)
    with pytest.raises(ZeroDivisionError):
        value_and_grad(lambda m: 1 / 0, m)
    assert not grad(cubes, m).w.requires_grad


@pytest.mark.parametrize("compile", [False, True])
def test_an_inner_step_updates_by_a_gradient_with_history(compile: bool) -> None:
    from dslmut import update
    from dslmut.optim import sgd

    inner, outer = Cubes(), Cubes()
    opt = sgd(lr=0.1).bind(inner, compile=compile)

    def loss(m: Cubes) -> Tensor:
        update(mut(inner), mut(opt), grad(cubes, inner))
        return (m.w * inner.w.detach()).sum()

    w = inner.w.detach().clone()
    g = grad(loss, outer)
    torch.testing.assert_close(inner.w.detach(), w - 0.3 * w**2)
    torch.testing.assert_close(g.w, inner.w.detach())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Linear", "a `Linear`"),
        ("Embedding", "an `Embedding`"),
        ("int", "an `int`"),
        ("UNet", "a `UNet`"),
        ("Unit", "a `Unit`"),
        ("MLP", "an `MLP`"),
        ("Mlp", "a `Mlp`"),
        ("GRU", "a `GRU`"),
        ("_Inner", "an `_Inner`"),
        ("NoneType", "`None`"),
    ],
)
def test_articles(name: str, said: str) -> None:
    from dslmut.diagnostics.wording import an

    assert an(name) == said


def test_update_says_which_argument_is_of_another_kind() -> None:
    from dslmut import update
    from dslmut.optim import adamw, sgd

    m = nn.Linear(3, 2)
    state = sgd(lr=0.1).bind(m, compile=False)
    loss, g = value_and_grad(lambda m, x: m(x).sum(), m, X)
    before = m.weight.detach().clone()
    stock, configured = torch.optim.SGD(m.parameters()), adamw(lr=0.1)
    twin = copy.deepcopy(m)
    of_twin = grad(lambda m, x: m(x).sum(), twin, X)
    for arguments, message in [
        ((mut(state), mut(m), g), "in another order(.|\n)*`update\\(mut\\(m\\), mut\\(opt\\), g"),
        ((mut(m), g, mut(state)), "in another order"),
        ((g, m, state), "in another order"),
        ((mut(m), mut(stock), g), "`OptState`, and this is an `SGD`(.|\n)*`g.into_grad\\(\\)`"),
        ((mut(m), mut(configured), g), "`adamw\\(lr=0.1, (.|\n)*not bound(.|\n)*`opt = adamw\\(m"),
        ((mut(m), mut(m), g), "`OptState`, and this is a `Linear`(.|\n)*bind an optimizer"),
        ((mut(m), mut(state), (loss, g)), "a `tuple`(.|\n)*`loss, g = value_and_grad"),
        ((mut(m), mut(state), None), "record, and this is `None`(.|\n)*give what"),
        ((mut(X), mut(state), g), "the first argument is the model, and this is a `Tensor`"),
        ((mut(twin), mut(state), of_twin), "`m, opt = copy.deepcopy\\(\\(m, opt\\)\\)`"),
    ]:
        with pytest.raises(MutationError, match=f"E0702(.|\n)*{message}"):
            update(*arguments)
    with pytest.raises(
        CheckError, match="E1101(.|\n)*write `update\\(mut\\(m\\), mut\\(state\\), g"
    ):
        update(mut(m), mut(state), mut(g))
    assert torch.equal(m.weight, before)
    twin, state = copy.deepcopy((m, state))
    update(mut(twin), mut(state), grad(lambda m, x: m(x).sum(), twin, X))
    assert not torch.equal(twin.weight, m.weight)
