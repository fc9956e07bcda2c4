"""SyncBatchNorm: layers that were synchronised stay so on devices that support it."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax import edits as e

from .plain import Stage
from .requested_options import MARK

GROUP = "CT303"
SYNC_BATCH_NORM = frozenset(
    {
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
        "torch.nn.modules.batchnorm.SyncBatchNorm.convert_sync_batchnorm",
        "apex.parallel.convert_syncbn_model",
    }
)


def plan_assignment(stage: Stage, node: ast.Assign, call: ast.Call) -> None:
    guarded = any(
        isinstance(a, ast.If) and MARK.format("num_processes") in ast.unparse(a.test)
        for a in stage.facts.table.ancestors(node)
    )
    if stage.facts.paths(call.func) & SYNC_BATCH_NORM and not guarded:
        keep_synchronised(stage, node, node)


def keep_synchronised(stage: Stage, node: ast.Assign, before: ast.stmt) -> None:
    """Keeps the conversion to SyncBatchNorm for several processes on CUDA."""
    wanted = [*_conditions(stage, node, before), f"{MARK.format('num_processes')} > 1"]
    test = " and ".join([*wanted, f'{MARK.format("device")}.type == "cuda"'])
    lines = f"if {test}:\n    {stage.source(node)}"
    reason = "batch statistics over all processes, as before, on devices that can"
    stage.edits.append(e.InsertBefore(before, GROUP, reason, code=lines))
    if before is node:
        stage.remove(node, GROUP)
    stage.gone.add(node)


def _conditions(stage: Stage, node: ast.stmt, outermost: ast.stmt) -> list[str]:
    """The other conditions of the conversion: `--sync-bn` next to the tests of the distribution."""
    found: list[str] = []
    for child, around in stage.outward(node) if node is not outermost else ():
        if isinstance(around, ast.If):
            chosen, parts = child in around.body, [around.test]
            if chosen and isinstance(around.test, ast.BoolOp) and isinstance(around.test.op, ast.And):
                parts = around.test.values
            texts = [_in_parentheses(stage, p) for p in parts if stage.single.launch_value(p) is None]
            found = [*(text if chosen else f"not {text}" for text in texts), *found]
        if around is outermost:
            break
    return found


def _in_parentheses(stage: Stage, part: ast.expr) -> str:
    text = stage.source(part)
    return text if isinstance(part, ast.Name | ast.Attribute | ast.Call) else f"({text})"
