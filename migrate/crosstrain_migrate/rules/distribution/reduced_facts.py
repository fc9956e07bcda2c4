"""What is known of a script once statements, parameters and arguments have gone, without writing it anew."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.arguments import default_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.scopes import ScopeTable, suites


def only_takes_away(edit: e.Edit) -> bool:
    """Whether `without` can do what the edit does."""
    if isinstance(edit, e.ReplaceParameter):
        return not edit.code
    return isinstance(edit, e.RemoveStatement | e.RemoveArgument)


def without(facts: Facts, edits: Iterable[e.Edit]) -> Facts:
    """The facts of the script, whose tree loses what these edits take away.

    Where its values are known already, they stay: some of it may follow from what is gone, so that it says too much,
    never too little. What else follows from their absence shows when the new text is understood.
    """
    for edit in edits:
        if isinstance(edit, e.RemoveStatement):
            _take_statement(facts, edit.node)
        elif isinstance(edit, e.RemoveArgument):
            _take_argument(edit)
        elif isinstance(edit, e.ReplaceParameter):
            _take_parameter(edit)
    if facts.is_interpreted:
        return Facts(facts.tree, facts.table, facts.interp, facts.seen)
    return Facts(facts.tree, ScopeTable(facts.tree), seen=facts.seen)


def _take_statement(facts: Facts, statement: ast.AST) -> None:
    assert isinstance(statement, ast.stmt)
    parent = facts.table.parents[statement]
    for suite in suites(parent):
        if statement in suite:
            suite[:] = [s for s in suite if s is not statement] or [_pass(facts, statement)]


def _take_argument(edit: e.RemoveArgument) -> None:
    assert isinstance(edit.node, ast.Call)
    edit.node.args = [a for a in edit.node.args if a is not edit.argument]
    edit.node.keywords = [k for k in edit.node.keywords if k.value is not edit.argument]


def _take_parameter(edit: e.ReplaceParameter) -> None:
    function = edit.node
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    own = function.args
    given = {a: default_of(function, a) for a in (*own.posonlyargs, *own.args, *own.kwonlyargs)}
    own.posonlyargs, own.args, own.kwonlyargs = (
        [a for a in arguments if a.arg != edit.name]
        for arguments in (own.posonlyargs, own.args, own.kwonlyargs)
    )
    own.defaults = [d for a in (*own.posonlyargs, *own.args) if (d := given[a]) is not None]
    own.kw_defaults = [given[a] for a in own.kwonlyargs]


def _pass(facts: Facts, statement: ast.stmt) -> ast.Pass:
    """What is written where a suite would have nothing in it."""
    found = ast.copy_location(ast.Pass(), statement)
    facts.table.parents[found] = facts.table.parents[statement]
    facts.table.of_node[found] = facts.table.of_node[statement]
    return found
