"""Batch statistics over all processes: layers that were synchronised stay so, where the device can."""

from __future__ import annotations

import ast

from crosstrain_migrate import edits as e

from .plain import Stage
from .wish import MARK

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
    """Batch statistics over all processes: kept, where layers that can do it exist."""
    test = f'{MARK.format("num_processes")} > 1 and {MARK.format("device")}.type == "cuda"'
    lines = f"if {test}:\n    {stage.source(node)}"
    reason = "batch statistics over all processes, as before, on devices that can"
    stage.edits.append(e.InsertBefore(before, GROUP, reason, code=lines))
    if before is node:
        stage.remove(node, GROUP)
