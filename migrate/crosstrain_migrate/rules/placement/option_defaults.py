"""An option's default, written as a statement of its own."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts


def default_statement(facts: Facts, definition: ast.Assign) -> ast.If | None:
    """`if args.device is None:` around nothing but `args.device = "cuda" if ... else "cpu"`: an option's default."""
    around = facts.table.parents.get(definition)
    if not isinstance(around, ast.If) or around.body != [definition] or around.orelse:
        return None
    test, target = around.test, ast.unparse(definition.targets[0])
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    if isinstance(test, ast.Compare) and ast.unparse(test).endswith((" is None", " == ''")):
        asked = test.left
    return around if asked is not None and ast.unparse(asked) == target else None
