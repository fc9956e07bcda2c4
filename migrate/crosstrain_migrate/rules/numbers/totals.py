"""For CT602: a loss that a step only adds up, or keeps for later, is reduced where it is read.

What:   `total` adds up what this process contributes, and is averaged over the processes above the statement that
        prints, returns or compares it.
Why:    The mean of the processes' sums is the sum of the means, and takes one collective instead of one per step.
Before: `total += loss.item()`
After:  `total += accelerator.weighted(loss).item()`, and `total = accelerator.reduce(total, reduction="mean")` where it
        is read; the weight is 1 unless a step's rows are not spread evenly over the processes.
Leaves: a number that something else reads in every step; a progress bar shows the main process's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.files.notebooks import is_linked
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.distribution.process_dependent import ProcessDependent
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values
from .bindings import LOOPS, names_in, number_read
from .number_containers import holds_numbers, reads_no_number
from .own_numbers import UnreadNumbers
from .row_counts import CountedRows
from .shared_reductions import Reduction, is_replicated, reduce_statement, variable_of

RULE = "CT602"
Variable = tuple[Scope, str]


class _ReadInEveryStep(Exception):
    """A number that is needed in each step is reduced there."""


def reduce_totals(context: Context, unread: UnreadNumbers) -> None:
    """Replaces the reductions that are made in every step for a number that is read later by one where it is read."""
    if context.runtime != "crosstrain" or "even_batches" in context.options:
        return  # Accelerate knows no weights, and reduces tensors alone; nor has a sum over rows a weight
    edits = {
        x.node: x
        for x in context.edits
        if isinstance(x, Reduction) and x.by == "mean" and isinstance(x.node, ast.expr)
    }
    found: list[_Total] = []
    for node in edits:
        if any(node in total.nodes for total in found):
            continue
        try:
            found.append(_Total(context, unread, edits, node))
        except _ReadInEveryStep:
            continue
    totals = _worthwhile(context, unread, edits, found)
    for total in totals:
        total.add_up()
    for statement, names in _places(totals).items():
        code = reduce_statement(names, context.accelerator(statement), "mean")
        reason = "the mean over the processes of what each has added up"
        context.edits.append(e.InsertBefore(statement, RULE, reason, code=code))
        context.below_collective.add(statement)


def _worthwhile(
    context: Context, unread: UnreadNumbers, edits: dict[ast.expr, Reduction], found: list[_Total]
) -> list[_Total]:
    """The totals whose losses nothing else reduces in every step; a display beside them shows the process's own."""
    table = context.facts.table
    left = set(edits).difference(*(total.nodes for total in found))
    kept = []
    for total in found:
        beside = [n for n in left if total.is_of_loss(n) and not total.is_conditional(n)]
        if all(unread.displays(table.statement_of(n)) for n in beside):
            total.shown += beside
            kept.append(total)
    return kept


class _Total:
    """The variables that a loss goes into, step by step, and where these are read.

    nodes: the losses. shown: where a display shows them, or a variable. Raises _ReadInEveryStep where a number must be
    global at once.
    """

    def __init__(
        self, context: Context, unread: UnreadNumbers, edits: dict[ast.expr, Reduction], node: ast.expr
    ) -> None:
        self.context = context
        self.facts: Facts = context.facts
        self.unread = unread
        self.edits = edits
        self.nodes: set[ast.expr] = set()
        self.shown: list[ast.expr] = []
        self.statements: set[ast.stmt] = set()
        self.variables: dict[Variable, set[ast.AST]] = {}  # with what binds them to a number of this process
        self.readers: dict[Variable, list[ast.stmt]] = {}
        self._differing = ProcessDependent(self.facts)
        self._counted = {x.node for x in context.edits if isinstance(x, CountedRows)}
        self._asked: set[ast.AST] = set()  # variables whose values are being looked at
        loop = self.facts.batch_loop_around(node)
        if loop is None:
            raise _ReadInEveryStep
        self.loop = loop
        self._keep(self.facts.table.statement_of(node))
        readers = (statement for statements in self.readers.values() for statement in statements)
        in_loop = any(self.facts.batch_loop_around(statement) is not None for statement in readers)
        if in_loop and not all(map(self._is_number, self.nodes)):
            raise _ReadInEveryStep  # a tensor would be weighted again there

    # -- what is kept ----------------------------------------------------------------------------------------

    def _keep(self, statement: ast.stmt) -> None:
        """A statement that adds a number of this process to a variable, or binds one to it."""
        if statement in self.statements:
            return
        match statement:
            case ast.AugAssign(target, ast.Mult() | ast.Div(), value):
                scales = True
            case ast.Assign([target], value) | ast.AugAssign(target, ast.Add() | ast.Sub(), value):
                scales = False
            case _:
                raise _ReadInEveryStep
        held = target.value if isinstance(target, ast.Subscript) else target
        if not isinstance(held, ast.Name) or self.facts.batch_loop_around(statement) is not self.loop:
            raise _ReadInEveryStep
        scope = self.facts.table.of_node[held].resolve(held.id)
        if scope is None or (scope.parent is None and is_linked(self.context.text)):
            raise _ReadInEveryStep  # a notebook's other cells may read it
        variable = scope, held.id
        self.statements.add(statement)
        self.variables.setdefault(variable, set()).add(held)
        linear = self._is_replicated(value) if scales else self._is_linear(value)
        if not linear or (isinstance(target, ast.Subscript) and not self._is_replicated(target.slice)):
            raise _ReadInEveryStep
        self.nodes |= {n for n in self.edits if self.facts.table.is_inside(n, statement)}
        self._read(variable, contained=isinstance(target, ast.Subscript))

    def _is_linear(self, node: ast.expr) -> bool:
        """Whether `node` is linear in this process's numbers, so that their mean over the processes may be taken later."""
        if node in self.edits or self._is_kept(node):
            return True
        match node:
            case ast.BinOp(left, ast.Add() | ast.Sub(), right):
                return all(self._is_linear(side) or self._is_replicated(side) for side in (left, right))
            case ast.BinOp(left, ast.Mult(), right) if self._is_replicated(left):
                return self._is_linear(right)
            case ast.BinOp(left, ast.Mult() | ast.Div(), right):
                return self._is_replicated(right) and self._is_linear(left)
            case ast.UnaryOp(ast.USub(), value) | ast.Attribute(value, "data"):
                return self._is_linear(value)
        read = number_read(self.facts, node)
        return read is not None and self._is_linear(read)

    def _is_replicated(self, node: ast.expr) -> bool:
        """Whether all processes have the same value here."""
        if node in self._counted or self._is_counted(node):
            return True
        if isinstance(node, ast.BinOp):
            return self._is_replicated(node.left) and self._is_replicated(node.right)
        return not any(map(self._is_kept, walk(node))) and is_replicated(self.facts, self._differing, node)

    def _is_counted(self, node: ast.expr) -> bool:
        """Whether `node` is a variable that is computed from the number of all processes' rows."""
        bound = self.facts.bindings(node)
        if not bound or node in self._asked or any(isinstance(d, ast.arg) for d in bound):
            return False
        self._asked.add(node)
        made = [self.facts.table.statement_of(d) for d in bound]
        alike = all(
            isinstance(s, ast.Assign) and s.targets[0] in bound and self._is_replicated(s.value) for s in made
        )
        self._asked.discard(node)
        return alike

    def _is_kept(self, node: ast.AST) -> bool:
        """Whether `node` is a variable that holds a number of this process."""
        if not isinstance(node, ast.Name):
            return False
        scope = self.facts.table.of_node[node].resolve(node.id)
        return scope is not None and (scope, node.id) in self.variables

    # -- who reads it ----------------------------------------------------------------------------------------

    def _read(self, variable: Variable, contained: bool) -> None:
        """Finds the readers of a variable, or of the numbers that are contained in it."""
        bound = self.variables[variable]
        here = self.facts.table.of_node[next(iter(bound))]
        mentions = self.facts.mentions(*variable)
        if any(self.facts.table.of_node[n] is not here for n in mentions):
            raise _ReadInEveryStep  # a function of its own sees it
        if contained and not holds_numbers(self.facts, mentions, self.loop):
            raise _ReadInEveryStep
        for mention in mentions:
            statement = self.facts.table.statement_of(mention)
            if statement in self.statements or (contained and reads_no_number(self.facts, mention)):
                continue
            if isinstance(mention.ctx, ast.Store) and not isinstance(statement, ast.AugAssign):
                anew = isinstance(statement, ast.Assign) and not batch_values(self.facts, statement.value)
                if not anew or batch_values(self.facts, mention):
                    raise _ReadInEveryStep  # it is not `total = 0.0`, nor what all processes have
            elif contained or self.facts.interp.reaching.get(mention, bound) & bound:
                self._is_read(mention, statement, variable)

    def _is_read(self, mention: ast.Name, statement: ast.stmt, variable: Variable) -> None:
        beside = self.facts.table.is_inside(statement, self.loop) and self.unread.displays(statement)
        if beside and self._is_shown_alone(mention):
            self.shown.append(mention)
            return
        place = self._place(statement)
        if self.facts.table.is_inside(place, self.loop) and not self.is_conditional(place):
            self._keep(statement)  # as long as it only hands the number on
            return
        if self.facts.table.is_whole_else(place) or isinstance(place, ast.While):
            raise _ReadInEveryStep  # nothing can stand above it
        self.readers.setdefault(variable, []).append(place)

    def _is_shown_alone(self, mention: ast.Name) -> bool:
        """Whether a display shows nothing that is computed together with numbers of all processes."""
        beside = (n for n in names_in(self.unread.whole(mention)) if n is not mention)
        return not any(batch_values(self.facts, n) for n in beside)

    def _place(self, statement: ast.stmt) -> ast.stmt:
        """The statement above which all processes meet: outside of loops over something else, and of open files."""
        place = statement
        inner: ast.AST = statement
        for around in self._around(statement):
            if isinstance(around, ast.ExceptHandler) or (
                isinstance(around, ast.Try) and inner in around.finalbody
            ):
                raise _ReadInEveryStep  # one process may come there alone
            if isinstance(around, ast.If) and self._differing.asks(around.test) is not None:
                raise _ReadInEveryStep
            if isinstance(around, LOOPS | ast.With | ast.AsyncWith):
                place = around
            inner = around
        return place

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What is around `node`, but not around the statements that add the number up."""
        for around in self.facts.table.ancestors(node):
            added = any(self.facts.table.is_inside(s, around) for s in self.statements)
            if added or around in self.facts.table.scopes:
                return
            yield around

    def is_conditional(self, node: ast.AST) -> bool:
        """Whether a step that adds the number up may leave out `node`."""
        return any(isinstance(around, ast.If) for around in self._around(node))

    def _is_number(self, node: ast.expr) -> bool:
        """Whether what is kept of a loss is a number of Python's."""
        statement = self.facts.table.statement_of(node)
        assert isinstance(statement, ast.Assign | ast.AugAssign)
        return all(v.host for v in batch_values(self.facts, statement.value))

    def is_of_loss(self, node: ast.expr) -> bool:
        """Whether `node` is one of the losses, read elsewhere in the loop."""
        inside = self.facts.table.is_inside(node, self.loop)
        return inside and any(self._is_same(node, own) for own in self.nodes)

    def _is_same(self, one: ast.expr, other: ast.expr) -> bool:
        mine, others = variable_of(one), variable_of(other)
        if mine is None or others is None:
            return ast.unparse(one) == ast.unparse(other)
        return mine.id == others.id and self.facts.bindings(mine) == self.facts.bindings(others)

    # -- the reductions --------------------------------------------------------------------------------------

    def add_up(self) -> None:
        """In the loop, each process adds up what it contributes."""
        gone = {self.edits[node] for node in (*self.nodes, *self.shown) if node in self.edits}
        replaced = {edit.node for edit in gone}
        self.context.edits[:] = [x for x in self.context.edits if x not in gone]
        self.context.collective -= replaced
        self.context.averaged -= replaced
        for node in self.nodes:
            template = f"{self.context.accelerator(node)}.weighted({{x}})"
            self.context.replace(node, RULE, self.edits[node].reason, template, x=node)
        self.unread.note_shown(self.shown)

    def still_holds(self, above: ast.stmt, at: ast.stmt) -> bool:
        """Whether a variable that is reduced above a statement is still reduced at another one."""
        suite = suite_of(self.facts, above)
        around = next((s for s in suite if self.facts.table.is_inside(at, s)), None)
        if around is None or suite.index(around) < suite.index(above):
            return False
        between = suite[suite.index(above) : suite.index(around) + (around is not at)]
        return not any(self.facts.table.is_inside(n, s) for n in self.statements for s in between)

    def is_unchanged_between(self, variable: Variable, above: ast.stmt, at: ast.stmt) -> bool:
        """Whether no statement of a suite between two of them binds a variable."""
        suite = suite_of(self.facts, above)
        if at not in suite:
            return False
        between = suite[suite.index(above) : suite.index(at)]
        bound = [n for n in self.facts.mentions(*variable) if isinstance(n.ctx, ast.Store)]
        return not any(self.facts.table.is_inside(n, s) for n in bound for s in between)


def _places(totals: list[_Total]) -> dict[ast.stmt, list[str]]:
    """The variables that are reduced above each statement: above their first readers, those of one suite together."""
    read = [
        (statement, variable, total)
        for total in totals
        for variable, statements in total.readers.items()
        for statement in set(statements)
    ]
    places: dict[ast.stmt, list[str]] = {}
    for statement, variable, total in sorted(read, key=lambda one: place_of(one[0])):
        name = variable[1]
        if any(name in names and total.still_holds(above, statement) for above, names in places.items()):
            continue
        joined = (above for above in places if total.is_unchanged_between(variable, above, statement))
        places.setdefault(next(joined, statement), []).append(name)
    return places
