"""Arithmetic with the number of processes: batch sizes that are divided by it, learning rates that grow with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.facts.values import FromBatch, Method, code_of
from crosstrain_migrate.rules.base import Refusal, refuse
from crosstrain_migrate.syntax.nodes import FunctionNode, written
from crosstrain_migrate.syntax.walks import walk

from .constant_folding import KnownValue
from .plain import Stage
from .reductions import division, reduced
from .requested_options import MARK

GROUP = "CT303"
ACCUMULATED = "the number of batches in a step"
GLOBAL = "it is the global number already"
DIVIDED = "the loader's batch is divided as the launcher says"


def plan(stage: Stage) -> None:
    for node in stage.facts.each(ast.AugAssign, ast.BinOp):
        if stage.single.dead(node) or stage.is_settled(node):
            continue
        scales = isinstance(node.op, ast.Mult) or division(node) is not None
        if isinstance(node, ast.AugAssign):
            if scales and _is_one(stage.single.launch_value(node.value)):
                _augmented(stage, node)
        elif scales:
            _scaled(stage, node)
        elif isinstance(node.op, ast.Add):
            _added(stage, node)


def _is_one(known: KnownValue | None) -> bool:
    return known is not None and known.value == 1


def _augmented(stage: Stage, node: ast.AugAssign) -> None:
    divides = not isinstance(node.op, ast.Mult)
    if ast.unparse(node.target) in reduced(stage) or _is_local(stage, node.target):
        stage.remove(node, GROUP, GLOBAL)
    elif is_batch_size(stage, node.target):
        if divides:
            share_batches(stage, node)
        stage.remove(node, GROUP, DIVIDED)
    elif divides and accumulates(stage, node.target):
        share_batches(stage, node, ACCUMULATED)
        stage.remove(node, GROUP, "the batches of a step are shared, not their number")
    elif divides and not stage.facts.train_loaders and not stage.requested.draws_apart:
        raise shared_out(node)
    else:
        stage.replace_whole(node.value, GROUP, "the number of processes", MARK.format("num_processes"))


def _scaled(stage: Stage, node: ast.BinOp) -> None:
    right, left = stage.single.launch_value(node.right), stage.single.launch_value(node.left)
    multiplies = isinstance(node.op, ast.Mult)
    if _is_one(right) and left is None:
        other, size = node.left, node.right
    elif _is_one(left) and right is None and multiplies:
        other, size = node.right, node.left
    else:
        return
    if _reduced_value(stage, other) or _is_local(stage, other):
        reason = GLOBAL
    elif feeds_batch_size(stage, node):
        reason = DIVIDED
        if not multiplies:
            share_batches(stage, node)
    else:
        return
    stage.gone.update(walk(size))
    stage.keep_only(node, GROUP, reason, other)


def _added(stage: Stage, node: ast.BinOp) -> None:
    """`len(loader) + (distributed and ...)`: a test that adds nothing on one process."""
    test = stage.single.launch_value(node.right)
    if isinstance(node.right, ast.BoolOp | ast.Compare) and test is not None and not test.truth:
        stage.gone.update(walk(node.right))
        stage.replace(node, GROUP, "what one process does, prepare does on all", "{x}", x=node.left)


def _reduced_value(stage: Stage, node: ast.expr) -> bool:
    names = reduced(stage)
    return any(ast.unparse(n) in names for n in walk(node) if isinstance(n, ast.Name | ast.Attribute))


def _is_local(stage: Stage, node: ast.expr) -> bool:
    return any(isinstance(v, FromBatch) for v in stage.facts.of(node))


def shared_out(statement: ast.stmt) -> Refusal:
    """The refusal of a number that is divided among processes, where nothing gives each of them its own data."""
    reason = (
        f"`{ast.unparse(statement)}` divides by the number of processes; the Accelerator divides only the batches of "
        "DataLoaders"
    )
    remedy = (
        "remove the division; where there is no DataLoader, seed each process by its rank (`torch.manual_seed(seed + "
        "rank)`), or give the data to a DataLoader, whose Dataset may draw at random"
    )
    return refuse(GROUP, statement, reason, remedy)


def accumulates(stage: Stage, target: ast.expr) -> bool:
    """Whether a number is that of accumulation steps: a loss is divided by it."""
    name = _last_part(target)
    return any(
        isinstance(node.op, ast.Div) and _last_part(found[1]) == name and _is_loss(stage, found[0])
        for node in stage.facts.each(ast.BinOp, ast.AugAssign)
        if (found := division(node)) is not None
    )


def _is_loss(stage: Stage, node: ast.expr) -> bool:
    values = set(stage.facts.loss_batch_values)
    return any(isinstance(v, FromBatch) and v in values for v in stage.facts.of(node))


def share_batches(stage: Stage, node: ast.AST, what: str = "the batch size") -> None:
    """Requests split batches: the author divides the global batch size by the number of processes."""
    if not stage.requested.split_batches:
        stage.requested.split_batches = True
        reason = f"{what} was divided by the number of processes; split_batches=True splits the batch in the same way"
        stage.note(GROUP, node, reason, "choose a batch size divisible by the number of processes")


def is_batch_size(stage: Stage, target: ast.expr) -> bool:
    return _feeds(stage, _last_part(target), "batch_size", 1)


def is_workers(stage: Stage, target: ast.expr) -> bool:
    return _feeds(stage, _last_part(target), "num_workers", 5)


def _last_part(node: ast.expr) -> str:
    """The part of a dotted name behind the last dot."""
    return written(node).split(".")[-1]


def _feeds(stage: Stage, name: str, keyword: str, position: int, depth: int = 3) -> bool:
    """Whether a variable (by its last name, whatever the namespace is called) is a loader's argument."""
    for call in stage.facts.calls_to(*api.LOADERS, "torch.utils.data.BatchSampler"):
        argument = given(call, keyword, position)
        if argument is not None and any(
            isinstance(n, ast.Name | ast.Attribute) and _last_part(n) == name for n in walk(argument)
        ):
            return True
    return any(
        _last_part(value) == name
        and parameter != name
        and _feeds(stage, parameter, keyword, position, depth - 1)
        for call in (stage.facts.calls if depth else ())
        for parameter, value in _passed_names(stage, call)
    )


def _passed_names(stage: Stage, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for value in stage.facts.of(call.func):
        function = code_of(value)
        if isinstance(function, FunctionNode):
            names = [a.arg for a in function.args.args][isinstance(value, Method) :]
            yield from zip(names, call.args, strict=False)
            yield from ((k.arg, k.value) for k in call.keywords if k.arg)


def feeds_batch_size(stage: Stage, node: ast.expr) -> bool:
    """`int(args.batch_size / world)` assigned to a batch size, or written where the loader is made."""
    for child, around in stage.outward(node):
        if isinstance(around, ast.Assign):
            return any(is_batch_size(stage, t) for t in around.targets)
        if isinstance(around, ast.keyword) and around.arg == "batch_size":
            return True
        if isinstance(around, ast.Call) and isinstance(child, ast.expr) and child in around.args:
            if stage.facts.paths(around.func) & api.LOADERS:
                return around.args.index(child) == 1
            if any(name == "batch_size" and value is child for name, value in _passed_names(stage, around)):
                return True
        if isinstance(around, ast.stmt):
            break
    return False
