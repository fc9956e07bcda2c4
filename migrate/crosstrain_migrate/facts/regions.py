"""Where a script runs its model: the loops that run once a batch, the functions and methods that call a model."""

from __future__ import annotations

import ast
from collections import defaultdict

from crosstrain_migrate.syntax.walks import walk

from .interpretation import Interpretation
from .values import Member, code_of

Method = ast.FunctionDef | ast.AsyncFunctionDef


def batch_loop_around(interp: Interpretation, node: ast.AST) -> ast.AST | None:
    """The innermost batch loop around `node` in its own function."""
    parents, scopes = interp.table.parents, interp.table.scopes
    around = parents.get(node)
    while around is not None and around not in interp.batch_loops:
        around = parents.get(around) if around not in scopes else None
    return around


def in_mover(interp: Interpretation, node: ast.AST) -> bool:
    """Whether `node` stands in a function that only moves what it is given, or in a class that wraps a loader to do so."""
    if not interp.movers and not interp.wrappers:
        return False
    function = interp.table.function_around(node)
    cls = interp.table.parents.get(function) if function is not None else None
    return function in interp.movers or (cls is not None and cls in interp.wrappers)


def loop_of(interp: Interpretation, node: ast.AST) -> ast.AST | None:
    """The loop that runs once a batch of what `node` iterates: `node` itself, or the one around `next(batches)`."""
    if not isinstance(node, ast.Call):
        return node if isinstance(node, ast.For | ast.AsyncFor) else None
    loops = (ast.For, ast.AsyncFor, ast.While)
    around = (a for a in interp.table.ancestors(node) if isinstance(a, loops) or a in interp.table.scopes)
    found = next(around, None)
    return found if isinstance(found, loops) else None


def methods_of_modules(interp: Interpretation, methods: set[Method]) -> set[ast.AST]:
    """Those of the methods of all nn.Module classes that may run while a model computes its output.

    The others drive a training or an evaluation from outside: `fit`, `training_step` or `evaluate`, called by code that
    is no module's, or by one another. They count as functions like any other.
    """
    outside = {m for m in methods if not m.name.startswith("__") and m.name != "forward"}
    outside = {m for m in outside if interp.call_sites.get(m) and m not in interp.escaped}
    while True:
        inside = {node for method in methods - outside for node in walk(method)}
        called = {m for m in outside if interp.call_sites[m] & inside}
        if not called:
            return {*methods - outside}
        outside -= called


def functions_that_run_a_model(interp: Interpretation) -> set[ast.AST]:
    """The functions that call a module or backward, themselves or through functions that they call."""
    direct: set[ast.AST] = set()
    callers: dict[ast.AST, set[ast.AST]] = defaultdict(set)
    for node in interp.table.each(ast.Call):
        around = next((a for a in interp.table.ancestors(node) if a in interp.table.scopes), interp.tree)
        for value in interp.of(node.func):
            if interp.is_module(value) or (isinstance(value, Member) and value.name == "backward"):
                direct.add(around)
            target = code_of(value)
            if target is not None:
                callers[target].add(around)
    found: set[ast.AST] = set()
    work = list(direct)
    while work:
        function = work.pop()
        if function not in found:
            found.add(function)
            work.extend(callers[function])
    return found
