"""CT201 by use: a batch for all GPUs of a DataParallel, `batch_size * torch.cuda.device_count()`.

One process deals it to its GPUs; of several processes each has one GPU, and a batch for one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.script import Frame, Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

RULE = "CT201"
REASON = "each of several processes takes the batch of one GPU"
MEANT = "this batch size is meant for all GPUs, and each process takes it"
REMEDY = "divide it by the number of GPUs"
_GPUS = re.compile(r"^n(um)?_?(of_)?(gpu|device)s?$|^(gpu|device)s?_?(num|count)$|^device_count$", re.I)
_LISTS = re.compile(r"^(gpu|device|parallel)s?(_?ids?|_?list)?s?$", re.I)
_DEPTH = 3


def plan_batch_for_gpus(plan: Plan, accelerators: Accelerators) -> None:
    """Takes the number of GPUs out of a loader's batch size where there are several processes."""
    script = plan.script
    if not any(last_name(call.func) == "DataParallel" for call in script.calls):
        return
    sizes = (
        (script.frame(call), given.value)
        for call in script.calls
        for given in call.keywords
        if given.arg == "batch_size" and script.is_reached(call)
    )
    counts = {count: None for frame, size in sizes for count in _counts_in(script, frame, size, 0)}
    for count in counts:
        if accelerators.is_early(count):
            plan.note(RULE, count, MEANT, REMEDY)
            continue
        known = accelerators.name if accelerators.at_hand(count) else plan.state(count)
        code = f"{{count}} if {known}.num_processes == 1 else 1"
        code = f"({code})" if isinstance(script.parent(count), ast.BinOp) else code
        plan.replace(count, RULE, REASON, code, count=count)


def _counts_in(script: Script, frame: Frame, size: ast.expr, depth: int) -> Iterator[ast.expr]:
    """The numbers of GPUs by which a batch size is multiplied, here or where it is bound."""
    for product in (n for n in walk(size) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)):
        yield from (side for side in (product.left, product.right) if _is_count(side))
    if not isinstance(size, ast.Name | ast.Attribute | ast.Subscript) or depth == _DEPTH:
        return
    text = written(size)
    frames = [frame] if isinstance(size, ast.Name) else script.reached_frames
    for home in frames:
        for value in script.values(home, text):
            yield from _counts_in(script, home, value, depth + 1)
        for statement in script.within(home):
            if isinstance(statement, ast.AugAssign) and written(statement.target) == text:
                is_times = isinstance(statement.op, ast.Mult) and _is_count(statement.value)
                yield from [statement.value] if is_times else []
    for value, call in script.given_for(frame, text):
        yield from _counts_in(script, script.frame(call), value, depth + 1)


def _is_count(node: ast.expr) -> bool:
    """`torch.cuda.device_count()`, `args.n_gpu`, `len(gpu_ids)`, `max(1, len(gpu_ids))`"""
    if isinstance(node, ast.Call) and last_name(node.func) in ("max", "int"):
        return any(map(_is_count, node.args))
    if isinstance(node, ast.Call) and last_name(node.func) == "len" and node.args:
        of = node.args[0]
        key = of.slice if isinstance(of, ast.Subscript) else None  # config["gpus"]
        name = str(key.value) if isinstance(key, ast.Constant) else last_name(of)
        return _LISTS.match(name) is not None
    return _GPUS.match(last_name(node.func if isinstance(node, ast.Call) else node)) is not None
