"""For CT602: tensors that are made for a batch and filled row by row, such as sequences that are padded in the loop.

What training computes from them is of this process's share, like the batch itself: nothing is kept for later steps.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.lifetimes import within_batch
from crosstrain_migrate.syntax.walks import walk

from .module_state import COLLECTS

FRESH = frozenset({"clone", "copy", "new_zeros", "new_ones", "new_full", "new_empty"})
CONVERTS = frozenset({"long", "int", "float", "double", "half", "bool", "to", "cuda", "astype", "type"})


def fills_only_the_batch(facts: Facts, loop: ast.AST) -> bool:
    """Whether all that a loop over rows changes are items of tensors that were made for this batch."""
    filled = False
    for node in walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if not _is_made_for_the_batch(facts, node):
                return False
            filled = True
        elif (
            (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
            or (isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name))
            or (isinstance(node, ast.Call) and _tells(facts, node, loop))
        ):
            return False
    return filled


def _tells(facts: Facts, call: ast.Call, loop: ast.AST) -> bool:
    """Whether a call prints, or puts something into what is older than this turn of the loop."""
    if "builtins.print" in facts.paths(call.func):
        return True
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in COLLECTS:
        return False
    held = call.func.value
    made = facts.interp.reaching.get(held, frozenset()) if isinstance(held, ast.Name) else frozenset()
    return not made or not all(facts.table.is_inside(d, loop) for d in made)


def _is_made_for_the_batch(facts: Facts, target: ast.Subscript) -> bool:
    held: ast.expr = target
    while isinstance(held, ast.Subscript):
        held = held.value
    definitions = facts.interp.reaching.get(held, frozenset()) if isinstance(held, ast.Name) else frozenset()
    return bool(definitions) and all(_makes_anew(facts, d, target) for d in definitions)


def _makes_anew(facts: Facts, definition: ast.AST, at: ast.AST) -> bool:
    if isinstance(definition, ast.arg):
        return False
    statement = facts.table.statement_of(definition)
    made = statement.value if isinstance(statement, ast.Assign) else None
    return made is not None and _is_new(facts, made) and within_batch(facts.interp, made, at)


def _is_new(facts: Facts, made: ast.expr) -> bool:
    """Whether an expression makes a tensor that nothing else holds."""
    if not isinstance(made, ast.Call):
        return False
    if any(api.makes_array(p) or api.last(p) in api.FACTORIES for p in facts.paths(made.func)):
        return True
    if not isinstance(made.func, ast.Attribute):
        return False
    name = made.func.attr
    return name in FRESH or (name in CONVERTS and _is_new(facts, made.func.value))
