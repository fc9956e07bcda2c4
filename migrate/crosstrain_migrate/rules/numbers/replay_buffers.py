"""Pools of rows of earlier batches that training alone reads, as the image buffers of CycleGAN and pix2pix.

A process's pool holds rows of its own shares. What is drawn from it is trained on and nothing else, so the loss stays a
mean over rows, and the script is converted with a finding.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import FromBatch, Instance
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.walks import walk

TOLD = frozenset({"builtins.print", "builtins.float", "builtins.int", "builtins.bool"})
FILLS = frozenset({"append", "appendleft", "extend", "insert", "pop"})


def pool_around(facts: Facts, loop: ast.AST) -> FunctionNode | None:
    """The method around a loop over rows that keeps them for training alone."""
    method = facts.enclosing_function(loop)
    owner = facts.table.parents.get(method) if method is not None else None
    if method is None or not isinstance(owner, ast.ClassDef) or facts.in_module(method):
        return None
    sites = facts.callers.get(method, ())
    trained = bool(sites) and all(site in facts.loss_slice for site in sites)
    if not trained or method in facts.interp.escaped or any(_tells(facts, n) for n in walk(method)):
        return None
    return method if _keeps_to_itself(facts, owner, method) else None


def _tells(facts: Facts, node: ast.AST) -> bool:
    """Whether a number leaves the tensors here: it is read, printed or decided by."""
    if isinstance(node, ast.Call):
        reads = isinstance(node.func, ast.Attribute) and node.func.attr in api.HOST_METHODS
        return reads or bool(facts.paths(node.func) & TOLD)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return any(isinstance(v, FromBatch) for v in facts.of(node.test))
    return isinstance(node, ast.Global | ast.Nonlocal | ast.Yield)


def _keeps_to_itself(facts: Facts, owner: ast.ClassDef, method: FunctionNode) -> bool:
    """Whether nothing but the method, and `__init__`, touches the attributes in which it keeps something."""
    kept = {n.attr for n in walk(method) if isinstance(n, ast.Attribute) and _is_changed(facts, n)}
    init = facts.interp.method(owner, "__init__")
    for node in facts.each(ast.Attribute):
        if node.attr not in kept:
            continue
        if not any(isinstance(v, Instance) and v.cls is owner for v in facts.of(node.value)):
            continue
        function = facts.enclosing_function(node)
        if function is not method and (function is not init or not isinstance(node.ctx, ast.Store)):
            return False
    return True


def _is_changed(facts: Facts, node: ast.Attribute) -> bool:
    parent = facts.table.parents.get(node)
    filled = isinstance(parent, ast.Attribute) and parent.attr in FILLS
    item = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
    return isinstance(node.ctx, ast.Store) or filled or item
