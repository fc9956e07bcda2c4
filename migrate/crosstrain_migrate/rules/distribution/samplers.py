"""Removes distributed samplers: prepared loaders shard themselves."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import given, keyword_of
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .plain import Stage

SAMPLER = "CT304"
SHARDS = "prepare shards the loader"
SAMPLERS = frozenset(
    {"torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler"}
)


def is_sampler(stage: Stage, node: ast.expr) -> bool:
    by_name = isinstance(node, ast.Attribute) and node.attr in {"sampler", "batch_sampler"}
    return by_name or bool(made_samplers(stage, node))


def plan(stage: Stage) -> None:
    for call in stage.facts.calls_to(*api.LOADERS):
        if stage.single.dead(call) or stage.is_settled(call):
            continue
        sampler, shuffle = keyword_of(call, "sampler"), keyword_of(call, "shuffle")
        made = _sampler_made(stage, sampler) if sampler is not None else None
        if sampler is not None and made is not None:
            _restore_order(stage, call, sampler, shuffle, made)
            continue
        if sampler is not None and _is_none_alone(stage, sampler):
            stage.edits.append(e.RemoveArgument(call, SAMPLER, SHARDS, argument=sampler))
            stage.gone.update(walk(sampler))
        value = stage.single.launch_value(shuffle) if shuffle is not None else None
        if shuffle is not None and value is not None:
            reason = "the order the loader has without a sampler"
            stage.replace_whole(shuffle, SAMPLER, reason, str(value.truth))


def _is_none_alone(stage: Stage, node: ast.expr) -> bool:
    """Whether a sampler that several processes have is None on one process."""
    known = stage.single.value_of(node)
    is_none = known is not None and known.value is None
    return is_none and (stage.single.launch_value(node) is not None or bool(made_samplers(stage, node)))


def made_samplers(stage: Stage, node: ast.expr, depth: int = 5) -> list[ast.Call]:
    """The DistributedSampler(...) calls that `node` may be the result of."""
    if isinstance(node, ast.Call):
        return [node] if stage.facts.paths(node.func) & SAMPLERS else []
    if isinstance(node, ast.IfExp):
        return [*made_samplers(stage, node.body, depth), *made_samplers(stage, node.orelse, depth)]
    if not isinstance(node, ast.Name | ast.Attribute) or not depth:
        return []
    return [c for value in stage.single.sources.of(node) for c in made_samplers(stage, value, depth - 1)]


def _sampler_made(stage: Stage, node: ast.expr) -> ast.Call | None:
    """The DistributedSampler(...) that is certain to be the sampler, also when one process trains."""
    if stage.single.value_of(node) is not None:
        return None
    values: list[ast.expr] = [node] if isinstance(node, ast.Call | ast.IfExp) else []
    if isinstance(node, ast.Name | ast.Attribute):
        values = [v for v in stage.single.sources.of(node) if not stage.single.dead(v)]
    found = [c for value in values for c in made_samplers(stage, _taken(stage, value))]
    if not found:
        return None
    if len(values) != 1 or len(found) != 1:
        reason = (
            "this may be one of several samplers, and with the wrong one the loader would give other rows"
        )
        raise refuse(SAMPLER, node, reason, "give each loader one sampler")
    return found[0]


def _taken(stage: Stage, value: ast.expr) -> ast.expr:
    """The arm of a choice that one process takes."""
    test = stage.single.launch_value(value.test) if isinstance(value, ast.IfExp) else None
    if test is None or not isinstance(value, ast.IfExp):
        return value
    return _taken(stage, value.body if test.truth else value.orelse)


def _restore_order(
    stage: Stage, call: ast.Call, sampler: ast.expr, shuffle: ast.expr | None, made: ast.Call
) -> None:
    order = given(made, "shuffle", 3)
    if order is not None and not isinstance(order, ast.Constant):
        reason = "the tool cannot tell whether this sampler shuffles"
        raise refuse(SAMPLER, made, reason, "pass shuffle=True or shuffle=False")
    shuffles = order is None or bool(order.value)
    stage.gone.update(walk(sampler))
    if shuffles and shuffle is not None:
        stage.edits.append(e.RemoveArgument(call, SAMPLER, argument=shuffle))
    stage.edits.append(e.RemoveArgument(call, SAMPLER, SHARDS, argument=sampler))
    if shuffles:
        stage.edits.append(e.InsertArgument(call, SAMPLER, position=-1, code="shuffle=True"))
    statement = stage.statement(made)
    if isinstance(statement, ast.Assign) and statement.value is made:
        stage.remove(statement, SAMPLER, SHARDS)
    if shuffles:
        reason = "the sampler shuffled with its own seed and the epoch; the loader now shuffles with torch's random state"
        remedy = (
            "expect an order that differs from the original's and is the same for any number of processes"
        )
        stage.note(SAMPLER, made, reason, remedy)
