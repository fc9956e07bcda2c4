"""Where a number goes: what is computed from it, and the decisions that it takes part in.

Nothing is told apart here that may be one: all attributes of one name are one, and a container holds all that is put
into it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from crosstrain_migrate.facts.contents import FILLS
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.tensors import PER_SAMPLE
from crosstrain_migrate.facts.values import FromBatch
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.walks import walk

from .pure_functions import only_computes, only_raises

Decides = ast.If | ast.While
ASKS_FORM = frozenset({"builtins.isinstance", "builtins.hasattr", "builtins.type"})
FORM = (ast.In, ast.NotIn, ast.Is, ast.IsNot)


class Flow:
    """Follows one expression. `uses`: the expressions that hold something of it. `statements`: those around them. `decisions`: the parts of tests, comparisons that are
    kept, and arguments of functions that decide, by which it sends the processes on different ways."""

    def __init__(self, facts: Facts, start: ast.expr) -> None:
        self.facts = facts
        self.statements: set[ast.stmt] = set()
        self.decisions: list[ast.expr] = []
        self.uses: set[ast.AST] = set()
        self._work: list[ast.AST] = [start]
        while self._work:
            node = self._work.pop()
            if node not in self.uses:
                self.uses.add(node)
                self._follow(node)

    def _follow(self, node: ast.AST) -> None:
        statement = self.facts.table.statement_of(node)
        self.statements.add(statement)
        decision = self._decision(node, statement)
        if decision is not None:
            if decision not in self.decisions:
                self.decisions.append(decision)
            return  # from here on it is the same everywhere
        if isinstance(statement, Decides) and self._only_returns(statement):
            self._work += self.facts.callers.get(self.facts.enclosing_function(statement) or statement, ())
        self._work += [
            use for call in self._calls_around(node, statement) for use in self._through(call, node)
        ]
        if isinstance(statement, ast.Assign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            self._work += [use for target in targets for use in self._reads_of(target)]
        elif isinstance(statement, ast.For | ast.AsyncFor):
            self._work += self._reads_of(statement.target)
        elif isinstance(statement, ast.Return):
            function = self.facts.enclosing_function(statement)
            self._work += self.facts.callers.get(function, ()) if function is not None else ()

    def _calls_around(self, node: ast.AST, statement: ast.AST) -> Iterator[ast.Call]:
        for around in self.facts.table.ancestors(node):
            if around is statement:
                return
            if isinstance(around, ast.Call):
                yield around

    def _reads_of(self, target: ast.expr) -> Iterator[ast.AST]:
        """The uses of what is bound: of a variable, of an attribute of that name, of the whole container."""
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                yield from self._reads_of(part)
        elif isinstance(target, ast.Name):
            yield from self.facts.interp.uses.get(target, ())
        elif isinstance(target, ast.Attribute):
            reads = (n for n in self.facts.each(ast.Attribute) if n.attr == target.attr)
            yield from (n for n in reads if isinstance(n.ctx, ast.Load))
        elif isinstance(target, ast.Subscript):
            yield from self._uses_of_container(target.value)

    def _uses_of_container(self, held: ast.expr) -> Iterator[ast.AST]:
        if isinstance(held, ast.Name):
            for definition in self.facts.interp.reaching.get(held, ()):
                yield from self.facts.interp.uses.get(definition, ())
        else:
            yield from self._reads_of(held)

    def _through(self, call: ast.Call, node: ast.AST) -> Iterator[ast.AST]:
        """What a call that is given the number hands on."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in FILLS:
            yield from self._uses_of_container(call.func.value)
        for function in self.facts.targets(call):
            yield from self._uses_inside(call, function, node)

    def _uses_inside(self, call: ast.Call, function: FunctionNode, node: ast.AST) -> Iterator[ast.AST]:
        for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            given = self.facts.passed(call, function, argument.arg)
            if given is not None and node in walk(given):
                yield from self.facts.interp.uses.get(argument, ())

    # -- decisions -------------------------------------------------------------------------------------------

    def _decision(self, node: ast.AST, statement: ast.stmt) -> ast.expr | None:
        """The expression around `node` that must be the same on every process; None where it decides nothing here."""
        if self._among_rows(node) or self.facts.in_module(node):
            return None
        chain = [node, *self.facts.table.ancestors(node)]
        parts = [n for n in chain[: chain.index(statement)] if isinstance(n, ast.expr)]
        if isinstance(statement, Decides) and not only_speaks(statement):
            alike = self._asks_form(parts) or only_raises(statement) or self._only_returns(statement)
            return None if alike else _smallest(parts)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Compare | ast.BoolOp):
            return None if self._is_tensor(statement.value) else _smallest(parts)
        return self._given_to_decide(parts)

    def _given_to_decide(self, parts: list[ast.expr]) -> ast.expr | None:
        """The argument of a scheduler's step, or of a function of the script's own that tests it."""
        for inner, call in pairwise(parts):
            if not isinstance(call, ast.Call) or inner is call.func:
                continue
            if self._steps_scheduler(call):
                return inner
            if any(isinstance(v, FromBatch) and v.kind in PER_SAMPLE for v in self.facts.of(inner)):
                continue
            for function in self.facts.targets(call):
                if any(map(self._is_tested, self._uses_inside(call, function, inner))):
                    return inner
        return None

    def _only_returns(self, statement: ast.stmt) -> bool:
        """Whether all that comes of a test is what the function around it returns."""
        function = self.facts.enclosing_function(statement)
        return function is not None and only_computes(self.facts, function)

    def _is_tested(self, use: ast.AST) -> bool:
        """Whether a test asks for the number at `use`."""
        statement = self.facts.table.statement_of(use)
        if not isinstance(statement, Decides) or only_raises(statement) or self._only_returns(statement):
            return False
        chain = [use, *self.facts.table.ancestors(use)]
        return not self._asks_form(chain[: chain.index(statement)])

    def _asks_form(self, chain: list[ast.AST] | list[ast.expr]) -> bool:
        """Whether what a test asks of the first of `chain` is its type or what it contains, alike on every process."""
        for inner, around in pairwise(chain):
            if isinstance(around, ast.Compare) and any(isinstance(op, FORM) for op in around.ops):
                return True
            if isinstance(around, ast.Attribute) and around.attr in ("ndim", "dtype", "device"):
                return True
            called = around.func if isinstance(around, ast.Call) else inner
            if called is not inner and self.facts.paths(called) & ASKS_FORM:
                return True
        return False

    def _steps_scheduler(self, call: ast.Call) -> bool:
        stepped = (
            call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "step" else None
        )
        return stepped is not None and bool(self.facts.of(stepped) & set(self.facts.schedulers))

    def _is_tensor(self, node: ast.expr) -> bool:
        return any(isinstance(v, FromBatch) and v.kind in PER_SAMPLE for v in self.facts.of(node))

    def _among_rows(self, node: ast.AST) -> bool:
        """Whether `node` runs once for each row of a share, which processes have different numbers of."""
        for around in self.facts.table.ancestors(node):
            if around in self.facts.interp.batch_loops or isinstance(
                around, ast.FunctionDef | ast.AsyncFunctionDef
            ):
                return False
            if isinstance(around, ast.For | ast.AsyncFor | ast.comprehension):
                values = [v for part in walk(around.iter) for v in self.facts.of(part)]
                if any(isinstance(v, FromBatch) for v in values):
                    return True
        return False


def _smallest(parts: list[ast.expr]) -> ast.expr:
    """The part of a test that is taken as one: of `a and b`, and of `not a`, the one that asks."""
    whole = parts[0]
    for part in parts[1:]:
        if isinstance(part, ast.BoolOp) or (isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)):
            break
        whole = part
    return whole


def only_speaks(statement: ast.If | ast.While) -> bool:
    """Whether all that a test decides about is a call whose result nobody uses, such as a print."""
    body = [*statement.body, *statement.orelse]
    printed = ("print", "write", "info", "warning", "set_postfix", "set_description", "add_scalar")
    return all(
        isinstance(s, ast.Pass)
        or (
            isinstance(s, ast.Expr)
            and isinstance(s.value, ast.Call)
            and ast.unparse(s.value.func).rsplit(".", 1)[-1] in printed
        )
        for s in body
    )
