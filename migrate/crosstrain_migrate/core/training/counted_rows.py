"""CT201 by use: a count of rows, `seen += args.batch_size`, that stands beside the number of all rows.

Each process counts the rows of its own batches; the count is that of all processes' again.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, Loop, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

RULE = "CT201"
REASON = "a step takes a batch on every process"
_SIZE = re.compile(r"batch_?size", re.I)


def plan_counted_rows(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Counts the rows of all processes where a loop over divided data counts by the size of its batches; a count that grows
    beside such a one does, too: a run that goes on may compute one from the other."""
    script = plan.script
    for data in roles.data:
        counts = _counts(script, data.loop) if data.loop is not None else []
        for count in counts:
            beside = [one for one in counts if written(one.value) == written(count.value)]
            known = any(_meets_all_rows(script, data.frame, written(one.target)) for one in beside)
            if not known or _takes_mean(script, data.frame, written(count.target)):
                continue
            if (accelerator := accelerators.may_be_at(count)) is not None:
                code = f"{{size}} * {accelerator}.num_processes"
                plan.replace(count.value, RULE, REASON, code, size=count.value)


def _counts(script: Script, loop: Loop) -> list[ast.AugAssign]:
    """`seen += args.batch_size`, in each turn of a loop."""
    return [
        n
        for n in walk(loop)
        if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add) and script.loops_around(n)[:1] == [loop]
        if isinstance(n.value, ast.Name | ast.Attribute) and _SIZE.search(last_name(n.value)) is not None
        if not _changes(loop, n.value)
    ]


def _changes(loop: Loop, size: ast.expr) -> bool:
    return written(size) in map(written, stores_in(loop))


def _meets_all_rows(script: Script, frame: Frame, text: str) -> bool:
    """Whether a count is computed with, or compared with, a length, and no mean is taken by it."""
    reads = script.reads(frame, text)
    if _takes_mean(script, frame, text):
        return False
    beside = (
        one for read in reads for one in script.around(read) if isinstance(one, ast.BinOp | ast.Compare)
    )
    return any(is_length(script, frame, part) for part in walk_all(beside))


def _takes_mean(script: Script, frame: Frame, text: str) -> bool:
    parents = map(script.parent, reads := script.reads(frame, text))
    return any(
        isinstance(one, ast.BinOp) and _divides(one, of) for one, of in zip(parents, reads, strict=True)
    )


def _divides(node: ast.BinOp, by: ast.AST) -> bool:
    return isinstance(node.op, ast.Div | ast.FloorDiv) and node.right is by


def is_length(script: Script, frame: Frame, node: ast.AST) -> bool:
    """`len(rows)`, or a variable that is bound to nothing else."""
    if isinstance(node, ast.Name):
        values = script.values(frame, node.id)
        return bool(values) and all(
            isinstance(one, ast.Call) and last_name(one.func) == "len" for one in values
        )
    return isinstance(node, ast.Call) and last_name(node.func) == "len" and bool(names_in(node))
