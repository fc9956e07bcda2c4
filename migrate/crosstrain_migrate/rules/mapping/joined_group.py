"""Removes `PartialState()` where the group is joined already, or by the next line."""

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

    every = (suite for node in walk(read_only(text)) for suite in _suites(node))
    needless = [statement for suite in every for statement in _needless(suite)]
    inside = {n for statement in needless for n in walk(statement) if n is not statement}
    edits = [e.RemoveStatement(statement, RULE) for statement in needless if statement not in inside]
    return rewrite(text, edits) if edits else text


def _suites(node: ast.AST) -> list[list[ast.stmt]]:
    """The statement lists of a node, without those of its handlers, which are nodes of their own."""
    own = [
        suite
        for name in ("body", "orelse", "finalbody")
        if isinstance(suite := getattr(node, name, None), list)
    ]
    return [suite for suite in own if suite and isinstance(suite[0], ast.stmt)]


def _needless(suite: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that only join a group that another statement of `suite` has joined, or joins next."""
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
    inner = _suites(statement) if isinstance(statement, ast.If | ast.With | ast.Try) else ()
    return [found for suite in inner for s in suite for found in _inside(s)]
