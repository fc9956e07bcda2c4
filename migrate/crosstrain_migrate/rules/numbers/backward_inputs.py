"""For CT602: nothing that backward gets is gathered or reduced.

What:   A check of the finished plan, whichever rule planned the gather.
Why:    What is gathered has no gradient: the part of the model behind it would silently not be trained.
Refuses: the script, as a fault of the tool.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.walks import walk

from .opaque_calls import is_trained_from

RULE = "CT602"


def check(context: Context) -> None:
    """Raises Refusal; asked when all that communicates is planned."""
    for edit in context.edits:
        if edit.node not in context.collective:
            continue
        for node in _made_global(context.facts, edit):
            if is_trained_from(context.facts, node) and not _is_read(context.facts, node):
                raise refuse(
                    RULE,
                    node,
                    f"the tool would have to gather `{ast.unparse(node)}`, from which the trained loss is computed, and what is gathered "
                    "has no gradient",
                    "report this script to us; it was left as it was",
                )


def _made_global(facts: Facts, edit: e.Edit) -> Iterator[ast.expr]:
    """The expressions that see what an edit has made global."""
    if isinstance(edit, e.Replace) and isinstance(edit.node, ast.expr):
        yield edit.node
    if isinstance(edit, e.InsertBefore) and isinstance(edit.node, ast.stmt):
        for name in _bound_by(edit.code):
            yield from _uses_after(facts, edit.node, name)


def _bound_by(code: str) -> list[str]:
    targets = [t for s in ast.parse(code).body if isinstance(s, ast.Assign) for t in s.targets]
    return [n.id for target in targets for n in walk(target) if isinstance(n, ast.Name)]


def _uses_after(facts: Facts, statement: ast.stmt, name: str) -> Iterator[ast.Name]:
    """The uses of a variable behind a statement, in the same batch, that see what it was before the statement."""
    scope = facts.table.of_node[statement].resolve(name)
    loop = facts.batch_loop_around(statement)
    for use in facts.mentions(scope, name) if scope is not None else ():
        if not isinstance(use.ctx, ast.Load) or line_of(use) < line_of(statement):
            continue
        before = any(line_of(d) < line_of(statement) for d in facts.interp.reaching.get(use, ()))
        if before and (loop is None or facts.table.is_inside(use, loop)):
            yield use


def _is_read(facts: Facts, node: ast.AST) -> bool:
    """Whether the author takes a number from it, which has no gradient anyway: `loss = loss / mask.sum().item()`."""
    for around in facts.table.ancestors(node):
        if isinstance(around, ast.stmt):
            return False
        if isinstance(around, ast.Call):
            method = around.func.attr if isinstance(around.func, ast.Attribute) else ""
            if method in api.HOST_METHODS | {"detach"} or facts.paths(around.func) & api.HOST_BUILTINS:
                return True
    return False
