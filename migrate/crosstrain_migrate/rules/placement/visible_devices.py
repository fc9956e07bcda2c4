"""CT105 for `os.environ["CUDA_VISIBLE_DEVICES"] = ...`: the launcher assigns the GPUs to the processes."""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.rules.side_effects import effectless
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

from .devices import BY_GPU_IDS

RULE, VARIABLE = "CT105", "CUDA_VISIBLE_DEVICES"
ENVIRONMENT = frozenset({"os.environ", "environ"})
NO_GPU = frozenset({"", "-1"})  # these ask for the CPU, and stay
REASON = (
    "this hides GPUs from the processes: all but the first would find none, or all would share one. The launcher hands "
    "them out"
)


def plan(context: Context) -> None:
    """Removes statements that hide GPUs. Where the script reads the variable again, it only says what to do instead."""
    named = [n for n in context.facts.each(ast.Constant) if n.value == VARIABLE]
    settings = {n: s for n in named if (s := _sets(context, n)) is not None}
    for statement in dict.fromkeys(settings.values()):
        value = _value(statement)
        if isinstance(value, ast.Constant) and value.value in NO_GPU:
            continue
        goes = len(settings) == len(named) and value is not None and _only_text(value)
        if goes and context.allows(RULE, statement):
            _take_out(context, statement)
        remedy = BY_GPU_IDS if goes else f"take it out, and {BY_GPU_IDS}"
        context.note(RULE, statement, REASON, remedy)


def _sets(context: Context, name: ast.Constant) -> ast.stmt | None:
    """The statement that gives the variable a value, where it does nothing else."""
    statement = context.facts.table.statement_of(name)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        owned = isinstance(target, ast.Subscript) and written(target.value) in ENVIRONMENT
        return statement if owned and isinstance(target, ast.Subscript) and target.slice is name else None
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and written(call.func) in {"os.environ.setdefault", "os.putenv"}:
        return statement if len(call.args) == 2 and call.args[0] is name else None
    return None


def _value(statement: ast.stmt) -> ast.expr | None:
    value = getattr(statement, "value", None)
    return value.args[1] if isinstance(statement, ast.Expr) and isinstance(value, ast.Call) else value


def _only_text(value: ast.expr) -> bool:
    """Whether computing a value has no effect: `",".join(str(number) for number in gpus)`."""
    calls = [n for n in walk(value) if isinstance(n, ast.Call)]
    return all(effectless(c) or last_name(c.func) in {"join", "map", "str"} for c in calls)


def _take_out(context: Context, statement: ast.stmt) -> None:
    """Removes a statement, with the `if` around it where that holds nothing else."""
    gone, table = statement, context.facts.table
    while len(suite_of(context.facts, gone)) == 1:
        around = table.parents[gone]
        if not isinstance(around, ast.If) or around.orelse or not effectless(around.test):
            if isinstance(around, ast.Module):
                break
            context.edits.append(e.ReplaceStatement(gone, RULE, REASON, code="pass"))
            return
        gone = around
    context.remove(gone, RULE, "the launcher chooses the GPUs")
