"""How many rows all processes have: counted once a step, from rows that are small or gathered anyway."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.preparing.prepared_objects import common_position, suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

from .batch_values import kinds_of
from .bindings import mentions, names_in, receiver

OF_EACH_ROW = frozenset({"argmax", "max", "softmax", "log_softmax", "sigmoid", "round", "detach"})


@dataclass
class Collapse:
    """`node` turns the rows of `operands` into something else (or, for a collected operand, is that operand)."""

    node: ast.expr
    operands: list[ast.expr]
    counts: bool = False
    to_cpu: bool = False  # collected from a leaf that the script never moved to the device
    counted: str = ""  # `node` is a variable that holds the number of rows of this one
    measured: ast.expr | None = None  # of such a variable, the rows that its definition counts
    above: bool = False  # only a statement will do: a loop goes over the rows
    again: str = ""  # `node` is computed again, by this expression, from the gathered operands


class CountedRows(e.Replace):
    """The number of a process's rows becomes that of all processes' rows, which all of them know."""


def first_common(facts: Facts, statements: list[ast.stmt]) -> ast.stmt | None:
    """The first of the statements (or what is around it) in the suite that they all share."""
    suite = suite_of(facts, common_position(facts, statements))
    return next((s for s in suite if any(facts.table.is_inside(x, s) for x in statements)), None)


class RowCounts:
    """Plans the counts that are read of variables: `n` of `n = x.size(0)`."""

    def __init__(self, context: Context, rule: str) -> None:
        self.context = context
        self.facts = context.facts
        self.rule = rule
        self.named: set[str] = set()  # the variables that hold such numbers

    def once(self, group: list[Collapse]) -> set[ast.expr]:
        """Replaces uses of variables that hold a number of rows by one count of all processes' rows; returns these uses."""
        done = self.where_defined(group)
        for (bound, counted), uses in self._by_variable(group).items():
            if uses[0].node not in done and self._count_above(bound, counted, uses):
                done.update(use.node for use in uses)
        return done

    def where_defined(self, group: list[Collapse]) -> set[ast.expr]:
        """Makes variables hold the number of all processes' rows where they are bound; returns their uses."""
        done: set[ast.expr] = set()
        for (bound, counted), uses in self._by_variable(group).items():
            if self._count_where_defined(bound, counted, uses):
                done.update(use.node for use in uses)
        return done

    def _by_variable(self, group: list[Collapse]) -> dict[tuple[frozenset[ast.AST], str], list[Collapse]]:
        """The uses of each variable that holds a number of rows, by its definitions and the rows that tell the number."""
        found: dict[tuple[frozenset[ast.AST], str], list[Collapse]] = defaultdict(list)
        for collapse in group:
            if collapse.counted and isinstance(collapse.node, ast.Name):
                found[self.facts.bindings(collapse.node), collapse.counted].append(collapse)
        return found

    def _count_where_defined(self, bound: frozenset[ast.AST], counted: str, uses: list[Collapse]) -> bool:
        """`n = x.size(0)` becomes that of all processes' rows, where `n` has no other use."""
        measured = uses[0].measured
        statement = self.facts.table.statement_of(next(iter(bound)))
        if measured is None or len(bound) > 1 or not isinstance(statement, ast.Assign):
            return False
        nodes = {use.node for use in uses}
        if not self.facts.table.is_inside(measured, statement) or not self._run_with(statement, nodes):
            return False
        if any(n not in nodes for n in self._that_see(uses[0].node, bound)):
            return False
        if self.context.runtime == "crosstrain":
            size = next((n for n in walk(statement.value) if self.is_size(n) and measured in walk(n)), None)
            if not isinstance(size, ast.expr):
                return False
            self.count(size, measured)
            return True
        code = f"{self.context.accelerator(measured)}.gather_for_metrics({counted})"
        self.context.replace(measured, self.rule, "rows of the global batch", code)
        self.context.collective.add(measured)
        return True

    def count(self, node: ast.expr, rows: ast.expr | str) -> None:
        """Makes the number of rows at `node` that of all processes, which the loader knows: nothing is gathered."""
        hole = rows if isinstance(rows, str) else "{x}"
        hole += ".flatten()" if self._is_number_of_elements(node) else ""
        template = f"{self.context.accelerator(node)}.global_rows({hole})"
        holes = {} if isinstance(rows, str) else {"x": rows}
        edit = CountedRows(node, self.rule, "rows of the global batch", template=template, holes=holes)
        self.context.edits.append(edit)
        self.context.gathered.add(node)

    @staticmethod
    def _is_number_of_elements(node: ast.AST) -> bool:
        """`y.numel()`: of a variable."""
        elements = isinstance(node, ast.Call) and not node.args
        return elements and isinstance(receiver(node, "numel", "nelement"), ast.Name)

    def is_size(self, node: ast.AST) -> bool:
        """`len(x)`, `x.size(0)`, `x.shape[0]` and `x.numel()`: as many as there are rows, or several for each row."""
        match node:
            case ast.Subscript(
                ast.Attribute(attr="shape" | "size") | ast.Call(ast.Attribute(attr="shape" | "size")),
                ast.Constant(0),
            ):
                return True
            case ast.Call(ast.Attribute(attr="size"), [ast.Constant(0)]) | ast.Call(ast.Name("len"), [_]):
                return True
        return self._is_number_of_elements(node)

    def _count_above(self, bound: frozenset[ast.AST], counted: str, uses: list[Collapse]) -> bool:
        """A variable of its own holds the number of all processes' rows, where it is used more than once."""
        nodes = {use.node for use in uses}
        position = first_common(self.facts, [self.facts.table.statement_of(node) for node in nodes])
        if len(uses) < 2 or position is None or self.facts.table.is_whole_else(position):
            return False
        made_inside = any(self.facts.table.is_inside(d, position) for d in bound)
        if made_inside or not self._run_with(position, nodes):
            return False
        scope = self.facts.table.of_node[position]
        taken = scope.names | scope.module.names | self.named
        name = next((n for n in ("rows", "all_rows", "rows_of_all") if n not in taken), None)
        if name is None:
            return False
        self.named.add(name)
        accelerator = self.context.accelerator(position)
        known = self.context.runtime == "crosstrain"
        rows = (
            f"{accelerator}.global_rows({counted})"
            if known
            else f"len({accelerator}.gather_for_metrics({counted}))"
        )
        self.context.edits.append(
            e.InsertBefore(position, self.rule, "rows of the global batch", code=f"{name} = {rows}")
        )
        (self.context.gathered if known else self.context.collective).add(position)
        for node in nodes:
            edit = CountedRows if known else e.Replace
            self.context.edits.append(edit(node, self.rule, template=name))
        return True

    def _that_see(self, use: ast.expr, bound: frozenset[ast.AST]) -> list[ast.Name]:
        """The reads of a variable that see these definitions, or may: those in functions of their own."""
        assert isinstance(use, ast.Name)
        here = self.facts.table.of_node[use]
        return [
            n
            for n in mentions(self.facts, use.id, use)
            if not isinstance(n.ctx, ast.Store)
            and (self.facts.table.of_node[n] is not here or self.facts.interp.reaching.get(n, bound) & bound)
        ]

    def _run_with(self, statement: ast.stmt, nodes: set[ast.expr]) -> bool:
        """Whether one of the nodes is reached whenever the statement is, so that nothing is gathered in vain."""
        suite = suite_of(self.facts, statement)
        return any(self.facts.table.statement_of(node) in suite for node in nodes)

    def computed_row_by_row(self, counted: ast.expr, group: list[Collapse], position: ast.stmt) -> str | None:
        """`pred` of `pred = out.argmax(1)`, which is gathered anyway and has as many rows as `out`."""
        values = self.facts.bindings(counted)
        operands = (o for c in group if not c.counts for o in c.operands)
        for name in (n for o in operands if values for n in names_in(o)):
            bound = self.facts.bindings(name)
            statement = self.facts.table.statement_of(next(iter(bound))) if len(bound) == 1 else None
            if (
                isinstance(statement, ast.Assign)
                and statement.lineno < position.lineno
                and kinds_of(self.facts, name) <= {"rows"}
                and self._is_of_each_row(statement.value, values)
            ):
                return name.id
        return None

    def _is_of_each_row(self, node: ast.expr, values: frozenset[ast.AST]) -> bool:
        """`torch.argmax(torch.softmax(out, dim=1), dim=1)`: of each row of `out`, whose definitions are given."""
        if isinstance(node, ast.Name):
            return self.facts.bindings(node) == values
        if isinstance(node, ast.Attribute) and node.attr == "data":
            return self._is_of_each_row(node.value, values)
        if not isinstance(node, ast.Call) or last_name(node.func) not in OF_EACH_ROW:
            return False
        held = node.func.value if isinstance(node.func, ast.Attribute) else None
        rows = node.args[0] if self.facts.paths(node.func) and node.args else held
        return rows is not None and self._is_of_each_row(rows, values)
