"""How many rows all processes have: counted once a step, from rows that are small or gathered anyway."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.preparing.prepared_objects import common_position, suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, line_of
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values

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


def first_common(facts: Facts, statements: list[ast.stmt]) -> ast.stmt | None:
    """The first of the statements (or what is around it) in the suite that they all share."""
    last = common_position(facts, statements)
    suite = suite_of(facts, last)
    return next((s for s in suite if any(facts.table.is_inside(x, s) for x in statements)), None)


class RowCounts:
    """Plans the counts that are read of variables: `n` of `n = x.size(0)`."""

    def __init__(self, context: Context, rule: str) -> None:
        self.context = context
        self.facts = context.facts
        self.rule = rule
        self.named: set[str] = set()  # the variables that hold such numbers

    def once(self, group: list[Collapse]) -> set[ast.expr]:
        """The uses of variables that hold a number of rows, which is taken of all processes' rows once for all of them."""
        done = self.where_defined(group)
        for (definitions, counted), uses in self._by_variable(group).items():
            if uses[0].node not in done and self._count_above(definitions, counted, uses):
                done.update(use.node for use in uses)
        return done

    def where_defined(self, group: list[Collapse]) -> set[ast.expr]:
        """Those of them whose variable is bound to that number."""
        done: set[ast.expr] = set()
        for (definitions, counted), uses in self._by_variable(group).items():
            if self._count_where_defined(definitions, counted, uses):
                done.update(use.node for use in uses)
        return done

    def _by_variable(self, group: list[Collapse]) -> dict[tuple[frozenset[ast.AST], str], list[Collapse]]:
        """The uses of each variable that holds a number of rows, by its definitions and the rows that tell the number."""
        found: dict[tuple[frozenset[ast.AST], str], list[Collapse]] = defaultdict(list)
        for collapse in group:
            if collapse.counted and isinstance(collapse.node, ast.Name):
                found[self.facts.interp.reaching[collapse.node], collapse.counted].append(collapse)
        return found

    def _count_where_defined(
        self, definitions: frozenset[ast.AST], counted: str, uses: list[Collapse]
    ) -> bool:
        """`n = x.size(0)` becomes that of all processes' rows, where `n` has no other use."""
        measured = uses[0].measured
        statement = self.facts.table.statement_of(next(iter(definitions)))
        if measured is None or len(definitions) > 1 or not isinstance(statement, ast.Assign):
            return False
        nodes = {use.node for use in uses}
        if not self.facts.table.is_inside(measured, statement) or not self._run_with(statement, nodes):
            return False
        if any(n not in nodes for n in self._that_see(uses[0].node, definitions)):
            return False
        if self.context.runtime == "crosstrain":
            size = next((n for n in ast.walk(statement.value) if self._is_size_of(n, measured)), None)
            if not isinstance(size, ast.expr):
                return False
            self.count(size, measured)
            return True
        accelerator = self.context.accelerator(measured)
        code = f"{accelerator}.gather_for_metrics({counted})"
        self.context.replace(measured, self.rule, "rows of the global batch", code)
        self.context.collective.add(measured)
        return True

    def count(self, node: ast.expr, rows: ast.expr | str) -> None:
        """The number of rows at `node` becomes that of all processes, of which the loader knows; nothing is gathered."""
        hole = rows if isinstance(rows, str) else "{x}"
        hole += ".flatten()" if self._is_number_of_elements(node) else ""
        template = f"{self.context.accelerator(node)}.global_rows({hole})"
        holes = {} if isinstance(rows, str) else {"x": rows}
        self.context.replace(node, self.rule, "rows of the global batch", template, **holes)
        self.context.gathered.add(node)

    @staticmethod
    def _is_number_of_elements(node: ast.AST) -> bool:
        """`y.numel()`: of a variable."""
        if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Attribute):
            return False
        return node.func.attr in {"numel", "nelement"} and isinstance(node.func.value, ast.Name)

    def is_size(self, node: ast.AST) -> bool:
        """`len(x)`, `x.size(0)`, `x.shape[0]` and `x.numel()`: as many as there are rows, or several for each row."""
        if self._is_number_of_elements(node):
            return True
        if isinstance(node, ast.Subscript):
            sizes = node.value.func if isinstance(node.value, ast.Call) else node.value
            first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
            return first and isinstance(sizes, ast.Attribute) and sizes.attr in {"shape", "size"}
        if not isinstance(node, ast.Call) or len(node.args) != 1:
            return False
        method = isinstance(node.func, ast.Attribute) and node.func.attr == "size"
        first = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        return (method and first) or (isinstance(node.func, ast.Name) and node.func.id == "len")

    def _is_size_of(self, node: ast.AST, rows: ast.expr) -> bool:
        return self.is_size(node) and any(n is rows for n in ast.walk(node))

    def _count_above(self, definitions: frozenset[ast.AST], counted: str, uses: list[Collapse]) -> bool:
        """A variable of its own holds the number of all processes' rows, where it is used more than once."""
        nodes = {use.node for use in uses}
        position = first_common(self.facts, [self.facts.table.statement_of(node) for node in nodes])
        if len(uses) < 2 or position is None or self.facts.table.is_whole_else(position):
            return False
        if not self._run_with(position, nodes) or any(
            self.facts.table.is_inside(d, position) for d in definitions
        ):
            return False
        scope = self.facts.table.of_node[position]
        taken = scope.names | scope.module.names | self.named
        name = next((n for n in ("rows", "all_rows", "rows_of_all") if n not in taken), None)
        if name is None:
            return False
        self.named.add(name)
        accelerator = self.context.accelerator(position)
        known = self.context.runtime == "crosstrain"
        rows = f"global_rows({counted})" if known else f"gather_for_metrics({counted})"
        code = f"{name} = {accelerator}.{rows}" if known else f"{name} = len({accelerator}.{rows})"
        self.context.edits.append(e.InsertBefore(position, self.rule, "rows of the global batch", code=code))
        (self.context.gathered if known else self.context.collective).add(position)
        for node in nodes:
            self.context.edits.append(e.Replace(node, self.rule, template=name))
        return True

    def _that_see(self, use: ast.expr, definitions: frozenset[ast.AST]) -> list[ast.Name]:
        """The reads of a variable that see these definitions, or may: those in functions of their own."""
        assert isinstance(use, ast.Name)
        here = self.facts.table.of_node[use]
        scope = here.resolve(use.id)
        mentions = self.facts.mentions(scope, use.id) if scope is not None else []
        return [
            n
            for n in mentions
            if not isinstance(n.ctx, ast.Store)
            and (
                self.facts.table.of_node[n] is not here
                or self.facts.interp.reaching.get(n, definitions) & definitions
            )
        ]

    def _run_with(self, statement: ast.stmt, nodes: set[ast.expr]) -> bool:
        """Whether one of the nodes is reached whenever the statement is: nothing is gathered for nobody."""
        suite = suite_of(self.facts, statement)
        return any(self.facts.table.statement_of(node) in suite for node in nodes)

    def computed_row_by_row(self, counted: ast.expr, group: list[Collapse], position: ast.stmt) -> str | None:
        """`pred` of `pred = out.argmax(1)`, which is gathered anyway and has as many rows as `out`."""
        values = self.facts.interp.reaching.get(counted, frozenset()) if isinstance(counted, ast.Name) else ()
        operands = (o for c in group if not c.counts for o in c.operands)
        for name in (n for o in operands for n in walk(o) if isinstance(n, ast.Name)):
            definitions = self.facts.interp.reaching.get(name, frozenset())
            statements = [self.facts.table.statement_of(d) for d in definitions]
            if len(statements) != 1 or line_of(statements[0]) >= position.lineno:
                continue
            value = statements[0].value if isinstance(statements[0], ast.Assign) else None
            has_rows = all(s.kind == "rows" for s in batch_values(self.facts, name))
            if value is not None and has_rows and self._is_of_each_row(value, frozenset(values)):
                return name.id
        return None

    def _is_of_each_row(self, node: ast.expr, values: frozenset[ast.AST]) -> bool:
        """`torch.argmax(torch.softmax(out, dim=1), dim=1)`: of each row of `out`, whose definitions are given."""
        if isinstance(node, ast.Name):
            return bool(values) and self.facts.interp.reaching.get(node) == values
        if isinstance(node, ast.Attribute) and node.attr == "data":
            return self._is_of_each_row(node.value, values)
        if not isinstance(node, ast.Call) or last_name(node.func) not in OF_EACH_ROW:
            return False
        held = node.func.value if isinstance(node.func, ast.Attribute) else None
        rows = node.args[0] if self.facts.paths(node.func) and node.args else held
        return rows is not None and self._is_of_each_row(rows, values)
