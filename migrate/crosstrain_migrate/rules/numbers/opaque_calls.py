"""What a call does with rows: it measures, it trains, or it asks for gradients by them."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.tensors import PER_SAMPLE
from crosstrain_migrate.facts.values import FromBatch, Sequence, Value, code_of
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values


def is_opaque(facts: Facts, call: ast.Call, loaders: set[Value]) -> bool:
    """Whether a call runs one of the script's own functions that measure: it gets a share and runs no model, and no loss
    is its result or computed from it. Its arguments are made global, and with them what happens inside."""
    if call in facts.loss_origins or call in facts.loss_slice:
        return False
    targets = _targets(facts, call)
    if any(s.kind in PER_SAMPLE and not s.host for s in _returned(facts, call)):
        return False  # it returns rows, which go on to the model or to a measure: no measure itself
    if not targets or any(t in facts.interp.touching or _in_module(facts, t) for t in targets):
        return False
    if any(facts.table.of_node.get(o) is facts.table.scopes[t] for o in facts.loss_origins for t in targets):
        return False
    arguments = [a.value if isinstance(a, ast.Starred) else a for a in arguments_of(call)]
    if any(is_trained_from(facts, a) for a in arguments):
        return False  # it keeps, or passes on, a term of the loss
    return any(s.loader in loaders and s.kind != "shape" for a in arguments for s in batch_values(facts, a))


def is_trained_from(facts: Facts, node: ast.AST) -> bool:
    """Whether backward gets the value of this expression, or of a part of a tuple or a sum."""
    if isinstance(node, ast.Name | ast.Call):
        return node in facts.loss_slice
    inside = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Tuple, ast.List, ast.Dict, ast.Attribute, ast.Subscript)
    return isinstance(node, inside) and any(is_trained_from(facts, n) for n in ast.iter_child_nodes(node))


def is_term(facts: Facts, node: ast.AST) -> bool:
    """Whether this is a term of the trained loss, and not rows, or one of them, that a later loss is computed from."""
    computed = ast.Call | ast.BinOp | ast.UnaryOp
    return is_trained_from(facts, node) and all(
        s.kind not in PER_SAMPLE and all(isinstance(o, computed) for o in s.origins)
        for s in batch_values(facts, node)
    )


def _returned(facts: Facts, call: ast.Call) -> list[FromBatch]:
    """The values from batches a call returns, those in tuples and dicts of theirs included."""
    found: list[FromBatch] = []
    work = [(value, 0) for value in facts.of(call)]
    while work:
        value, depth = work.pop()
        if isinstance(value, FromBatch):
            found.append(value)
        elif isinstance(value, Sequence) and depth < 3:
            work.extend((inner, depth + 1) for inner in facts.interp.element(value))
    return found


def _targets(facts: Facts, call: ast.Call) -> list[FunctionNode]:
    """The script's own functions that a call may run, without constructors."""
    found = (code_of(value) for value in facts.of(call.func))
    return [function for function in found if isinstance(function, FunctionNode)]


def runs_model(facts: Facts, call: ast.Call) -> bool:
    """Whether a call runs a module, or a function of the script's own that does or goes backward."""
    touching = any(target in facts.interp.touching for target in facts.targets(call))
    return touching or any(facts.interp.is_module(v) for v in facts.of(call.func))


def differentiates(facts: Facts, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether a call, or a function of the script's own that it runs, asks for gradients by what it is given."""
    calls = [n for n in walk(node) if isinstance(n, ast.Call)]
    if any("torch.autograd.grad" in facts.paths(call.func) for call in calls):
        return True
    inner = {t for call in calls for t in _targets(facts, call)} - seen - {node}
    return any(differentiates(facts, t, seen | {node} | inner) for t in inner)


def _in_module(facts: Facts, function: ast.AST) -> bool:
    parent = facts.table.parents.get(function)
    return isinstance(parent, ast.ClassDef) and facts.interp.inherits(parent, api.MODULE_BASES)


def inside_opaque(facts: Facts, node: ast.AST, loaders: set[Value]) -> bool:
    """Whether the function around `node` is called to measure, and never for a loss."""
    function = facts.enclosing_function(node)
    sites = facts.callers.get(function, ()) if function is not None else ()
    gives_loss = any(site in facts.loss_origins for site in sites)
    return not gives_loss and any(is_opaque(facts, site, loaders) for site in sites)
