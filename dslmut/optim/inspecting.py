"""What a bound optimizer shows of its insides: diagnostics, where they go, and update graphs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslmut.optim.bindable import lacks
from dslmut.optim.printing import readable
from dslmut.optim.reports import Sink, Sinks
from dslmut.optim.running import Runner


class Inspected:
    """The part of ``OptState`` that people look at."""

    _runner: Runner | None
    _sinks: Sinks
    state: Any

    def _current_runner(self) -> Runner:
        raise NotImplementedError

    def _settle(self) -> None:
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say to somebody who binds it again that it is bound (E-OPT-005)."""
            if name != "bind":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise lacks(
                "this optimizer is bound already",
                "keep it, or bind the configured rule once for each model: "
                "`rule = adamw(lr=1e-3)`, then `rule.bind(model)`",
                "its states belong to the parameters that it was bound to",
            )

    @property
    def diagnostics(self) -> Mapping[str, Mapping[str, float]]:
        """Return the diagnostics of the last step that computed them: name, parameter, number.

        They are read when they are first asked for, with one wait for each device. Parameters
        that had no gradient at that step are not among them.
        """
        assert self._runner is not None
        self._settle()
        return self._runner.counts.reports.numbers()

    def attach(self, sink: Sink) -> None:
        """Give the diagnostics of each step that computes them to a function, too.

        Args:
            sink: Takes the number of the step, from 0, and ``{name: {parameter: number}}``;
                ``dslmut.optim.sinks`` has ready ones. It is called behind the step, in the order
                of attachment. One that raises is detached with a warning: the step was made.
                Copies and pickles of the optimizer have no sinks.

        Raises:
            OptimizerError: E-OPT-011 for something that is no such function.
        """
        self._sinks.attach(sink)

    def detach(self, sink: Sink) -> None:
        """Take a sink away.

        Args:
            sink: As it was attached.

        Raises:
            ValueError: If it is not attached.
        """
        self._settle()
        self._sinks.detach(sink)

    def graph(self, name: str, *, updates: int | None = None) -> str:
        """Return the update graph of one parameter, for people.

        Args:
            name: Of the parameter.
            updates: What ``ctx.updates`` is, for a body that branches on it; by default that of
                the next update.

        Returns:
            A text: what goes in, how the body's branches on numbers came out, the scalars that
            are computed for each step, the operations in plain notation and in the body's own
            names, where the results go, and diagnostics.

        Raises:
            KeyError: If there is no such parameter; it names the nearest one.
        """
        runner = self._current_runner()
        items = {i.name: i for i in runner.items}
        if not isinstance(name, str) or name not in items:
            near = difflib.get_close_matches(str(name), items, n=1, cutoff=0.3)
            known = [f"; write `opt.graph({n!r})`" for n in (*near, *items)][:1]
            raise KeyError(f"there is no parameter {name!r}{''.join(known)}")
        item = items[name]
        self._settle()
        number: int = updates or self.state[item.parameter].get("updates", 0) + 1
        program = runner.program(item, runner.numbers.of(item.group, number))
        rule = runner.groups[item.group].definition.__name__
        return readable(program, name, rule, number)

    def _deliver(self) -> None:
        """Hand to the sinks what they have not got yet, of the steps that are known to count."""
        assert self._runner is not None
        fresh, self._runner.counts.fresh = self._runner.counts.fresh, []
        for reports in fresh if self._sinks else ():
            if reports.numbers():
                self._sinks.deliver(reports.step, reports.numbers())
