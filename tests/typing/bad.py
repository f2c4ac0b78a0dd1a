"""Lines that every type checker has to report: those marked. This file is checked and never run."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dslmut import (
    Ctx,
    Gradient,
    Hyper,
    Model,
    Mut,
    OptState,
    Update,
    fn,
    group,
    groups,
    mut,
    optimizer,
    optimizer_update,
    update,
    value_and_grad,
)
from dslmut.optim import (
    adamw,
    centralised,
    chain,
    clip_by_norm,
    gradient_transform,
    schedules,
    update_transform,
)


class Mlp(Model):
    w1: Float[Tensor, "D D"]

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w1


class Other(Model):
    v: Float[Tensor, "D"]


@fn
def loss_of(m: Mlp, x: Tensor) -> Tensor:
    return m(x).sum()


@fn
def step(m: Mut[Mlp], opt: Mut[OptState[Mlp]], x: Tensor) -> Tensor:
    return x


@optimizer
def mine(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: Hyper = 0.1, share: float = 0.9) -> Update:
    return optimizer_update(param - share * grad)


model, other = Mlp.init(seed=0), Other.init(seed=0)
opt, other_opt = mine(model, lr=0.1), mine(other, lr=0.1)
x = torch.ones(2, 4)

step(mut(other), mut(opt), x)  # bad: a model of another class
step(mut(model), mut(other_opt), x)  # bad: the state of another model
step(mut(model), mut(opt), 3)  # bad: no tensor
step(mut(model), mut(opt))  # bad: an argument is missing
mut()  # bad: nothing is marked
mut(model, other)  # bad: two things are marked
model.w2  # bad: no such field
model.w2 = x  # bad: no such field
model.w1 = "a"  # bad: no tensor
model("a")  # bad: forward takes a tensor
Mlp(w2=x)  # bad: no such field
Mlp()  # bad: a field is missing
mine(model, lrr=0.1)  # bad: no such hyperparameter
mine(model, lr="fast")  # bad: neither number nor schedule
mine(lr=lambda: 0.1)  # bad: a schedule takes ctx
mine(share=lambda ctx: 0.1)  # bad: a number that is not scheduled
adamw(model, weight_decy=0.1)  # bad: no such hyperparameter
adamw(3)  # bad: neither a model nor parameters
mine(lr=0.1).bind(model, curiculum=3)  # bad: no such option
group("*.bias", optimizer=adamw)  # bad: not configured
group("*.bias", adamw())  # bad: the rule is given by name
groups(model, adamw())  # bad: a rule is no group
groups(other, group(optimizer=adamw())).bind(other)  # bad: bound already
adamw(lr=schedules.cosine("much"))  # bad: no number
chain(centralised, adamw())  # bad: not configured
chain(centralised(), adamw(model))  # bad: bound already
clip_by_norm()  # bad: it has no default
clip_by_norm("much")  # bad: neither number nor schedule
clip_by_norm(1.0, 2.0)  # bad: one hyperparameter
value_and_grad(loss_of, other, x)  # bad: the loss is of another model
value_and_grad(loss_of, model)  # bad: an argument is missing
value_and_grad(loss_of, model, 3)  # bad: no tensor
loss, g = value_and_grad(loss_of, model, x)
loss.nothing  # bad: no such attribute
update(mut(model), mut(other_opt), g)  # bad: the state of another model
update(mut(model), mut(opt), x)  # bad: no gradient
loss_of(g, x)  # bad: a gradient is no model
Gradient.norm(x)  # bad: no gradient
fn(3)  # bad: no function


@optimizer  # bad-or-next: a rule takes ctx
def without_ctx(param: Tensor, grad: Tensor, *, lr: Hyper = 0.1) -> Update:
    return optimizer_update(param)


@optimizer  # bad-or-next: a rule returns an update
def without_update(param: Tensor, grad: Tensor, ctx: Ctx) -> Tensor:
    return param


@gradient_transform  # bad-or-next: a transform takes ctx
def no_ctx(param: Tensor, grad: Tensor) -> Tensor:
    return grad


@update_transform  # bad-or-next: the new parameter is missing
def no_new(param: Tensor, grad: Tensor, ctx: Ctx) -> Tensor:
    return param


nn.Linear(3, 2)
