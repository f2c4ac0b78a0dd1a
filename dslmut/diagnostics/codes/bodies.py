"""What an optimizer's body must not do, and what it cannot be."""

from __future__ import annotations

from dslmut.diagnostics.codes.base import Code
from dslmut.diagnostics.exceptions import OptimizerError


class InPlaceInBody(Code):
    """An optimizer's body changes a tensor in place that it was given

    The body is a pure function: it computes the new parameter and the new states, and
    `optimizer_update` stores them.

    ## Example

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def descent(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        param.sub_(lr * grad)  # error: E-OPT-020
        return optimizer_update(param)


    opt = descent(nn.Linear(3, 2))
    ```

    ## Instead

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def descent(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        return optimizer_update(param - lr * grad)


    opt = descent(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-020"
    error = OptimizerError
    why = "the body is traced once and then compiled; it computes new values and stores nothing itself"


class BranchOnTensor(Code):
    """An optimizer's body branches on the value of a tensor

    The body is traced once, before there are values. A choice by shape, dtype or name is a plain
    `if`; one by value is `torch.where`.

    ## Example

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def clipped(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        if grad.norm() > 1:  # error: E-OPT-021
            grad = grad / grad.norm()
        return optimizer_update(param - lr * grad)


    opt = clipped(nn.Linear(3, 2))
    ```

    ## Instead

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def clipped(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        norm = grad.norm()
        grad = torch.where(norm > 1, grad / norm, grad)
        return optimizer_update(param - lr * grad)


    opt = clipped(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-021"
    error = OptimizerError
    why = "the body is traced once, before there are values"


class NumberFromTensor(Code):
    """An optimizer's body takes a number out of the program

    `.item()`, `float(t)`, `t.tolist()` and `print(t)` of a tensor, or `float(lr)` and
    `math.sqrt(lr)` of a hyperparameter, need a number that does not exist while the body is
    traced; and so do shapes that depend on values (`p[p > 0]`), and what only the real parameter
    has (`p.grad`, `p.requires_grad`). Tensors and hyperparameters can be computed with as they are.

    ## Example

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def scaled(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        size = grad.abs().max().item()  # error: E-OPT-022
        return optimizer_update(param - lr * grad / size)


    opt = scaled(nn.Linear(3, 2))
    ```

    ## Instead

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def scaled(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        size = grad.abs().max()
        return optimizer_update(param - lr * grad / size)


    opt = scaled(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-022"
    error = OptimizerError
    why = "the body is traced once, before there are values"


class ArrayFromTensor(Code):
    """An optimizer's body hands a tensor to NumPy

    `t.numpy()`, `np.sqrt(t)` and `np.asarray(t)` read values, and there are none while the body
    is traced. torch computes the same on tensors, under its own names.

    ## Example

    ```python
    import numpy as np
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def signed(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        return optimizer_update(param - lr * np.sign(grad))  # error: E-OPT-023


    opt = signed(nn.Linear(3, 2))
    ```

    ## Instead

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def signed(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        return optimizer_update(param - lr * torch.sign(grad))


    opt = signed(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-023"
    error = OptimizerError
    why = "NumPy's arithmetic is not part of the traced program"


class RandomInBody(Code):
    """An optimizer's body draws from the global random number generator

    What it draws, from torch's, Python's or NumPy's, would differ between replicas and after a
    resume; and a body that seeds one changes what the rest of the program draws.

    ## Example

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def noisy(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        noise = torch.randn_like(param)  # error: E-OPT-024
        return optimizer_update(param - lr * (grad + noise))


    opt = noisy(nn.Linear(3, 2))
    ```

    ## Instead

    `ctx.rand_like(t)` and `ctx.randn_like(t)` draw numbers that depend on the seed of the run
    (`bind(model, seed=1)`), the step, the parameter's name and the number of the draw alone.

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def noisy(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        noise = ctx.randn_like(param)
        return optimizer_update(param - lr * (grad + noise))


    opt = noisy(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-024"
    error = OptimizerError
    why = "replicas and resumed runs have to draw the same numbers"


class CapturedTensor(Code):
    """An optimizer's body uses a tensor from outside

    Numbers that the body captures are constants of the program; a tensor would be a state that no
    checkpoint knows.

    ## Example

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update

    scale = torch.tensor(0.5)


    @optimizer
    def scaled(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        return optimizer_update(param - lr * scale * grad)  # error: E-OPT-025


    opt = scaled(nn.Linear(3, 2))
    ```

    ## Instead

    Make it a hyperparameter, a number, or a state.

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def scaled(
        param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1, scale: float = 0.5
    ) -> Update:
        return optimizer_update(param - lr * scale * grad)


    opt = scaled(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-025"
    error = OptimizerError
    why = "the update of a parameter depends on that parameter, its gradient, its states and `ctx` alone"


class ChangingTrace(Code):
    """An optimizer's body does not give the same program twice

    The time, or a counter of its own, decides what the body does. It is traced once, so that what
    happened to be true then would hold for ever.

    ## Example

    ```python
    from itertools import count

    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update

    calls = count(1)


    @optimizer
    def decaying(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:  # error: E-OPT-026
        return optimizer_update(param - lr / next(calls) * grad)


    opt = decaying(nn.Linear(3, 2))
    ```

    ## Instead

    Let it depend on `ctx`, whose numbers are inputs of the program.

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @optimizer
    def decaying(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        return optimizer_update(param - lr / ctx.updates * grad)


    opt = decaying(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-026"
    error = OptimizerError
    why = "the body is traced once, so that it has to be the same each time"


class RefusedByRule(Code):
    """The rule refuses the parameter, or how it is configured

    A rule may be made for some parameters alone, or for some values of a hyperparameter. It says so
    by `raise ValueError(...)` or `raise TypeError(...)` in its body, which runs when it is bound.
    The error is a `ValueError` with the rule's own words, its cause the one that the rule raised.
    An exception of another kind passes as it is.

    ## Example

    ```python
    from torch import nn

    from dslmut.optim import muon

    opt = muon(nn.Linear(3, 2), lr=0.02)  # error: E-OPT-028
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut import group, groups
    from dslmut.optim import adamw, muon

    model = nn.Linear(3, 2)
    rule = groups(group("bias", optimizer=adamw(lr=3e-4)), group(optimizer=muon(lr=0.02)))
    opt = rule.bind(model, compile=False)
    ```

    `muon_groups(model, muon=..., adamw=...)` makes such groups of a whole network.
    """

    code = "E-OPT-028"
    error = OptimizerError
    why = "a rule knows what it can update, and says so before anything is updated"


class CannotBeTraced(Code):
    """An optimizer's body calls an operation that cannot be traced

    The body runs once, on tensors that have shapes and no values. An operation of somebody's own
    has to say which shape and dtype it gives: `register_fake` takes a function for that. Those that
    run functions of the body as values decide (`torch.cond`, `torch.while_loop`) have no place in an
    update graph. `torch.vmap`, and the transforms of `torch.func`, can be used.

    ## Example

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @torch.library.custom_op("mine::halved", mutates_args=())
    def halved(x: Tensor) -> Tensor:
        return x / 2


    @optimizer
    def careful(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        return optimizer_update(param - lr * halved(grad))  # error: E-OPT-029


    opt = careful(nn.Linear(3, 2))
    ```

    ## Instead

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import Ctx, Update, optimizer, optimizer_update


    @torch.library.custom_op("mine::half_of", mutates_args=())
    def half_of(x: Tensor) -> Tensor:
        return x / 2


    @half_of.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)


    @optimizer
    def careful(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        return optimizer_update(param - lr * half_of(grad))


    opt = careful(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-029"
    error = OptimizerError
    why = "the body is traced once into an update graph, on tensors without values"


class BadReport(Code):
    """A diagnostic or a metric is not one number under one name

    Diagnostics are computed for each parameter, and each has a name of its own. What is reported
    is a single number: a norm, a mean, a largest value.

    ## Example

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, diagnostic, optimizer, optimizer_update


    @optimizer
    def descent(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        diagnostic("gradient", grad)  # error: E-OPT-027
        return optimizer_update(param - lr * grad)


    opt = descent(nn.Linear(3, 2))
    ```

    ## Instead

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, diagnostic, optimizer, optimizer_update


    @optimizer
    def descent(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        diagnostic("gradient", grad.norm())
        return optimizer_update(param - lr * grad)


    opt = descent(nn.Linear(3, 2))
    ```
    """

    code = "E-OPT-027"
    error = OptimizerError
    why = "diagnostics and metrics are numbers over the steps, each under a name"


class MetricInBody(Code):
    """A metric and a diagnostic are exchanged

    `metric(name, value)` reports from a training step or a loss, `diagnostic(name, value)` from an
    optimizer's body, where it is computed for each parameter.

    ## Example

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, metric, optimizer, optimizer_update


    @optimizer
    def descent(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        metric("gradient", grad.norm())  # error: E-CONTRACT-011
        return optimizer_update(param - lr * grad)
    ```

    ## Instead

    ```python
    from torch import Tensor, nn

    from dslmut import Ctx, Update, diagnostic, optimizer, optimizer_update


    @optimizer
    def descent(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        diagnostic("gradient", grad.norm())
        return optimizer_update(param - lr * grad)


    opt = descent(nn.Linear(3, 2))
    ```
    """

    code = "E-CONTRACT-011"
    error = OptimizerError
    why = "metrics belong to the training step, diagnostics to the update of one parameter"
