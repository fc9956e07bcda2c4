"""Where a rank or a size comes from: the launcher's environment, mp.spawn, or the author's options."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import Function
from crosstrain_migrate.rules.distribution.launcher_settings import (
    DIST,
    ENVIRONMENT,
    ENVIRONMENT_CALLS,
    LAUNCHED,
)
from crosstrain_migrate.rules.distribution.launcher_settings import WRAPPERS as ALL_WRAPPERS
from crosstrain_migrate.rules.distribution.plain import Stage
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import FunctionNode, written
from crosstrain_migrate.syntax.walks import walk

# The wrappers that average gradients over processes, as `prepare` does: not DataParallel.
WRAPPERS = frozenset(w for w in ALL_WRAPPERS if w.endswith("DistributedDataParallel"))
STATE, ACCELERATOR = "PartialState", "Accelerator"
LOCAL_SIZE = 'int(os.environ.get("LOCAL_WORLD_SIZE", 1))'
DEPTH = 6


def add_import(stage: Stage, node: ast.AST, name: str) -> None:
    """`name` of the runtime, or a module of the standard library, in the file of `node`."""
    file = stage.facts.table.of_node[node].file
    of_runtime = name in (STATE, ACCELERATOR)
    code = f"from {stage.runtime} import {name}" if of_runtime else f"import {name}"
    stage.edits.append(e.AddImport(file, "CT101", code, code=code))


def reads_environment(node: ast.AST) -> bool:
    """Whether an expression asks the launcher: `os.environ["RANK"]`, `"RANK" in os.environ`, `os.getenv("LOCAL_RANK")`."""
    inner = walk(node)
    names = {n.value for n in inner if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    asks = any(
        (isinstance(n, ast.Attribute | ast.Name) and written(n) in ENVIRONMENT)
        or (isinstance(n, ast.Call) and written(n.func) in ENVIRONMENT_CALLS)
        for n in inner
    )
    return asks and bool(names & LAUNCHED)


def asks_group(stage: Stage, node: ast.AST) -> bool:
    """Whether an expression asks the group itself: `dist.get_rank()`."""
    calls = [n for n in walk(node) if isinstance(n, ast.Call)]
    return any(p.startswith(DIST) for call in calls for p in stage.facts.paths(call.func))


def told_by_launcher(stage: Stage, node: ast.expr, depth: int = DEPTH) -> bool:
    """Whether every value that `node` may hold comes unchanged from the launcher, so that it is right under any launcher.

    Constants count, too: they are for a script that nothing launched.
    """
    if reads_environment(node) or asks_group(stage, node):
        return True
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Constant):
        return True
    if not isinstance(node, ast.Name | ast.Attribute) or not depth:
        return False
    definitions = stage.single.sources.definitions(node)
    return bool(definitions) and all(_told(stage, d, depth) for d in definitions)


def _told(stage: Stage, definition: ast.AST, depth: int) -> bool:
    if isinstance(definition, ast.arg):
        function = stage.facts.table.of_node[definition].node
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        if is_process_number(stage, definition):
            return True
        sites = stage.single.sources.sites(function)
        given = [stage.facts.passed(site, function, definition.arg) for site in sites]
        return bool(given) and all(g is not None and told_by_launcher(stage, g, depth - 1) for g in given)
    statement = stage.facts.table.statement_of(definition)
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        return told_by_launcher(stage, statement.value, depth - 1)
    return False


def is_process_number(stage: Stage, argument: ast.arg) -> bool:
    """Whether a parameter is the first one of what mp.spawn starts."""
    function = stage.facts.table.of_node[argument].node
    if not isinstance(function, ast.FunctionDef):
        return False
    return function.args.args[:1] == [argument] and bool(starts_of(stage, function))


def starts_of(stage: Stage, function: FunctionNode) -> list[ast.Call]:
    """The calls of mp.spawn that start `function`."""
    return [s for s in stage.single.spawns if s.args and Function(function) in stage.facts.of(s.args[0])]
