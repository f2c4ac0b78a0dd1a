"""The tracer: it runs a body once on tensors without values, and keeps what it computed as a graph."""

from __future__ import annotations

import contextvars
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

from dslmut.checking.tracing.refusals import needs_number, writes
from dslmut.diagnostics.codes.bodies import CapturedTensor
from dslmut.diagnostics.codes.optimizers import BadChain
from dslmut.diagnostics.raising import user_span
from dslmut.optim import drawing, mixing, zeros
from dslmut.optim.context import CONSTANTS, FIXED, WHOLE, WIDE, Ctx, not_in_schedules
from dslmut.optim.expressions import Expression, Number, called
from dslmut.optim.recording import Recording, Subject
from dslmut.optim.scalars import NeedsNumber, Scalar, Unread
from dslmut.optim.stepwide import wide_dtype
from dslmut.optim.watching import Recorder, Watcher
from dslmut.optim.widening import is_low

aten = torch.ops.aten


_ACTIVE: contextvars.ContextVar[Tracer | None] = contextvars.ContextVar("tracer", default=None)


def active() -> Tracer | None:
    """Return the tracer whose body is running, if one is."""
    return _ACTIVE.get()


class Tracer:
    """Runs one body for one parameter.

    Args:
        subject: The parameter.
        inputs: The numbers that ``ctx`` and the hyperparameters have now, for branches.
        keys: The keys of ``ctx`` that are numbers.
        by_chance: Whether a parameter of a low precision is rounded by chance.
        outcomes: Of branches that are to come out so, whatever the numbers are.
    """

    def __init__(
        self,
        subject: Subject,
        inputs: Mapping[str, Number],
        keys: tuple[str, ...],
        by_chance: bool = False,
        outcomes: Mapping[Expression, bool] | None = None,
    ) -> None:
        self.by_chance = by_chance and is_low(subject.dtype)
        self.subject, self.inputs, self.keys = subject, dict(inputs), keys
        self._outcomes = outcomes or {}
        self.recording = Recording()
        self.fake = FakeTensorMode()
        self._nodes: dict[int, tuple[Tensor, fx.Node]] = {}
        self._protected: set[int] = set()
        self._written: dict[int, str] = {}
        self.calling = ""
        self.in_schedule = self._needed = False
        self._scope, self._first = "", 0
        self.gradient_of: str | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Trace what the block computes."""
        token = _ACTIVE.set(self)
        try:
            with torch.no_grad(), self.fake, Recorder(self), Watcher(self):
                yield
        finally:
            _ACTIVE.reset(token)

    # -- parts of a chain ----------------------------------------------------------------------

    @contextmanager
    def scoped(self, prefix: str) -> Iterator[None]:
        """Run one part of a chain: names that it declares get a prefix, and are its own."""
        before, self._scope, self._first = (
            (self._scope, self._first),
            prefix,
            len(self.recording.states),
        )
        try:
            yield
        finally:
            self._scope, self._first = before

    def own(self, name: str) -> str:
        """Return the full name of a state or a diagnostic of the part that is running."""
        return self._scope + name

    def declared(self) -> dict[str, Tensor]:
        """Return the states that the running part has declared, by the names that it gave them."""
        states = self.recording.states[self._first :]
        return {s.name.removeprefix(self._scope): value for s, value in states}

    # -- inputs ------------------------------------------------------------------------------

    def placeholder(self, name: str, shape: Any, stride: Any, dtype: torch.dtype) -> Tensor:
        """Return a tensor that is an input of the graph, and must not be changed in place."""
        with self.fake:
            tensor = torch.empty_strided(shape, stride, dtype=dtype, device=self.subject.device)
        self._bind(tensor, self.recording.graph.placeholder(name))
        self._protected.add(storage(tensor))
        return tensor

    def tensor_of(self, scalar: Scalar, whole: bool = False) -> Tensor:
        """Return the input through which a number of the scalar program reaches the tensors.

        Args:
            scalar: The number.
            whole: Whether whole numbers stay such; else they are doubles too.
        """
        known = self.recording.scalars.get(scalar.expression)
        if known is None:
            number = len(self.recording.scalars)
            with self.fake:
                known = torch.empty((), dtype=torch.float64, device="cpu")
            self._bind(known, self.recording.graph.placeholder(f"scalar_{number}"))
            self._protected.add(storage(known))
            self.recording.scalars[scalar.expression] = known
        if scalar.expression.kind is bool:
            return known != 0
        return known.to(torch.int64) if whole and scalar.expression.kind is int else known

    def hyperparameter(self, name: str, value: Any, scheduled: bool) -> Any:
        """Return what the body gets for a hyperparameter: floats are inputs, others constants."""
        if isinstance(value, float):
            return self._input(name, self.inputs[name], float)
        if isinstance(value, tuple):
            parts = enumerate(value)
            return tuple(self.hyperparameter(f"{name}.{i}", v, scheduled) for i, v in parts)
        return Unread(name, value) if scheduled and callable(value) else value

    def context(self) -> Ctx:
        """Return the ``ctx`` of this trace."""

        def read(name: str) -> Any:
            if name in WIDE:
                return self._wide(name)
            if name not in self.keys:
                return self._constant_of(name)
            if name in FIXED:
                return self.inputs[f"ctx.{name}"]
            kind = int if name in WHOLE else float
            return self._input(f"ctx.{name}", self.inputs[f"ctx.{name}"], kind)

        return Ctx(read, self.keys, lambda kind, like: drawing.drawn(self, kind, like))

    def _input(self, name: str, value: Number, kind: type) -> Scalar:
        return Scalar(Expression("input", (name,), kind), value, self)

    def _wide(self, name: str) -> Tensor:
        """Return an input of the whole step."""
        if self.in_schedule:
            raise not_in_schedules(name)
        if self.gradient_of is not None:
            raise BadChain.raised(
                user_span(),
                f"`ctx.{name}` is read behind `{self.gradient_of}`, which has changed the gradient: "
                "it is the norm of the gradients as they came to the step",
                fix=f"put the part that reads it before `{self.gradient_of}` in the chain",
            )
        if name not in self.recording.wide:
            dtype = wide_dtype(self.subject.dtype)
            self.recording.wide[name] = self.placeholder(f"wide_{name}", (), (), dtype)
        return self.recording.wide[name]

    def _constant_of(self, name: str) -> Any:
        if name not in CONSTANTS:
            return None
        self.recording.reads_identity = True
        return getattr(self.subject, name)

    # -- scalars -----------------------------------------------------------------------------

    def branch(self, scalar: Scalar) -> bool:
        """Decide a branch on a scalar; the graph holds as long as the outcome does."""
        self._need_number()
        outcome = self._outcomes.get(scalar.expression, bool(scalar.value))
        self.recording.branches[scalar.expression] = outcome
        return outcome

    def number(self, scalar: Scalar, how: str) -> NoReturn:
        """Refuse to make a number of a scalar; a schedule becomes one host node instead."""
        self._need_number()
        raise needs_number(how, str(scalar.expression)).raised(user_span())

    def schedule(self, function: Callable[[Any], Any], ctx: Ctx) -> Any:
        """Call a schedule: it builds scalars, or is called anew at each step."""
        before, self.in_schedule, self._needed = self.in_schedule, True, False
        try:
            found = function(ctx)
        except NeedsNumber:
            found = None
        finally:
            self.in_schedule = before
        if isinstance(found, Scalar | float | int) and not self._needed:
            return found
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            value = called(function, Ctx(self._numeric, self.keys))
        return Scalar(Expression("call", (function,)), value, self)

    def _need_number(self) -> None:
        """Leave a schedule that needs a number; it may catch that, so it is noted too."""
        if self.in_schedule:
            self._needed = True
            raise NeedsNumber

    def _numeric(self, name: str) -> Any:
        return self._constant_of(name) if name in CONSTANTS else self.inputs.get(f"ctx.{name}")

    # -- torch's functions -------------------------------------------------------------------

    def torch_call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of torch that got a scalar."""
        return mixing.call(function, args, kwargs, self.tensor_of)

    # -- recording ---------------------------------------------------------------------------

    def _bind(self, tensor: Tensor, node: fx.Node) -> None:
        self._nodes[id(tensor)] = (tensor, node)
        node.meta["val"] = tensor

    def node_of(self, tensor: Tensor) -> fx.Node:
        """Return the node that computed a tensor."""
        found = self._nodes.get(id(tensor))
        if found is None:
            raise self.captured(tensor)
        return found[1]

    def knows(self, tensor: Tensor) -> bool:
        """Say whether a tensor belongs to this trace."""
        return id(tensor) in self._nodes

    def captured(self, tensor: Tensor) -> Exception:
        """Return the error for a tensor from outside (E-OPT-025)."""
        return CapturedTensor.raised(
            user_span(),
            f"the body uses a tensor of shape {list(tensor.shape)} that it did not get or make",
            fix='make it a hyperparameter, a number, or a state: `defstate("name", torch.zeros_like(param))`',
        )

    def record(self, op: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Add one operation to the graph, also one that returns nothing: it writes or checks."""
        arguments = tree_map(self._argument, (args, kwargs))
        node = self.recording.graph.call_function(op, *arguments)
        node.meta |= {"val": result, "called": self.calling}
        if isinstance(result, Tensor) and result.layout is not torch.strided:
            node.meta["span"] = user_span()  # where it is, if that has to be said
        self._bind_all(result, node)

    def _bind_all(self, result: Any, node: fx.Node) -> None:
        if isinstance(result, Tensor):
            self._bind(result, node)
        elif isinstance(result, list | tuple):
            for i, part in enumerate(result):
                get = self.recording.graph.call_function(operator.getitem, (node, i))
                get.meta["called"] = self.calling
                self._bind_all(part, get)

    def _argument(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if not self.knows(value) and not isinstance(value, FakeTensor):
            return self._constant(value)
        return self.node_of(value)

    def _constant(self, value: Tensor) -> fx.Node:
        """Write a tensor that the body made from numbers into the graph."""
        graph = self.recording.graph
        with unset_fake_temporarily():
            numbers = value.reshape(-1).tolist()
        kind: dict[str, Any] = {"dtype": value.dtype}
        flat = [graph.call_function(aten.scalar_tensor.default, (n,), kind) for n in numbers]
        if value.ndim == 0:
            return flat[0]
        row = graph.call_function(aten.stack.default, (flat,))
        return graph.call_function(aten.reshape.default, (row, list(value.shape)))

    def check_writes(self, op: Any, args: Any, kwargs: Any) -> None:
        """Refuse an operation that changes what the body was given (E-OPT-020)."""
        for argument, value in zip(op._schema.arguments, args):
            self._check_write(op, argument, value)
        for argument in op._schema.arguments:
            if argument.name in kwargs:
                self._check_write(op, argument, kwargs[argument.name])

    def _check_write(self, op: Any, argument: Any, value: Any) -> None:
        if argument.alias_info is None or not argument.alias_info.is_write:
            return
        for tensor in tree_flatten(value)[0]:
            if not isinstance(tensor, Tensor):
                continue
            if storage(tensor) in self._protected:
                name = op._schema.name.partition("::")[2]
                raise writes(name).raised(user_span())
            self._written[storage(tensor)] = self.calling or op._schema.name.partition("::")[2]

    def check_zero(self, name: str, init: Any) -> None:
        """Refuse a state that does not start as a zero constant, by how it was made (E-OPT-003)."""
        if not isinstance(init, Tensor):
            kind = f"it is a `{type(init).__name__}`"
            raise zeros.refused(name, kind, isinstance(init, int | float))
        if not self.knows(init):
            if isinstance(init, FakeTensor):
                raise zeros.refused(name, "it was made by another trace")
            raise self.captured(init)
        writer = self._written.get(storage(init))
        if writer is not None:
            raise zeros.refused(name, f"it was filled in place by `{writer}`")
        reason = zeros.otherwise(self.node_of(init))
        if reason is not None:
            raise zeros.refused(name, reason)


def storage(tensor: Tensor) -> int:
    """Return what tells the storage of a tensor from others."""
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()._cdata
