"""The names of one scope during a walk: what each may be, here and at any time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from dslmut.checking import entities as en
from dslmut.checking.entities import Kind
from dslmut.checking.environments import Binding, Environment, age
from dslmut.checking.facts import Facts, Rebinding, Signature
from dslmut.checking.lattice import NOTHING, Value, join
from dslmut.checking.origins import Origin, Root
from dslmut.checking.resolve import Resolver, type_of
from dslmut.checking.scopes import arguments_of, bound_names, rebound_inside
from dslmut.checking.source import FunctionNode, Source

_MUT = en.Word("mut")


class Names:
    """The names of a function, a nested function, or a module.

    Args:
        source: The text it is in.
        resolver: Of names from outside.
        facts: Where to record.
        scope: The function or module.
        signature: What the function may change; None where anything may be changed.
        parent: Those of the enclosing function that a nested one shares rights with.
    """

    def __init__(
        self,
        source: Source,
        resolver: Resolver,
        facts: Facts,
        scope: FunctionNode | ast.Module | ast.ClassDef,
        signature: Signature | None,
        parent: Names | None,
    ) -> None:
        self.source = source
        self.resolver = resolver
        self.facts = facts
        self.scope = scope
        self.signature = signature
        self.parent = parent
        self.locals = bound_names(scope, ":=" in source.text)
        self.own: frozenset[str] = frozenset()  # the names of a comprehension
        self.running = False
        self.known: dict[str, Value] = {}  # what names from outside stand for
        self.env = Environment()
        self.ever = Environment()
        self.rebound = (
            rebound_inside(scope)
            if "nonlocal" in source.text and scope in source.nesting
            else frozenset()
        )

    @property
    def restricted(self) -> bool:
        """Say whether the rules about what may be changed hold here."""
        return self.root.signature is not None

    @property
    def root(self) -> Names:
        """Return those of the outermost function."""
        return self if self.parent is None else self.parent.root

    def fresh(self, node: ast.AST, kind: Kind = Kind.UNKNOWN) -> Origin:
        """Return the origin of what this node makes anew."""
        return Origin(Root.FRESH, f"#{node.lineno}:{node.col_offset}", kind)  # pyright: ignore[reportAttributeAccessIssue]

    def lookup(self, name: str) -> Value:
        """Return what a name may be at this point."""
        binding = self.env.get(name)
        if binding is not None and name in self.rebound:
            return join(binding.value, self.sometime(name))
        if binding is not None:
            return binding.value
        if name in self.locals:
            return NOTHING
        if self.parent is not None:
            return self.parent.captured(name)
        return self.outside(name)

    def captured(self, name: str) -> Value:
        """Return what a nested function finds under a name: now, if it is called from here."""
        if name in self.locals and not self.running:
            return self.sometime(name)  # it runs whenever it likes
        return self.lookup(name)

    def sometime(self, name: str) -> Value:
        """Return what a name may be at any time, with all that is changed anywhere."""
        binding = self.ever.get(name)
        return age(binding.value, self.facts.changed) if binding else NOTHING

    def outside(self, name: str) -> Value:
        """Return what a name of the module or of an enclosing plain function stands for."""
        known = self.root.known
        if name not in known:
            entity = self.resolver.name(name)
            type_ = type_of(entity)
            origins = frozenset({Origin(Root.OUTER, name, type_.kind)})
            foreign = entity is None or isinstance(entity, en.Instance)
            known[name] = Value(type_, origins if foreign else frozenset(), entity=entity)
        return known[name]

    def binding(self, name: str) -> Binding | None:
        """Return the binding of a name, of an enclosing function too."""
        found = self.env.get(name)
        if found is None and self.parent is not None and name not in self.locals:
            return self.parent.ever.get(name) or self.parent.binding(name)
        return found

    def bind(self, name: str, value: Value, node: ast.AST, form: str) -> None:
        """Give a name a value."""
        owner = self.owner_of(name)
        mut_names = owner.signature.mut_names if owner is not None and owner.signature else ()
        if name not in self.own and (name in mut_names or self.hides_mut(name, value)):
            self.facts.record(Rebinding(node, name, form))
            return
        binding = Binding.at(self.source.span(node), value)
        if owner is self or owner is None:
            self.env[name] = binding
        home = owner or self
        if home.scope not in self.source.nesting and not isinstance(home.scope, ast.Module):
            return  # nothing inside asks what it was at other times
        before = home.ever.get(name)
        if before is None:
            home.ever[name] = binding
        else:
            home.ever[name] = before.joined(join(before.value, value), binding.sites)

    def owner_of(self, name: str) -> Names | None:
        """Return those of the function that a name belongs to; None for the module's."""
        if name in self.locals:
            return self
        return self.parent.owner_of(name) if self.parent is not None else None

    def super_(self) -> Value:
        """Return what ``super()`` stands for: the first parameter, seen as its base class."""
        scope = self.root.scope
        arguments = [] if isinstance(scope, ast.Module | ast.ClassDef) else arguments_of(scope)
        origins = self.lookup(arguments[0].arg).origins if arguments else frozenset()
        cls = self.resolver.super_class()
        return Value(cls.type if cls else en.UNKNOWN, origins)

    def hides_mut(self, name: str, value: Value) -> bool:
        """Say whether binding a name takes ``mut`` away from the function."""
        if self.parent is not None or not self.restricted:
            return False
        return self.outside(name).entity == _MUT and value.entity != _MUT

    @contextmanager
    def own_names(self, names: frozenset[str]) -> Iterator[None]:
        """Evaluate a comprehension, whose targets hide names of the function for a while."""
        hidden = {n: self.env[n] for n in names if n in self.env}
        outer_locals, outer_own = self.locals, self.own
        self.locals, self.own = outer_locals | names, outer_own | names
        yield
        self.locals, self.own = outer_locals, outer_own
        for name in names:
            self.env.pop(name, None)
        self.env.update(hidden)
