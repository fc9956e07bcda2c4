"""Arithmetic with the number of processes: batch sizes that are divided by it, learning rates that grow with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.facts.values import FromBatch, Function, Method
from crosstrain_migrate.rules.base import Refusal, refuse
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

from .plain import Stage
from .reductions import reduced
from .requested_options import MARK

GROUP = "CT303"
ACCUMULATED = "the number of batches in a step"


def plan(stage: Stage) -> None:
    for node in stage.facts.nodes:
        if stage.alone.dead(node) or stage.is_settled(node):
            continue
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
            size = stage.alone.by_hand(node.value)
            if size is not None and size.value == 1:
                _augmented(stage, node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
            _scaled(stage, node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            _added(stage, node)


def _augmented(stage: Stage, node: ast.AugAssign) -> None:
    target = ast.unparse(node.target)
    if target in reduced(stage) or _is_local(stage, node.target):
        stage.remove(node, GROUP, "it is the global number already")
    elif is_batch_size(stage, node.target):
        if not isinstance(node.op, ast.Mult):
            share_batches(stage, node)
        stage.remove(node, GROUP, "the loader's batch is divided as the launcher says")
    elif not isinstance(node.op, ast.Mult) and accumulates(stage, node.target):
        share_batches(stage, node, ACCUMULATED)
        stage.remove(node, GROUP, "the batches of a step are shared, not their number")
    elif (
        not isinstance(node.op, ast.Mult)
        and not stage.facts.train_loaders
        and not stage.requested.draws_apart
    ):
        raise shared_out(node)
    else:
        stage.gone.update(walk(node.value))
        stage.replace(node.value, GROUP, "the number of processes", MARK.format("num_processes"))


def _scaled(stage: Stage, node: ast.BinOp) -> None:
    right, left = stage.alone.by_hand(node.right), stage.alone.by_hand(node.left)
    if right is not None and left is None and right.value == 1:
        other, size = node.left, node.right
    elif left is not None and right is None and left.value == 1 and isinstance(node.op, ast.Mult):
        other, size = node.right, node.left
    else:
        return
    if _reduced_value(stage, other) or _is_local(stage, other):
        reason = "it is the global number already"
    elif feeds_batch_size(stage, node):
        reason = "the loader's batch is divided as the launcher says"
        if not isinstance(node.op, ast.Mult):
            share_batches(stage, node)
    else:
        return
    stage.gone.update(walk(size))
    simple = isinstance(other, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
    stage.replace(node, GROUP, reason, "{x}" if simple else "({x})", x=other)


def _added(stage: Stage, node: ast.BinOp) -> None:
    """`len(loader) + (distributed and ...)`: a test that counts as nothing."""
    test = stage.alone.by_hand(node.right)
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
        f"`{ast.unparse(statement)}` shares something out among the processes; the Accelerator shares the batches of "
        "DataLoaders, and nothing else"
    )
    remedy = (
        "take the division out; where there is no DataLoader, seed each process by its rank (`torch.manual_seed(seed + "
        "rank)`), or give the data to a DataLoader, whose Dataset may draw at random"
    )
    return refuse(GROUP, statement, reason, remedy)


def accumulates(stage: Stage, target: ast.expr) -> bool:
    """Whether the batches of loaders are added up to one step that many times: their losses are divided by the number."""
    last = ast.unparse(target).split(".")[-1]
    for node in stage.facts.nodes:
        divided = node.left if isinstance(node, ast.BinOp) else None
        divided = node.target if isinstance(node, ast.AugAssign) else divided
        if (
            divided is None
            or not isinstance(node, ast.BinOp | ast.AugAssign)
            or not isinstance(node.op, ast.Div)
        ):
            continue
        by = node.right if isinstance(node, ast.BinOp) else node.value
        if ast.unparse(by).split(".")[-1] == last and _is_loss(stage, divided):
            return True
    return False


def _is_loss(stage: Stage, node: ast.expr) -> bool:
    values = set(stage.facts.loss_batch_values)
    return any(isinstance(v, FromBatch) and v in values for v in stage.facts.of(node))


def share_batches(stage: Stage, node: ast.AST, what: str = "the batch size") -> None:
    """The author divides the batch by the number of processes: it is the global batch that the script is given."""
    if not stage.requested.split_batches:
        stage.requested.split_batches = True
        reason = f"{what} was divided by the number of processes; split_batches=True splits the batch in the same way"
        stage.note(GROUP, node, reason, "choose a batch size divisible by the number of processes")


def is_batch_size(stage: Stage, target: ast.expr) -> bool:
    return _feeds(stage, ast.unparse(target), "batch_size", 1)


def is_workers(stage: Stage, target: ast.expr) -> bool:
    return _feeds(stage, ast.unparse(target), "num_workers", 5)


def _feeds(stage: Stage, text: str, keyword: str, position: int, depth: int = 3) -> bool:
    """Whether a variable (by its source, whatever the namespace is called) is a loader's argument."""
    last = text.split(".")[-1]
    for call in stage.facts.calls:
        paths = stage.facts.paths(call.func)
        if not paths & (api.LOADERS | {"torch.utils.data.BatchSampler"}):
            continue
        argument = given(call, keyword, position)
        if argument is not None and any(
            written(n).split(".")[-1] == last
            for n in walk(argument)
            if isinstance(n, ast.Name | ast.Attribute)
        ):
            return True
    for call in stage.facts.calls if depth else ():
        for name, value in _passed_names(stage, call):
            if (
                ast.unparse(value).split(".")[-1] == last
                and name != last
                and _feeds(stage, name, keyword, position, depth - 1)
            ):
                return True
    return False


def _passed_names(stage: Stage, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for value in stage.facts.of(call.func):
        if isinstance(value, Function | Method):
            function = value.function.node if isinstance(value, Method) else value.node
            names = [a.arg for a in function.args.args]
            if isinstance(value, Method):
                names = names[1:]
            yield from zip(names, call.args, strict=False)
            yield from ((k.arg, k.value) for k in call.keywords if k.arg)


def feeds_batch_size(stage: Stage, node: ast.expr) -> bool:
    """`int(args.batch_size / world)` assigned to a batch size, or written where the loader is made."""
    child: ast.AST = node
    for around in stage.facts.table.ancestors(node):
        if isinstance(around, ast.Assign):
            return any(is_batch_size(stage, t) for t in around.targets)
        if isinstance(around, ast.keyword) and around.arg == "batch_size":
            return True
        if isinstance(around, ast.Call) and child in around.args:
            if stage.facts.paths(around.func) & api.LOADERS:
                return around.args.index(child) == 1
            if any(name == "batch_size" and value is child for name, value in _passed_names(stage, around)):
                return True
        if isinstance(around, ast.stmt):
            return False
        child = around
    return False
