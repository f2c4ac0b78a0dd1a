"""Codes about optimizers: their definition, configuration, states and results."""

from __future__ import annotations

from dslmut.diagnostics.codes.base import Code
from dslmut.diagnostics.exceptions import MissingError, OptimizerError


class NotADefinition(Code):
    """The function is no optimizer definition

    `@optimizer` takes a function of one parameter, its gradient and `ctx`. Its hyperparameters
    are keyword-only, so that they are named wherever they are given.

    ## Example

    ```python
    from torch import Tensor

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def descent(param: Tensor, grad: Tensor, lr: float = 0.1) -> Update:  # error: E-OPT-001
        return optimizer_update(param - lr * grad)
    ```

    ## Instead

    ```python
    from torch import Tensor

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def descent(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        return optimizer_update(param - lr * grad)
    ```
    """

    code = "E-OPT-001"
    error = OptimizerError
    why = "the definition is called with a parameter, its gradient and `ctx`, and with hyperparameters by name"


class BadHyperparameter(Code):
    """A hyperparameter is unknown, missing, of a kind that it cannot have, or out of its range

    Numbers of any kind are taken for floats, unless the rule declares an `int`; a schedule needs
    the annotation `Hyper`, and `schedule_value` in the body. The same holds for what is written
    into `opt.param_groups` later, or loaded.

    Numbers are finite, `lr`, `weight_decay`, `eps` and `momentum` at least 0, and `betas` at least 0
    and below 1. `Annotated[Hyper, Range(above=0, most=1)]` says another range.

    ## Example

    ```python
    from torch import nn

    from dslmut.optim import adamw

    opt = adamw(nn.Linear(3, 2), weight_decy=0.1)  # error: E-OPT-002
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut.optim import adamw

    opt = adamw(nn.Linear(3, 2), weight_decay=0.1)
    ```

    The keys that torch's schedulers and checkpoints add to a group (`initial_lr`, `max_lr`,
    `foreach` and so on) are known.
    """

    code = "E-OPT-002"
    error = OptimizerError
    why = "a rule computes with the hyperparameters that it declares, each of the kind that it declares"


class BadState(Code):
    """A state is not declared as it has to be

    `defstate(name, init)` declares a state of the parameter, and its start is a *zero constant*:
    `zeros`, `zeros_like`, `new_zeros`, `full` with 0, and casts, reshapes, transposes and
    broadcasts of those. So a state that a checkpoint lacks is still well defined, and nothing
    about it depends on a first gradient. What counts is how the value was made: `param * 0` is
    refused. Each state is declared once, in an optimizer's body, and `state.0`, `state.1` … are
    the names of the unnamed ones.

    ## Example

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, defstate, optimizer, optimizer_update


    @optimizer
    def averaged(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        mean = defstate("mean", grad * 0)  # error: E-OPT-003
        mean = 0.9 * mean + 0.1 * grad
        return optimizer_update(param - lr * mean, mean=mean)


    opt = averaged(nn.Linear(3, 2))
    ```

    ## Instead

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, defstate, optimizer, optimizer_update


    @optimizer
    def averaged(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        mean = defstate("mean", torch.zeros_like(param))
        mean = 0.9 * mean + 0.1 * grad
        return optimizer_update(param - lr * mean, mean=mean)


    opt = averaged(nn.Linear(3, 2))
    ```

    A state that should start elsewhere holds the difference from there. One that starts at 1 is
    `1 + defstate(...)`, and returned less 1. A slow copy of the parameter, as in Lookahead, starts
    at the parameter, and is kept as what it is ahead by:

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, defstate, optimizer, optimizer_update


    @optimizer
    def lookahead(
        param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1, share: float = 0.5, every: int = 5
    ) -> Update:
        slow = param + defstate("ahead", torch.zeros_like(param))
        new = param - lr * grad
        if ctx.updates % every == 0:
            slow = slow + share * (new - slow)
            new = slow
        return optimizer_update(new, ahead=slow - new)


    opt = lookahead(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-003"
    error = OptimizerError
    why = "every state starts as a zero constant, under a name of its own"


class BadResult(Code):
    """The body does not end in an `optimizer_update` that fits

    The result gives the new parameter, and each declared state exactly once, by name or as a pair
    with the declared value. New values have the shape of what they replace.

    ## Example

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, defstate, optimizer, optimizer_update


    @optimizer
    def momentum(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        velocity = defstate("velocity", torch.zeros_like(param))
        v = 0.9 * velocity + grad
        return optimizer_update(param - lr * v)  # error: E-OPT-004


    opt = momentum(nn.Linear(3, 2))
    ```

    ## Instead

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, defstate, optimizer, optimizer_update


    @optimizer
    def momentum(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        velocity = defstate("velocity", torch.zeros_like(param))
        v = 0.9 * velocity + grad
        return optimizer_update(param - lr * v, velocity=v)


    opt = momentum(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-004"
    error = OptimizerError
    why = "a state that is not returned would be forgotten, and a result of another shape cannot replace what is there"


class BadBinding(Code):
    """The optimizer is not bound to parameters that it can update

    An optimizer is bound to a model, to its parameters or named parameters, or to groups of them
    as in `torch.optim`. Each parameter is a dense leaf, stands in one group only, and has a name of
    its own if it has one, since states are saved by name. A complex one needs a rule that treats
    each element by itself. A step refuses under this code a gradient that does not fit its parameter,
    such as a sparse one; and what only a bound optimizer has (`step`, `state_dict`, …) is not there
    before.

    ## Example

    ```python
    import torch

    from dslmut.optim import sgd

    w = torch.zeros(3, requires_grad=True)
    opt = sgd([w * 2], lr=0.1)  # error: E-OPT-005
    ```

    ## Instead

    ```python
    import torch

    from dslmut.optim import sgd

    w = torch.zeros(3, requires_grad=True)
    opt = sgd([w], lr=0.1)
    ```
    """

    code = "E-OPT-005"
    error = OptimizerError
    why = "an optimizer updates the parameters that a model computes with"


class BadContext(Code):
    """`ctx` does not have this, or does not give it here

    `ctx` has `step`, `updates`, `name`, `index` and `group`; with a `Curriculum` also
    `total_steps`, `progress`, `stages`, `stage`, `stage_step` and `stage_progress`; and what
    `bind(model, ctx={...})` declares. In a body it also has `grad_norm`, `rand_like(t)` and
    `randn_like(t)`, which are tensors; a schedule gives a number, and has none.

    The error is an `AttributeError` too, so that `getattr(ctx, "loss", 0.0)` has a default where a
    run declares no such key.

    ## Example

    ```python
    from torch import nn

    from dslmut.optim import sgd

    opt = sgd(nn.Linear(3, 2), lr=lambda ctx: 0.1 * (1 - ctx.progress))  # error: E-OPT-006
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut import Curriculum
    from dslmut.optim import sgd

    rule = sgd(lr=lambda ctx: 0.1 * (1 - ctx.progress))
    opt = rule.bind(nn.Linear(3, 2), curriculum=Curriculum(steps=1000))
    ```
    """

    code = "E-OPT-006"
    error = MissingError
    why = "bodies and schedules read what the run counts, and what it was told"


class BadOption(Code):
    """An option of a run does not exist, or does not fit

    `bind` takes what belongs to the run and not to the rule: `curriculum` (a number of steps, a
    `Curriculum` or its stages), `diagnostics_every` (a number of steps), `ctx` (names with their
    first numbers), `skip_nonfinite` and `compile` (true or false), `seed` (a whole number) and
    `rounding` (`"nearest"` or `"stochastic"`). Those by which torch's optimizers choose how to
    compute (`foreach`, `fused`, …) do not exist: updates are compiled. A sink for diagnostics or
    metrics that cannot be called with a step and its numbers is reported under this code too.

    ## Example

    ```python
    import torch
    from torch import nn

    from dslmut.optim import adamw

    model = nn.Linear(3, 2, dtype=torch.bfloat16)
    opt = adamw(lr=1e-3).bind(model, rounding="stochastically")  # error: E-OPT-011
    ```

    ## Instead

    ```python
    import torch
    from torch import nn

    from dslmut.optim import adamw

    model = nn.Linear(3, 2, dtype=torch.bfloat16)
    opt = adamw(lr=1e-3).bind(model, rounding="stochastic")
    ```

    A hyperparameter belongs to the rule: `adamw(lr=1e-3).bind(model)`.
    """

    code = "E-OPT-011"
    error = OptimizerError
    why = "what a run is told is checked, so that none of it is silently ignored"


class ForeignCheckpoint(Code):
    """The saved state does not fit the optimizer that loads it

    States are loaded by name: an unknown parameter, state or hyperparameter, a state of another
    shape or kind of number, and a file of another rule is an error that names it, before anything
    is loaded. What a file lacks keeps its present value, with a warning. A rule and the chains around
    it read each other's files. A file of `torch.optim` is loaded into the rule that corresponds to
    its class, `torch.optim.AdamW` into `adamw`.

    ## Example

    ```python
    from torch import nn

    from dslmut.optim import adamw, momentum_sgd

    model = nn.Linear(3, 2)
    saved = momentum_sgd(model).state_dict()
    adamw(model).load_state_dict(saved)  # error: E-OPT-007
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut.optim import momentum_sgd

    model = nn.Linear(3, 2)
    saved = momentum_sgd(model).state_dict()
    momentum_sgd(model).load_state_dict(saved)
    ```
    """

    code = "E-OPT-007"
    error = OptimizerError
    why = "a state of another rule or another parameter would be continued as if it were this one's"


class ScheduledElsewhere(Code):
    """A hyperparameter is driven from two sides

    A schedule that was given as the hyperparameter decides its number at each step. An LR
    scheduler, or a hand, that writes another number into the group would be overruled silently.
    Another schedule may be written into the group; it takes the place of the one before.

    ## Example

    ```python
    import torch
    from torch import nn

    from dslmut.optim import sgd

    model = nn.Linear(3, 2)
    opt = sgd(model, lr=lambda ctx: 0.1 / ctx.updates)
    opt.param_groups[0]["lr"] = 0.5
    model(torch.ones(1, 3)).sum().backward()
    opt.step()  # error: E-OPT-008
    ```

    ## Instead

    ```python
    import torch
    from torch import nn

    from dslmut.optim import sgd

    model = nn.Linear(3, 2)
    opt = sgd(model, lr=0.1)
    opt.param_groups[0]["lr"] = 0.5
    model(torch.ones(1, 3)).sum().backward()
    opt.step()
    ```
    """

    code = "E-OPT-008"
    error = OptimizerError
    why = "one of the two numbers would be lost"


class BadChain(Code):
    """The parts do not make a chain

    A chain has one rule. Gradient transforms stand before it, in the order in which they change
    the gradient; update transforms behind it. All of them are configured, which a call does, and
    the chain is bound as a whole.

    ## Example

    ```python
    from torch import nn

    from dslmut.optim import adamw, cautious, centralised, chain

    opt = chain(cautious(), adamw(lr=1e-3), centralised()).bind(nn.Linear(3, 2))  # error: E-OPT-010
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut.optim import adamw, cautious, centralised, chain

    opt = chain(centralised(), adamw(lr=1e-3), cautious()).bind(nn.Linear(3, 2))
    ```

    `ctx.grad_norm` is the norm of the gradients as they came to the step. A part that reads it,
    such as `clip_by_global_norm`, stands before every other gradient transform.
    """

    code = "E-OPT-010"
    error = OptimizerError
    why = "each part gets what the one before it gave: first gradients, then the update that one rule makes of them"


class BadSchedule(Code):
    """A ready schedule gets arguments that do not fit, or does not fit the run

    Numbers are finite, and steps are whole numbers from 1. A part of a schedule, such as the
    warm-up, is no longer than the whole. A schedule that is given no number of steps goes over
    those of the curriculum, so that there has to be one.

    ## Example

    ```python
    from torch import nn

    from dslmut.optim import adamw
    from dslmut.optim.schedules import cosine, warm_up

    rule = adamw(lr=warm_up(cosine(1e-3), steps=500))
    opt = rule.bind(nn.Linear(3, 2), curriculum=100)  # error: E-OPT-009
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut.optim import adamw
    from dslmut.optim.schedules import cosine, warm_up

    rule = adamw(lr=warm_up(cosine(1e-3), steps=0.05))
    opt = rule.bind(nn.Linear(3, 2), curriculum=100)
    ```

    A number below 1 is a share of all steps where a schedule takes one.
    """

    code = "E-OPT-009"
    error = OptimizerError
    why = "a schedule that fits no run would be noticed only by what it does to the training"
