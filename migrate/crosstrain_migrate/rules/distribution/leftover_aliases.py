"""Aliases that removing a wrapper leaves: `raw = model.module if distributed else model` became `raw = model`.

Their uses name `model` instead, and the alias is removed. An alias that the author wrote stays.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import all_arguments, place_of
from crosstrain_migrate.syntax.scopes import Scope

RULE = "CT303"


def one_name(
    facts: Facts, authors: Container[str], stays: Callable[[ast.Name], bool], lines: int | None = None
) -> list[e.Edit]:
    """The edits that replace one alias by the name it stands for; none when there is no alias.

    authors: the author's own assignments. stays: whether something else needs a name. lines: an alias that is used in more
    lines stays.
    """
    for node in facts.each(ast.Assign):
        copy, original = node.targets[0], node.value
        if len(node.targets) > 1 or not isinstance(copy, ast.Name) or not isinstance(original, ast.Name):
            continue
        if ast.unparse(node) not in authors and not stays(copy):
            uses = _replaceable(facts, node, copy, original)
            if uses and (lines is None or len({use.lineno for use in uses}) <= lines):
                named = [e.Replace(use, RULE, template=original.id) for use in uses]
                return [e.RemoveStatement(node, RULE), *named]
    return []


def _replaceable(facts: Facts, node: ast.Assign, copy: ast.Name, original: ast.Name) -> list[ast.Name]:
    """All uses of the alias, if `original` has the same value at each of them; else none."""
    table = facts.table
    scope, of_original = table.of_node[copy].resolve(copy.id), table.of_node[original].resolve(original.id)
    if scope is None or of_original is None or isinstance(scope.node, ast.ClassDef):
        return []
    mentions = facts.mentions(scope, copy.id)
    uses = [m for m in mentions if isinstance(m.ctx, ast.Load)]
    if len(mentions) - len(uses) != 1 or _declared(scope, copy.id):
        return []
    same = all(table.of_node[use].resolve(original.id) is of_original for use in uses)
    later = all(place_of(use) > place_of(node) and not _in_string(facts, use) for use in uses)
    return uses if same and later and _settled(facts, node, original, of_original) else []


def _declared(scope: Scope, name: str) -> bool:
    """Whether a name is a parameter of the function, or declared global or nonlocal."""
    node = scope.node
    if isinstance(node, ast.Module | ast.ClassDef):
        return False
    return name in {argument.arg for argument in all_arguments(node)} | scope.globals | scope.nonlocals


def _settled(facts: Facts, node: ast.Assign, original: ast.Name, scope: Scope) -> bool:
    """Whether `original` is never bound again once `node` has run."""
    stores = [m for m in facts.mentions(scope, original.id) if not isinstance(m.ctx, ast.Load)]
    around = [a for a in facts.table.ancestors(node) if isinstance(a, ast.For | ast.AsyncFor | ast.While)]
    own = facts.table.of_node[node]
    if any(place_of(s) > place_of(node) or facts.table.of_node[s] is not own for s in stores):
        return False
    if scope is not own and stores:
        return False
    return not any(facts.table.is_inside(s, loop) for s in stores for loop in around)


def _in_string(facts: Facts, node: ast.AST) -> bool:
    """Positions inside f-strings are not those of the text (Python 3.11)."""
    return any(isinstance(a, ast.JoinedStr) for a in facts.table.ancestors(node))
