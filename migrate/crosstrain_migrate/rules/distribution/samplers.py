"""Distributed samplers go: prepared loaders shard themselves, in the order the sampler had."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .plain import Stage

SAMPLER = "CT304"
SAMPLERS = frozenset(
    {
        "torch.utils.data.distributed.DistributedSampler",
        "torch.utils.data.DistributedSampler",
    }
)


def is_sampler(stage: Stage, node: ast.expr) -> bool:
    if made_samplers(stage, node):
        return True
    return isinstance(node, ast.Attribute) and node.attr in {"sampler", "batch_sampler"}


def plan(stage: Stage) -> None:
    for call in stage.facts.calls_to(*api.LOADERS):
        if stage.alone.dead(call) or stage.is_settled(call):
            continue
        sampler = next((k for k in call.keywords if k.arg == "sampler"), None)
        shuffle = next((k for k in call.keywords if k.arg == "shuffle"), None)
        made = _sampler_made(stage, sampler.value) if sampler is not None else None
        known = stage.alone.known(sampler.value) if sampler is not None else None
        if sampler is not None and made is not None:
            _restore_order(stage, call, sampler, shuffle, made)
            continue
        if (
            sampler is not None
            and known is not None
            and known.value is None
            and _was_sampler(stage, sampler.value)
        ):
            stage.edits.append(
                e.RemoveArgument(call, SAMPLER, "prepare shards the loader", argument=sampler.value)
            )
            stage.gone.update(walk(sampler.value))
        if shuffle is not None and not isinstance(shuffle.value, ast.Constant):
            value = stage.alone.by_hand(shuffle.value)
            if value is not None:
                stage.replace(
                    shuffle.value, SAMPLER, "the order the loader has without a sampler", str(value.truth)
                )
                stage.gone.update(walk(shuffle.value))


def _was_sampler(stage: Stage, node: ast.expr) -> bool:
    return stage.alone.by_hand(node) is not None or bool(made_samplers(stage, node))


def made_samplers(stage: Stage, node: ast.expr, depth: int = 5) -> list[ast.Call]:
    """The DistributedSampler(...) calls that `node` may be the result of."""
    if isinstance(node, ast.Call):
        return [node] if stage.facts.paths(node.func) & SAMPLERS else []
    if isinstance(node, ast.IfExp):
        return [*made_samplers(stage, node.body, depth), *made_samplers(stage, node.orelse, depth)]
    if not isinstance(node, ast.Name | ast.Attribute) or not depth:
        return []
    return [c for value in stage.alone.sources.of(node) for c in made_samplers(stage, value, depth - 1)]


def _sampler_made(stage: Stage, node: ast.expr) -> ast.Call | None:
    """The DistributedSampler(...) that surely is the sampler, also when one process trains."""
    if stage.alone.known(node) is not None:
        return None
    values: list[ast.expr] = [node] if isinstance(node, ast.Call | ast.IfExp) else []
    if isinstance(node, ast.Name | ast.Attribute):
        values = [v for v in stage.alone.sources.of(node) if not stage.alone.dead(v)]
    values = [_taken(stage, v) for v in values]
    found = [c for value in values for c in made_samplers(stage, value)]
    if not found:
        return None
    if len(values) != 1 or len(found) != 1:
        reason = "one of several samplers may be meant: with the wrong one, the loader would give other rows"
        raise refuse(SAMPLER, node, reason, "give each loader one sampler")
    return found[0]


def _taken(stage: Stage, value: ast.expr) -> ast.expr:
    """The arm of a choice that one process takes."""
    test = stage.alone.by_hand(value.test) if isinstance(value, ast.IfExp) else None
    if test is None or not isinstance(value, ast.IfExp):
        return value
    return _taken(stage, value.body if test.truth else value.orelse)


def _restore_order(
    stage: Stage, call: ast.Call, sampler: ast.keyword, shuffle: ast.keyword | None, made: ast.Call
) -> None:
    given = next(
        (k.value for k in made.keywords if k.arg == "shuffle"), made.args[3] if len(made.args) > 3 else None
    )
    if given is not None and not isinstance(given, ast.Constant):
        raise refuse(
            SAMPLER, made, "whether this sampler shuffles is decided elsewhere", "say shuffle=True or False"
        )
    shuffles = given is None or bool(given.value)
    code = f"shuffle={shuffles}"
    stage.gone.update(walk(sampler.value))
    if not shuffles and shuffle is not None:
        stage.edits.append(
            e.RemoveArgument(call, SAMPLER, "prepare shards the loader", argument=sampler.value)
        )
    else:
        if shuffle is not None:
            stage.edits.append(e.RemoveArgument(call, SAMPLER, argument=shuffle.value))
        stage.edits.append(
            e.RemoveArgument(call, SAMPLER, "prepare shards the loader", argument=sampler.value)
        )
        if shuffles:
            stage.edits.append(e.InsertArgument(call, SAMPLER, position=-1, code=code))
    statement = stage.statement(made)
    if isinstance(statement, ast.Assign) and statement.value is made:
        stage.remove(statement, SAMPLER, "prepare shards the loader")
    if shuffles:
        reason = (
            "the sampler ordered the samples by its own seed and the epoch; now torch's random state does"
        )
        remedy = (
            "expect an order that differs from the original's and is the same for any number of processes"
        )
        stage.note(SAMPLER, made, reason, remedy)
