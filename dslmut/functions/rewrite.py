"""The rewriting of a checked function: the few constructs that mean something here, and no others.

The new code is compiled inside of a dummy function that binds the free variables, and inside of a
dummy class for a method, so that cells, ``super()`` and name mangling stay as they were. Every
node keeps its place in the user's file. Besides the user's own free variables the code has two:
``__dslmut__``, the run time, and ``__dslmut_spec__``, what this function declares.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Generator, Iterator

from dslmut.checking.facts import SIGNS, Note
from dslmut.checking.source import FunctionNode
from dslmut.checking.trees import is_super
from dslmut.functions.edges import ending, entering
from dslmut.functions.plan import CALL, RUNTIME, SPEC, Plan
from dslmut.functions.trees import (
    Node,
    bare_arguments,
    compiled_alone,
    first_line,
    inside_of_view,
    mangled,
    no_type_parameters,
    placed,
    runtime_call,
    shallow,
)

Store = tuple[str, list[ast.expr]]
"""A function of the run time that stores something, and its arguments."""

CHECKS = {"assign": "check_target", "assign_item": "check_item"}
"""For each of them, the one that raises what it would raise, and changes nothing."""


def rewritten(plan: Plan, original: types.CodeType) -> types.CodeType:
    """Return the code of the rewritten function.

    Args:
        plan: What to rewrite.
        original: The code as Python compiled it.
    """
    node = _Rewriter(plan, first_line(original)).function(plan.definition.node)
    return compiled_alone(node, plan.definition, original, (RUNTIME, SPEC))


# -- the rewriter --------------------------------------------------------------------------------


class _Rewriter:
    """Makes a new tree; the old one stays as it is, since others read it too."""

    def __init__(self, plan: Plan, start: int) -> None:
        self.plan, self.facts, self.start = plan, plan.facts, start
        self._temporaries = 0
        self._covered: set[int] = set()  # what a view is taken of that is copied itself
        owner = next(
            (s for s in reversed(plan.definition.outer) if isinstance(s, ast.ClassDef)), None
        )
        self._class_name = owner.name.lstrip("_") if owner is not None else ""
        self._in_class = False

    # -- the function itself -----------------------------------------------------------------

    def function(self, node: FunctionNode) -> FunctionNode:
        """Rewrite the decorated function: its prologue, its body, its returns."""
        if isinstance(node, ast.Lambda):
            return ast.copy_location(
                ast.Lambda(bare_arguments(node.args), self.expression(node.body)), node
            )
        body = node.body
        docstring = body[:1] if ast.get_docstring(node, clean=False) is not None else []
        rest = [s for statement in body[len(docstring) :] for s in self.statement(statement)]
        new = type(node)(
            name=node.name,
            args=bare_arguments(node.args),
            body=[*docstring, *entering(self.plan, self.start), *rest, *ending(self.plan)],
            # The first line of a function is that of its first decorator.
            decorator_list=[ast.copy_location(ast.Constant(None), d) for d in node.decorator_list],
            returns=None,
            type_comment=None,
            **no_type_parameters(),
        )
        return ast.copy_location(new, node)

    # -- statements --------------------------------------------------------------------------

    def statement(self, node: ast.stmt, nested: bool = False) -> list[ast.stmt]:
        """Rewrite one statement into one or more."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return [node if id(node) in self.plan.untouched else self._inner(node)]
            case ast.ClassDef():
                return [self._class(node)]
            case ast.Return(value=value) if self.plan.returns and not nested:
                result = self.expression(value) if value is not None else ast.Constant(None)
                call = runtime_call(
                    "leave", ast.Name(SPEC, ast.Load()), ast.Name(CALL, ast.Load()), result
                )
                return [placed(ast.Return(placed(call, value or node)), node)]
            case ast.Assign(targets=targets, value=value) if any(map(self._is_ours, targets)):
                return list(self._assign(node, targets, self.expression(value)))
            case ast.AnnAssign(target=target, value=ast.expr() as value) if self._is_ours(target):
                return list(self._assign(node, [target], self.expression(value)))
            case ast.AugAssign():
                return list(self._augmented(node))
        return [self._copied(node, nested)]

    def _inner(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        """Rewrite a function inside; its returns are its own."""
        new = shallow(node)
        new.body = [s for statement in node.body for s in self.statement(statement, nested=True)]
        new.args = self._copied(node.args)
        new.decorator_list = [self.expression(d) for d in node.decorator_list]
        return new

    def _class(self, node: ast.ClassDef) -> ast.stmt:
        """Rewrite a class inside: its methods are ordinary code, but for models that they reach."""
        before = self._class_name, self._in_class
        self._class_name, self._in_class = node.name.lstrip("_"), True
        new = self._copied(node, nested=True)
        self._class_name, self._in_class = before
        return new

    def _is_ours(self, target: ast.expr) -> bool:
        """Say whether storing into a target has to go through the run time."""
        match target:
            case ast.Attribute():
                return self.facts.has(target, Note.MODEL if self._in_class else Note.FIELD)
            case ast.Subscript():
                return self.facts.has(target, Note.IN_PLACE)
            case ast.Tuple(elts=inner) | ast.List(elts=inner):
                return any(map(self._is_ours, inner))
            case ast.Starred(value=inner):
                return self._is_ours(inner)
        return False

    def _assign(
        self, node: ast.stmt, targets: list[ast.expr], value: ast.expr
    ) -> Iterator[ast.stmt]:
        """Assign in order; of several fields, all are checked before the first is written."""
        if len(targets) == 1 and isinstance(targets[0], ast.Attribute | ast.Subscript):
            name, arguments = self._store(targets[0], value)
            yield placed(ast.Expr(runtime_call(name, *arguments)), node)
            return
        stores: list[Store] = []
        source = self._temporary()
        yield placed(_named(source, value), node)
        for target in targets:
            yield from (placed(s, node) for s in self._spread(target, source, stores))
        yield from (placed(s, node) for s in _carried_out(stores))

    def _spread(self, target: ast.expr, source: str, stores: list[Store]) -> Iterator[ast.stmt]:
        """Give a target what is in a temporary; what has to be checked first is put off."""
        value = ast.Name(source, ast.Load())
        match target:
            case ast.Tuple(elts=inner) | ast.List(elts=inner) if self._is_ours(target):
                names = [self._temporary() for _ in inner]
                pattern: list[ast.expr] = [
                    ast.Starred(ast.Name(n, ast.Store()), ast.Store())
                    if isinstance(t, ast.Starred)
                    else ast.Name(n, ast.Store())
                    for t, n in zip(inner, names)
                ]
                unpacked: list[ast.expr] = [ast.Tuple(pattern, ast.Store())]
                yield ast.Assign(unpacked, value)
                for part, name in zip(inner, names):
                    bare = part.value if isinstance(part, ast.Starred) else part
                    yield from self._spread(bare, name, stores)
            case ast.Attribute() | ast.Subscript() if self._is_ours(target):
                name, (new, *places) = self._store(target, value)
                kept: list[ast.expr] = []
                for place in places:
                    kept.append((yield from self._held(place, target)))
                stores.append((name, [new, *kept]))
            case _:
                if not isinstance(target, ast.Name):  # others may see it: in the order of the text
                    yield from _carried_out(stores)
                    stores.clear()
                yield ast.Assign([self._copied(target)], value)

    def _store(self, target: ast.Attribute | ast.Subscript, value: ast.expr) -> Store:
        """Return the function of the run time that stores into a target, and its arguments."""
        if self.facts.has(target, Note.ALIASED):
            value = placed(runtime_call("apart", value), target)
        owner = self.expression(target.value)
        if isinstance(target, ast.Subscript):
            return "assign_item", [value, owner, self._index(target.slice)]
        fresh = [] if self.facts.has(target, Note.SHARED) else [ast.Constant(True)]
        return "assign", [value, owner, ast.Constant(self._mangled(target.attr)), *fresh]

    def _augmented(self, node: ast.AugAssign) -> Iterator[ast.stmt]:
        target, in_place = node.target, self.facts.has(node, Note.IN_PLACE)
        if isinstance(target, ast.Name):
            current = ast.Name(target.id, ast.Load())
            yield self._worked_in_place(node, current) if in_place else self._copied(node)
        elif not in_place and not self._is_ours(target):
            yield self._copied(node)
        else:
            yield from self._augmented_part(node, target, in_place)

    def _augmented_part(
        self, node: ast.AugAssign, target: ast.Attribute | ast.Subscript, in_place: bool
    ) -> Iterator[ast.stmt]:
        """``owner.f += value`` and ``owner[i] += value``: loaded, computed, stored."""
        owner = yield from self._held(self.expression(target.value), node)
        if isinstance(target, ast.Attribute):
            name, place = "augment", ast.Constant(self._mangled(target.attr))
            current = ast.Attribute(owner, target.attr, ast.Load())
        else:
            place = yield from self._held(self._index(target.slice), node)
            name, current = "augment_item", ast.Subscript(owner, place, ast.Load())
        if in_place:
            yield self._worked_in_place(node, current)
            return
        if self.facts.is_copied(target):
            current = runtime_call("snapshot", current)
        value, sign = self.expression(node.value), ast.Constant(SIGNS[type(node.op)])
        new = runtime_call(name, owner, place, placed(current, target), value, sign)
        yield placed(ast.Expr(new), node)

    def _worked_in_place(
        self, node: ast.AugAssign, current: ast.Name | ast.Attribute | ast.Subscript
    ) -> ast.stmt:
        """``w += value`` where *w* is a field: in place, and nothing to differentiate."""
        stored = shallow(current)
        stored.ctx = ast.Store()
        value, sign = self.expression(node.value), ast.Constant(SIGNS[type(node.op)])
        result = runtime_call("augmented", placed(current, node.target), value, sign)
        return placed(ast.Assign([placed(stored, node.target)], result), node)

    def _held(self, value: ast.expr, node: ast.AST) -> Generator[ast.stmt, None, ast.expr]:
        """Evaluate an expression into a temporary, and return what stands for it."""
        if isinstance(value, ast.Constant):
            return value
        name = self._temporary()
        yield placed(_named(name, value), node)
        return ast.Name(name, ast.Load())

    # -- expressions -------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> ast.expr:
        """Rewrite an expression."""
        if not self.facts.is_copied(node) or id(node) in self._covered:
            return self._expression(node)
        self._covered.update(map(id, inside_of_view(node)))
        name = "snapshots" if self.facts.has(node, Note.CONTAINER) else "snapshot"
        return placed(runtime_call(name, self._expression(node)), node)

    def _expression(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Call):
            if self.facts.has(node, Note.MARKER):
                return placed(runtime_call("Token", *[self.expression(a) for a in node.args]), node)
            return self._call(node)
        if isinstance(node, ast.Attribute) and self.facts.has(node, Note.STORED):
            owner, name = self.expression(node.value), ast.Constant(self._mangled(node.attr))
            return placed(runtime_call("stored", owner, name), node)
        return self._copied(node)

    def _call(self, node: ast.Call) -> ast.Call:
        func = self._callee(node)
        arguments = [self.expression(a) for a in node.args]
        keywords = [self._copied(k) for k in node.keywords]
        if self.facts.has(node, Note.IN_PLACE):
            new = runtime_call("in_place", func, *arguments)
            new.keywords = keywords
        else:
            new = ast.Call(func, arguments, keywords)
        if not node.args and getattr(node.func, "id", "") in ("locals", "vars", "dir"):
            new = runtime_call("of_user", placed(new, node))
        return placed(new, node)

    def _callee(self, node: ast.Call) -> ast.expr:
        """Make a function ready for tokens, where one is passed to it."""
        func = node.func
        if isinstance(func, ast.Attribute):
            if self._is_marker(func.value):
                assert isinstance(func.value, ast.Call)
                receiver = self.expression(func.value.args[0])
                name = ast.Constant(self._mangled(func.attr))
                return placed(runtime_call("bound", receiver, name), func)
            if is_super(func.value):
                return placed(runtime_call("marked", self.expression(func)), func)
        if any(map(self._is_marker, [*node.args, *(k.value for k in node.keywords)])):
            return placed(runtime_call("callee", self.expression(func)), func)
        return self.expression(func)

    def _is_marker(self, node: ast.expr) -> bool:
        return self.facts.has(node, Note.MARKER)

    def _index(self, node: ast.expr) -> ast.expr:
        """Turn what stands in brackets into an expression that may stand anywhere."""
        if isinstance(node, ast.Slice):
            bounds = [b or ast.Constant(None) for b in (node.lower, node.upper, node.step)]
            return placed(runtime_call("slice", *[self.expression(b) for b in bounds]), node)
        if isinstance(node, ast.Tuple):
            return placed(ast.Tuple([self._index(e) for e in node.elts], ast.Load()), node)
        return self.expression(node)

    # -- everything else ---------------------------------------------------------------------

    def _copied(self, node: Node, nested: bool = False) -> Node:
        """Copy a node, rewriting what is inside of it."""
        new = shallow(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(new, name, [x for item in value for x in self._child(item, nested)])
            else:
                setattr(new, name, self._child(value, nested)[0])
        return new

    def _child(self, value: object, nested: bool) -> list[object]:
        if isinstance(value, ast.stmt):
            return list(self.statement(value, nested))
        if isinstance(value, ast.expr):
            return [self.expression(value)]
        return [self._copied(value, nested)] if isinstance(value, ast.AST) else [value]

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"__dslmut_{self._temporaries}__"

    def _mangled(self, name: str) -> str:
        """Return an attribute's name as Python would mangle it in the class around it."""
        return mangled(self._class_name, name)


def _carried_out(stores: list[Store]) -> Iterator[ast.stmt]:
    """Yield the statements that store; of several, all are checked before the first is made."""
    checks = [(CHECKS[name], arguments) for name, arguments in stores] if len(stores) > 1 else []
    for name, arguments in (*checks, *stores):
        yield ast.Expr(runtime_call(name, *arguments))


def _named(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)
