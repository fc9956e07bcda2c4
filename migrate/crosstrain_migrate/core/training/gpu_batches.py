"""CT301 by use: a batch for all GPUs of a DataParallel, `DataLoader(rows, args.batch_size * args.n_gpu)`.

A process has one device: several processes take the batch of one GPU each, one process that of the author's GPUs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.core.distributed.wrappers import PARALLEL, is_parallel
from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.placing.numbered import numbered_lists
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

REASON = "each process takes the batch of one GPU"
_DEPTH = 3


def plan_gpu_batches(plan: Plan, accelerators: Accelerators) -> None:
    """Leaves out the number of GPUs where several processes have one each."""
    script = plan.script
    wrappers = [call for call in script.calls if is_parallel(script, call)]
    gpus = _Gpus(script, wrappers)
    for loader in script.calls if wrappers else ():
        if not script.dotted(loader.func).endswith("DataLoader") or not script.is_reached(loader):
            continue
        sizes = [*loader.args[1:2], *(k.value for k in loader.keywords if k.arg == "batch_size")]
        for factor in (one for size in sizes for one in _factors(script, size) if gpus.are_counted_by(one)):
            if not plan.is_replaced(factor):
                state = accelerators.name if accelerators.at_hand(factor) else plan.state(factor)
                code = f"({{gpus}} if {state}.num_processes == 1 else 1)"
                plan.replace(factor, PARALLEL, REASON, code, gpus=factor)


class _Gpus:
    """What is the number of GPUs: torch's, a list's that the wrapper is given, what is asked for where it is applied."""

    def __init__(self, script: Script, wrappers: list[ast.Call]) -> None:
        self.script = script
        given = (k.value for call in wrappers for k in call.keywords if k.arg == "device_ids")
        self._lists = {last_name(one) for one in given} | numbered_lists(script)
        self._asked = {text for call in wrappers for text in self._more_than_one(call)}

    def _more_than_one(self, call: ast.Call) -> Iterator[str]:
        """`args.n_gpu` of `if args.n_gpu > 1: model = DataParallel(model)`"""
        for one in self.script.around(call):
            test = one.test if isinstance(one, ast.If | ast.IfExp) else None
            for part in walk(test) if test is not None else ():
                if isinstance(part, ast.Compare) and ast.unparse(part).endswith(" > 1"):
                    yield written(part.left)

    def are_counted_by(self, node: ast.expr, depth: int = 0) -> bool:
        if isinstance(node, ast.Call) and last_name(node.func) in ("max", "int") and node.args:
            return self.are_counted_by(node.args[-1], depth)
        if isinstance(node, ast.Call):
            is_length = last_name(node.func) == "len" and len(node.args) == 1
            counted = last_name(node.args[0]) if is_length else ""
            return self.script.dotted(node.func) == "torch.cuda.device_count" or counted in self._lists - {""}
        if not isinstance(node, ast.Name | ast.Attribute) or depth > _DEPTH:
            return False
        values = _bound(self.script, node)
        return written(node) in self._asked or any(self.are_counted_by(one, depth + 1) for one in values)


def _factors(script: Script, size: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
    """What a size of a batch is multiplied with, also where its variable is bound: `size *= gpus`."""
    if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult):
        yield from (size.left, size.right)
    elif isinstance(size, ast.Name | ast.Attribute) and depth < _DEPTH:
        for value in _bound(script, size):
            yield from _factors(script, value, depth + 1)
        for one in script.table.each(ast.AugAssign):
            if isinstance(one.op, ast.Mult) and written(one.target) == written(size):
                yield one.value


def _bound(script: Script, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What a variable is bound to in its function or file, and an attribute anywhere."""
    if isinstance(node, ast.Attribute):
        return [value for frame in script.frames for value in script.values(frame, written(node))]
    frame = script.frame(node)
    return script.values(frame if script.binds(frame, node.id) else script.module(node), node.id)
