"""What is known of a script once statements have gone, without writing and understanding it anew."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.roles.facts import Facts
from crosstrain_migrate.roles.scopes import suites


def without(facts: Facts, gone: Iterable[ast.AST]) -> Facts:
    """The facts of the script, whose tree loses these statements.

    What its values were found to be stays: some of it may follow from what is gone, so that it says too much, never too
    little. What else follows from their absence shows when the new text is understood.
    """
    for statement in gone:
        assert isinstance(statement, ast.stmt)
        parent = facts.table.parents[statement]
        for suite in suites(parent):
            if statement in suite:
                suite[:] = [s for s in suite if s is not statement] or [_pass(facts, statement)]
    return Facts(facts.tree, facts.table, facts.interp)


def _pass(facts: Facts, statement: ast.stmt) -> ast.Pass:
    """What is written where a suite would have nothing in it."""
    found = ast.copy_location(ast.Pass(), statement)
    facts.table.parents[found] = facts.table.parents[statement]
    facts.table.of_node[found] = facts.table.of_node[statement]
    return found
