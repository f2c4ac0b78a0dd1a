"""Codes about the comments that ignore other codes; `dslmut check` says them, `@fn` does not."""

from __future__ import annotations

from dslmut.diagnostics.codes.base import Code


class IgnoresNothing(Code):
    """An ignore comment that ignores nothing

    `# dslmut: ignore[E1102]` at the end of a line leaves out what is reported there under that
    code. Where nothing is, or where there is no such code, the comment is left over or misspelt:
    it would hide the next mistake on that line, or hides nothing.

    ## Example

    ```python
    from torch import nn

    from dslmut import Mut, fn


    @fn
    def reset(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 0  # dslmut: ignore[E1102]  # error: E1201
    ```

    ## Instead

    Remove the comment. Where one is needed, it names the code that is reported, and is best
    followed by a reason:

    ```python
    from torch import Tensor, nn

    from dslmut import fn


    @fn
    def loss_of(m: nn.Linear, x: Tensor) -> Tensor:
        m.requires_grad_()  # dslmut: ignore[E1102]  # as it is after each load
        return m(x).square().mean()
    ```

    ## What a comment counts for

    - For its own line; for a range of several lines, on the first or the last of them. Several
      codes are separated by commas.
    - For `dslmut check`, `dm.check` and `@fn`. What only a run finds (a value that does not fit, a
      missing `mut` in a call of plain code) is still an error then.
    - `dslmut check` and `dm.check` report a comment without use, `@fn` does not. Where `@fn` sees
      more than the text shows, add the code of this page: `# dslmut: ignore[E1102, E1201]`.
    """

    code = "E1201"
    why = "a comment that ignores nothing now hides the next mistake on its line"


class NamesNoCode(Code):
    """An ignore comment that names no code

    `# dslmut: ignore` alone would leave out everything on its line, later mistakes included; so
    it ignores nothing, and is an error. The codes stand in brackets.

    ## Example

    ```python
    from torch import nn

    from dslmut import Mut, fn


    @fn
    def reset(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 0  # dslmut: ignore  # error: E1202
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut import fn


    @fn
    def freeze(m: nn.Linear) -> None:
        m.eval()  # dslmut: ignore[E1102]
    ```
    """

    code = "E1202"
    why = "a comment without codes would hide every mistake on its line, later ones too"
