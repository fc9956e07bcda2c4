"""For CT601: sums of an evaluation that each process takes over its own rows, and that are added after the loop.

What:   Where a loss would be computed from the gathered outputs of all processes, each process computes it from its own
        rows, and the sums of all processes are added after the loop.
Why:    A sum over all rows is the sum of the processes' sums: one small message per evaluation, where otherwise the
        outputs would be gathered in every batch.
Before: `total += criterion(out, y).item() * len(y)`
After:  `out, y = accelerator.own_rows((out, y))` before it, and `total = accelerator.reduce(total, reduction="sum")`
        after the loop. A process without rows in the last batch goes on with the next: `if not len(y): continue`.
Leaves: what is collected, printed in the loop, or added to anything but Python numbers that begin with 0: there the
        rows are gathered.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from crosstrain_migrate.facts import tensors
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.files.notebooks import is_linked
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.distribution.process_dependent import ProcessDependent
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values, kinds_of
from .bindings import LOOPS, SAME, assigned, mentions, number_read, receiver
from .opaque_calls import runs_model
from .row_counts import Collapse
from .shared_reductions import is_replicated, reduce_statement
from .sinks import Sink

SUMS = frozenset({"sum", "count"})
Asked = Callable[[ast.expr, set[ast.expr]], bool]


class OwnSums:
    """Finds the variables of a loop that do nothing but add up what its rows give.

    sinks: all places where something of the rows leaves the tensors or the batch.
    """

    def __init__(self, context: Context, sinks: list[Sink]) -> None:
        self.context = context
        self.facts: Facts = context.facts
        self.sinks = sinks
        self._differing = ProcessDependent(context.facts)

    def of(
        self, loop: ast.AST | None, cut: ast.stmt, collapses: list[Collapse], moved: set[ast.expr]
    ) -> list[str]:
        """The variables, in the order in which they are added to; none where the rows have to be gathered.

        cut: the statement above which the rows of all processes would be gathered. collapses: what is computed there.
        moved: what comes to stand above the cut.
        """
        apart = self.context.runtime == "crosstrain" and any(len(c.operands) > 1 for c in collapses)
        if not apart or not isinstance(loop, ast.For):
            return []
        added = self._additions(loop)
        if not added:
            return []
        made = {c.node for c in collapses}
        if not all(s.lineno >= cut.lineno and self._is_sum(s.value, made) for s in added):
            return []
        names = list(dict.fromkeys(s.target.id for s in added if isinstance(s.target, ast.Name)))
        whole = all(self._only_adds(name, loop, added) for name in names)
        return names if whole and self._may_be_left_out(loop, cut, added, moved) else []

    def _additions(self, loop: ast.For) -> list[ast.AugAssign]:
        """The statements that add up what the rows give; none where it leaves the batch in another way."""
        added: dict[ast.AugAssign, None] = {}
        for sink in self.sinks:
            inside = self.facts.table.is_inside(sink.node, loop)
            if not inside and not self.facts.in_batch_loop(sink.node):
                continue
            if not inside or sink.how not in {"store", "host"}:
                return []
            if sink.how == "host":
                continue
            if not isinstance(sink.at, ast.AugAssign) or not isinstance(sink.at.op, ast.Add):
                return []
            added[sink.at] = None
        plain = all(isinstance(s.target, ast.Name) and self._is_of_python(s.value) for s in added)
        return sorted(added, key=lambda s: s.lineno) if plain else []

    def _is_of_python(self, value: ast.expr) -> bool:
        """Whether a value is no tensor: read from one, or a number of rows."""
        if isinstance(value, ast.BinOp):
            return self._is_of_python(value.left) and self._is_of_python(value.right)
        return all(s.host or s.kind == "count" for s in batch_values(self.facts, value))

    # -- what is added ---------------------------------------------------------------------------------------

    def _is_sum(self, node: ast.expr, made: set[ast.expr]) -> bool:
        """Whether `node`, computed from all rows, is the sum of what each process computes from its own rows."""
        if node in made:
            kinds = kinds_of(self.facts, node)
            return bool(kinds) and kinds <= SUMS
        match node:
            case ast.Name():
                return self._is_bound_to(node, self._is_sum, made)
            case ast.BinOp(left, ast.Add() | ast.Sub(), right):
                return self._is_sum(left, made) and self._is_sum(right, made)
            case ast.BinOp(left, ast.Div(), right):
                return self._is_sum(left, made) and self._is_replicated(right)
            case ast.BinOp(_, ast.Mult(), _):
                return self._is_product(node, made)
        read = number_read(self.facts, node)
        return read is not None and self._is_sum(read, made)

    def _is_product(self, node: ast.BinOp, made: set[ast.expr]) -> bool:
        """A mean over rows times their number, or a sum times what all processes have."""
        adds_up = kinds_of(self.facts, node) == {"sum"}
        return any(
            (self._is_sum(one, made) and self._is_replicated(other))
            or (adds_up and self._is_mean(one, made) and self._is_number(other, made))
            for one, other in ((node.left, node.right), (node.right, node.left))
        )

    def _is_mean(self, node: ast.expr, made: set[ast.expr]) -> bool:
        if kinds_of(self.facts, node) != {"mean"}:
            return False
        if isinstance(node, ast.Name):
            return self._is_bound_to(node, self._is_mean, made)
        read = receiver(node, *SAME) if isinstance(node, ast.Call) and not node.args else None
        return node in made if read is None else self._is_mean(read, made)

    def _is_number(self, node: ast.expr, made: set[ast.expr]) -> bool:
        """Whether `node` is how many rows there are."""
        if node in made:
            return kinds_of(self.facts, node) == {"count"}
        return self._is_bound_to(node, self._is_number, made)

    def _is_bound_to(self, node: ast.expr, what: Asked, made: set[ast.expr]) -> bool:
        """Whether plain assignments alone bind a variable, and what they assign is what is asked for."""
        values = [assigned(self.facts, definition) for definition in self.facts.bindings(node)]
        return bool(values) and all(value is not None and what(value, made) for value in values)

    def _is_replicated(self, node: ast.expr) -> bool:
        return is_replicated(self.facts, self._differing, node)

    # -- where it is added -----------------------------------------------------------------------------------

    def _only_adds(self, name: str, loop: ast.For, added: list[ast.AugAssign]) -> bool:
        """Whether the variable is 0 where the loop begins, and only added to in it."""
        here = self.facts.table.of_node[loop]
        scope = here.resolve(name)
        if scope is not here or (scope.parent is None and is_linked(self.context.text)):
            return False
        places = self.facts.mentions(scope, name)
        if any(self.facts.table.of_node[n] is not here for n in places):
            return False
        inside = {n for n in places if self.facts.table.is_inside(n, loop)}
        last = max((n for n in places if n.lineno < loop.lineno), key=place_of, default=None)
        only_added = inside <= {s.target for s in added}
        return only_added and last is not None and self._begins_at_zero(last, loop)

    def _begins_at_zero(self, mention: ast.Name, loop: ast.For) -> bool:
        """Whether a statement that every run through the loop has passed just before binds the variable to 0."""
        statement = self.facts.table.statement_of(mention)
        if not isinstance(statement, ast.Assign) or not _is_zero(statement, mention):
            return False
        suite = suite_of(self.facts, statement)
        around: ast.AST = loop
        while around not in suite:
            around = self.facts.table.parents[around]
            if isinstance(around, LOOPS) or around in self.facts.table.scopes:
                return False
        return True

    # -- what a process without rows leaves out --------------------------------------------------------------

    def _may_be_left_out(
        self, loop: ast.For, cut: ast.stmt, added: list[ast.AugAssign], moved: set[ast.expr]
    ) -> bool:
        """Whether a process without rows may go on with the next batch at the cut: it leaves out nothing but sums."""
        above = {n for expression in moved for n in walk(expression)}
        behind = [n for n in walk(loop) if getattr(n, "lineno", 0) >= cut.lineno and n not in above]
        if any(isinstance(n, ast.Call) and self._runs_a_model(n) for n in behind):
            return False
        if not all(s in added or _only_binds(s) for s in behind if isinstance(s, ast.stmt)):
            return False
        bound = {n for n in behind if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bound -= {s.target for s in added}
        return not any(self._is_seen_outside(n, loop) for n in bound)

    def _is_seen_outside(self, bound: ast.Name, loop: ast.For) -> bool:
        """Whether a read after the loop, or in another function, may see what is bound in it."""
        here = self.facts.table.of_node[loop]
        return any(
            self.facts.table.of_node[read] is not here
            or (
                not self.facts.table.is_inside(read, loop)
                and bound in self.facts.interp.reaching.get(read, {bound})
            )
            for read in mentions(self.facts, bound.id, bound)
            if isinstance(read.ctx, ast.Load)
        )

    def _runs_a_model(self, call: ast.Call) -> bool:
        """Whether a call runs a model: a loss is none, even where it is a module."""
        if any(target in self.facts.interp.touching for target in self.facts.targets(call)):
            return True
        return not kinds_of(self.facts, call) & tensors.SCALARS and runs_model(self.facts, call)


def add_behind(context: Context, rule: str, loop: ast.AST | None, sums: list[str]) -> None:
    """Adds up the sums of all processes after the loop, once for all of its batches."""
    assert isinstance(loop, ast.stmt)
    code = reduce_statement(sums, context.accelerator(loop), "sum")
    reason = "the sum over all processes of what each has added up"
    context.edits.append(e.InsertAfter(loop, rule, reason, code=code))


def _only_binds(statement: ast.stmt) -> bool:
    """Whether a statement, apart from the statements in it, does nothing but bind variables."""
    if isinstance(statement, ast.Assign):
        parts = (
            p for t in statement.targets for p in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])
        )
        return all(isinstance(part, ast.Name) for part in parts)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.If | ast.With | ast.Pass)


def _is_zero(statement: ast.Assign, mention: ast.Name) -> bool:
    """`total = 0.0`, `total = hits = 0` and `total, hits = 0.0, 0`."""
    values: list[ast.expr] = []
    for target in statement.targets:
        if target is mention:
            values.append(statement.value)
        elif isinstance(target, ast.Tuple) and mention in target.elts:
            if not isinstance(statement.value, ast.Tuple) or len(statement.value.elts) != len(target.elts):
                return False
            values.append(statement.value.elts[target.elts.index(mention)])
    return len(values) == 1 and isinstance(values[0], ast.Constant) and values[0].value in (0, 0.0)
