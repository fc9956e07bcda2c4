"""Scripts that silence all but the main process by putting a `print` of their own into `builtins`."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax import edits as e

from .plain import Stage

RULE = "CT303"
OWN_KEYWORDS = frozenset({"sep", "end", "file", "flush"})


def plan(stage: Stage) -> None:
    """Removes the arguments that only the script's own `print` takes (`force=True`)."""
    if not any(puts_print(stage, function.body) for function in stage.facts.each(ast.FunctionDef)):
        return
    for call in stage.facts.calls_to("builtins.print"):
        for keyword in call.keywords:
            if keyword.arg is not None and keyword.arg not in OWN_KEYWORDS:
                reason = "the main process prints"
                stage.edits.append(e.RemoveArgument(call, RULE, reason, argument=keyword.value))


def puts_print(stage: Stage, body: list[ast.stmt]) -> bool:
    """Whether the statements of a function or a branch only put a `print` of the script's own in the builtin's place."""
    stored = [s for s in body if isinstance(s, ast.Assign) and _of_builtins(stage, s.targets[0])]
    rest = [s for s in body if s not in stored]
    return bool(stored) and all(
        isinstance(s, ast.Import | ast.ImportFrom | ast.FunctionDef)
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        or (isinstance(s, ast.Assign) and _of_builtins(stage, s.value))
        for s in rest
    )


def _of_builtins(stage: Stage, node: ast.expr) -> bool:
    """`builtins.print`, or `print` itself where it is read."""
    if isinstance(node, ast.Attribute):
        return node.attr == "print" and stage.facts.paths(node.value) == {"builtins"}
    return isinstance(node, ast.Name) and stage.facts.paths(node) == {"builtins.print"}
