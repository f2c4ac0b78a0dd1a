"""Numbers of tensors are read together, and come back each in its place."""

from __future__ import annotations

import torch
from torch import Tensor

from dslmut.optim.reports import read


def test_each_tensor_has_its_numbers_whatever_its_shape_and_dtype() -> None:
    loss = torch.tensor(2.5, requires_grad=True)
    values: list[Tensor] = [
        torch.tensor([1.0, 2.0]),
        loss * 2,
        torch.tensor([[3.0], [4.0]]),
        torch.tensor(7),
        torch.tensor([5.0, 6.0]),
        torch.tensor(True),
        torch.tensor([0.25], dtype=torch.bfloat16),
        torch.tensor([]),
        torch.tensor([[8.0, 9.0]]).T,
    ]
    found = read(values)
    expected = [[1.0, 2.0], [5.0], [3.0, 4.0], [7.0], [5.0, 6.0], [1.0], [0.25], [], [8.0, 9.0]]
    assert found == expected
    assert all(type(number) is float for row in found for number in row)
    assert read([]) == []


def test_all_of_a_dtype_are_waited_for_once() -> None:
    waits = 0

    class Watched(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            nonlocal waits
            waits += func is Tensor.tolist
            return super().__torch_function__(func, types, args, kwargs or {})

    values = [torch.ones(n).as_subclass(Watched) for n in (1, 2, 1, 3, 2)]
    assert read(values) == [[1.0] * n for n in (1, 2, 1, 3, 2)]
    assert waits == 1
