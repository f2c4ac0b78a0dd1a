"""Codes about the values that a call passes, and about gradients."""

from __future__ import annotations

from dslmut.diagnostics.codes.base import Code
from dslmut.diagnostics.exceptions import MutationError


class ValueDoesNotFit(Code):
    """An argument or a result does not fit its annotation

    The arguments and the result of an `@fn` are checked against their annotations, with one
    binding of the dimension names for the whole call. The fields that a model declares take part,
    so that `x: Float[Tensor, "b D"]` has to fit `w1: Float[Tensor, "D H"]` of the model.

    ## Example

    ```python
    import torch
    from jaxtyping import Float
    from torch import Tensor

    from dslmut import fn


    @fn
    def inner(a: Float[Tensor, "n"], b: Float[Tensor, "n"]) -> Float[Tensor, ""]:
        return (a * b).sum()


    inner(torch.ones(3), torch.ones(1))  # error: E0601
    ```

    ## Instead

    ```python
    import torch
    from jaxtyping import Float
    from torch import Tensor

    from dslmut import fn


    @fn
    def inner(a: Float[Tensor, "n"], b: Float[Tensor, "n"]) -> Float[Tensor, ""]:
        return (a * b).sum()


    assert inner(torch.ones(3), torch.ones(3)) == 3
    ```

    `@fn(check=False)` turns the checks of one function off, `with dm.config(checks=False):` those
    of a block, and `dm.config.checks = False` or `DSLMUT_CHECKS=0` those of a process.
    """

    code = "E0601"
    why = "a shape that broadcasts by accident gives wrong numbers without an error"


class NotDifferentiable(Code):
    """The loss cannot be differentiated

    `value_and_grad(loss_of, m, ...)` needs a model with at least one parameter that requires
    gradients, and a loss that is one real floating-point number computed from them.

    ## Example

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import value_and_grad


    def errors(m: nn.Linear, x: Tensor) -> Tensor:
        return m(x) ** 2


    value_and_grad(errors, nn.Linear(3, 2), torch.ones(4, 3))  # error: E0701
    ```

    ## Instead

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import value_and_grad


    def error(m: nn.Linear, x: Tensor) -> Tensor:
        return (m(x) ** 2).mean()


    loss, g = value_and_grad(error, nn.Linear(3, 2), torch.ones(4, 3))
    assert g.weight.shape == (2, 3)
    ```

    The function itself is given, not its result. What else it computes is reported, not returned:

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import metric, record, value_and_grad


    def error(m: nn.Linear, x: Tensor) -> Tensor:
        y = m(x)
        metric("largest", y.detach().abs().max())
        return (y**2).mean()


    with record() as seen:
        loss, g = value_and_grad(error, nn.Linear(3, 2), torch.ones(4, 3))
    assert len(seen["largest"]) == 1
    ```
    """

    code = "E0701"
    error = MutationError
    why = "a gradient is that of one real number"


class ForeignGradient(Code):
    """The gradient or the state belongs to another model

    A gradient record and an optimizer state belong to the parameters that they were made for.
    `update(mut(m), mut(opt), g)` takes a model, an `OptState` that is bound to it, and a record
    that `value_and_grad` or `grad` took of it. A copy of a model is another model: copy the state
    with it, `m, opt = copy.deepcopy((m, opt))`, or bind a new one.

    ## Example

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import mut, update, value_and_grad
    from dslmut.optim import sgd


    def error(m: nn.Linear, x: Tensor) -> Tensor:
        return (m(x) ** 2).mean()


    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    opt = sgd(first, lr=0.1)
    loss, g = value_and_grad(error, second, torch.ones(4, 3))
    update(mut(second), mut(opt), g)  # error: E0702
    ```

    ## Instead

    ```python
    import torch
    from torch import Tensor, nn

    from dslmut import mut, update, value_and_grad
    from dslmut.optim import sgd


    def error(m: nn.Linear, x: Tensor) -> Tensor:
        return (m(x) ** 2).mean()


    model = nn.Linear(3, 2)
    opt = sgd(model, lr=0.1)
    loss, g = value_and_grad(error, model, torch.ones(4, 3))
    update(mut(model), mut(opt), g)
    ```
    """

    code = "E0702"
    error = MutationError
    why = "the update would be applied to parameters that it was not computed for"
