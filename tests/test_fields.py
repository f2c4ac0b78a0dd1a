"""Assigning fields: in place, checked before anything changes, on any module."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

import dslmut as dm
from dslmut import FieldError, Index, Model, Mut, fn, mut, set_field


class Net(nn.Module):
    w: Float[Tensor, "D H"]

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.b = nn.Parameter(torch.zeros(()))
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64))
        self.register_parameter("none", None)
        self.enc = nn.Linear(2, 2)
        self.steps = 0


class Declared(Model):
    n: int = 3
    C: int = 5
    w: Float[Tensor, "n n"]
    index: Index[Tensor, "n -> C"]
    rate: float = 0.5


@fn
def put(m: Mut[nn.Module], value: object) -> None:
    m.w = value


def test_sets_in_place_and_keeps_the_parameter() -> None:
    m = Net()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    parameter, address, saved = m.w, m.w.data_ptr(), m.state_dict()
    put(mut(m), torch.ones(2, 3))
    assert m.w is parameter
    assert m.w.data_ptr() == address
    assert opt.param_groups[0]["params"][0] is m.w
    assert torch.equal(saved["w"], torch.ones(2, 3))
    assert m.w.requires_grad
    assert m.w.is_leaf
    assert m.w.grad_fn is None


def test_no_autograd_history_even_from_differentiable_values() -> None:
    m = Net()
    x = torch.ones(2, 3, requires_grad=True)
    put(mut(m), x * 2)
    assert m.w.grad_fn is None
    m.w.sum().backward()
    assert x.grad is None


def test_buffers_scalars_and_plain_attributes() -> None:
    @fn
    def f(m: Mut[Net]) -> None:
        m.count = m.count + 1
        m.count += 1
        m.b = 2
        m.b *= 3.0
        m.steps = m.steps + 1
        m.steps += 1
        m.enc.weight = m.enc.weight * 0
        m.count[0] = 7

    m = Net()
    buffer = m.count
    f(mut(m))
    assert m.count is buffer
    assert m.count.tolist() == [7, 2]
    assert m.b.item() == 6.0
    assert m.steps == 2
    assert not m.enc.weight.any()


def test_other_objects_are_left_alone() -> None:
    class Box:
        total = torch.zeros(())

    @fn
    def f(box: Box, x: Tensor) -> None:
        box.total = x
        box.total += 1
        box.name = "a"

    box, x = Box(), torch.ones(())
    f(box, x)
    assert box.total is x, "an in-place operator on an ordinary attribute works as in Python"
    assert x.item() == 2.0


# -- values overlap ------------------------------------------------------------------------------


def square() -> nn.Module:
    m = nn.Module()
    m.a = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    m.b = nn.Parameter(torch.tensor([[5.0, 6.0], [7.0, 8.0]]))
    return m


def run(function: Callable[..., object]) -> tuple[nn.Module, object]:
    m = square()
    return m, function(mut(m))


A, B = [[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]


def test_a_value_may_overlap_the_field() -> None:
    @fn
    def transpose(m: Mut[nn.Module]) -> None:
        m.a = m.a.T

    @fn
    def shift(m: Mut[nn.Module]) -> None:
        m.a[1:] = m.a[:-1]
        m.b = m.b.flip(0)

    assert run(transpose)[0].a.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    m, _ = run(shift)
    assert m.a.tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert m.b.tolist() == [B[1], B[0]]


def test_a_field_read_is_a_value() -> None:
    @fn
    def old(m: Mut[nn.Module]) -> Tensor:
        before = m.a
        m.a = m.a * 0
        return before

    @fn
    def view(m: Mut[nn.Module]) -> Tensor:
        row = m.a.T[0]
        m.a = m.a * 0
        return row

    @fn
    def swap(m: Mut[nn.Module]) -> None:
        m.a, m.b = m.b, m.a

    @fn
    def swap_by_hand(m: Mut[nn.Module]) -> None:
        keep = m.a
        m.a = m.b
        m.b = keep

    @fn
    def through_a_call(m: Mut[nn.Module]) -> Tensor:
        before = m.a
        zero(mut(m))
        return before * 1

    @fn
    def through_a_step(m: Mut[nn.Module], opt: Mut[torch.optim.SGD]) -> Tensor:
        before = m.a
        opt.step()
        return before * 1

    @fn
    def through_in_place(m: Mut[nn.Module]) -> Tensor:
        before, other = m.a, m.b
        m.a.zero_()
        return before + other * 0

    @fn
    def on_one_path(m: Mut[nn.Module], c: bool) -> Tensor:
        before = m.a
        if c:
            m.a = m.b
        return before * 1

    @fn
    def in_a_loop(m: Mut[nn.Module]) -> list[Tensor]:
        kept = []
        last = None
        for _ in range(2):
            now = m.a
            m.a = m.a * 2
            if last is not None:
                kept.append(last * 1)
            last = now
        return kept

    @fn
    def of_an_own_model() -> Tensor:
        own = square()
        before = own.a
        own.a = own.b
        return before * 1

    assert run(old)[1].tolist() == A
    assert run(view)[1].tolist() == [1.0, 3.0]
    for f in (swap, swap_by_hand):
        m, _ = run(f)
        assert m.a.tolist() == B, f
        assert m.b.tolist() == A, f
    assert run(through_a_call)[1].tolist() == A
    m = square()
    m.a.grad = torch.ones(2, 2)
    assert through_a_step(mut(m), mut(opt := torch.optim.SGD(m.parameters(), lr=1.0))).tolist() == A
    assert opt.param_groups
    assert run(through_in_place)[1].tolist() == A
    m = square()
    assert on_one_path(mut(m), True).tolist() == A
    assert [t.tolist() for t in run(in_a_loop)[1]] == [A]
    assert of_an_own_model().tolist() == A


@fn
def zero(m: Mut[nn.Module]) -> None:
    m.a = m.a * 0


OLD_VALUES = """
    old = m.a; m.a = m.a + 1; return old.clone()
    old = m.a; m.a = m.a + 1; return old.reshape(2, 2) * 1
    old = m.a; n = old.numel(); m.a = m.a + 1; return old * n / 4
    old = m.a; shape = old.shape; m.a = m.a + 1; return old.view(shape) * 1
    old = m.a; m.a = m.a + 1; return torch.stack([old])[0]
    old = m.a; m.a = m.a + 1; return [old][0] * 1
    old = m.a.T; m.a = m.a + 1; return old.T * 1
    old = m.a; m.a = m.a + 1; i = 0; return torch.stack([old[i], old[1]])
    old = m.a; [p.add_(1) for p in m.parameters()]; return old * 1
    old = m.a; [b.add_(1) for n, b in m.named_parameters()]; return old * 1
    old = m.a; opt = torch.optim.SGD(m.parameters(), lr=1.0); opt.step(); return old * 1
    old = m.a; opt = torch.optim.SGD(m.parameters(), lr=1.0); scaler.step(opt); return old * 1
    i = torch.tensor(0); old = m.a[i]; m.a = m.a + 1; return torch.stack([old, m.a[1] - 1])
    olds = [m.a]; m.a = m.a + 1; return olds[0] * 1
    olds = {}; olds[0] = m.a; m.a = m.a + 1; olds[1] = m.a; return olds[0] * 1
    olds = dict(a=m.a); m.a = m.a + 1; return olds["a"] * 1
    olds = {"a": m.a}; m.a = m.a + 1; return olds["a"] * 1
    olds = (m.a, 3); m.a = m.a + 1; return olds[0] * 1
    olds = []; olds.append(m.a); m.a = m.a + 1; return olds[0] * 1
    old = getattr(m, "a"); m.a = m.a + 1; return old * 1
    old = m.get_parameter("a"); m.a = m.a + 1; return old * 1
    old = m.a; set_field(m, "a", m.a + 1); return old * 1
    old = m.a; nn.utils.vector_to_parameters(torch.ones(8), m.parameters()); return old * 1
    old = m.a; late = lambda: old * 1; m.a = m.a + 1; return late()
    late = lambda: m.a.data.add_(1); old = m.a; late(); return old * 1
    old = m.a if m.training else m.b; m.a = m.a + 1; return old * 1
    old = other = m.a; m.a = m.a + 1; return other * 1
    old, _ = m.a, m.b; m.a = m.a + 1; return old * 1
    (old := m.a); m.a = m.a + 1; return old * 1
    old = m.a; m.a += 1; return old * 1
    old = m.a; m.a[0] = 9.0; return old * 1
    old = m.a; m.a.data += 1; return old * 1
    old = m.a; [p.data.add_(1) for p in m.parameters()]; m.b.data -= 1; return old * 1
    old = m.a; m.load_state_dict({"a": m.a + 1, "b": m.b}); return old * 1
    old = m.a; torch.add(m.a, 1, out=m.a); return old * 1
    old = m.a; nn.init.zeros_(m.a); return old * 1
    box = types.SimpleNamespace(); box.old = m.a; m.a = m.a + 1; return box.old * 1
    m.b = make(m.b); old = m.a; m.a = m.a + 1; return old * 1
    return m.a + zero(mut(m))
    return torch.add(m.a, zero(mut(m)))
    return torch.add(input=m.a, other=zero(mut(m)))
    return m.a.add(zero(mut(m)))
    return torch.stack([m.a, zero(mut(m))])[0]
    return m.a[int(zero(mut(m))[0, 0]) :]
    olds = m.a, zero(mut(m)); return olds[0] * 1
    olds = {"a": m.a, "b": zero(mut(m))}; return olds["a"] * 1
    olds = [(m.a, zero(mut(m)))[0] for _ in range(2)]; return olds[0] * 1
    m.a = old = m.a.T; return old.T
    m.b = m.a = old = m.a; m.a = m.a + 1; return old * 1
"""


HEAD = """
import types
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from dslmut import Mut, fn, mut, set_field

scaler = torch.amp.GradScaler("cpu", enabled=False)

def make(x):
    return x * 2

@fn
def zero(m: Mut[nn.Module]) -> Tensor:
    m.a = m.a * 0
    return m.a * 1
"""


@pytest.mark.parametrize("body", [b.strip() for b in OLD_VALUES.strip().splitlines()])
def test_every_way_to_keep_an_old_value(load, body: str) -> None:
    lines = "\n".join(f"    {line}" for line in body.split("; "))
    module = load(f"{HEAD}\n\n@fn\ndef f(m: Mut[nn.Module]) -> Tensor:\n{lines}\n")
    m = square()
    for p in m.parameters():
        p.grad = torch.ones(2, 2)
    assert module.f(mut(m)).tolist() == A
    assert m.a.tolist() != A


AUGMENTED = """
    m.a += zero(mut(m))
    m.a[0] += zero(mut(m))[0]; m.a[1] = torch.tensor([3.0, 4.0])
    m.a[:, 1] -= m.a[:, 1] * 0 + zero(mut(m))[0]; m.a[:, 0] = torch.tensor([1.0, 3.0])
    m.a[int(zero(mut(m))[0, 0])] += torch.tensor([1.0, 2.0]); m.a[1] = torch.tensor([3.0, 4.0])
    olds = [m.a]; olds[0] += 1; olds[0] -= 1
    olds = {"a": m.a}; olds["a"] += 1; m.a = m.a - 1
    old = m.a; m.b = m.b * 1; old.T.add_(1); m.a = m.a - 1
"""


@pytest.mark.parametrize("body", [b.strip() for b in AUGMENTED.strip().splitlines()])
def test_what_is_augmented_is_read_before_the_value_is_computed(load, body: str) -> None:
    lines = "\n".join(f"    {line}" for line in body.split("; "))
    module = load(f"{HEAD}\n\n@fn\ndef f(m: Mut[nn.Module]) -> None:\n{lines}\n")
    m = square()
    module.f(mut(m))
    assert m.a.tolist() == A


def test_a_nested_function_sees_the_value_that_was_read() -> None:
    @fn
    def f(m: Mut[nn.Module]) -> Tensor:
        old = m.a

        def later() -> Tensor:
            return old * 1

        m.a = m.a * 0
        return later()

    assert run(f)[1].tolist() == A


def test_lists_of_parameters_stay_parameters() -> None:
    @fn
    def f(m: Mut[nn.Module]) -> None:
        params = [m.a, m.b]
        zero(mut(m))
        nn.utils.clip_grad_norm_(params, 1.0)
        opt = torch.optim.SGD(params, lr=1.0)
        opt.step()

    m = square()
    for p in m.parameters():
        p.grad = torch.full((2, 2), 10.0)
    f(mut(m))
    assert m.a.grad.norm() < 1
    assert m.a.tolist() != [[0.0, 0.0], [0.0, 0.0]]


def test_handles_stay_the_objects_themselves() -> None:
    @fn
    def f(m: Mut[nn.Module]) -> tuple[bool, Tensor | None]:
        p = m.a
        same = p is m.a
        m.a = m.a * 2
        return same and p is m.a, p.grad

    m = square()
    m.a.grad = torch.ones(2, 2)
    same, grad = f(mut(m))
    assert same
    assert grad is m.a.grad


def test_the_ordinary_step_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from dslmut.functions import runtime

    copies = []
    monkeypatch.setattr(runtime, "snapshot", lambda t: copies.append(t) or t.clone())

    @fn
    def step(m: Mut[nn.Module], g: Tensor) -> Tensor:
        a = m.a
        d = a * g
        m.a = m.a - d
        m.b -= g
        for p in m.parameters():
            p.mul_(1.0)
        return d

    @fn
    def needs_one(m: Mut[nn.Module]) -> Tensor:
        a = m.a
        m.a = m.b
        return a * 1

    m = square()
    step(mut(m), torch.ones(2, 2))
    assert copies == []
    needs_one(mut(m))
    assert len(copies) == 1


def test_in_place_methods_run_without_autograd() -> None:
    @fn
    def ema(teacher: Mut[nn.Module], m: nn.Module) -> None:
        for p, q in zip(teacher.parameters(), m.parameters()):
            p.lerp_(q, 0.5)

    @fn
    def local(m: Mut[nn.Module], x: Tensor) -> None:
        a = m.a
        a += x
        a[0] = 0.0
        m.b.data.mul_(2)
        torch.add(m.a, 1, out=m.b)

    student = square()
    for trainable in (True, False):
        teacher = copy.deepcopy(student).requires_grad_(trainable)
        with torch.no_grad():
            student.a.mul_(2)
        ema(mut(teacher), student)
        assert teacher.a.grad_fn is None
        assert teacher.a.requires_grad is trainable
    m = square()
    x = torch.ones(2, 2, requires_grad=True)
    local(mut(m), x)
    assert m.a.tolist() == [[0.0, 0.0], [4.0, 5.0]]
    assert m.b.tolist() == [[1.0, 1.0], [5.0, 6.0]]
    assert m.a.grad_fn is None


def test_fresh_tensors_keep_their_history() -> None:
    @fn
    def f(m: nn.Module, x: Tensor) -> Tensor:
        y = x * m.a
        y.mul_(2)
        y += 1
        y[0] = 0.0
        return y.sum()

    m = square()
    f(m, torch.ones(2, 2)).backward()
    assert m.a.grad.tolist() == [[0.0, 0.0], [2.0, 2.0]]


# -- what does not fit ---------------------------------------------------------------------------


def snapshot(m: nn.Module) -> dict[str, object]:
    tensors = {n: t.clone() for n, t in m.state_dict().items()}
    return {**tensors, "steps": getattr(m, "steps", None), "enc": getattr(m, "enc", None)}


BAD = [
    ("w", torch.ones(2, 4), "E0401", "dimension `H` is 3 in `w` and 4 in the value"),
    ("w", torch.ones(3, 2), "E0401", "write `value.T`"),
    ("w", torch.ones(3), "E0403", 'shape \\[2, 3\\], declared "D H", the value has shape \\[3\\]'),
    ("w", torch.ones(()), "E0403", "nothing is broadcast"),
    ("w", torch.ones(1, 3), "E0401", "dimension `D` is 2 in `w` and 1 in the value"),
    ("w", 1.0, "E0403", "torch.full_like\\(m.w, 1.0\\)"),
    ("w", torch.ones(2, 3, dtype=torch.float64), "E0502", "value.to\\(m.w.dtype\\)"),
    ("w", torch.ones(2, 3, dtype=torch.int64), "E0502", "holds float32, the value int64"),
    ("w", torch.ones(2, 3, device="meta"), "E0502", "on cpu, the value on meta"),
    ("w", torch.ones(2, 3).to_sparse(), "E0502", "layout"),
    ("w", [[1.0]], "E0502", "the value is a `list`"),
    ("w", torch.ones(2, 3).numpy(), "E0502", "torch.as_tensor"),
    ("w", None, "E0502", "the value is `None`"),
    ("b", 1j, "E0502", "is a `complex`"),
    ("b", "1", "E0502", "is a `str`"),
    ("count", torch.ones(2), "E0502", "holds int64, the value float32"),
    ("none", torch.ones(2), "E0502", "the parameter `none` is None"),
    ("v", torch.ones(2), "E0901", "`Net` declares no field `v`"),
    ("stpes", 2, "E0901", "write `steps`"),
    ("enc", nn.Linear(2, 2), "E0303", "replaces the submodule `enc`"),
    ("other", nn.Linear(2, 2), "E0901", "no field `other`"),
]


@pytest.mark.parametrize(("name", "value", "code", "text"), BAD)
def test_bad_values_change_nothing(name: str, value: object, code: str, text: str) -> None:
    m = Net()
    before = snapshot(m)
    with pytest.raises(FieldError, match=f"{code}(.|\n)*{text}") as caught:
        set_field(m, name, value)
    assert caught.value.diagnostics[0].span is not None
    assert caught.value.diagnostics[0].span.path == __file__
    assert isinstance(caught.value, ValueError)
    after = snapshot(m)
    assert all(
        torch.equal(a, b) if isinstance(a, Tensor) else a is b
        for a, b in zip(before.values(), after.values())
    )


def test_an_error_points_at_the_users_line() -> None:
    @fn
    def f(m: Mut[nn.Module]) -> None:
        m.w = torch.ones(3)

    with pytest.raises(FieldError) as caught:
        m = Net()
        f(mut(m))
    (d,) = caught.value.diagnostics
    assert d.span is not None
    with open(__file__) as file:
        assert "m.w = torch.ones(3)" in file.read().splitlines()[d.span.start.line - 1]


def test_all_targets_are_checked_before_the_first_is_set() -> None:
    @fn
    def pair(m: Mut[nn.Module]) -> None:
        m.a, m.b = torch.zeros(2, 2), torch.zeros(3)

    @fn
    def chain(m: Mut[nn.Module]) -> None:
        m.a = m.c = torch.zeros(2, 2)

    for f in (pair, chain):
        m = square()
        with pytest.raises(FieldError):
            f(mut(m))
        assert m.a.tolist() == A


TARGETS = """
    m.a, m.enc.b = torch.zeros(2, 2), torch.zeros(3)
    m.enc.a, m.b = torch.zeros(2, 2), torch.zeros(3)
    (m.a, (m.enc.a, m.b)) = (torch.zeros(2, 2), (torch.zeros(2, 2), torch.zeros(3)))
    m.a[0], m.a[1] = 0.0, "a"
    m.a, m.enc.a[0] = torch.zeros(2, 2), torch.zeros(3)
    [m.a, *m.enc.rest] = torch.zeros(2, 2), torch.zeros(3)
    m.a = m.enc.a = m.b[0] = torch.zeros(2, 2)
"""


@pytest.mark.parametrize("body", [b.strip() for b in TARGETS.strip().splitlines()])
def test_one_statement_sets_all_of_its_fields_or_none(load, body: str) -> None:
    text = "import torch\nfrom torch import nn\nfrom dslmut import Mut, fn\n\n@fn\n"
    module = load(f"{text}def f(m: Mut[nn.Module]) -> None:\n    {body}\n")
    m = square()
    m.enc = square()
    with pytest.raises(FieldError):
        module.f(mut(m))
    for part in (m, m.enc):
        assert part.a.tolist() == A
        assert part.b.tolist() == B


def test_targets_are_bound_in_the_order_of_python(load) -> None:
    @fn
    def f(m: Mut[nn.Module], n: Mut[nn.Module]) -> int:
        a = m
        a.a, a = torch.zeros(2, 2), n
        i, a.a[i] = 1, 7.0
        a.b[i], j = 8.0, 2
        return i + j

    m, n = square(), square()
    assert f(mut(m), mut(n)) == 3
    assert not m.a.any()
    assert n.a.tolist() == [[1.0, 2.0], [7.0, 7.0]]
    assert n.b.tolist() == [[5.0, 6.0], [8.0, 8.0]]


def test_items_are_not_broadcast() -> None:
    @fn
    def f(m: Mut[nn.Module], index: object, value: object) -> None:
        m.a[index] = value

    m = square()
    f(mut(m), 0, torch.zeros(2))
    f(mut(m), m.a > 3, 9.0)
    assert m.a.tolist() == [[0.0, 0.0], [3.0, 9.0]]
    for index, value, code in [
        (0, torch.zeros(1), "E0401"),
        (0, torch.zeros(()), "E0403"),
        (0, torch.zeros(2, dtype=torch.float64), "E0502"),
        (0, 1j, "E0502"),
    ]:
        with pytest.raises(FieldError, match=code):
            f(mut(m), index, value)
    assert m.a.tolist() == [[0.0, 0.0], [3.0, 9.0]]


def test_domains_of_index_buffers() -> None:
    m = Declared.init(seed=0)
    m.index = torch.tensor([0, 4, 2])
    for bad in ([0, 5, 1], [0, -1, 1]):
        with pytest.raises(FieldError, match="E0501(.|\n)*0 <= i < C = 5"):
            m.index = torch.tensor(bad)
    assert m.index.tolist() == [0, 4, 2]


def test_host_scalars_keep_their_type() -> None:
    m = Declared.init(seed=0)
    m.rate = 1
    m.n = 3
    with pytest.raises(FieldError, match="E0502(.|\n)*write `int\\(value\\)`"):
        m.n = 3.5


def test_values_are_refused() -> None:
    @fn
    def f(x: object) -> None:
        x.scale = 3

    with pytest.raises(FieldError, match="E0303(.|\n)*on a tensor"):
        f(torch.ones(3))
    opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    with pytest.raises(FieldError, match="E0303(.|\n)*on an optimizer state"):
        f(opt)


# -- computed fields -----------------------------------------------------------------------------


def test_a_parametrized_field_goes_through_its_inverse() -> None:
    class Double(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

        def right_inverse(self, x: Tensor) -> Tensor:
            return x / 2

    m = nn.Linear(2, 2)
    parametrize.register_parametrization(m, "weight", Double())
    original = m.parametrizations.weight.original
    address = original.data_ptr()
    set_field(m, "weight", torch.full((2, 2), 6.0))
    assert m.weight.tolist() == [[6.0, 6.0], [6.0, 6.0]]
    assert m.parametrizations.weight.original is original
    assert original.data_ptr() == address
    with pytest.raises(FieldError, match="E0403"):
        set_field(m, "weight", torch.zeros(2))


def test_weight_norm_and_spectral_norm() -> None:
    m = parametrizations.weight_norm(nn.Linear(2, 2))
    set_field(m, "weight", torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    torch.testing.assert_close(m.weight, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    s = parametrizations.spectral_norm(nn.Linear(2, 2))
    buffers = {n: b.clone() for n, b in s.named_buffers()}
    set_field(s, "weight", torch.eye(2))
    assert all(torch.equal(b, buffers[n]) for n, b in s.named_buffers())


def test_without_an_inverse_a_computed_field_is_refused() -> None:
    class Positive(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp()

    m = nn.Linear(2, 2)
    parametrize.register_parametrization(m, "weight", Positive())
    before = m.weight.clone()
    with pytest.raises(FieldError, match="E0303(.|\n)*no `right_inverse`"):
        set_field(m, "weight", torch.ones(2, 2))
    assert torch.equal(m.weight, before)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_old_weight_norm_is_refused() -> None:
    m = nn.utils.weight_norm(nn.Linear(2, 2))
    with pytest.raises(FieldError, match="E0303(.|\n)*`weight_g` and `weight_v`"):
        set_field(m, "weight", torch.ones(2, 2))


COMPUTED = """
    m.weight[0] = 0.0
    m.weight[0] += 1.0
    m.weight.zero_()
    m.weight.data.zero_()
    m.weight.T[0].zero_()
    w = m.weight; w.zero_()
    w = m.weight; w += 1
    nn.init.zeros_(m.weight)
    torch.add(m.weight, 1, out=m.weight)
    m.bias, m.weight[0] = torch.zeros(2), torch.zeros(2)
"""


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("known", ["nn.Module", "nn.Linear"])
@pytest.mark.parametrize("body", [b.strip() for b in COMPUTED.strip().splitlines()])
def test_what_is_computed_is_not_written_into(load, body: str, known: str) -> None:
    lines = "\n".join(f"    {line}" for line in body.split("; "))
    module = load(f"{HEAD}\n\n@fn\ndef f(m: Mut[{known}]) -> None:\n{lines}\n")
    new = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    old = nn.utils.weight_norm(nn.Linear(2, 2))
    pruned = prune.identity(nn.Linear(2, 2), "weight")
    for m in (new, old, pruned):
        before = {n: t.clone() for n, t in m.state_dict().items()}
        with pytest.raises(FieldError, match="E0303"):
            module.f(mut(m))
        assert all(torch.equal(t, before[n]) for n, t in m.state_dict().items())


# -- odd tensors ---------------------------------------------------------------------------------


def test_odd_layouts_and_dtypes() -> None:
    m = nn.Module()
    m.empty = nn.Parameter(torch.zeros(0, 3))
    m.t = nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
    m.c = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    m.h = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    set_field(m, "empty", torch.zeros(0, 3))
    set_field(m, "t", torch.arange(6.0).reshape(3, 2))
    set_field(m, "c", torch.ones(2, dtype=torch.complex64))
    set_field(m, "h", torch.ones(2, dtype=torch.bfloat16))
    assert m.t.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert m.t.stride() == (1, 3)
    assert m.c.tolist() == [1, 1]


def test_tied_parameters_stay_tied() -> None:
    m = nn.Module()
    m.a = nn.Linear(2, 2)
    m.b = nn.Linear(2, 2)
    m.b.weight = m.a.weight
    set_field(m.b, "weight", torch.ones(2, 2))
    assert m.a.weight is m.b.weight
    assert torch.equal(m.a.weight, torch.ones(2, 2))


def test_inference_mode_and_frozen_fields() -> None:
    m = square()
    m.a.requires_grad_(False)
    with torch.inference_mode():
        set_field(m, "b", torch.zeros(2, 2))
    set_field(m, "a", torch.zeros(2, 2))
    assert not m.a.any()
    assert not m.a.requires_grad
    assert not m.b.any()


def test_what_torch_cannot_write_into_is_found_before_anything_is_set() -> None:
    @fn
    def both(first: Mut[nn.Module], m: Mut[nn.Module]) -> None:
        first.weight, m.weight = torch.zeros(2, 2), torch.zeros(2, 2)

    with torch.inference_mode():
        inference = nn.Linear(2, 2)
    expanded = nn.Module()
    expanded.register_buffer("weight", torch.zeros(1, 2).expand(2, 2))
    for m, text in (
        (inference, "made in inference mode"),
        (expanded, "an expanded tensor"),
        (nn.LazyLinear(2), "has no shape yet"),
    ):
        first = nn.Linear(2, 2)
        before = first.weight.clone()
        with pytest.raises(FieldError, match=f"E0502(.|\n)*{text}"):
            both(mut(first), mut(m))
        assert torch.equal(first.weight, before)


def test_classes_of_one_name_are_told_apart(load) -> None:
    module = load(
        f"{HEAD}\n"
        "if torch:\n"
        "    class One(nn.Module):\n"
        "        def __init__(self):\n"
        "            super().__init__()\n"
        "            self.count = 0\n"
        "else:\n"
        "    class One(nn.Module):\n"
        "        def __init__(self):\n"
        "            super().__init__()\n"
        "            self.other = 0\n"
        "@fn\n"
        "def f(m: Mut[One]) -> None:\n"
        "    m.count += 1\n"
    )
    m = module.One()
    module.f(mut(m))
    assert m.count == 1


def test_a_compiled_model_stands_for_the_model() -> None:
    m = nn.Linear(2, 2)
    compiled = torch.compile(m, backend="eager")
    set_field(compiled, "weight", torch.ones(2, 2))
    assert torch.equal(m.weight, torch.ones(2, 2))


def test_eval_mode_restores_each_modules_own_mode() -> None:
    m = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2))
    m[1].eval()
    with dm.eval_mode(m):
        assert not any(x.training for x in m.modules())
    assert [x.training for x in m.modules()] == [True, True, False]
    with pytest.raises(ValueError, match="out"), dm.eval_mode(m):
        raise ValueError("out")
    assert [x.training for x in m.modules()] == [True, True, False]


def test_a_name_that_is_near_to_none_is_answered_with_all_of_them() -> None:
    class Pair(dm.Model):
        left: Float[Tensor, "2"]
        right: Float[Tensor, "2"]
        lin: nn.Module

    m = Pair(left=torch.ones(2), right=torch.ones(2), lin=nn.Linear(2, 2))
    with pytest.raises(FieldError, match="no field `zzz`; its fields are `left`, `right`, `lin`\n"):
        set_field(m, "zzz", torch.ones(2))
    with pytest.raises(FieldError, match="no field `lefft`\n(.|\n)*write `left`"):
        set_field(m, "lefft", torch.ones(2))
    with pytest.raises(FieldError, match="no field `zzz`; its fields are `weight`, `bias`, `in_"):
        set_field(m.lin, "zzz", torch.ones(2))
    with pytest.raises(
        FieldError, match="nor a dimension `zzz`; it has `left`, `right`, `lin`, `2`"
    ):
        Pair.init(0, zzz=1)
    with pytest.raises(
        dm.CheckError, match="no field `zzz`; its fields are `left`, `lin`, `right`\n"
    ):

        @fn
        def f(m: Mut[Pair]) -> None:
            m.zzz = m.left


class Watched(nn.Module):
    """A model that sees to its assignments itself."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
        self.seen: list[tuple[str, object]] = []
        self.steps = 0

    def __setattr__(self, name: str, value: object) -> None:
        if "seen" in self.__dict__:
            self.seen.append((name, value))
        super().__setattr__(name, value)


@fn
def count(m: Mut[Watched]) -> None:
    m.steps = 3
    m.steps += 1
    m.w = 2 * m.w


def test_a_models_own_setattr_is_asked_for_plain_attributes() -> None:
    m = Watched()
    m.seen.clear()
    w = m.w
    count(mut(m))
    assert m.seen == [("steps", 3), ("steps", 4)]
    assert m.steps == 4
    assert m.w is w


class Bag:
    """An ordinary object, with slots, so that assigning another attribute fails."""

    __slots__ = ("items",)


@fn
def in_order(bag: Bag, xs: list) -> None:
    bag.missing, xs[0] = 1, 2


@fn
def chained(o, xs: list) -> None:
    o = [o.f, *xs[0]] = xs


def test_targets_are_stored_in_the_order_of_the_text() -> None:
    for run in (lambda xs: in_order(Bag(), xs), lambda xs: chained(None, xs)):
        xs = [1, 2, 3]
        with pytest.raises(AttributeError):
            run(xs)
        assert xs == [1, 2, 3]
