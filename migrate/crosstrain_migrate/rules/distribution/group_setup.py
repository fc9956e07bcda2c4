"""An `if` whose branches all set the process group up: one process has none, so the whole `if` is removed."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.walks import walk

from .launcher_settings import DIST, INIT, SETUP
from .plain import Stage

SAYS = ("builtins.print", "warnings.", "logging.")
QUESTIONS = (
    *(DIST, "torch.device", "torch.accelerator.current_accelerator", "torch.cuda.is_available"),
    *("os.path.", "os.getcwd", "os.getenv", "os.environ.get", "os.environ.keys", "tempfile.gettempdir"),
    *("urllib.parse.urlparse", "builtins.int", "builtins.str"),
)
ASKED_OF_TEXT = frozenset({"lower", "upper", "strip", "startswith", "endswith", "format", "keys", "get"})


def only_sets_up(stage: Stage, node: ast.If, arms: list[list[ast.stmt]]) -> bool:
    """Whether every branch sets the group up (one of them is taken for certain) and does nothing else."""
    inside = set(walk(node))
    return len(arms) > 1 and all(
        any(_initialises(stage, s) for s in arm) and all(_about_the_group(stage, s, inside) for s in arm)
        for arm in arms
    )


def _initialises(stage: Stage, statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and INIT in stage.facts.paths(call.func)


def _about_the_group(stage: Stage, statement: ast.stmt, inside: set[ast.AST]) -> bool:
    if isinstance(statement, ast.Pass | ast.Raise):
        return True
    if isinstance(statement, ast.If):
        body = (*statement.body, *statement.orelse)
        return _only_asks(stage, statement.test) and all(_about_the_group(stage, s, inside) for s in body)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        paths = stage.facts.paths(statement.value.func)
        return bool(paths & SETUP) or any(p.startswith(SAYS) for p in paths)
    if isinstance(statement, ast.Assign):
        mine = all(isinstance(t, ast.Name) and _stays_inside(stage, t, inside) for t in statement.targets)
        return mine and _only_asks(stage, statement.value)
    return False


def _stays_inside(stage: Stage, target: ast.Name, inside: set[ast.AST]) -> bool:
    """Whether a variable is read only in the branches that are removed."""
    scope = stage.facts.table.of_node[target].resolve(target.id)
    if scope is None or scope.parent is None:
        return False
    mentions = stage.facts.mentions(scope, target.id)
    return all(n in inside for n in mentions if isinstance(n.ctx, ast.Load))


def _only_asks(stage: Stage, node: ast.expr) -> bool:
    """Whether an expression only asks about paths, text, the machine and the group."""
    for call in walk(node):
        if not isinstance(call, ast.Call):
            continue
        paths = stage.facts.paths(call.func)
        of_text = isinstance(call.func, ast.Attribute) and call.func.attr in ASKED_OF_TEXT
        if not any(p.startswith(QUESTIONS) for p in paths) and not of_text:
            return False
    return True
