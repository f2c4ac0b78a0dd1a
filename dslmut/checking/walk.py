"""The state of one walk over a function, and the operations that statements and expressions share.

A walk interprets the function over the lattice of ``origins``: it runs every statement once (those
of loops until nothing changes any more) on environments that say what each name may be.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

from dslmut.checking import entities as en
from dslmut.checking import knowledge as kn
from dslmut.checking.entities import Kind, Parameter
from dslmut.checking.environments import Binding, Environment, Final, Loop, age, meet, outdate
from dslmut.checking.facts import (
    Alias,
    Change,
    Facts,
    Kept,
    Note,
    Opaque,
    Signature,
    Verb,
    Write,
)
from dslmut.checking.knowledge import STATISTICS
from dslmut.checking.lattice import (
    NOTHING,
    Bound,
    Read,
    Use,
    Value,
    join,
    part,
    reads_in,
    with_contents,
)
from dslmut.checking.memory import Memory
from dslmut.checking.names import Names
from dslmut.checking.origins import Origin, Root
from dslmut.checking.resolve import Resolver, type_of
from dslmut.checking.source import FunctionNode, Source
from dslmut.checking.trees import root_name
from dslmut.checking.values import SETTLED, cut_off
from dslmut.diagnostics.model import Span

Handler = Callable[["Walk", ast.AST], object]
Handlers = Mapping[type[ast.AST], Handler]
Reader = Callable[[ast.expr], Value]


class Walk(Names):
    """One pass over a function, a nested function, or a module.

    Args:
        source: The text it is in.
        resolver: Of names from outside.
        facts: Where to record.
        handlers: What to do for each type of node.
        scope: The function or module.
        signature: What the function may change; None where anything may be changed.
        parent: The walk over the enclosing function that a nested one shares rights with.
        caller: The walk over the function that calls this nested one.
        memory: Of the functions that are called; a nested walk has its parent's.
    """

    def __init__(
        self,
        source: Source,
        resolver: Resolver,
        facts: Facts,
        handlers: Handlers,
        scope: FunctionNode | ast.Module | ast.ClassDef,
        signature: Signature | None = None,
        parent: Walk | None = None,
        caller: Walk | None = None,
        memory: Memory | None = None,
    ) -> None:
        super().__init__(source, resolver, facts, scope, signature, parent)
        self.handlers = handlers
        self.caller = caller
        self.memory = memory or (parent.memory if parent is not None else Memory())
        self.followed = 0
        self.waiting: dict[int, Value] = {}
        self.returned: Value | None = None
        self.writes: dict[Origin, Write] = {}
        self.differentiates = False
        self.generates = False
        self.parameters: tuple[Parameter, ...] = ()
        self.without_gradients = caller is not None and caller.without_gradients
        self.alive = True
        self.loops: list[Loop] = []
        self.catchers: list[list[Environment]] = []
        self.finals: list[Final] = []
        self.exits: list[Environment] = []
        self.nested: list[FunctionNode | ast.ClassDef] = []
        self.defaults: dict[int, dict[str, Value]] = {}

    # -- running -----------------------------------------------------------------------------

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Run statements in order."""
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Run one statement; what may be raised from it leaves with the values before or after."""
        self._may_raise()
        self.handlers[type(node)](self, node)
        self._may_raise()

    def _may_raise(self) -> None:
        if self.catchers and self.alive:
            self.catchers[-1].append(self.env.fork())

    def evaluate(self, node: ast.expr | None) -> Value:
        """Return what an expression may be, and record what evaluating it does."""
        if node is None:
            return NOTHING
        value = self.handlers[type(node)](self, node)
        assert isinstance(value, Value)
        if self.without_gradients and value.graph and isinstance(node, ast.Call | ast.BinOp):
            return cut_off(value)
        return value

    def branch(self, run: Callable[[], object], start: Environment) -> Environment | None:
        """Run one path from *start*; return where it ends, or None where it leaves."""
        alive = self.alive
        self.env, self.alive = start, alive
        run()
        end = self.env if self.alive else None
        self.alive = alive
        return end

    def resume(self, ends: Iterable[Environment | None]) -> None:
        """Go on where paths meet. Where none arrives, what follows is dead but checked as well."""
        met = meet(ends)
        if met is None:
            self.alive = False
        else:
            self.env = met

    def leave(self, into: list[Environment] | None = None) -> None:
        """End the path, as ``return``, ``raise``, ``break`` and ``continue`` do."""
        if into is not None and self.alive:
            self.depart(into, self.env.fork())
        self.alive = False

    def depart(self, into: list[Environment], environment: Environment) -> None:
        """Take a path to where it goes on: through the ``finally`` blocks that it leaves, first."""
        final = self.finals[-1] if self.finals else None
        if final is not None and (into is self.exits or final.loops == len(self.loops)):
            into = final.on_the_way(into)
        into.append(environment)

    def returns(self, value: Value) -> None:
        """Note that the function may return a value."""
        if self.alive:
            self.returned = value if self.returned is None else join(self.returned, value)

    def yields(self, value: Value) -> None:
        """Note that the function may yield a value."""
        self.generates = True
        # In the environment, where changes between one item and the next age it.
        before = self.env.get(_YIELDED)
        self.env[_YIELDED] = Binding(join(before.value, value) if before else value)

    @property
    def yielded(self) -> Value:
        """Return all that the function may have yielded."""
        binding = self.env.get(_YIELDED)
        return binding.value if binding is not None else NOTHING

    def callers(self) -> Iterator[Walk]:
        """Yield this walk and those over its callers: everything that runs now."""
        walk: Walk | None = self
        while walk is not None:
            yield walk
            walk = walk.caller

    @property
    def function(self) -> FunctionNode:
        """Return the function, where the scope is one."""
        assert isinstance(self.scope, FunctionNode)
        return self.scope

    def home_of(self, node: FunctionNode) -> Walk | None:
        """Return the walk over the function that defines a nested one."""
        walk: Walk | None = self
        while walk is not None and id(node) not in walk.defaults:
            walk = walk.parent if isinstance(walk.parent, Walk) else None
        return walk

    # -- reading -----------------------------------------------------------------------------

    def used(self, value: Value) -> Value:
        """Note that something was read as a value: reads from before a change need a snapshot."""
        for read in reads_in(value):
            if read.stale:
                self.facts.note(read.site, Note.SNAPSHOT)
        return value

    def needed(self, value: Value) -> Value:
        """Note that the very objects are needed, not their values."""
        for read in reads_in(value):
            self.facts.note(read.site, Note.HANDLE)
        return value

    def operands(self, nodes: Iterable[ast.expr], read: Reader | None = None) -> list[Value]:
        """Evaluate expressions in order, all of which are used together at the end."""
        return [self.used(v) for v in self.in_order(nodes, read)]

    def in_order(self, nodes: Iterable[ast.expr], read: Reader | None = None) -> list[Value]:
        """Evaluate expressions in order; one may change what those before it have read."""
        nodes = list(nodes)
        for node in nodes:
            self.wait(node, (read or self.evaluate)(node))
        return [self.done(node) for node in nodes]

    def wait(self, node: ast.AST, value: Value) -> None:
        """Keep a value while others are evaluated, which may change what it was read from."""
        self.waiting[id(node)] = value

    def waited(self, node: ast.AST) -> Value:
        """Return a value that waits, with what was changed since."""
        return self.waiting[id(node)]

    def done(self, node: ast.AST) -> Value:
        """Return a value that need not wait any more."""
        return self.waiting.pop(id(node))

    def peek(self, node: ast.expr) -> Value:
        """Evaluate an expression of which neither the value nor the object is needed."""
        return self.lookup(node.id) if isinstance(node, ast.Name) else self.evaluate(node)

    def handle(self, node: ast.expr) -> Value:
        """Evaluate an expression that is needed as the very object, not as a value."""
        return self.needed(self.peek(node))

    def forward_runs(self, model: Value) -> None:
        """Note that a model is called: what was read of its statistics is of the past."""
        for walk in self.callers() if self.facts.statistics else ():
            walk.stale(model.origins, forward=True)

    def set_graph(self, name: str, graph: frozenset[Use]) -> None:
        """Note what the tensor under a name is computed from, after it was changed itself."""
        binding = self.env.get(name)
        if binding is not None and binding.value.graph != graph:
            self.env[name] = Binding(binding.value._replace(graph=graph), binding.sites)

    def field_read(self, node: ast.expr, value: Value) -> Value:
        """Return what an expression reads; if that may be a field, the read is remembered."""
        if not value.in_storage or not value.origins:
            return value
        moves = any(o.path[-1:] and o.path[-1] in STATISTICS for o in value.origins)
        self.facts.statistics |= moves
        read = value._replace(reads=value.reads | {Read(id(node), value.origins, moves=moves)})
        return self.differentiable(read, value) if value.type.trained else read

    def attribute(self, owner: Value, name: str) -> Value:
        """Return what ``owner.name`` may be."""
        entity = owner.entity
        if isinstance(entity, en.Module | en.Class):
            found = self.resolver.member(entity, name)
            if found is None and isinstance(entity, en.Class) and kn.tells(name):
                return Value(en.CALLABLE, entity=Bound(NOTHING, name))
            return Value(type_of(found), owner.origins, entity=found)
        declared = owner.type.cls.members.field(name) if owner.type.cls else None
        if declared == en.PLAIN:
            return Value(en.PLAIN)
        return part(owner, name, declared or en.UNKNOWN)

    # -- changing ----------------------------------------------------------------------------

    def change(
        self, node: ast.AST, subject: ast.expr, touched: Iterable[Origin], verb: Verb, name: str
    ) -> None:
        """Record that the things *touched*, any of which *subject* may be, are changed."""
        touched = frozenset(touched)
        if not touched:
            return
        for walk in self.callers():
            walk.stale(touched)
        self.facts.changed |= touched
        blamed = frozenset(o for o in touched if not o.changeable)
        self.facts.record(
            Change(node, subject, blamed, touched, verb, name, self.alias(subject, blamed))
        )

    def stale(self, changed: frozenset[Origin], forward: bool = False) -> None:
        """Note that something was changed: values read from it before are of the past."""
        self.env.update_values(lambda v: age(v, changed, forward) if v.reads or v.contents else v)
        for key, value in self.waiting.items():
            self.waiting[key] = age(value, changed, forward)

    def outdate(self, changed: frozenset[Origin], place: Span) -> None:
        """Note where parameters got new values: what was computed from them before is late."""
        self.env.update_values(lambda v: outdate(v, changed, place) if v.graph or v.contents else v)
        for key, value in self.waiting.items():
            self.waiting[key] = outdate(value, changed, place)

    def written(self, node: ast.AST, value: Value, new: bool = True) -> None:
        """Note that a node writes into a field or a view of one, perhaps *new* values."""
        if value.in_storage:
            self.facts.note(node, Note.IN_PLACE)
            for read in value.reads:
                self.facts.note(read.site, Note.STORED)
            if new:
                self.rewritten(node, value.origins, value.type.trained)

    def rewritten(self, node: ast.AST, origins: Iterable[Origin], trained: bool) -> None:
        """Note that tensors of a model get new values.

        Args:
            node: What does it.
            origins: The tensors, or the model.
            trained: Whether parameters are certainly among them.
        """
        changed = frozenset(o for o in origins if o.kind in en.MARKABLE)
        if not changed:
            return
        place = self.source.span(node)
        for walk in self.callers():
            for origin in changed:
                known = walk.writes.get(origin)
                if known is None or (trained and not known.trained):
                    walk.writes[origin] = Write(place, trained)
            if trained and walk.differentiates:
                walk.outdate(changed, place)

    def differentiable(self, value: Value, *parameters: Value) -> Value:
        """Return a tensor that was computed from parameters, or by a model with such."""
        if self.without_gradients:
            return cut_off(value)
        uses = {Use(p.origins) for p in parameters if p.inside_model}
        for walk in self.callers() if uses else ():
            walk.differentiates = True
        return value._replace(graph=value.graph | uses) if uses else value

    def alias(self, subject: ast.expr, blamed: Iterable[Origin]) -> Alias | None:
        """Return the name at the root of an expression, and where it got what is blamed."""
        name = root_name(subject)
        binding = self.binding(name) if name else None
        if name is None or binding is None:
            return None
        for origin in sorted(blamed, key=str):
            site = binding.site_of(origin) if origin.name != name else None
            if site is not None:
                return Alias(name, *site)
        return None

    def opaque(self, node: ast.AST, owner: Value, what: str, fix: str) -> bool:
        """Record a construct that cannot be followed, if it concerns a model; say whether it does."""
        concerned = owner.type.kind in en.MARKABLE or owner.inside_model
        if concerned:
            self.facts.record(Opaque(node, what, fix))
        return concerned

    def note_alias(self, target: ast.expr, value: Value) -> None:
        """Note that a target gets a value which may be a field, or a view of one."""
        if value.in_storage:
            self.facts.note(target, Note.ALIASED)

    def keep(self, node: ast.AST, value: Value, returned: bool = False) -> None:
        """Note that a value outlives the call, where that matters."""
        things = frozenset(_outlives(value))
        if things:
            self.facts.record(Kept(node, things, returned))

    def hold(self, holder: ast.expr, value: Value, node: ast.AST) -> None:
        """Note that the object under a name now holds a value too."""
        name = root_name(holder)
        if name is not None and any(not o.changeable for o in self.lookup(name).origins):
            self.keep(node, value)
        binding = self.env.get(name) if name else None
        if name is None or binding is None or not value.reachable:
            return
        old = binding.value
        known = value.reachable <= old.reachable and {*reads_in(value)} <= {*reads_in(old)}
        if old.type.kind in SETTLED or known:
            return
        span = self.source.span(node)
        sites = ((o, span) for o in value.reachable)
        self.env[name] = binding.joined(with_contents(old, value), sites)


def _outlives(value: Value) -> Iterator[Origin]:
    """Yield the `Mut` parameters, and the functions defined here, that a value is or holds."""
    for origin in value.reachable:
        whole = not origin.path or value.type.kind in en.MARKABLE
        if (origin.root is Root.MUT and whole) or origin.kind is Kind.CALLABLE:
            yield origin


_YIELDED = "<yielded>"
