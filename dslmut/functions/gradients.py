"""``value_and_grad``, ``grad``, and the record that they give."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from dslmut.checking.wellknown import well_known
from dslmut.diagnostics.codes.values import NotDifferentiable
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.functions.runtime import callee
from dslmut.functions.spec import Spec
from dslmut.tokens import Token

M = TypeVar("M", bound=nn.Module)
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


class Layout:
    """The names of a record's gradients, and where each is.

    Args:
        names: Full names, in order.
        prefix: What the names of a part begin with.
    """

    def __init__(self, names: tuple[str, ...], prefix: str = "") -> None:
        self.names, self.prefix = names, prefix
        self.own = tuple(n.removeprefix(prefix) for n in names)
        self.positions = {name: i for i, name in enumerate(self.own)}
        # Fields that have the name of one of the record's methods.
        self.clashes = frozenset(n.partition(".")[0] for n in self.own) & _METHODS

    def within(self, part: str) -> tuple[int, ...]:
        """Return the positions of the names that lie in a part."""
        return tuple(i for i, n in enumerate(self.own) if n.startswith(f"{part}."))


class Gradient(Generic[M]):
    """The gradient of a loss by the parameters of a model, shaped like the model.

    ``g.w1`` and ``g.encoder.weight`` are the gradients of the fields of that name, ``g.layers[0]``
    is the record of a part. As a mapping it goes from full names to tensors, in the order of
    ``named_parameters()``; a tied parameter is in it once, under its first name.

    A parameter that the loss does not depend on has a gradient of zeros.

    Args:
        layout: The names of the trainable parameters.
        parameters: The parameters themselves.
        gradients: For each a tensor like it, or None where the loss does not depend on it.
    """

    def __init__(
        self,
        layout: Layout,
        parameters: tuple[nn.Parameter, ...],
        gradients: tuple[Tensor | None, ...],
    ) -> None:
        self._layout, self._parameters, self._gradients = layout, parameters, gradients
        for name in layout.clashes:
            # A field of the model goes before a method: the instance's own attribute wins.
            self.__dict__[name] = self._part(name)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, name: str | int) -> Any: ...

    else:

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return self._part(name)

        def __getitem__(self, name):
            return self._part(str(name))

    def _part(self, name: str) -> Any:
        layout = self._layout
        position = layout.positions.get(name)
        if position is not None:
            return self._at(position)
        chosen = layout.within(name)
        if not chosen:
            known = ", ".join(layout.own)
            raise AttributeError(f"this gradient has no {layout.prefix + name!r}; it has {known}")
        return Gradient(
            Layout(tuple(layout.names[i] for i in chosen), f"{layout.prefix}{name}."),
            tuple(self._parameters[i] for i in chosen),
            tuple(self._gradients[i] for i in chosen),
        )

    def _at(self, i: int) -> Tensor:
        found = self._gradients[i]
        return torch.zeros_like(self._parameters[i]).detach() if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.own)

    def __len__(self) -> int:
        return len(self._parameters)

    def __contains__(self, name: object) -> bool:
        return name in self._layout.positions

    def keys(self) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return self._layout.own

    def values(self) -> tuple[Tensor, ...]:
        """Return the gradients, in the order of the names."""
        return tuple(map(self._at, range(len(self._parameters))))

    def items(self) -> tuple[tuple[str, Tensor], ...]:
        """Return pairs of name and gradient."""
        return tuple(zip(self._layout.own, Gradient.values(self)))

    def norm(self, order: float = 2.0) -> Tensor:
        """Return the norm over all elements of all gradients, a tensor without dimensions.

        Args:
            order: Of the norm; 2 is the Euclidean one.
        """
        present = [g for g in self._gradients if g is not None]
        return nn.utils.get_total_norm(present, norm_type=order)

    def into_grad(self, *, accumulate: bool = False) -> None:
        """Put the gradients where ``loss.backward()`` does: into ``.grad`` of the parameters.

        Args:
            accumulate: Add to what is there instead of replacing it.
        """
        for parameter, gradient in zip(self._parameters, self._gradients):
            if gradient is None:
                if not accumulate:
                    parameter.grad = None
            elif accumulate and parameter.grad is not None:
                parameter.grad = parameter.grad + gradient
            else:
                parameter.grad = gradient

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{n}: {list(p.shape)}" for n, p in zip(self._layout.own, self._parameters)
        )
        return f"Gradient({shapes})"


_METHODS = frozenset(n for n in vars(Gradient) if not n.startswith("_"))
Grads: TypeAlias = M | Gradient[M]
"""What ``value_and_grad`` gives: for type checkers it has the model's fields too."""


def _passes(function: F) -> F:
    """Declare that a function hands markers on to its first argument."""
    entity = well_known(f"dslmut.{function.__name__}")
    function.__dslmut__ = Spec(entity)  # pyright: ignore[reportFunctionMemberAccess, reportArgumentType]
    return function


@_passes
def value_and_grad(
    f: Callable[Concatenate[M, P], Tensor], m: M, /, *args: P.args, **kwargs: P.kwargs
) -> tuple[Tensor, Grads[M]]:
    """Return ``f(m, ...)`` and its gradient by the trainable parameters of the model.

    The model's ``.grad`` and ``requires_grad`` are neither used nor changed. Works under
    ``torch.no_grad()`` and under ``torch.compile(fullgraph=True)``.

    Args:
        f: Returns the loss: one real floating-point number, a tensor with one element.
        m: The model, marked ``mut(m)`` where the first parameter of *f* is ``Mut``.
        args: Further arguments of *f*.
        kwargs: Further arguments of *f*.

    Returns:
        The loss, detached, and the gradient as a record like the model.

    Raises:
        MutationError: E0701 where this cannot be differentiated.

    Example:
        >>> layer = nn.Linear(3, 1)
        >>> loss, g = value_and_grad(lambda m, x: m(x).sum(), layer, torch.ones(2, 3))
        >>> g.bias
        tensor([2.])
    """
    model = m._o if type(m) is Token else m
    if not isinstance(model, nn.Module):
        raise _no_model(model)
    layout, parameters = trainable(model)
    if not parameters:
        raise _nothing_to_train(model)
    function = f if type(m) is not Token and not kwargs and not args else callee(f)
    if torch.compiler.is_compiling():
        return _compiled(function, m, model, layout, parameters, args, kwargs)
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        loss = function(m, *args, **kwargs)
        gradients = _gradients(loss, parameters)
    else:
        with torch.inference_mode(False), torch.enable_grad():
            loss = function(m, *args, **kwargs)
            gradients = _gradients(loss, parameters)
    return loss.detach(), Gradient(layout, parameters, gradients)


@_passes
def grad(
    f: Callable[Concatenate[M, P], Tensor], m: M, /, *args: P.args, **kwargs: P.kwargs
) -> Grads[M]:
    """Return the gradient of ``f(m, ...)`` alone; see ``value_and_grad``."""
    return value_and_grad(f, m, *args, **kwargs)[1]


def _gradients(loss: Any, parameters: tuple[nn.Parameter, ...]) -> tuple[Tensor | None, ...]:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.dtype.is_floating_point:
        raise _no_loss(loss)
    if not loss.requires_grad:
        raise _no_dependence()
    if _ENGINE is None or type(loss) is not Tensor:
        return torch.autograd.grad(loss, parameters, allow_unused=True)
    # The entrance behind torch.autograd.grad, whose checks in Python take a tenth of a small step.
    # The first gradient is made anew each time: it may become the gradient of a parameter.
    return _ENGINE.run_backward(
        (loss,), (torch.ones_like(loss),), False, False, parameters,
        allow_unreachable=True, accumulate_grad=False,
    )  # fmt: skip


_ENGINE: Any = getattr(torch.autograd.Variable, "_execution_engine", None)


def _compiled(
    f: Callable[..., Any],
    m: Any,
    model: nn.Module,
    layout: Layout,
    parameters: tuple[nn.Parameter, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Tensor, Any]:
    """Differentiate in the functional form, which a compiler can follow.

    Buffers are arguments as well: a function that is differentiated may change its arguments in
    place (BatchNorm's statistics), but nothing that it captured.
    """
    primals = {n: p.detach() for n, p in zip(layout.names, parameters)}
    buffers = {n: b.detach() for n, b in model.named_buffers()}

    def loss_of(primals: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        with _reparametrize_module(model, {**primals, **buffers}, tie_weights=True):
            return f(m, *args, **kwargs)

    gradients, loss = torch.func.grad_and_value(loss_of)(primals, buffers)
    return loss, Gradient(layout, parameters, tuple(gradients[n] for n in layout.names))


# -- the trainable parameters of a model ---------------------------------------------------------

_LAYOUTS: weakref.WeakKeyDictionary[nn.Module, tuple[tuple[nn.Parameter, ...], Layout]] = (
    weakref.WeakKeyDictionary()
)


def trainable(model: nn.Module) -> tuple[Layout, tuple[nn.Parameter, ...]]:
    """Return names and objects of the parameters that require gradients, each once.

    The names are remembered per model, as long as its parameters are the same objects.
    """
    found: dict[nn.Parameter, None] = {}
    _collect(model, found, set())
    parameters = tuple([p for p in found if p.requires_grad])
    compiling = torch.compiler.is_compiling()
    known = None if compiling else _LAYOUTS.get(model)
    if known is not None and _same(known[0], parameters):
        return known[1], parameters
    named = ((n, p) for n, p in model.named_parameters() if p.requires_grad)
    layout = Layout(tuple(n.replace("_orig_mod.", "") for n, _ in named))
    if not compiling:
        _LAYOUTS[model] = (parameters, layout)
    return layout, parameters


def _collect(module: nn.Module, found: dict[nn.Parameter, None], seen: set[nn.Module]) -> None:
    """Gather the parameters in the order of ``named_parameters()``, without building names."""
    for parameter in module._parameters.values():
        if parameter is not None:
            found[parameter] = None
    for child in module._modules.values():
        if child is not None and child not in seen:
            seen.add(child)
            _collect(child, found, seen)


def _same(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b))


# -- errors --------------------------------------------------------------------------------------


def _no_model(value: object) -> DslmutError:
    kind = type(value).__name__
    hint = " Were the arguments swapped?" if callable(value) else ""
    return NotDifferentiable.raised(
        user_span(),
        f"the second argument is the model, and this is a `{kind}`.{hint}",
        fix="write `value_and_grad(loss_of, m, x, y)`, with a torch.nn.Module as `m`",
    )


def _nothing_to_train(model: nn.Module) -> DslmutError:
    count = sum(1 for _ in model.parameters())
    reason = "has no parameters" if count == 0 else f"has {count} parameters, all of them frozen"
    return NotDifferentiable.raised(
        user_span(),
        f"`{type(model).__name__}` {reason}",
        fix="set `requires_grad_(True)` on what should be trained",
    )


def _no_loss(loss: object) -> DslmutError:
    if not isinstance(loss, Tensor):
        message, fix = f"the loss is a `{type(loss).__name__}`", "return a tensor"
    elif loss.numel() != 1:
        message = f"the loss has shape {list(loss.shape)}"
        fix = "reduce it to one number: `.mean()` or `.sum()`"
    else:
        message, fix = f"the loss holds {loss.dtype}", "return a floating-point tensor"
    return NotDifferentiable.raised(user_span(), message, fix=fix)


def _no_dependence() -> DslmutError:
    return NotDifferentiable.raised(
        user_span(),
        "the loss does not depend on any parameter of the model",
        fix="look for `.detach()`, `.item()`, `torch.no_grad()` or another model in the loss",
    )


__all__ = ["Gradient", "Grads", "grad", "trainable", "value_and_grad"]
