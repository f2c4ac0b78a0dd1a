"""Codes about what a function may change, and how that shows."""

from __future__ import annotations

from dslmut.diagnostics.codes.base import Code


class MeaninglessMut(Code):
    """`Mut` or `mut` where it means nothing

    `Mut[...]` annotates a parameter that is a model (any `nn.Module`), an optimizer state
    (`OptState[M]`, any `torch.optim.Optimizer`) or a reference (`Ref[T]`). Everything else is a
    value: a function returns a new one instead of changing it. `mut(x)` marks an argument, or a
    method's receiver, whose parameter is annotated so, and `x` is a name.

    ## Example

    ```python
    import torch
    from torch import Tensor

    from dslmut import Mut, fn


    @fn
    def scale(x: Mut[Tensor], factor: float) -> Tensor:  # error: E1101
        return x * factor
    ```

    ## Instead

    ```python
    import torch
    from torch import Tensor

    from dslmut import fn


    @fn
    def scale(x: Tensor, factor: float) -> Tensor:
        return x * factor


    x = scale(torch.ones(3), 2.0)
    ```

    ## Where it is said

    - `Mut[Tensor]`, `Mut[float]`, `list[Mut[M]]`, `*ms: Mut[M]`, `-> Mut[M]`, a `Mut` parameter
      of an `@extern` function;
    - `mut(m)` for a parameter without `Mut`, or for an argument of a built-in function;
    - `mut(m.encoder)`, `mut(f())`, `mut(mut(m))`: bind the value to a name first;
    - `mut(m)` that is no argument: `a = mut(m)`, `return mut(m)`, `[mut(m)]`;
    - at run time, a marked argument that reaches a parameter without `Mut` or plain code. Call
      plain functions with the model itself.
    """

    code = "E1101"
    why = "`Mut[...]` belongs on a parameter that is a model, an optimizer state or a reference, and `mut(...)` on the argument for one"


class ChangeWithoutMut(Code):
    """Changes something that this function may not change

    A function may change its `Mut` parameters, what is reached through them, and what it made
    itself. A parameter without `Mut`, whatever may be one or may be reached from one, and the
    variables of the module or of an enclosing plain function are for reading.

    ## Example

    ```python
    from torch import nn

    from dslmut import fn


    @fn
    def reset(m: nn.Linear) -> None:
        m.weight = m.weight * 0  # error: E1102
    ```

    ## Instead

    Say in the signature what the function changes; each call then says it again.

    ```python
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def reset(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 0


    layer = nn.Linear(3, 2)
    reset(mut(layer))
    assert not layer.weight.any()
    ```

    ## How it is decided

    Each name carries the set of things that it may be. After `if`, `match`, `try` and loops that
    set holds what may be on some path, so that this is reported:

    ```python
    from torch import nn

    from dslmut import Mut, fn


    @fn
    def pick(first: Mut[nn.Linear], second: nn.Linear, swap: bool) -> None:
        chosen = first
        if swap:
            chosen = second
        chosen.weight = chosen.weight * 0  # error: E1102
    ```

    Reading is always allowed, and so are `.grad`, `backward` and gradient clipping: gradients
    are scratch space between a backward pass and a step.
    """

    code = "E1102"
    why = (
        "a function changes only what its signature marks with `Mut[...]`, and what it made itself"
    )


class MissingMut(Code):
    """An argument for a `Mut` parameter without `mut`

    The function that is called changes this argument; the call says so with `mut(...)`, so that
    a reader sees at the call what changes there.

    ## Example

    ```python
    from torch import nn

    from dslmut import Mut, fn


    @fn
    def reset(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 0


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        reset(m)  # error: E1103
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def reset(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 0


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        reset(mut(m))


    layer = nn.Linear(3, 2)
    restart(mut(layer))
    ```

    Code that is not `@fn` calls in the same way: there a missing `mut` is found when the call
    runs, before the function does anything, and by `dslmut check` before that.
    """

    code = "E1103"
    why = "what a call changes shows at the call"


class ReboundMut(Code):
    """Gives a `Mut` parameter a new value

    Binding the parameter's name to another object changes nothing for the caller, who still has
    the old one; it is nearly always a mistake for a change of the object. That counts for every
    form that binds a name: `=`, `+=`, `for`, `with ... as`, `import ... as`, `def`, `del`, `:=`,
    unpacking, patterns of `match`.

    ## Example

    ```python
    from torch import nn

    from dslmut import Mut, fn


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        m = nn.Linear(3, 2)  # error: E1104
    ```

    ## Instead

    Assign the fields, or load a state; or return the new object from a function without `Mut`.

    ```python
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        fresh = nn.Linear(3, 2)
        m.weight = fresh.weight


    layer = nn.Linear(3, 2)
    restart(mut(layer))
    ```
    """

    code = "E1104"
    why = "the caller would keep the old object"


class SourceUnavailable(Code):
    r"""The source of a function cannot be found, or is not what was compiled

    `@fn` reads the text of the function that it decorates, to check and to rewrite it. It never
    skips the check: without the text there is no function.

    ## Example

    A function made by `exec` has no text that could be found:

    ```python
    from dslmut import fn

    namespace = {"fn": fn}
    exec("@fn\ndef double(x: float) -> float:\n    return 2 * x", namespace)  # error: E1109
    ```

    ## Instead

    Write the function into a file or a notebook cell, whose text Python keeps. Where code is
    generated, register its text first:

    ```python
    import linecache
    from typing import Any

    from dslmut import fn

    text = "@fn\ndef double(x: float) -> float:\n    return 2 * x"
    name = "<generated double>"
    lines: Any = text.splitlines(keepends=True)
    linecache.cache[name] = (len(text), None, lines, name)
    namespace: dict[str, Any] = {"fn": fn}
    exec(compile(text, name, "exec"), namespace)
    assert namespace["double"](2.0) == 4.0
    ```

    Two lambdas on one line cannot be told apart: give one of them a line of its own. A file that
    was edited after it was imported no longer says what runs: reload the module. An
    expression that is nested thousands of times cannot be checked: give parts of it names.

    `@fn` stands directly above the `def`. Above another decorator it would get what that made of the
    function, whose text is another:

    ```python
    import torch
    from torch import nn

    from dslmut import Mut, fn


    @torch.no_grad()
    @fn
    def clear(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 0
    ```
    """

    code = "E1109"
    why = "`@fn` checks and rewrites the text of a function, so it needs exactly the text that was compiled"
