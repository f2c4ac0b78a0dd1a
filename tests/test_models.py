"""`Model`: declared fields, initial values, and ordinary modules beside it."""

from __future__ import annotations

import copy
import pickle
from typing import ClassVar

import pytest
import torch
from jaxtyping import BFloat16, Bool, Complex64, Float, Float64, Int32
from torch import Tensor, nn

import dslmut as dm
from dslmut import FieldError, Index, Model, buffer, param


class Mlp(Model):
    D: int = 4
    H: int = 8
    C: int = 3
    w1: Float[Tensor, "D H"]
    b1: Float[Tensor, "H"]
    w2: Float[Tensor, "H C"] = param(nn.init.xavier_uniform_)
    b2: Float[Tensor, "C"] = param(0.5)

    def forward(self, x: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return torch.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2


class Kinds(Model):
    n: int = 3
    name: str = "kinds"
    frozen: Float[Tensor, "n"] = param(1.0, requires_grad=False)
    mean: Float[Tensor, "n"] = buffer()
    scratch: Float[Tensor, "n"] = buffer(2.0, persistent=False)
    count: Int32[Tensor, ""]
    mask: Bool[Tensor, "n"]
    index: Index[Tensor, "n -> 7"]
    low: BFloat16[Tensor, "n"]
    high: Float64[Tensor, "2 n"]
    spectrum: Complex64[Tensor, "n"]
    plain: nn.Identity
    inner: Mlp


def same(a: nn.Module, b: nn.Module) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return list(x) == list(y) and all(torch.equal(x[n], y[n]) for n in x)


def test_fields_are_parameters_buffers_and_scalars() -> None:
    m = Kinds.init(seed=0)
    trainable = [n for n, p in m.named_parameters() if p.requires_grad]
    assert trainable[:4] == ["low", "high", "spectrum", "inner.w1"]
    assert not m.frozen.requires_grad
    assert isinstance(m.frozen, nn.Parameter)
    assert dict(m.named_buffers()).keys() == {"mean", "scratch", "count", "mask", "index"}
    assert "scratch" not in m.state_dict()
    assert m.low.dtype is torch.bfloat16
    assert m.high.dtype is torch.float64
    assert m.high.shape == (2, 3)
    assert m.spectrum.dtype is torch.complex64
    assert m.count.dtype is torch.int32
    assert m.mask.dtype is torch.bool
    assert (m.n, m.name) == (3, "kinds")
    assert m.scratch.tolist() == [2.0, 2.0, 2.0]
    assert isinstance(m.inner, Mlp)
    assert "inner" in dict(m.named_children())


def test_init_is_reproducible_and_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    a, b = Mlp.init(seed=0), Mlp.init(seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert same(a, b)
    assert not same(a, Mlp.init(seed=1))
    assert a.w1 is not b.w1
    torch.manual_seed(123)
    assert same(a, Mlp.init(seed=0))


def test_a_further_field_changes_no_other() -> None:
    class Wider(Mlp):
        extra: Float[Tensor, "H"] = param(nn.init.normal_)

    a, b = Mlp.init(seed=0), Wider.init(seed=0)
    assert all(torch.equal(a.state_dict()[n], b.state_dict()[n]) for n in a.state_dict())
    assert b.extra.shape == (8,)


def test_initial_values() -> None:
    m = Mlp.init(seed=0, D=100, H=200)
    assert m.w1.abs().max() <= 0.1
    assert m.w1.std() > 0.05
    assert not m.b1.any()
    assert (m.b2 == 0.5).all()
    limit = (6 / 203) ** 0.5
    assert limit * 0.9 < m.w2.abs().max() <= limit


def test_an_initialiser_without_a_generator_is_seeded_too() -> None:
    class Odd(Model):
        w: Float[Tensor, "9"] = param(lambda t: t.copy_(torch.rand(9)))

    state = torch.get_rng_state()
    assert same(Odd.init(seed=0), Odd.init(seed=0))
    assert not same(Odd.init(seed=0), Odd.init(seed=1))
    assert torch.equal(torch.get_rng_state(), state)


def test_sizes() -> None:
    assert Mlp.init(seed=0, H=5).w1.shape == (4, 5)
    assert Mlp.init(seed=0, H=5).H == 5
    given = Mlp.init(seed=0, w1=torch.zeros(2, 6))
    assert (given.D, given.H) == (2, 6)
    assert given.w2.shape == (6, 3)

    class Free(Model):
        w: Float[Tensor, "a b"]

    assert Free.init(seed=0, a=2, b=3).w.shape == (2, 3)


def test_dtype_and_device() -> None:
    m = Mlp.init(seed=0, dtype=torch.float64)
    assert m.w1.dtype is torch.float64
    assert Mlp.init(seed=0, device="meta").w1.is_meta
    with torch.device("meta"):
        assert Mlp.init(seed=0).w1.device.type in ("cpu", "meta")


def test_the_constructor_takes_values() -> None:
    w1 = torch.ones(4, 8)
    m = Mlp(w1=w1, b1=torch.zeros(8), w2=torch.zeros(8, 3), b2=torch.full((3,), 0.5))
    w1.zero_()
    assert (m.w1 == 1).all(), "the model owns its fields"
    assert (m.b2 == 0.5).all()
    assert m(torch.ones(2, 4)).shape == (2, 3)


@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        (lambda: Mlp(), "E0902", "`w1` has no value(.|\n)*Mlp.init\\(seed=0\\)"),
        (
            lambda: Mlp.init(seed=0, w3=1),
            "E0902",
            "neither a field nor a dimension `w3`(.|\n)*write `w1`|`w3`",
        ),
        (lambda: Mlp.init(seed=0, w1=torch.zeros(3)), "E0403", 'declared "D H"'),
        (lambda: Mlp.init(seed=0, w1=torch.zeros(2, 2), w2=torch.zeros(3, 3)), "E0401", "`H` is 2"),
        (lambda: Mlp.init(seed=0, H="a"), "E0502", "declared `int`"),
        (lambda: Mlp.init(seed=0, w1=[1]), "E0502", "the value is a `list`"),
        (lambda: Kinds.init(seed=0, index=torch.tensor([0, 7, 1])), "E0501", "0 <= i < 7"),
        (lambda: Kinds.init(seed=0, inner=nn.Identity()), "E0502", "declared `Mlp`"),
        (lambda: Mlp.init(0, 3), "E0902", "the seed alone by position"),
    ],
)
def test_what_cannot_be_made(make, code: str, text: str) -> None:
    with pytest.raises(FieldError, match=f"{code}(.|\n)*({text})"):
        make()


def test_missing_sizes_and_submodules() -> None:
    class Free(Model):
        w: Float[Tensor, "a b"]

    class Outer(Model):
        layer: nn.Linear

    class Host(Model):
        rate: float

    with pytest.raises(FieldError, match="E0902(.|\n)*nothing gives a size to the dimension `b`"):
        Free.init(seed=0, a=1)
    with pytest.raises(FieldError, match="E0902(.|\n)*in_features, out_features"):
        Outer.init(seed=0)
    assert Outer.init(seed=0, layer=nn.Linear(1, 1)).layer.in_features == 1
    with pytest.raises(FieldError, match="E0902(.|\n)*`rate` has no value"):
        Host.init(seed=0)
    assert Host.init(seed=0, rate=0.5).rate == 0.5


def test_assigning_a_declared_field_writes_in_place() -> None:
    m = Mlp.init(seed=0)
    parameter = m.w1
    m.w1 = torch.zeros(4, 8)
    assert m.w1 is parameter
    assert not parameter.any()
    assert parameter.is_leaf
    with pytest.raises(FieldError, match="E0401"):
        m.w1 = torch.zeros(4, 9)
    m.note = "other attributes are those of any module"
    assert m.note


def test_an_init_of_ones_own() -> None:
    class Custom(Model):
        w: Float[Tensor, "n"]

        def __init__(self, n: int, scale: float = 1.0) -> None:
            nn.Module.__init__(self)
            self.w = nn.Parameter(torch.randn(n) * scale)
            self.layer = nn.Linear(n, n)

    state = torch.get_rng_state()
    a, b = Custom.init(0, 5, scale=2.0), Custom.init(0, 5, scale=2.0)
    assert torch.equal(torch.get_rng_state(), state)
    assert same(a, b)
    before = a.w
    a.w = torch.zeros(5)
    assert a.w is before


class Layered(Model):
    D: int
    w: Float[Tensor, "D D"]
    scale: Float[Tensor, "D"] = param(requires_grad=False)
    mean: Float[Tensor, "D"] = buffer(persistent=False)
    target: Index[Tensor, "3 -> D"]
    lin: nn.Linear

    def __init__(self, n: int) -> None:
        super().__init__()
        self.D = n
        self.w = torch.randn(n, n)
        self.scale = torch.ones(n)
        self.mean = torch.zeros(n)
        self.target = torch.tensor([0, 1, n - 1])
        self.lin = nn.Linear(n, n)
        self.extra = torch.ones(n)


def test_fields_that_an_init_of_ones_own_assigns_are_what_the_class_declares() -> None:
    m = Layered(4)
    assert [n for n, p in m.named_parameters() if p.requires_grad] == [
        "w", "lin.weight", "lin.bias",
    ]  # fmt: skip
    assert isinstance(m.scale, nn.Parameter)
    assert set(dict(m.named_buffers())) == {"mean", "target"}
    assert list(m.state_dict()) == ["w", "scale", "target", "lin.weight", "lin.bias"]
    assert type(m.extra) is Tensor
    before = m.w
    m.w = torch.zeros(4, 4)
    assert m.w is before
    assert same(Layered.init(0, 5), Layered.init(0, 5))
    with pytest.raises(FieldError, match="E0401"):
        m.mean = torch.zeros(3)


def test_an_init_of_ones_own_is_checked_as_well() -> None:
    class Crooked(Layered):
        def __init__(self, n: int) -> None:
            Model.__init__(self)
            self.D = n
            self.w = torch.ones(n, n + 1)

    class Flat(Layered):
        def __init__(self, n: int) -> None:
            Model.__init__(self)
            self.w = torch.ones(n)

    class Early(Layered):
        def __init__(self, n: int) -> None:
            self.w = torch.ones(n, n)

    with pytest.raises(FieldError, match="E0401(.|\n)*`D` is 3 in this model and 4"):
        Crooked(3)
    with pytest.raises(FieldError, match='E0403(.|\n)*declared "D D"'):
        Flat(3)
    with pytest.raises(AttributeError, match="before Module"):
        Early(3)


def test_an_init_of_ones_own_may_give_the_fields_to_the_generated_one() -> None:
    class Wrapping(Model):
        w: Float[Tensor, "n"]

        def __init__(self, n: int) -> None:
            super().__init__(w=torch.full((n,), 2.0))

    assert Wrapping(3).w.tolist() == [2.0, 2.0, 2.0]


def declare(**names: object) -> type[Model]:
    """Make a class with a body of these names."""
    return type("Made", (Model,), {"__module__": __name__, **names})


HIDDEN = [
    ({"w": Float[Tensor, "D H"]}, '`w` is assigned a type(.|\n)*`w: Float\\[Tensor, "D H"\\]`'),
    ({"i": Index[Tensor, "b -> C"]}, 'write a colon: `i: Index\\[Tensor, "b -> C"\\]`'),
    ({"lin": nn.Linear(2, 2)}, "`lin` is a module in the body(.|\n)*`lin: Linear`"),
    ({"lin": nn.Linear(2, 2), "__annotations__": {"lin": nn.Linear}}, "Made.init\\(..., lin=Lin"),
    ({"w": torch.ones(3)}, "`w` is a tensor in the body(.|\n)*= param\\(...\\)"),
    ({"w": nn.Parameter(torch.ones(3))}, "all its instances would share"),
    ({"__annotations__": {"parts": list[nn.Linear]}}, "write `parts: nn.ModuleList`"),
    ({"__annotations__": {"parts": tuple[nn.Module, ...]}}, "write `parts: nn.ModuleList`"),
    ({"__annotations__": {"parts": list["Made"]}}, "write `parts: nn.ModuleList`"),
    ({"__annotations__": {"parts": list[nn.Linear] | None}}, "write `parts: nn.ModuleList`"),
    ({"__annotations__": {"parts": dict[str, list[Mlp]]}}, "write `parts: nn.ModuleDict`"),
]


@pytest.mark.parametrize(("body", "text"), HIDDEN)
def test_what_torch_would_not_see_is_refused(body: dict[str, object], text: str) -> None:
    with pytest.raises(FieldError, match=f"E0902(.|\n)*{text}"):
        declare(**body)


def test_names_for_types_and_lists_of_numbers_may_stand_in_a_body() -> None:
    matrix = Float[Tensor, "D D"]
    plain = declare(Matrix=matrix, D=3, __annotations__={"w": matrix, "D": int})
    assert plain.init(0).w.shape == (3, 3)

    class Local(Model):
        Vector = Float[Tensor, "D"]
        D: int = 2
        sizes: list[int] = [1, 2]
        shared: ClassVar[nn.Module] = nn.ReLU()
        v: Vector

    assert Local.init(0).v.shape == (2,)
    assert Local.init(0).sizes == [1, 2]


@pytest.mark.parametrize("value", [[nn.Linear(2, 2)], (nn.Linear(2, 2),), {"a": nn.ReLU()}])
def test_modules_in_a_container_that_is_given(value: object) -> None:
    loose = declare(__annotations__={"parts": object})
    with pytest.raises(FieldError, match="E0902(.|\n)*nn.Module(List|Dict)\\("):
        loose.init(0, parts=value)
    assert loose.init(0, parts=[1]).parts == [1]


def test_behaves_as_a_module() -> None:
    m = Mlp.init(seed=0)
    again = copy.deepcopy(m)
    assert same(m, again)
    assert same(m, pickle.loads(pickle.dumps(m)))
    other = Mlp.init(seed=1)
    other.load_state_dict(m.state_dict())
    assert same(m, other)
    assert m.to(torch.float64).w1.dtype is torch.float64
    assert "w1: [4, 8]" in repr(m)
    x = torch.ones(2, 4, dtype=torch.float64)
    assert torch.func.functional_call(m, {"w1": m.w1 * 0}, (x,)).shape == (2, 3)


def test_classes_inside_functions_with_postponed_annotations() -> None:
    size = 3

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(size))

    class Whole(Model):
        part: Part
        v: Float[Tensor, "2"]

    m = Whole.init(seed=0)
    assert m.part.w.shape == (3,)
    assert m.v.shape == (2,)


def test_a_field_with_the_name_of_a_method() -> None:
    with pytest.raises(FieldError, match="E0902(.|\n)*called `half`"):

        class Bad(Model):
            half: Float[Tensor, "3"]


def test_an_annotation_that_cannot_be_evaluated() -> None:
    class Broken(Model):
        w: Nowhere[Tensor, "n"]

    with pytest.raises(FieldError, match="E0902(.|\n)*cannot be evaluated"):
        Broken.init(seed=0)


def test_torch_modules_declare_nothing_of_ours() -> None:
    from dslmut.functions.declarations import declarations

    assert declarations(nn.Linear) == {}
    assert list(declarations(Mlp)) == ["D", "H", "C", "w1", "b1", "w2", "b2"]
    assert dm.Model.__doc__
