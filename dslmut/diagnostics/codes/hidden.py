"""Codes about changes that nobody would see, or see too late."""

from __future__ import annotations

from dslmut.diagnostics.codes.base import Code


class GivenTwice(Code):
    """One call gets the same object twice, and may change it

    A function that has a model as `Mut` and as a value, or a model and a part of it, changes the
    value under its own hands. A state and the model that it belongs to are no such pair, and
    neither are two models that share a part.

    ## Example

    ```python
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def follow(teacher: Mut[nn.Linear], m: nn.Linear) -> None:
        teacher.weight = 0.9 * teacher.weight + 0.1 * m.weight


    @fn
    def train(m: Mut[nn.Linear]) -> None:
        follow(mut(m), m)  # error: E1105
    ```

    `dslmut check` says it of calls in plain code too.

    ## Instead

    ```python
    import copy

    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def follow(teacher: Mut[nn.Linear], m: nn.Linear) -> None:
        teacher.weight = 0.9 * teacher.weight + 0.1 * m.weight


    @fn
    def train(m: Mut[nn.Linear]) -> None:
        teacher = copy.deepcopy(m)
        follow(mut(teacher), m)
    ```
    """

    code = "E1105"
    why = "what a function changes must not be what it takes for a value"


class ChangeLost(Code):
    """Differentiation would lose this change, repeat it, or get it wrong

    A gradient is that of a computation with the parameters as they were. It comes out wrong, or
    not at all, where they change between the forward pass and `backward()`, or in a function
    that `value_and_grad`, `grad` or a transform of `torch.func` differentiates. `checkpoint` runs
    a function twice, so that every change in it is made twice; `vmap` runs it once for many.
    Buffers may change under `value_and_grad` and `grad`: that is how a loss updates the statistics
    of BatchNorm.

    ## Example

    ```python
    from torch import Tensor, nn

    from dslmut import Mut, fn


    @fn
    def step(m: Mut[nn.Linear], x: Tensor) -> None:
        loss = m(x).square().mean()
        m.weight = 0.9 * m.weight
        loss.backward()  # error: E1106
    ```

    ## Instead

    ```python
    from torch import Tensor, nn

    from dslmut import Mut, fn


    @fn
    def step(m: Mut[nn.Linear], x: Tensor) -> None:
        loss = m(x).square().mean()
        loss.backward()
        m.weight = 0.9 * m.weight
    ```
    """

    code = "E1106"
    why = "a gradient belongs to the values that it was computed with"


class CannotBeFollowed(Code):
    """What this does to a model cannot be followed

    `exec` and `eval`, `setattr` with a computed name, `vars(m)`, `m.__dict__` and
    `m._parameters`, `p.data = t`, `m.forward = f`, `Net.w = t`, a field as the target of `for` or
    `with`, `del m.w`, `swap_tensors`, a star that stands for a `Mut` parameter, a mutable default:
    each would change a model, or may, where neither a reader nor the checker sees which part.

    ## Example

    ```python
    from torch import nn

    from dslmut import Mut, fn


    @fn
    def halve(m: Mut[nn.Linear]) -> None:
        for name, p in m.named_parameters():
            setattr(m, name, p / 2)  # error: E1107
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut import Mut, fn


    @fn
    def halve(m: Mut[nn.Linear]) -> None:
        for p in m.parameters():
            p.div_(2)
    ```
    """

    code = "E1107"
    why = "a change must show in the text: which field, of which object"


class OutlivesTheCall(Code):
    """A `Mut` parameter outlives the call

    The right to change an object ends with the call that it was given for. What is stored in
    another object, or changed by a function that is returned or stored, would be changed later,
    when no `mut` shows it.

    ## Example

    ```python
    from collections.abc import Callable

    from torch import nn

    from dslmut import Mut, fn


    @fn
    def shrinker(m: Mut[nn.Linear]) -> Callable[[], None]:
        def shrink() -> None:
            m.weight = 0.9 * m.weight  # error: E1108

        return shrink
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def shrink(m: Mut[nn.Linear]) -> None:
        m.weight = 0.9 * m.weight


    net = nn.Linear(3, 2)
    shrink(mut(net))
    ```
    """

    code = "E1108"
    why = "later changes would be made where no `mut` shows them"


class NotFresh(Code):
    """A result that is said to be fresh may be an argument

    `-> Fresh[M]` tells callers that the result shares nothing with the arguments, so that they may
    change it. An `@fn` is held to its word: what it returns is made by it, or is a copy. A plain
    function is believed. On a parameter `Fresh` means nothing.

    ## Example

    ```python
    from torch import nn

    from dslmut import Fresh, fn


    @fn
    def widest(a: nn.Linear, b: nn.Linear) -> Fresh[nn.Linear]:
        return a if a.out_features > b.out_features else b  # error: E1110
    ```

    ## Instead

    ```python
    import copy

    from torch import nn

    from dslmut import Fresh, fn


    @fn
    def widest(a: nn.Linear, b: nn.Linear) -> Fresh[nn.Linear]:
        return copy.deepcopy(a if a.out_features > b.out_features else b)


    @fn
    def scaled(a: nn.Linear, b: nn.Linear) -> nn.Linear:
        m = widest(a, b)
        m.weight = 2 * m.weight
        return m
    ```
    """

    code = "E1110"
    why = "a caller would change what it believes to be its own"
