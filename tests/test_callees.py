"""Values that come out of callees: a later change does not reach them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from dslmut import Mut, fn, mut
from dslmut.functions import runtime


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc = Encoder()
        self.w = nn.Parameter(torch.ones(3))

    @property
    def first(self) -> Tensor:
        return self.enc.w


def enc(m: Net) -> Encoder:
    return m.enc


def weight(m: Net) -> Tensor:
    return m.enc.w


@fn
def double(m: Mut[Net]) -> None:
    m.w = m.w * 2
    m.enc.w = m.enc.w * 2


@fn
def of_a_part(m: Mut[Net]) -> Tensor:
    old = enc(m).w
    m.enc.w = m.enc.w * 3
    return old


@fn
def of_an_inner_function(m: Mut[Net]) -> Tensor:
    def get() -> Tensor:
        return m.w

    old = get()
    m.w = m.w * 3
    return old


@fn
def of_a_field(m: Mut[Net]) -> Tensor:
    old = weight(m)
    double(mut(m))
    return old


@fn
def of_a_property(m: Mut[Net]) -> Tensor:
    old = m.first
    double(mut(m))
    return old


@fn
def of_a_kept_method(m: Mut[Net]) -> Tensor:
    clone = m.w.clone
    double(mut(m))
    return clone()


@fn
def changed_by_an_inner_function(m: Mut[Net]) -> Tensor:
    old = m.w

    def change() -> None:
        m.w = m.w * 2

    change()
    return old


@fn
def changed_through_an_argument(m: Mut[Net]) -> Tensor:
    old = m.w

    def change(q: Net) -> None:
        q.w = q.w * 2

    change(m)
    return old


@fn
def changed_by_a_generator(m: Mut[Net]) -> Tensor:
    def changes() -> Iterator[Tensor]:
        for _ in range(3):
            m.w = m.w * 2
            yield m.w

    items = changes()
    old = m.w
    next(items)
    return old


@fn
def yielded_before_the_next_change(m: Mut[Net]) -> Tensor:
    def changes() -> Iterator[Tensor]:
        yield m.w
        m.w = m.w * 2
        yield m.w

    first, _ = changes()
    return first


@fn
def changed_in_a_loop_over_a_generator(m: Mut[Net]) -> Tensor:
    def changes() -> Iterator[int]:
        for n in range(3):
            m.w = m.w * 2
            yield n

    old = m.w
    for _ in changes():
        last = old
    return last


@fn
def changed_by_what_is_mapped(m: Mut[Net]) -> Tensor:
    old = m.w
    list(map(lambda _: double(mut(m)), [1, 2]))  # noqa: C417
    return old


@fn
def changed_by_a_partial(m: Mut[Net]) -> Tensor:
    change = functools.partial(double, mut(m))
    old = m.w
    change()
    return old


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
        self.head.weight = self.embedding.weight


@fn
def tied(m: Mut[Tied], e: Tensor) -> Tensor:
    old = m.head.weight
    m.embedding.weight = e
    return old


def test_tied_parameters_are_one_field() -> None:
    m = Tied()
    before = m.head.weight.clone()
    assert torch.equal(tied(mut(m), torch.ones(3, 2)), before)
    assert torch.equal(m.head.weight, torch.ones(3, 2))


@fn
def statistics(m: Mut[nn.BatchNorm1d], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    before, weight = m.running_mean, m.weight
    m(x)
    return before, weight, m.running_mean


def test_a_forward_pass_moves_statistics() -> None:
    m = nn.BatchNorm1d(3)
    before, weight, after = statistics(mut(m), torch.ones(4, 3))
    assert torch.equal(before, torch.zeros(3))
    assert weight is m.weight  # which is no copy
    assert after is m.running_mean
    assert not torch.equal(after, before)


def both(m: Net) -> tuple[Tensor, Tensor]:
    return m.enc.w, m.w


def listed(m):
    return [p.detach() for p in (m.enc.w, m.w)]


def named(m):
    return {"a": m.enc.w}


class Holder:
    def __init__(self, m: Net) -> None:
        self.m = m

    def w(self):
        return self.m.enc.w


@fn
def of_a_tuple(m: Mut[Net]) -> Tensor:
    a, _ = both(m)
    double(mut(m))
    return a


@fn
def of_an_item_of_a_tuple(m: Mut[Net]) -> Tensor:
    a = both(m)[1]
    double(mut(m))
    return a


@fn
def of_a_list(m: Mut[Net]) -> Tensor:
    ws = listed(m)
    double(mut(m))
    return ws[1]


@fn
def of_a_dictionary(m: Mut[Net]) -> Tensor:
    ws = named(m)
    double(mut(m))
    return ws["a"]


@fn
def of_an_object(m: Mut[Net]) -> Tensor:
    w = Holder(m).w()
    double(mut(m))
    return w


class Stock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.seen = nn.Parameter(torch.ones(3)), [torch.ones(3)]


def seen(m):
    return m.seen


@fn
def remembers(m: Mut[Stock], e: Tensor) -> None:
    kept = seen(m)
    m.w = e
    kept.append(e)


def test_a_list_that_belongs_to_the_model_is_no_copy() -> None:
    m = Stock()
    remembers(mut(m), torch.zeros(3))
    assert len(m.seen) == 2


PROGRAMS = [
    f for name, f in list(globals().items()) if name.startswith(("of_", "changed", "yielded"))
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_later_change_does_not_reach_a_value(program: Callable[[Net], Tensor]) -> None:
    m = Net()
    assert torch.equal(program(mut(m)), torch.ones(3))
    assert not torch.equal(m.w + m.enc.w, 2 * torch.ones(3))  # something did change


@fn
def others_change(m: Mut[Net], n: Mut[Net]) -> Tensor:
    def change(q: Net) -> None:
        q.w = q.w * 2

    old = m.w
    change(n)
    return old


@fn
def nothing_changes(m: Mut[Net], x: Tensor) -> Tensor:
    def loss(q: Net) -> Tensor:
        return (q.w * x).sum()

    old = m.w
    total = loss(m) + sum(map(lambda v: (old * v).sum(), [x, 2 * x]))  # noqa: C417
    return total * old.sum()


def test_nothing_is_copied_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Tensor] = []
    monkeypatch.setattr(runtime, "snapshot", lambda v: copied.append(v) or v)
    others_change(mut(Net()), mut(Net()))
    nothing_changes(mut(Net()), torch.ones(3))
    assert copied == []
