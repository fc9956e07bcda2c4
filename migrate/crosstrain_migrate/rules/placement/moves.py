"""For CT105: a test around nothing but moves to the GPU.

What:   `if use_cuda:` around `x = x.cuda()` goes, and so does `x.cuda() if use_cuda else x`; the tensor moves to the
        accelerator's device in either case.
Why:    The model is on the accelerator's device, a TPU or Apple's GPU, say, whatever the test says about CUDA.
Before: `if use_cuda: z = z.cuda()`
After:  `z = z.to(accelerator.device)`
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.side_effects import is_pure
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .device import OTHER, Placement
from .devices import known_values

REASON = "the launcher chooses the device"


def plan(context: Context, placement: Placement) -> None:
    moving = placement.portable | placement.stripped
    for node in context.facts.each(ast.If, ast.IfExp):
        if node in placement.gone or not is_pure(node.test):
            continue
        moved = [n for part in _body(node) for n in walk(part) if n in moving]
        if not moved or _asks_for_what_is_moved(node.test, moved):
            continue
        if isinstance(node, ast.If) and _only_moves(placement, node):
            arms = ("always", "drop") if node.orelse else ("always",)
            context.edits.append(e.Fold(node, OTHER, REASON, arms=arms))
            placement.gone.update(n for part in (node.test, *node.orelse) for n in walk(part))
        elif isinstance(node, ast.IfExp) and _same(placement, [node.body], [node.orelse]):
            context.replace(node, OTHER, REASON, "{x}", x=node.body)
            placement.gone.update(n for part in (node.test, node.orelse) for n in walk(part))


def _asks_for_what_is_moved(test: ast.expr, moves: list[ast.AST]) -> bool:
    """Whether a test asks if there is something to move, and not for a GPU: `if y is not None: y = y.cuda()`."""
    owners = [m.func.value for m in moves if isinstance(m, ast.Call) and isinstance(m.func, ast.Attribute)]
    return bool(_variables_in([test]) & _variables_in(owners))


def _variables_in(nodes: Sequence[ast.AST]) -> set[str]:
    return {ast.unparse(n) for node in nodes for n in walk(node) if isinstance(n, ast.Name | ast.Attribute)}


def _body(node: ast.If | ast.IfExp) -> Sequence[ast.AST]:
    return node.body if isinstance(node.body, list) else [node.body]


def _only_moves(placement: Placement, node: ast.If) -> bool:
    """Whether the branches differ in nothing but moves; without an `else`, what is moved is only bound again."""
    if placement.facts.table.is_whole_else(node):
        return False
    if node.orelse:
        return _same(placement, node.body, node.orelse)
    return all(s in placement.gone or _rebinds(placement, s) for s in node.body)


def _rebinds(placement: Placement, statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return statement.value in placement.portable
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    return ast.unparse(_unmoved(placement, statement.value)) == ast.unparse(statement.targets[0])


def _same(placement: Placement, body: Sequence[ast.AST], orelse: Sequence[ast.AST]) -> bool:
    return [ast.unparse(_unmoved(placement, n)) for n in body] == [ast.unparse(n) for n in orelse]


def _unmoved(placement: Placement, node: ast.AST) -> ast.AST:
    """A copy of a piece of code without the calls that move something."""
    moving = placement.stripped | placement.portable
    if node in moving and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _unmoved(placement, node.func.value)
    inner = {
        id(n): _unmoved(placement, n.func.value)
        for n in walk(node)
        if n in moving and isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    }
    return copy.deepcopy(node, inner)


def guards_of_models(context: Context, placement: Placement) -> list[ast.expr]:
    """The tests under which the models were moved; none where one of them was moved without a test."""
    found: list[ast.expr] = []
    models = set(context.subject.models)
    for call in placement.stripped | placement.portable:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        moved = known_values(context.facts, call.func.value)
        if not moved or not moved <= models:
            continue
        test = _test_around(context, call)
        if test is None:
            return []
        found.append(test)
    return found


def _test_around(context: Context, call: ast.Call) -> ast.expr | None:
    inside: ast.AST = call
    for around in context.facts.table.ancestors(call):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            return None
        if isinstance(around, ast.If | ast.IfExp):
            return around.test if inside in _body(around) and is_pure(around.test) else None
        inside = around
    return None
