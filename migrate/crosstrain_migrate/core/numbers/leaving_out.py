"""What a branch does that leaves out a batch: where it only says so, all processes may take it together."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.differing import Differing
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

_SAYS = frozenset({"print", "info", "debug", "warning", "warn", "error", "zero_grad", "empty_cache"})
_TEXTS = frozenset({"item", "format", "str", "float", "int"})


def only_leaves_out(script: Script, body: list[ast.stmt]) -> bool:
    """Whether a branch does nothing before its `continue` that a process with another batch could not do as well: what it reads
    of a bad batch, `x[bad][0]`, may not be there in a good one."""
    before = next((n for n, one in enumerate(body) if isinstance(one, ast.Continue)), None)
    return before is not None and all(_is_harmless(script, one) for one in body[:before])


def may_be_missing(differing: Differing, test: ast.expr) -> bool:
    """Whether a test asks for `found is None` of what a batch gives: the batch of another process may give something."""
    compared = [n for n in walk(test) if isinstance(n, ast.Compare)]
    return any(ast.unparse(n.comparators[0]) == "None" and differing.level(n.left) for n in compared)


def _is_harmless(script: Script, statement: ast.stmt) -> bool:
    calls = [n for n in walk(statement) if isinstance(n, ast.Call)]
    if any(isinstance(n, ast.Subscript | ast.Await | ast.NamedExpr | ast.Lambda) for n in walk(statement)):
        return False
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        given = [call for call in calls if call is not statement.value]
        says = last_name(statement.value.func) in _SAYS and not script.functions(
            last_name(statement.value.func)
        )
        return says and all(last_name(call.func) in _TEXTS for call in given)
    if isinstance(statement, ast.Assign):
        is_variable = all(isinstance(target, ast.Name) for target in statement.targets)
        return is_variable and all(script.dotted(call.func).startswith("torch.") for call in calls)
    return isinstance(statement, ast.Pass)


def asks_rows(node: ast.AST) -> bool:
    """Whether an expression is a number of rows, or a shape: `len(batch)`, `x.size(0)`, `x.shape[0]`."""
    is_number = isinstance(node, ast.Call) and last_name(node.func) in ("len", "size")
    return is_number or (isinstance(node, ast.Attribute) and node.attr == "shape")
