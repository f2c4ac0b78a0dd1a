"""Codes about a value that is assigned to a model's field."""

from __future__ import annotations

from dslmut.diagnostics.codes.base import Code
from dslmut.diagnostics.exceptions import FieldError


class NotAField(Code):
    """Only a model's fields can be assigned

    `m.f = e` sets a field of a model. A tensor, an optimizer state and every other value have no
    fields that could be set: a function returns a new value instead. A tensor's `.grad` and
    `.requires_grad` may be set.

    A submodule of a model that the function was given cannot be replaced either: existing
    optimizers would go on training the parameters that were there before. A computed field
    (a parametrization without `right_inverse`, an old-style `weight_norm`) is no place to write
    to: it is computed anew from other fields.

    ## Example

    ```python
    from torch import nn

    from dslmut import Mut, fn


    @fn
    def widen(m: Mut[nn.Sequential]) -> None:
        m.head = nn.Linear(3, 4)  # error: E0303


    m = nn.Sequential()
    m.head = nn.Linear(3, 2)
    ```

    ## Instead

    Set the values of the parameters that are there; or build the model with the part that it
    should have, before the optimizer is made.

    ```python
    from torch import nn

    from dslmut import fn


    @fn
    def widened(width: int) -> nn.Sequential:
        m = nn.Sequential(nn.Linear(3, 3))
        m.append(nn.Linear(3, width))
        return m


    assert widened(4)[1].out_features == 4
    ```
    """

    code = "E0303"
    error = FieldError
    why = "a value is never changed in place; only a model's own fields are set"


class DimensionDiffers(Code):
    """A dimension of the value differs from the field's

    A field keeps its shape: other code and the optimizer's state rely on it. Nothing is
    broadcast into a field, since a forgotten dimension would go unnoticed.

    ## Example

    ```python
    import torch
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        m.weight = torch.zeros(2, 1)  # error: E0401


    layer = nn.Linear(3, 2)
    restart(mut(layer))
    ```

    ## Instead

    Make the value in the shape of the field.

    ```python
    import torch
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        m.weight = torch.zeros_like(m.weight)


    layer = nn.Linear(3, 2)
    restart(mut(layer))
    ```
    """

    code = "E0401"
    error = FieldError
    why = "a field keeps its shape, and nothing is broadcast into it"


class RankDiffers(Code):
    """The value has another number of dimensions than the field

    A vector is not spread over the rows of a matrix, and a number not over a whole field, as
    broadcasting would do: the value has the dimensions of the field, all of them.

    ## Example

    ```python
    import torch
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        m.weight = torch.zeros(3)  # error: E0403


    layer = nn.Linear(3, 2)
    restart(mut(layer))
    ```

    ## Instead

    ```python
    import torch
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        m.weight = torch.zeros(3).expand(2, 3)


    layer = nn.Linear(3, 2)
    restart(mut(layer))
    ```

    A Python number may be assigned to a field without dimensions only; write
    `torch.full_like(m.weight, 0.5)` to fill a field.
    """

    code = "E0403"
    error = FieldError
    why = "a field keeps its shape, and nothing is broadcast into it"


class OutsideDomain(Code):
    """An index is outside of the field's domain

    A buffer declared `Index[Tensor, "n -> C"]` holds integers `i` with `0 <= i < C`. `C` is a
    host scalar of the model, or a dimension of another field; a negative index is outside too.

    ## Example

    ```python
    import torch
    from torch import Tensor

    from dslmut import Index, Model, Mut, fn, mut


    class Sampler(Model):
        n: int = 4
        C: int = 10
        classes: Index[Tensor, "n -> C"]


    @fn
    def choose(m: Mut[Sampler]) -> None:
        m.classes = torch.tensor([0, 3, 9, 10])  # error: E0501


    sampler = Sampler.init(seed=0)
    choose(mut(sampler))
    ```

    ## Instead

    ```python
    import torch
    from torch import Tensor

    from dslmut import Index, Model, Mut, fn, mut


    class Sampler(Model):
        n: int = 4
        C: int = 10
        classes: Index[Tensor, "n -> C"]


    @fn
    def choose(m: Mut[Sampler]) -> None:
        m.classes = torch.tensor([0, 3, 9, 10]).clamp(max=m.C - 1)


    sampler = Sampler.init(seed=0)
    choose(mut(sampler))
    ```
    """

    code = "E0501"
    error = FieldError
    why = "an index outside of its domain would read something else, or fail far from here"


class KindDiffers(Code):
    """The value is of another kind than the field

    Another dtype, device or layout, a tensor for a number, a number with a fraction for an
    integer field, an array of another library: nothing is cast silently.

    ## Example

    ```python
    import torch
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        m.weight = torch.zeros(2, 3, dtype=torch.float64)  # error: E0502


    layer = nn.Linear(3, 2)
    restart(mut(layer))
    ```

    ## Instead

    Write the cast where you mean it.

    ```python
    import torch
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        m.weight = torch.zeros(2, 3, dtype=torch.float64).to(m.weight.dtype)


    layer = nn.Linear(3, 2)
    restart(mut(layer))
    ```
    """

    code = "E0502"
    error = FieldError
    why = "a silent cast would lose precision, or move data, without anybody having written it"


class NoSuchField(Code):
    """The model declares no such field

    The fields of a model are its class annotations and whatever its `__init__` sets or registers
    as parameter, buffer or submodule. `@fn` refuses to add one, since a misspelt name would
    otherwise go unnoticed.

    ## Example

    ```python
    from torch import nn

    from dslmut import Mut, fn


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        m.wieght = m.weight * 0  # error: E0901
    ```

    ## Instead

    ```python
    from torch import nn

    from dslmut import Mut, fn, mut


    @fn
    def restart(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 0


    layer = nn.Linear(3, 2)
    restart(mut(layer))
    ```
    """

    code = "E0901"
    error = FieldError
    why = "a model has the fields that its class declares"


class BadDeclaration(Code):
    """A model cannot be made from its declaration and what was given

    `Mlp.init(seed=0)` needs the size of every dimension that a field names: from a host scalar of
    that name, from a keyword, or from the tensors that were given.

    ## Example

    ```python
    from jaxtyping import Float
    from torch import Tensor

    from dslmut import Model


    class Line(Model):
        w: Float[Tensor, "D"]
        b: Float[Tensor, ""]


    line = Line.init(seed=0)  # error: E0902
    ```

    ## Instead

    ```python
    from jaxtyping import Float
    from torch import Tensor

    from dslmut import Model


    class Line(Model):
        D: int = 3
        w: Float[Tensor, "D"]
        b: Float[Tensor, ""]


    assert Line.init(seed=0).w.shape == (3,)
    assert Line.init(seed=0, D=5).w.shape == (5,)
    ```

    ## Where it is said

    - a dimension, a host scalar, a tensor or a submodule gets no value;
    - a name that is given is neither a field nor a dimension;
    - `w = Float[Tensor, "D"]` assigns a type; `w: Float[Tensor, "D"]` declares a field;
    - `part = nn.Linear(3, 4)` or a tensor in the body of the class would be shared by all
      instances, and be a parameter of none: declare `part: nn.Linear`, and give it to `init`;
    - `parts: list[nn.Linear]` hides the modules from torch: declare `parts: nn.ModuleList`;
    - a field has the name of a method that every torch module has.
    """

    code = "E0902"
    error = FieldError
    why = "every field of a model has a value from the start"
