"""A pass over a body along all of its paths, and what is said of its statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from dslmut.checking.resolve import Resolver
from dslmut.checking.scopes import bound_names, rebound_inside
from dslmut.checking.source import FunctionNode, Source
from dslmut.checking.tracing import expressions
from dslmut.checking.tracing.refusals import BRANCH, WRITE, Refusal, writes
from dslmut.checking.tracing.tables import GUARDS
from dslmut.checking.tracing.things import UNKNOWN, Path, Sort, Thing, meet
from dslmut.diagnostics.model import Diagnostic, Label


class Body:
    """The state of one pass.

    Only what is certain is said: a name that is bound on several paths has what all of them give
    it, in a loop what the loop binds is unknown, and so is what comes from functions that cannot
    be read.

    Args:
        source: The text.
        resolver: Of names from outside.
        node: The function.
        path: What is known when it starts.
        found: Where to put what is wrong.
        around: The functions that are being followed to here.
        quiet: Whether nothing is said, since it may never happen.
    """

    def __init__(
        self,
        source: Source,
        resolver: Resolver,
        node: FunctionNode,
        path: Path,
        found: list[Diagnostic],
        around: tuple[FunctionNode, ...] = (),
        quiet: bool = False,
    ) -> None:
        self.source, self.resolver, self.node, self.found = source, resolver, node, found
        self.around, self.quiet = (*around, node), quiet
        self.path: Path = path
        self.alive, self.root, self.followed = True, self, 0
        self._known: dict[int, tuple[ast.expr, Thing]] = {}
        self.own = bound_names(node, True)
        self.shared = rebound_inside(node)
        self.returned: list[tuple[ast.Return, Thing]] = []
        self.exits: list[Path] = []
        self._leaving: list[tuple[list[Path], list[Path]]] = []  # breaks and continues of loops

    # -- saying ------------------------------------------------------------------------------

    def say(self, refusal: Refusal, node: ast.AST, labels: Iterable[Label] = ()) -> None:
        """Report what must not be done, unless it may never be."""
        code, message, fix = refusal
        self.report(code.at(self.source.span(node), message, fix=fix, labels=labels))

    def report(self, diagnostic: Diagnostic) -> None:
        """Report what is wrong, unless it may never be."""
        if not self.quiet:
            self.found.append(diagnostic)

    # -- values ------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr | None) -> Thing:
        """Return what an expression is for certain, and say what evaluating it does wrong.

        Asked for again within its statement, it is not evaluated again: it may declare states.
        """
        if node is None:
            return UNKNOWN
        if id(node) not in self._known:
            self._known[id(node)] = (node, expressions.evaluate(self, node))
        return self._known[id(node)][1]

    def truth(self, node: ast.expr) -> object:
        """Ask for the truth of an expression; return it where it is known, else None."""
        self.narrow(node)
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self.truth(value)
            return None
        thing = self.evaluate(node)
        if thing.is_tensor:
            self.say(BRANCH, node)
        return bool(thing.value) if thing.is_constant else None

    def narrow(self, test: ast.expr) -> None:
        """Forget the names whose sort a test asks for: in its branches they are something else."""
        for call in ast.walk(test):
            match call:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in GUARDS:
                    inner = (n for a in call.args for n in ast.walk(a))
                    self.path.forget(n.id for n in inner if isinstance(n, ast.Name))

    def store(self, target: ast.expr, thing: Thing) -> None:
        """Bind what an assignment binds, and say where it writes into what was given."""
        match target:
            case ast.Name(id=name):
                if name in self.own and name not in self.shared and thing is not UNKNOWN:
                    self.path.names[name] = thing
                else:
                    self.path.forget([name])
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                plain = not any(isinstance(e, ast.Starred) for e in elements)
                known = plain and len(thing.parts) == len(elements)
                for element, part in zip(
                    elements, thing.parts if known else [UNKNOWN] * len(elements)
                ):
                    self.store(element, part)
            case ast.Starred(value=inner):
                self.store(inner, UNKNOWN)
            case ast.Subscript(value=owner):
                self.evaluate(target.slice)
                self.write(owner, "__setitem__", target)
            case ast.Attribute(value=owner):
                if self.evaluate(owner).is_tensor:
                    self.say(WRITE, target)

    def write(self, owner: ast.expr, operation: str, node: ast.AST) -> Thing:
        """Note that the memory of a value is written into; return the value after it."""
        thing = self.evaluate(owner)
        if thing.is_tensor and thing.given:
            self.say(writes(operation, thing.given), node)
        if not thing.is_tensor:
            return UNKNOWN
        filled = Thing(Sort.TENSOR, made=f"it was filled in place by `{operation}`")
        if isinstance(owner, ast.Name) and not thing.given:
            self.store(owner, filled)
        return filled

    # -- paths -------------------------------------------------------------------------------

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Run statements in order, up to where the path ends."""
        for statement in statements:
            if not self.alive:
                return
            self._statement(statement)

    def fork(self, run: Callable[[], object], start: Path | None = None) -> Path | None:
        """Run one of several ways on; return where it ends, or None where it leaves."""
        before = self.path
        self.path, self.alive = (start or before).fork(), True
        run()
        end = self.path if self.alive else None
        self.path, self.alive = before, True
        return end

    def join(self, ends: Iterable[Path | None]) -> None:
        """Go on where ways meet."""
        met = meet(ends)
        self.path, self.alive = met or self.path, met is not None

    def _statement(self, node: ast.stmt) -> None:
        self._known.clear()
        match node:
            case ast.Assign(targets=targets, value=value):
                thing = self.evaluate(value)
                for target in targets:
                    self.store(target, thing)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.store(target, self.evaluate(value))
            case ast.AugAssign():
                self._augment(node)
            case ast.Expr(value=value):
                self.evaluate(value)
            case ast.Return(value=value):
                self.returned.append((node, self.evaluate(value)))
                self.exits.append(self.path)
                self.alive = False
            case ast.Raise():
                self.alive = False
            case ast.Assert(test=test):
                self.alive = self.truth(test) is not False
            case ast.If(test=test, body=body, orelse=orelse):
                self._if(test, body, orelse)
            case ast.For() | ast.AsyncFor():
                self.evaluate(node.iter)
                self._loop(node, node.target)
            case ast.While():
                self._loop(node, None)
            case ast.Break() | ast.Continue():
                if self._leaving:
                    self._leaving[-1][isinstance(node, ast.Continue)].append(self.path)
                self.alive = False
            case ast.Try() | ast.TryStar():
                self._try(node)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    self.evaluate(item.context_expr)
                    if item.optional_vars is not None:
                        self.store(item.optional_vars, UNKNOWN)
                self.run(body)
            case ast.Match():
                self._match(node)
            case ast.FunctionDef(name=name, decorator_list=decorators):
                made = UNKNOWN if decorators else Thing(Sort.FUNCTION, node=node)
                self.store(ast.Name(name, ast.Store()), made)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self.shared |= frozenset(names)
            case _:
                self.path.forget(_bound_in([node]))

    def _augment(self, node: ast.AugAssign) -> None:
        sign = _SIGNS.get(type(node.op), "=")
        operand = self.evaluate(node.value)
        match node.target:
            case ast.Name() as name:
                old = self.evaluate(ast.Name(name.id, ast.Load()))
                if old.is_tensor:
                    self.write(name, sign, node)
                else:
                    self.store(name, expressions.arithmetic(old, operand, sign))
            case ast.Subscript(value=owner):
                self.write(owner, "__setitem__", node)
            case ast.Attribute() as target:
                self.store(target, operand)

    def _if(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        outcome = self.truth(test)
        ways = [body] if outcome is True else [orelse] if outcome is False else [body, orelse]
        self.join([self.fork(lambda w=way: self.run(w)) for way in ways])

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, target: ast.expr | None) -> None:
        if isinstance(node, ast.While):
            self.truth(node.test)
            self._known.clear()
        self.path.forget(_bound_in(node.body))
        endless = isinstance(node, ast.While) and self.truth(node.test) is True
        start = self.path.fork()

        def once() -> None:
            if target is not None:
                self.store(target, UNKNOWN)
            self.run(node.body)

        self._leaving.append(([], []))
        end = self.fork(once)
        breaks, continues = self._leaving.pop()
        done: Path | None = None
        if not endless:
            self.join([start, end, *continues])
            done = self.fork(lambda: self.run(node.orelse))
        self.join([done, *breaks])

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        start = self.path.fork()
        start.forget(_bound_in(node.body))
        quiet, self.quiet = self.quiet, self.quiet or bool(node.handlers)
        ends = [self.fork(lambda: self.run([*node.body, *node.orelse]))]
        self.quiet = quiet
        for handler in node.handlers:
            inside = start.fork()
            inside.forget([handler.name] if handler.name else [])
            ends.append(self.fork(lambda h=handler: self.run(h.body), inside))
        self.join(ends)
        if self.alive:
            self.run(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        self.evaluate(node.subject)
        self.path.forget(n.id for n in ast.walk(node.subject) if isinstance(n, ast.Name))
        ends: list[Path | None] = [self.path.fork()]
        for case in node.cases:
            start = self.path.fork()
            start.forget(_bound_in([node]))
            ends.append(self.fork(lambda c=case: self.run(c.body), start))
            if isinstance(case.pattern, ast.MatchAs) and not (case.pattern.pattern or case.guard):
                ends[0] = None
        self.join(ends)


_SIGNS = {
    ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*=", ast.Div: "/=", ast.Pow: "**=", ast.Mod: "%=",
    ast.FloorDiv: "//=", ast.MatMult: "@=", ast.BitAnd: "&=", ast.BitOr: "|=", ast.BitXor: "^=",
}  # fmt: skip


def _bound_in(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield every name that statements bind, those of patterns, imports and definitions too."""
    for node in (n for s in statements for n in ast.walk(s)):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=new):
                yield new or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
