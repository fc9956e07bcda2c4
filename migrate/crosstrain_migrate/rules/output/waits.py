"""All processes meet before one of them reads a file that the main process has written in the same run."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.facts.values import Instance
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk


class Writes:
    """Calls that write files, and what may run after one of them."""

    def __init__(self, context: Context, calls: Iterable[ast.Call]) -> None:
        self.context, self.calls = context, frozenset(calls)
        self._facts, self._table = context.facts, context.facts.table

    def wait_before(self, call: ast.Call, rule: str) -> None:
        """All processes meet before `call`, where it may read what one of these calls has written."""
        context = self.context
        if not context.reachable(call) or not self._may_precede(call, frozenset()):
            return
        if not context.allows(rule, call):
            return
        statement = self._outside_of_tests(call)
        if self._have_met(call, statement):
            return
        code = f"{context.accelerator(call)}.wait_for_everyone()"
        reason = "the main process may still be writing the file"
        context.edits.append(e.InsertBefore(statement, rule, reason, code=code))
        context.collective.add(statement)

    def _have_met(self, call: ast.Call, statement: ast.stmt) -> bool:
        """Whether all processes meet here already, or above, behind everything that is written above `call`."""
        suite = suite_of(self._facts, statement)
        met = [
            x.node.lineno
            for x in self.context.edits
            if isinstance(x, e.InsertBefore) and x.node in suite and "wait_for" in x.code
        ]
        written = max((c.lineno for c in self._above(call)), default=0)
        return any(written < line <= statement.lineno for line in met)

    def _outside_of_tests(self, call: ast.Call) -> ast.stmt:
        """The statement of `call`, or the `if os.path.exists(path)` around it: the test, too, must see the file. What
        writes stays before it."""
        current = self._table.statement_of(call)
        writing = self._above(call)
        for around in self._table.ancestors(current):
            if not isinstance(around, ast.If | ast.Try | ast.With) or is_main_test(around):
                break
            if any(self._table.is_inside(c, around) for c in writing):
                break
            current = around
        return current

    def _may_precede(self, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
        """Whether one may have run earlier in the same run: above `node` in its function, or above a call of that."""
        if self._above(node):
            return True
        function = self._table.of_node[node].node
        sites = self._facts.callers.get(function, ()) if function not in seen else ()
        return any(self._may_precede(site, seen | {function}) for site in sites)

    def _above(self, node: ast.AST) -> list[ast.Call]:
        """Calls that write, themselves or in what they run, above `node` in its function."""
        of_node, line = self._table.of_node, line_of(node)
        above = (c for c in self._facts.calls if of_node[c] is of_node[node] and c.lineno < line)
        return [call for call in above if not self._excludes(call, node) and self._writes(call)]

    def _writes(self, call: ast.Call) -> bool:
        """Whether a call writes, itself or in what it runs."""
        calls, seen = [call], set()
        for inner in calls:  # which grows meanwhile
            if inner in self.calls:
                return True
            for function in called(self.context, inner):
                if function not in seen:
                    seen.add(function)
                    calls += [n for n in walk(function) if isinstance(n, ast.Call)]
        return False

    def _excludes(self, call: ast.Call, node: ast.AST) -> bool:
        """Whether `call` stands in one branch of an `if`, and `node` in the other: one run takes one of them."""
        table = self._table
        around = set(table.ancestors(node))
        child: ast.AST = call
        for ancestor in table.ancestors(call):
            if ancestor in around:
                if not isinstance(ancestor, ast.If) or child is ancestor.test:
                    return False
                others = ancestor.orelse if child in ancestor.body else ancestor.body
                again = any(isinstance(a, ast.For | ast.While) for a in table.ancestors(ancestor))
                return not again and any(s in around or s is node for s in others)
            child = ancestor
        return False


def called(context: Context, call: ast.Call) -> list[ast.AST]:
    """What a call runs of the script's own: a function, a constructor, or an object's `__call__`."""
    objects = (v for v in context.facts.of(call.func) if isinstance(v, Instance))
    methods = (context.facts.interp.method(v.cls, "__call__") for v in objects)
    return [*context.facts.targets(call), *(m for m in methods if m is not None)]
