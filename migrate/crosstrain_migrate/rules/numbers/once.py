"""A loss that the code of a batch reads several times is reduced once, above its first reader."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Set

from crosstrain_migrate import edits as e
from crosstrain_migrate.roles.facts import Facts
from crosstrain_migrate.roles.nodes import place_of
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.preparing.subject import common_position, suite_of

GLOBAL = (
    '.reduce({x}, reduction="mean")',
    ".gather_for_metrics({x}).sum()",
)  # what a loss becomes where it is read


def reduce_once(context: Context) -> None:
    """Where nothing but these readers uses the variable any more, it holds the reduced loss from there on."""
    readers: dict[tuple[str, frozenset[ast.AST], str], dict[ast.Name, e.Replace]] = defaultdict(dict)
    for edit in context.edits:
        if not isinstance(edit, e.Replace) or not isinstance(edit.node, ast.Name):
            continue
        if edit.template.endswith(GLOBAL):
            value = context.facts.interp.reaching.get(edit.node, frozenset())
            readers[edit.node.id, value, edit.template][edit.node] = edit
    for (name, value, _), edits in readers.items():
        above = _above(context.facts, name, value, edits.keys()) if value and len(edits) > 1 else None
        if above is not None:
            _move(context, edits, above)


def _move(context: Context, readers: dict[ast.Name, e.Replace], above: ast.stmt) -> None:
    node, edit = next(iter(readers.items()))
    gone = set(readers.values())
    context.edits[:] = [one for one in context.edits if one not in gone]
    code = f"{node.id} = {edit.template.replace('{x}', node.id)}"
    context.edits.append(e.InsertBefore(above, edit.rule, edit.reason, code=code))
    context.collective -= readers.keys()
    context.averaged -= readers.keys()
    context.collective.add(above)


def _above(facts: Facts, name: str, value: frozenset[ast.AST], readers: Set[ast.Name]) -> ast.stmt | None:
    """The statement before which the variable can be reduced for all of its readers."""
    statements = [facts.table.statement_of(reader) for reader in readers]
    suite = suite_of(facts, common_position(facts, statements))
    if not any(s in suite for s in statements):
        return None  # each may be left out: it would be reduced for nobody
    above = next(s for s in suite if any(facts.table.is_inside(inner, s) for inner in statements))
    if facts.table.is_whole_else(above):
        return None  # nothing can stand above an `elif`
    made = max(place_of(definition) for definition in value)
    if made >= place_of(above) or any(facts.table.is_inside(d, above) for d in value):
        return None
    scope = facts.table.of_node[next(iter(readers))].resolve(name)
    others = [m for m in facts.mentions(scope, name) if m not in readers] if scope is not None else []
    return above if all(_is_over(facts, other, value, above) for other in others) else None


def _is_over(facts: Facts, mention: ast.Name, value: frozenset[ast.AST], above: ast.stmt) -> bool:
    """Whether a mention of the variable has seen its value, or sees another one."""
    if isinstance(mention.ctx, ast.Del):
        return False
    first = min(place_of(definition) for definition in value)
    if isinstance(mention.ctx, ast.Store):
        added = isinstance(facts.table.parents[mention], ast.AugAssign)
        return not added or first <= place_of(mention) < place_of(above)
    seen = facts.interp.reaching.get(mention)
    if seen is None or facts.table.of_node[mention] is not facts.table.of_node[above]:
        return False  # in a function of its own, which may be called at any time
    return not seen & value or first < place_of(mention) < place_of(above)
