"""Loaders whose batches the script uses on the CPU before it moves them.

A prepared loader puts its batches on the device at once, where they could not be computed with NumPy or with tensors on
the CPU. If the script does so before its own `.to(device)`, the loader is prepared without placement, and the moves stay.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.tensors import PER_SAMPLE
from crosstrain_migrate.facts.values import FromBatch, Value
from crosstrain_migrate.syntax.walks import walk

FACTORIES = frozenset(
    f"torch.{name}"
    for name in (
        *("zeros", "ones", "eye", "full", "empty", "arange", "linspace", "tensor", "as_tensor", "from_numpy"),
        *("rand", "randn", "randint", "randperm"),
    )
)
JOINS = frozenset({"torch.cat", "torch.stack", "torch.concat", "torch.where"})
MOVES = frozenset({"to", "cuda", "cpu"})


def worked_on(facts: Facts) -> set[Value]:
    """The loaders whose batches the script moves itself, after it has used them on the CPU."""
    moved = {
        batch_value.loader
        for call in facts.calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"to", "cuda"}
        for batch_value in _rows(facts, call.func.value)
    }
    if not moved:
        return set()
    found = {
        batch_value.loader
        for part, others in _meetings(facts)
        if others
        and not facts.in_module(part)
        and not comes_through(facts, part, lambda call: _moves(facts, call))
        for batch_value in _rows(facts, part)
    }
    return found & moved


def _rows(facts: Facts, node: ast.AST) -> list[FromBatch]:
    return [v for v in facts.of(node) if isinstance(v, FromBatch) and not v.host and v.kind in PER_SAMPLE]


def _meetings(facts: Facts) -> Iterator[tuple[ast.expr, bool]]:
    """Tensors, each with whether it is computed with NumPy, or with a tensor that was made on the CPU."""
    for node in facts.each(ast.Call, ast.BinOp, ast.Subscript):
        if isinstance(node, ast.Call):
            yield from _in_call(facts, node)
        elif isinstance(node, ast.BinOp):
            yield node.left, _is_fresh(facts, node.right)
            yield node.right, _is_fresh(facts, node.left)
        else:
            indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            yield from ((index, _is_fresh(facts, node.value)) for index in indices)


def _in_call(facts: Facts, call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    paths = facts.paths(call.func)
    if isinstance(call.func, ast.Attribute):
        if call.func.attr == "numpy":  # CT104 adds `.cpu()` to what is only read
            yield call.func.value, call in facts.loss_slice
        yield from ((argument, _is_fresh(facts, call.func.value)) for argument in call.args)
    if any(path.startswith("numpy.") for path in paths):
        yield from ((argument, call in facts.loss_slice) for argument in call.args)
    if paths & JOINS and call.args:
        parts = call.args[0].elts if isinstance(call.args[0], ast.Tuple | ast.List) else call.args
        fresh = [_is_fresh(facts, part) for part in parts]
        yield from ((part, any(fresh)) for part in parts)


def _is_fresh(facts: Facts, node: ast.expr) -> bool:
    """A tensor that was made on the CPU, and is there still."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Call):
            if facts.paths(node.func) & FACTORIES:
                return not any(k.arg == "device" for k in node.keywords)
            if isinstance(node.func, ast.Attribute) and node.func.attr in {"to", "cuda"}:
                return False
            node = node.func
        else:
            node = node.value
    if not isinstance(node, ast.Name):
        return False
    made = [facts.table.statement_of(d) for d in facts.bindings(node)]
    values = [s.value for s in made if isinstance(s, ast.Assign) and not _mentions(s.value, node.id)]
    return len(values) == len(made) == 1 and _is_fresh(facts, values[0])


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in walk(node))


def _moves(facts: Facts, call: ast.Call) -> bool:
    """Whether a call gives a tensor on the device: it moves one, makes one there, or is one of a module or a loss."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in MOVES and not facts.paths(call.func):
        return True
    return (
        any(k.arg == "device" for k in call.keywords)
        or any(facts.interp.is_module(v) for v in facts.of(call.func))
        or any(api.is_loss_class(p) for p in facts.paths(call.func))
    )


def comes_through(
    facts: Facts, node: ast.AST, wanted: Callable[[ast.Call], bool], seen: frozenset[ast.AST] = frozenset()
) -> bool:
    """Whether a call of some kind stands in `node`, or in what one of its variables is bound to."""
    if node in seen:
        return False
    seen = seen | {node}
    return any(
        wanted(part)
        if isinstance(part, ast.Call)
        else any(comes_through(facts, source, wanted, seen) for source in bound_to(facts, part))
        for part in walk(node)
    )


def bound_to(facts: Facts, node: ast.AST) -> list[ast.expr]:
    """What a variable is bound to where it is read: the values of assignments, or what the callers give."""
    found: list[ast.expr] = []
    for definition in facts.bindings(node):
        if isinstance(definition, ast.arg):
            found += facts.given(definition)
            continue
        statement = facts.table.statement_of(definition)
        found += [statement.value] if isinstance(statement, ast.Assign | ast.AugAssign) else []
    return found
