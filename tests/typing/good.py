"""Lines that every type checker has to like. This file is checked and never run."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

import dslmut as dm
from dslmut import (
    Ctx,
    Fresh,
    Gradient,
    Hyper,
    Index,
    Model,
    Mut,
    OptState,
    Update,
    defstate,
    fn,
    group,
    groups,
    mut,
    optimizer,
    optimizer_update,
    param,
    update,
    value_and_grad,
)
from dslmut.optim import (
    adamw,
    chain,
    clip_by_value,
    gradient_transform,
    muon,
    muon_groups,
    schedule_value,
    schedules,
    transformed,
    update_transform,
)
from dslmut.optim.grouping import Groups


class Mlp(Model):
    D: int = 4
    w1: Float[Tensor, "D D"] = param(nn.init.xavier_uniform_)
    b1: Float[Tensor, "D"] = param(0.0)

    def forward(self, x: Float[Tensor, "b D"]) -> Float[Tensor, "b D"]:
        return x @ self.w1 + self.b1

    @fn
    def shrink(self: Mut["Mlp"], by: float) -> None:
        self.w1 = self.w1 * by

    @staticmethod
    @fn
    def make() -> "Mlp":
        return Mlp.init(seed=0)


class Own(Model):
    w: Float[Tensor, "D"]

    def __init__(self, n: int) -> None:
        super().__init__()
        self.w = torch.ones(n)


@fn
def made(seed: int) -> Fresh[Mlp]:
    m = Mlp.init(seed=seed)
    m.w1 = 2 * m.w1
    return m


@fn
def loss_of(m: Mlp, x: Float[Tensor, "b D"], y: Index[Tensor, "b -> D"]) -> Float[Tensor, ""]:
    return nn.functional.cross_entropy(m(x), y)


@fn
def step(m: Mut[Mlp], opt: Mut[OptState[Mlp]], x: Tensor, y: Tensor) -> Tensor:
    loss, g = value_and_grad(loss_of, m, x, y)
    m.w1 = m.w1 - 0.1 * g.w1
    m.b1 -= 0.1 * g.b1
    update(mut(m), mut(opt), g)
    return loss


@fn(check=False)
def maybe(m: Mut[Mlp] | None, n: int = 1) -> int:
    return n if m is None else m.D


@fn
def batches(m: Mut[Mlp], n: int) -> Iterator[int]:
    yield n


@fn
async def later(m: Mut[Mlp]) -> int:
    return m.D


@optimizer
def mine(
    param: Tensor,
    grad: Tensor,
    ctx: Ctx,
    *,
    lr: Hyper = 0.1,
    share: float = 0.9,
    betas: tuple[Hyper, Hyper] = (0.9, 0.99),
) -> Update:
    lr = schedule_value(lr, ctx)
    beta1, beta2 = (schedule_value(b, ctx) for b in betas)
    v = defstate("v", torch.zeros_like(param))
    new = share * v + (1 - share) * grad
    step_size = lr / (1 - beta1**ctx.updates) * beta2
    return optimizer_update(param - step_size * new, v=new)


@gradient_transform
def averaged(param: Tensor, grad: Tensor, ctx: Ctx, share: Hyper = 0.9) -> Update:
    mean = defstate("mean", torch.zeros_like(param))
    new = schedule_value(share, ctx) * mean + grad
    return transformed(new, mean=new)


@update_transform
def positive(param: Tensor, grad: Tensor, new: Tensor, ctx: Ctx, *, least: float = 0.0) -> Tensor:
    return new.clamp(min=least)


def fall(ctx: Ctx) -> Tensor:
    return 0.1 * torch.cos(ctx.progress)


model = Mlp.init(seed=0)
own: Tensor = Own(3).w
given = Mlp(w1=torch.zeros(4, 4), b1=torch.zeros(4))
opt: OptState[Mlp] = mine(model, lr=0.1)
other: OptState[Mlp] = adamw(model, lr=fall, weight_decay=0.1)
scheduled: OptState[Mlp] = mine(lr=lambda ctx: 0.1).bind(model, curriculum=100)
plain: OptState[nn.Module] = adamw(model.parameters(), lr=0.1)
named = adamw(model.named_parameters())
torch_style = adamw([{"params": [model.w1], "lr": 0.1}])
several: OptState[Mlp] = groups(
    model,
    group("b1", lambda name, p: p.ndim == 1, optimizer=adamw(lr=0.1, weight_decay=0)),
    group(optimizer=mine(lr=0.1)),
)
unbound: Groups = groups(group(optimizer=adamw()))
rebound: OptState[Mlp] = unbound.bind(model, curriculum=100)
hidden: OptState[Mlp] = groups(model, *muon_groups(model, muon=muon(lr=0.02), adamw=adamw()))
shown: str = str(several.explain())
rate = adamw(lr=schedules.cosine(1e-3, steps=100), weight_decay=schedules.linear(0.1, 0.0, steps=9))
chained: OptState[Mlp] = chain(
    clip_by_value(0.5), averaged(), averaged(lambda ctx: 0.5), adamw(lr=0.1), positive(least=1.0)
).bind(model)
torch.optim.lr_scheduler.StepLR(opt, 1)
x, y = torch.ones(2, 4), torch.zeros(2, dtype=torch.int64)
loss: Tensor = step(mut(model), mut(opt), x, y)
out: Tensor = model(x)
mut(model).shrink(0.5)
maybe(None)
maybe(mut(model), n=3)
for number in batches(mut(model), 3):
    print(number + 1)
value, gradient = value_and_grad(loss_of, model, x, y)
total: Tensor = value + 1
w: Tensor = gradient.w1
norm: Tensor = Gradient.norm(gradient)
names: tuple[str, ...] = Gradient.keys(gradient)
shapes = {name: tensor.shape for name, tensor in Gradient.items(gradient)}
Gradient.into_grad(gradient, accumulate=True)
dm.set_field(model, "w1", torch.zeros(4, 4))
with dm.eval_mode(model):
    model(x)
