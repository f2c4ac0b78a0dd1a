"""What random bodies use."""

from jaxtyping import Float
from torch import Tensor

from dslmut import Model, Mut, fn


class Layer(Model):
    w: Float[Tensor, "2 2"]


class Net(Model):
    w: Float[Tensor, "2 2"]
    enc: Layer

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


@fn
def bump(m: Mut[Net], by: float) -> Tensor:
    m.w = m.w * by
    return m.w.sum()


@fn
def loss(m: Net, x: Tensor) -> Tensor:
    return m(x).sum()


def plain(x):
    return x


class Point:
    zero = 0

    def __init__(self, f=0):
        self.f = self.g = f


noted = []


def log(value=None):
    noted.append(shown(value))
    return value


def shown(value, depth=4):
    """Show a value without what is different in each run."""
    if isinstance(value, (list, tuple, set, dict)) and depth:
        items = value.items() if isinstance(value, dict) else list(value)[:20]
        return [shown(v, depth - 1) for v in items]
    if value is None or isinstance(value, (int, float, str, bytes, complex)):
        return repr(value)[:1000]
    return type(value).__name__


def same(function):
    return function


def takes(*args, k=0, **more):
    return log((args, k, more))


async def later(value):
    return value


async def slowly(values):
    for value in values:
        yield value


def drive(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
