"""`PartialState()` where the group is joined already, or by the next line: nobody would write it twice."""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.side_effects import effectless
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.program import read_only
from crosstrain_migrate.syntax.walks import walk

from .rank_sources import ACCELERATOR, STATE

RULE = "CT303"


def joined_once(text: str) -> str:
    """The converted script without those statements."""
    from crosstrain_migrate.syntax.rewrite import rewrite

    tree = read_only(text)
    edits: list[e.Edit] = []
    for suite in _suites(tree):
        edits += [e.RemoveStatement(s, RULE) for s in _needless(suite)]
    gone = {edit.node for edit in edits}
    inside = {n for node in gone for n in walk(node) if n is not node}
    return rewrite(text, [edit for edit in edits if edit.node not in inside]) if edits else text


def _suites(tree: ast.Module) -> list[list[ast.stmt]]:
    found = []
    for node in walk(tree):
        for name in ("body", "orelse", "finalbody"):
            suite = getattr(node, name, None)
            if isinstance(suite, list) and suite and all(isinstance(s, ast.stmt) for s in suite):
                found.append(suite)
    return found


def _needless(suite: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that only join what another one of `suite` joins before them, or right behind them."""
    found: list[ast.stmt] = []
    joined = False
    for number, statement in enumerate(suite):
        following = suite[number + 1] if number + 1 < len(suite) else None
        if joined:
            found += _inside(statement)
        elif _only_joins(statement) and following is not None and _joins(following):
            found.append(statement)
        joined = joined or (_joins(statement) and statement not in found)
    return found


def _joins(statement: ast.stmt) -> bool:
    """`PartialState()`, `device = PartialState().device`, `accelerator = Accelerator()`"""
    return isinstance(statement, ast.Assign | ast.Expr) and any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in (STATE, ACCELERATOR)
        for n in walk(statement)
    )


def _only_joins(statement: ast.stmt) -> bool:
    """`PartialState()`, also under a test without an `else`."""
    if isinstance(statement, ast.If):
        return not statement.orelse and effectless(statement.test) and all(map(_only_joins, statement.body))
    return isinstance(statement, ast.Expr) and ast.unparse(statement) == f"{STATE}()"


def _inside(statement: ast.stmt) -> list[ast.stmt]:
    """The statements of `statement`, in the same function, that only join."""
    if _only_joins(statement):
        return [statement]
    if isinstance(statement, ast.If | ast.With | ast.Try):
        parts = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        return [found for part in parts for inner in part for found in _inside(inner)]
    return []
