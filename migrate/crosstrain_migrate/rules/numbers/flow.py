"""Where a number goes: what is computed from it, and the decisions that it takes part in.

The analysis is coarse: all attributes of one name count as one, and a container holds all that is put into it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise, takewhile

from crosstrain_migrate.facts.contents import FILLS
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.tensors import PER_SAMPLE
from crosstrain_migrate.facts.values import External
from crosstrain_migrate.syntax.nodes import FunctionNode, last_name
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values, kinds_of
from .bindings import receiver, targets_of

Decides = ast.If | ast.While
CHANGES_STATE = ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom | ast.Await
ASKS_FORM = frozenset({"builtins.isinstance", "builtins.hasattr", "builtins.type"})
FORM = (ast.In, ast.NotIn, ast.Is, ast.IsNot)
PRINTS = frozenset({"print", "write", "info", "warning", "set_postfix", "set_description", "add_scalar"})


class Flow:
    """Follows one expression.

    uses: the expressions that hold something of it. statements: those around them. decisions: where it may send the
    processes different ways: parts of tests, comparisons that are kept, and arguments of functions that decide.
    """

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
        around = list(takewhile(lambda n: n is not statement, self.facts.table.ancestors(node)))
        for call in (n for n in around if isinstance(n, ast.Call)):
            self._work += self._through(call, node)
        if isinstance(statement, ast.Assign | ast.AugAssign):
            self._work += [use for target in targets_of(statement) for use in self._reads_of(target)]
        elif isinstance(statement, ast.For | ast.AsyncFor):
            self._work += self._reads_of(statement.target)
        elif isinstance(statement, ast.Return) or (
            isinstance(statement, Decides) and self._only_returns(statement)
        ):
            function = self.facts.enclosing_function(statement)
            self._work += self.facts.callers.get(function, ()) if function is not None else ()

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
        if not isinstance(held, ast.Name):
            yield from self._reads_of(held)
        for definition in self.facts.bindings(held):
            yield from self.facts.interp.uses.get(definition, ())

    def _through(self, call: ast.Call, node: ast.AST) -> Iterator[ast.AST]:
        """Where a call passes on the number that it is given."""
        filled = receiver(call, *FILLS)
        if filled is not None:
            yield from self._uses_of_container(filled)
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
        parts = self._up_to(statement, node)
        if isinstance(statement, Decides) and not only_prints(statement):
            alike = self._asks_form(parts) or only_raises(statement) or self._only_returns(statement)
            return None if alike else _smallest(parts)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Compare | ast.BoolOp):
            return None if self._is_of_rows(statement.value) else _smallest(parts)
        return self._given_to_decide(parts)

    def _up_to(self, statement: ast.stmt, node: ast.AST) -> list[ast.expr]:
        """The expressions of a statement from `node` outwards."""
        chain = [node, *self.facts.table.ancestors(node)]
        return [n for n in chain[: chain.index(statement)] if isinstance(n, ast.expr)]

    def _given_to_decide(self, parts: list[ast.expr]) -> ast.expr | None:
        """The argument of a scheduler's step, or of a function of the script's own that tests it."""
        for inner, call in pairwise(parts):
            if not isinstance(call, ast.Call) or inner is call.func:
                continue
            if self._steps_scheduler(call):
                return inner
            if self._is_of_rows(inner):
                continue
            for function in self.facts.targets(call):
                if any(map(self._is_tested, self._uses_inside(call, function, inner))):
                    return inner
        return None

    def _only_returns(self, statement: ast.stmt) -> bool:
        """Whether a test has no effect but on what the function around it returns."""
        function = self.facts.enclosing_function(statement)
        return function is not None and only_computes(self.facts, function)

    def _is_tested(self, use: ast.AST) -> bool:
        """Whether a test asks for the number at `use`."""
        statement = self.facts.table.statement_of(use)
        if not isinstance(statement, Decides) or only_raises(statement) or self._only_returns(statement):
            return False
        return not self._asks_form(self._up_to(statement, use))

    def _asks_form(self, chain: list[ast.expr]) -> bool:
        """Whether a test asks for the type of the first of `chain`, or what it contains: the same on every process."""
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
        stepped = receiver(call, "step")
        return stepped is not None and bool(self.facts.of(stepped) & set(self.facts.schedulers))

    def _is_of_rows(self, node: ast.expr) -> bool:
        return bool(kinds_of(self.facts, node) & PER_SAMPLE)

    def _among_rows(self, node: ast.AST) -> bool:
        """Whether `node` runs once for each row of a share, which processes have different numbers of."""
        for around in self.facts.table.ancestors(node):
            if around in self.facts.interp.batch_loops or isinstance(
                around, ast.FunctionDef | ast.AsyncFunctionDef
            ):
                return False
            if isinstance(around, ast.For | ast.AsyncFor | ast.comprehension) and any(
                batch_values(self.facts, part) for part in walk(around.iter)
            ):
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


def only_prints(statement: ast.If | ast.While) -> bool:
    """Whether a test decides about nothing but calls whose results nobody uses, such as a print."""
    return all(
        isinstance(s, ast.Pass)
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and last_name(s.value.func) in PRINTS)
        for s in (*statement.body, *statement.orelse)
    )


def only_raises(test: ast.If | ast.While) -> bool:
    """`if bad: raise ValueError(...)`: a process that comes there ends, and the others with it."""
    return not test.orelse and all(isinstance(s, ast.Raise) for s in test.body)


def only_computes(facts: Facts, function: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether nothing in `function` trains, goes over a loader, calls a module or keeps something: processes may take
    different ways through it."""
    if function in seen:
        return True
    for node in walk(function):
        if node in facts.interp.batch_loops or isinstance(node, CHANGES_STATE):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.Call) and not _computes(facts, node, seen | {function}):
            return False
    return True


def _computes(facts: Facts, call: ast.Call, seen: frozenset[ast.AST]) -> bool:
    if any(facts.interp.is_module(value) for value in facts.of(call.func)):
        return False
    if isinstance(call.func, ast.Attribute):
        if call.func.attr in ("step", "backward"):
            return False
        kept = {*facts.optimizers, *facts.schedulers, *facts.loaders}
        if any(v in kept for v in facts.of(call.func.value) if isinstance(v, External)):
            return False
    return all(only_computes(facts, function, seen) for function in facts.targets(call))
