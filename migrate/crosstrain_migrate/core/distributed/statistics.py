"""CT301 by use: normalisations of the project's own that share their batch statistics between the replicas of a DataParallel.

Such a layer finds its sisters in the threads of one process. Each process has one replica, so none is found.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

_TOLD_OF_REPLICAS = (
    "__data_parallel_replicate__"  # the method by which a wrapper tells its layers of one another
)
_ALONE = "it shares its batch statistics between the replicas of one process, and each process has one"
_OF_TORCH = "torch's own shares them between processes on GPUs: `torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)`"


def note_statistics(plan: Plan) -> None:
    """Says which layers that the script uses compute with the batch of one process from now on."""
    script = plan.script
    for cls in script.table.each(ast.ClassDef):
        if is_told(cls) and any(_is_used(script, one) for one in _with_heirs(script, cls)):
            plan.note("CT301", cls, _ALONE, _OF_TORCH)


def is_told(cls: ast.ClassDef) -> bool:
    """Whether a layer is told of its replicas, or waits for one on each GPU by queues of its own."""
    methods = {n.name for n in cls.body if isinstance(n, ast.FunctionDef)}
    if _TOLD_OF_REPLICAS in methods or "forward" not in methods:
        return _TOLD_OF_REPLICAS in methods
    called = {last_name(n.func) for n in walk(cls) if isinstance(n, ast.Call)}
    return {"device_count", "Queue"} <= called


def _with_heirs(script: Script, cls: ast.ClassDef) -> list[ast.ClassDef]:
    found = [cls]
    for one in found:
        heirs = script.table.each(ast.ClassDef)
        found += [h for h in heirs if h not in found and one.name in map(script.last, h.bases)]
    return found


def _is_used(script: Script, cls: ast.ClassDef) -> bool:
    """Whether code that runs reads the class, other than to derive from it."""
    reads: list[ast.Name | ast.Attribute] = [*script.table.each(ast.Name), *script.table.each(ast.Attribute)]
    return any(
        isinstance(n.ctx, ast.Load)
        and script.last(n) == cls.name
        and not isinstance(script.parent(n), ast.ClassDef)
        and script.is_reached(n)
        for n in reads
    )
