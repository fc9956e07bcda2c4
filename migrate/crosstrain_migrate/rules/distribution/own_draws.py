"""Processes that each draw their own data: their seeds differ by rank, and there is no loader to shard.

Such a script divides its work itself and goes on doing so. Its seeds, its sizes and its divisions by the number of processes
use the accelerator's numbers, and what only the main process did stays with the main process.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .guards import asks_rank
from .plain import Stage
from .ranks import number
from .requested_options import MARK

RULE = "CT303"
SEEDS = (
    "torch.manual_seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "numpy.random.seed",
    "random.seed",
)


def find(stage: Stage) -> None:
    """Notes that each process draws its own data. Only the first pass can see it: later ones read the accelerator's rank."""
    facts = stage.facts
    if facts.train_loaders or not facts.backward_calls or stage.requested.draws_apart:
        return
    seeds = (c for c in facts.calls_to(*SEEDS) if not stage.single.dead(c))
    stage.requested.draws_apart = any(_holds_rank(stage, argument) for c in seeds for argument in c.args)


def _holds_rank(stage: Stage, value: ast.expr, depth: int = 3) -> bool:
    """Whether a value contains a rank, itself or through its variables, that the accelerator's will replace."""
    if not asks_rank(stage, value):
        return False
    for part in walk(value):
        if not isinstance(part, ast.Name | ast.Attribute | ast.Call):
            continue
        known = stage.single.launch_value(part)
        if known is not None and number(stage, part, known) in {"process_index", "local_process_index"}:
            return True
        given = stage.single.sources.of(part) if depth and not isinstance(part, ast.Call) else []
        if any(_holds_rank(stage, s, depth - 1) for s in given if not stage.single.dead(s)):
            return True
    return False


def keep_share(stage: Stage, statement: ast.stmt, at: ast.If) -> bool:
    """Keeps `steps //= world_size`, and the assertion before it, of a branch that is removed."""
    if not stage.requested.draws_apart:
        return False
    size = MARK.format("num_processes")
    match statement:
        case ast.AugAssign(op=ast.FloorDiv()) if _is_size(stage, statement.value):
            code = f"{stage.source(statement.target)} //= {size}"
        case ast.Assert(test=ast.Compare(left=ast.BinOp(op=ast.Mod()) as shared, comparators=[zero, *_])):
            if not _is_size(stage, shared.right) or ast.unparse(zero) != "0":
                return False
            said = f", {stage.source(statement.msg)}" if statement.msg is not None else ""
            code = f"assert {stage.source(shared.left)} % {size} == 0{said}"
        case _:
            return False
    stage.edits.append(e.InsertBefore(at, RULE, "each process does its part, as before", code=code))
    return True


def _is_size(stage: Stage, node: ast.expr) -> bool:
    """Whether an expression is the number of processes."""
    known = [(alone.value_of(node), alone.world.size) for alone in stage.several]
    return all(k is not None and k.value == size for k, size in known)


def note(stage: Stage) -> None:
    """Reports what the numbers that such a script prints stand for."""
    reason = (
        "each process trains on what it draws itself, because its seed is its own, and gradients are averaged; what is "
        "printed is the main process's own loss, as before"
    )
    remedy = 'print `accelerator.reduce(loss, reduction="mean")` on all processes, if you want the mean of their losses'
    stage.note(RULE, stage.facts.backward_calls[0][0], reason, remedy)
