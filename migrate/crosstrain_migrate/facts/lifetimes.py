"""What outlives a batch: accumulators, containers and variables that later batches read.

The rules make such a value global where it leaves its batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from crosstrain_migrate.syntax.nodes import written

from . import torch_api as api
from .interpretation import Interpretation
from .regions import batch_loop_around
from .values import FromBatch, Symbol, Value, Values


def outlives(interp: Interpretation, target: ast.expr, at: ast.stmt) -> bool:
    """Whether `target` was there before this batch: an accumulator, an attribute, an outer container."""
    if at in interp.in_modules:
        return False
    if isinstance(target, ast.Subscript | ast.Attribute):
        return not any(isinstance(v, FromBatch) for v in interp.of(target.value))
    if not isinstance(target, ast.Name):
        return False
    scope = interp.table.of_node[target]
    if target.id in scope.globals | scope.nonlocals:
        return True
    loop = batch_loop_around(interp, at)
    bindings = interp.bindings(target)
    return loop is not None and not (bindings and all(interp.table.is_inside(d, loop) for d in bindings))


def accumulated(interp: Interpretation, node: ast.Assign) -> ast.expr | None:
    """`x` of `total = total + x`, `sums[k] = sums.get(k, 0) + x` or `total = torch.cat([total, x])`, where the total
    outlives the batch."""
    value, target = node.value, node.targets[0]
    if isinstance(value, ast.Call) and isinstance(target, ast.Name):
        return _appended(interp, value, target.id, node)
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return None
    for read, other in ((value.left, value.right), (value.right, value.left)):
        if _reads(read, target) and outlives(interp, read if isinstance(read, ast.Name) else target, node):
            return other
    return None


def _reads(read: ast.expr, target: ast.expr) -> bool:
    """Whether `read` is what `target` held before: the same expression, or `d.get(k, 0)` of `d[k]`."""
    if isinstance(target, ast.Subscript) and isinstance(read, ast.Call) and read.args:
        asked = f"{written(target.value)}.get"
        return written(read.func) == asked and written(read.args[0]) == written(target.slice)
    has_a_name = isinstance(target, ast.Name | ast.Attribute | ast.Subscript)
    return has_a_name and type(read) is type(target) and written(read) == written(target)


def carried(interp: Interpretation, node: ast.Assign) -> bool:
    """Whether the next batch reads what is assigned, as in `previous = loss.detach()`."""
    target, loop = node.targets[0], batch_loop_around(interp, node)
    kinds = {v.kind for v in interp.of(node.value) if isinstance(v, FromBatch)}
    if not isinstance(target, ast.Name) or loop is None or not kinds or not kinds <= {"mean", "sum"}:
        return False
    return any(
        name.lineno < node.lineno and interp.table.is_inside(name, loop)
        for name in interp.uses.get(target, ())
    )


def _appended(interp: Interpretation, call: ast.Call, name: str, node: ast.Assign) -> ast.expr | None:
    """`x` of `torch.cat([total, x])`, `total` being the variable `name`."""
    joins = any(isinstance(v, Symbol) and api.last(v.path) in api.JOINS for v in interp.of(call.func))
    if not joins or not call.args:
        return None
    first = call.args[0]
    parts = first.elts if isinstance(first, ast.Tuple | ast.List) else call.args[:2]
    if len(parts) != 2 or not isinstance(parts[0], ast.Name) or parts[0].id != name:
        return None
    return parts[1] if outlives(interp, parts[0], node) else None


def kept(interp: Interpretation, values: Values, site: ast.AST, at: ast.AST) -> Values:
    """What a container made at `site` holds after `values` were put into it at `at`."""
    return values if within_batch(interp, site, at) else made_global(values)


def within_batch(interp: Interpretation, site: ast.AST, at: ast.AST) -> bool:
    """Whether a container made at `site` lives no longer than the batch (or the call) that `at` belongs to."""
    if at in interp.in_modules:
        return True
    around = interp.table.parents.get(site)
    if isinstance(around, ast.Call) and written(around.func).endswith(".setdefault"):
        return False  # it goes into a container that is older
    loop = batch_loop_around(interp, at)
    if loop is not None:
        return interp.table.is_inside(site, loop)
    function = interp.table.function_around(at)
    if function is None or function is not interp.table.function_around(site):
        return False
    return not any(interp.table.is_inside(loop, function) for loop in interp.batch_loops)


def made_global(values: Iterable[Value]) -> Values:
    """Values that leave their batch: the rules make them global there, so that they are read like Python numbers."""
    return frozenset(replace(v, host=True) if isinstance(v, FromBatch) else v for v in values)
