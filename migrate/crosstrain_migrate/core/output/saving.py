"""CT502 by use: the main process saves weights, and they are there for all when the call returns."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

from . import on_disk, writers
from .audience import TURNS, Audience
from .files import Files
from .stamps import RULE, Stamps

REASON = "the main process writes the file, and it is there for all when the call returns"


def plan_saving(
    plan: Plan,
    accelerators: Accelerators,
    files: Files,
    audience: Audience,
    stamps: Stamps,
    saved_apart: list[ast.AST],
) -> None:
    """Plans `accelerator.save` for `torch.save`. One process saves where each has a path of its own, and where not all
    come: by a clock of their own, or when something has failed."""
    script = plan.script
    for call in script.calls:
        is_asked = any(one in saved_apart for one in script.around(call))
        may_save = script.run_by(call) if is_asked and audience.is_all(call) else []
        if any(map(files.helpers.saves_weights, may_save)) and not files.guard(script.statement(call), call):
            reason = "processes may part here, and wait for each other: each decides by a number of its own"
            plan.note("CT605", call, reason, 'decide by its mean, `accelerator.reduce(x, "mean")`')
        comes_again = audience.of(call) == {TURNS} and not _is_where_missing(script, call)
        comes = audience.is_all(call) or (comes_again and not accelerators.is_early(call))
        if not writers.saves_weights(script, call) or script.in_lambda(call) or not comes:
            continue
        path = writers.path_of_write(script, call)
        is_for_one = stamps.is_for_one(path)
        is_apart = is_asked or stamps.is_own_number(path) or any(map(_is_failure, script.around(call)))
        if is_statement_call(script, call) and (is_for_one or is_apart or accelerators.is_early(call)):
            may_read = is_for_one and not stamps.is_temporary(path)  # then it is moved first
            reads = _read_again(plan, audience, stamps, call) if may_read else []
            files.guard(script.statement(call), call, reads)
        elif not _is_open(script, call):
            plan.replace(call.func, RULE, REASON, f"{accelerators.anywhere(call, 'saving')}.save", "saving")
            if stamps.differs(path):
                reason = "each process makes the path of this file for itself, and reads its own again"
                plan.note(RULE, call, reason, "make the path without a time, or once for all")


def _is_where_missing(script: Script, call: ast.Call) -> bool:
    """Whether a call stands where a file is not there, `if not exists(path):`, or the `else` of `if exists(path):`: of those that
    come one after another only the first one does."""
    below: ast.AST = call
    for one in script.around(call):
        if isinstance(one, ast.If) and on_disk.asks_for_files(one.test):
            joins = {type(n.op) for n in walk(one.test) if isinstance(n, ast.BoolOp)}
            is_missing = any(isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.Not) for n in walk(one.test))
            if is_missing and below in one.body and ast.Or not in joins:
                return True
            if not is_missing and below in one.orelse and ast.And not in joins:
                return True
        below = one
    return False


def _is_open(script: Script, call: ast.Call) -> bool:
    """Whether a call saves into a buffer, or a file, that each process has opened for itself: `buffer = io.BytesIO()`. If one
    process alone wrote, the others would read nothing there, or empty its file when they come late."""
    given = (
        call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "f"), None)
    )
    if not isinstance(given, ast.Name):
        return False
    withs = (n for n in script.around(call) if isinstance(n, ast.With))
    items = (item for n in withs for item in n.items if item.optional_vars is not None)
    opened = [
        one.context_expr for one in items if one.optional_vars and written(one.optional_vars) == given.id
    ]
    made = opened or script.values(script.frame(given), given.id)
    return any(isinstance(one, ast.Call) and last_name(one.func) in ("open", "BytesIO") for one in made)


def _read_again(plan: Plan, audience: Audience, stamps: Stamps, save: ast.Call) -> list[ast.Call]:
    """The calls at which all load weights from a path that differs by process, behind a save."""
    return [
        call
        for call in plan.script.calls
        if plan.script.dotted(call.func) == "torch.load"
        and call.args
        and audience.is_all(call)
        and audience.comes_after(call, save)
        and stamps.differs(call.args[0])
    ]


def _is_failure(node: ast.AST) -> bool:
    """Whether code runs where something has failed, on one process perhaps; an interruption comes to all."""
    return isinstance(node, ast.ExceptHandler) and not (
        node.type is not None and "KeyboardInterrupt" in ast.unparse(node.type)
    )
