"""``value_and_grad`` and ``grad``."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from dslmut.checking.wellknown import well_known
from dslmut.diagnostics.codes.values import NotDifferentiable
from dslmut.diagnostics.exceptions import DslmutError
from dslmut.diagnostics.raising import user_span
from dslmut.diagnostics.wording import an
from dslmut.functions.records import Gradient, Grads, Layout
from dslmut.functions.runtime import callee
from dslmut.functions.spec import Spec
from dslmut.tokens import Token

M = TypeVar("M", bound=nn.Module)
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


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
    ``torch.no_grad()`` and under ``torch.compile(fullgraph=True)``. Inside of a function that is
    differentiated by another ``value_and_grad``, loss and gradient are differentiable themselves.

    Args:
        f: Returns the loss: one real floating-point number, a tensor with one element.
        m: The model, marked ``mut(m)`` where the first parameter of *f* is ``Mut``.
        args: Further arguments of *f*.
        kwargs: Further arguments of *f*.

    Returns:
        The loss, detached where nothing around it is differentiated, and the gradient as a record like the model.

    Raises:
        MutationError: E0701 where this cannot be differentiated.

    Example:
        >>> layer = nn.Linear(3, 1)
        >>> loss, g = value_and_grad(lambda m, x: m(x).sum(), layer, torch.ones(2, 3))
        >>> g.bias
        tensor([2.])
    """
    model = m._o if type(m) is Token else m
    if not callable(f):
        raise _no_function(f)
    if not isinstance(model, nn.Module):
        raise _no_model(model)
    layout, parameters = trainable(model)
    if not parameters:
        raise _nothing_to_train(model)
    function = f if type(m) is not Token and not kwargs and not args else callee(f)
    if torch.compiler.is_compiling():
        return _compiled(function, m, model, layout, parameters, args, kwargs)
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        loss = _called(function, m, args, kwargs)
        nested = _UNDER_WAY.depth > 0
        gradients = _gradients(loss, parameters, nested)
    else:
        nested = False
        with torch.inference_mode(False), torch.enable_grad():
            loss = _called(function, m, args, kwargs)
            gradients = _gradients(loss, parameters, nested)
    return loss if nested else loss.detach(), Gradient(layout, parameters, gradients)


class _UnderWay(threading.local):
    """How many differentiated functions are being called in this thread."""

    depth = 0


_UNDER_WAY = _UnderWay()


def _called(function: Any, m: Any, args: Any, kwargs: Any) -> Any:
    _UNDER_WAY.depth += 1
    try:
        return function(m, *args, **kwargs)
    finally:
        _UNDER_WAY.depth -= 1


@_passes
def grad(
    f: Callable[Concatenate[M, P], Tensor], m: M, /, *args: P.args, **kwargs: P.kwargs
) -> Grads[M]:
    """Return the gradient of ``f(m, ...)`` alone; see ``value_and_grad``."""
    return value_and_grad(f, m, *args, **kwargs)[1]


def _gradients(
    loss: Any, parameters: tuple[nn.Parameter, ...], nested: bool
) -> tuple[Tensor | None, ...]:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.dtype.is_floating_point:
        raise _no_loss(loss)
    if not loss.requires_grad:
        raise _no_dependence()
    if _ENGINE is None or type(loss) is not Tensor or nested:
        return torch.autograd.grad(loss, parameters, allow_unused=True, create_graph=nested)
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
    parameters = tuple([p for p in all_parameters(model) if p.requires_grad])
    compiling = torch.compiler.is_compiling()
    known = None if compiling else _LAYOUTS.get(model)
    if known is not None and _same(known[0], parameters):
        return known[1], parameters
    numbers = {p: i for i, p in enumerate(parameters)}
    named = model.named_parameters(remove_duplicate=False)
    places = {n.replace("_orig_mod.", ""): numbers[p] for n, p in named if p in numbers}
    layout = Layout(places)
    if not compiling:
        _LAYOUTS[model] = (parameters, layout)
    return layout, parameters


def all_parameters(model: nn.Module) -> Iterable[nn.Parameter]:
    """Return each parameter once, in a third of the time that ``parameters()`` takes."""
    found: dict[int, nn.Parameter] = {}
    _collect(model, found, set())
    return found.values()


def _collect(module: nn.Module, found: dict[int, nn.Parameter], seen: set[nn.Module]) -> None:
    """Gather the parameters in the order of ``named_parameters()``, without building names.

    They are told apart by their ids: a tensor computes its hash in Python.
    """
    for parameter in module._parameters.values():
        if parameter is not None:
            found[id(parameter)] = parameter
    for child in module._modules.values():
        if child is not None and child not in seen:
            seen.add(child)
            _collect(child, found, seen)


def _same(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b))


# -- errors --------------------------------------------------------------------------------------


def _no_function(value: object) -> DslmutError:
    kind = type(value).__name__
    return NotDifferentiable.raised(
        user_span(),
        f"the first argument is the loss function, and this is {an(kind)}",
        fix="write the function itself, not its result: `value_and_grad(loss_of, m, x, y)`",
    )


def _no_model(value: object) -> DslmutError:
    kind = type(value).__name__
    hint = " Were the arguments swapped?" if callable(value) else ""
    return NotDifferentiable.raised(
        user_span(),
        f"the second argument is the model, and this is {an(kind)}.{hint}",
        fix="write `value_and_grad(loss_of, m, x, y)`, with a torch.nn.Module as `m`",
    )


def _nothing_to_train(model: nn.Module) -> Exception:
    if torch.compiler.is_compiling():
        return TypeError(
            "E0701 nothing here requires gradients: the model is frozen, or this is a gradient "
            "inside of another one, which a compiler does not follow yet"
        )
    count = sum(1 for _ in model.parameters())
    reason = "has no parameters" if count == 0 else f"has {count} parameters, all of them frozen"
    return NotDifferentiable.raised(
        user_span(),
        f"`{type(model).__name__}` {reason}",
        fix="set `requires_grad_(True)` on what should be trained",
    )


def _no_loss(loss: object) -> DslmutError:
    if isinstance(loss, tuple | list | dict):
        message = f"the loss is {an(type(loss).__name__)}"
        fix = 'return the loss alone, and report what else is of interest: `metric("name", value)`'
    elif not isinstance(loss, Tensor):
        message = f"the loss is {an(type(loss).__name__)}"
        fix = "return the tensor itself, without `.item()` or `float(...)`"
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
