"""Branches whose test is about distribution. One process takes one of them, and the others must be dispensable.

Which branch a single process takes is for `SingleProcess` to say. A branch it does not take may only hold what
distribution is made of (the group, the wrapper, samplers, devices, reductions); anything else is refused, because dropping
it would change what several processes compute.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from crosstrain_migrate.facts.values import FromBatch, code_of
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.walks import walk

from .dispensable import check_dispensable, report_lost_comments
from .group_setup import only_sets_up
from .guards import ask_accelerator, asks_rank, main_process, run_on_all
from .launcher_settings import DIST, WRAPPERS
from .plain import Stage, nodes_in
from .process_dependent import EXITS
from .samplers import SAMPLERS

RULE = "CT303"


def plan(stage: Stage) -> None:
    for node in stage.facts.each(ast.If, ast.IfExp, ast.Assert):
        if stage.single.dead(node) or stage.is_settled(node):
            continue
        if isinstance(node, ast.IfExp):
            _choice(stage, node)
        elif isinstance(node, ast.Assert):
            if stage.single.launch_value(node.test) is not None:
                stage.remove(node, RULE, "it asks how the script distributes itself")
        elif not stage.is_elif(node):
            _chain(stage, node)


def _choice(stage: Stage, node: ast.IfExp) -> None:
    test = stage.single.launch_value(node.test)
    if test is None:
        return
    chosen, other = (node.body, node.orelse) if test.truth else (node.orelse, node.body)
    if any(isinstance(v, FromBatch) for v in stage.facts.of(other)) and not _reduces(stage, other):
        raise refuse(RULE, other, "only several processes compute this", "compute it in both cases")
    if asks_rank(stage, node.test) and not any(_distributes(stage, arm) for arm in (chosen, other)):
        ask_accelerator(stage, node.test, test.truth)
        return
    if _is_size(stage, chosen, other):
        chosen, other = other, chosen
    parent = stage.parent(node)
    around = stage.parent(parent) if isinstance(parent, ast.withitem) else None
    if isinstance(around, ast.With) and len(around.items) == 1 and _enters_nothing(stage, chosen):
        stage.gone.update(walk(node))
        stage.edits.append(e.Unwrap(around, RULE, "gradients that are averaged each time add up the same"))
        return
    stage.gone.update(nodes_in((node.test, other)))
    whole = isinstance(parent, ast.Assign | ast.Return | ast.keyword | ast.Call)
    stage.keep_only(node, RULE, "what one process does, prepare does on all", chosen, bare=whole)


def _enters_nothing(stage: Stage, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and "contextlib.nullcontext" in stage.facts.paths(node.func)


def _distributes(stage: Stage, node: ast.expr) -> bool:
    """Whether an arm uses torch.distributed, or this process's share of the data."""
    return any(
        any(p.startswith(DIST) or p in SAMPLERS | WRAPPERS for p in stage.facts.paths(n))
        or any(isinstance(v, FromBatch) for v in stage.facts.of(n))
        for n in walk(node)
        if isinstance(n, ast.expr)
    )


def _is_size(stage: Stage, chosen: ast.expr, other: ast.expr) -> bool:
    """`dist.get_world_size() if distributed else 1`: the same question, which the accelerator answers."""
    asked = isinstance(other, ast.Call) and any(p.startswith(DIST) for p in stage.facts.paths(other.func))
    known = stage.single.launch_value(other) if asked else None
    return known is not None and isinstance(chosen, ast.Constant) and chosen.value == known.value


def _reduces(stage: Stage, node: ast.expr) -> bool:
    """Whether an expression calls torch.distributed, itself or in a function of the script that it calls."""
    calls = [n for n in walk(node) if isinstance(n, ast.Call)]
    functions = [code_of(v) for call in calls for v in stage.facts.of(call.func)]
    inner = nodes_in(f for f in functions if isinstance(f, FunctionNode))
    calls += [n for n in inner if isinstance(n, ast.Call)]
    return any(p.startswith(DIST) for call in calls for p in stage.facts.paths(call.func))


# -- chains of if, elif, else --------------------------------------------------------------------------------


class Arm(NamedTuple):
    """One branch of a chain; `else` has no test."""

    test: ast.expr | None
    body: list[ast.stmt]


def _arms(stage: Stage, node: ast.If) -> list[Arm]:
    first = Arm(node.test, node.body)
    following = node.orelse[0] if node.orelse else None
    if isinstance(following, ast.If) and stage.is_elif(following):
        return [first, *_arms(stage, following)]
    return [first, Arm(None, node.orelse)] if following else [first]


def _chain(stage: Stage, node: ast.If) -> None:
    arms = _arms(stage, node)
    if arms[-1].test is None and only_sets_up(stage, node, [arm.body for arm in arms]):
        _drop(stage, node, arms, ["drop"] * len(arms))
        return
    fates: list[str] = []
    for arm in arms:
        fates.append("drop" if "always" in fates else _fate(stage, node, arm, alone=len(arms) == 1))
    if set(fates) == {"keep"}:
        return
    taken = [s for arm, fate in zip(arms, fates, strict=True) if fate != "drop" for s in arm.body]
    for (test, body), fate in zip(arms, fates, strict=True):
        if (
            fate == "drop"
            and not (test is not None and _is_about_left_out_rows(test))
            and not _gives_up(stage, body)
        ):
            check_dispensable(stage, body, node, taken)
    if fates == ["always"] and asks_rank(stage, node.test) and not run_on_all(stage, node, node.body):
        ask_accelerator(stage, node.test)
        return
    _drop(stage, node, arms, fates)


def _fate(stage: Stage, node: ast.If, arm: Arm, alone: bool) -> str:
    """What becomes of a branch when no branch before it is always taken: "drop", "always" or "keep" (`edits.Fold`)."""
    known = stage.single.launch_value(arm.test) if arm.test is not None else None
    if arm.test is None or known is None:
        if arm.test is not None:
            _shorten(stage, arm.test, arm.body)
        return "keep"
    if known.truth and _gives_up(stage, arm.body):
        reason = "the script stopped here if there were too few devices or processes; now it runs on any number of them"
        stage.note(RULE, node, reason, "choose the number with `crosstrain launch --num-processes`")
        return "drop"
    if not known.truth or (alone and _only_warns(stage, arm.test, arm.body)):
        return "drop"
    return "always"


def _gives_up(stage: Stage, body: list[ast.stmt]) -> bool:
    """Whether a branch ends the script, because there are too few devices or processes."""
    last = body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    exits = isinstance(call, ast.Call) and bool(stage.facts.paths(call.func) & EXITS)
    return exits or isinstance(last, ast.Raise)


def _only_warns(stage: Stage, test: ast.expr, body: list[ast.stmt]) -> bool:
    """Whether a branch only warns about how the script is distributed, which it no longer decides."""
    return not asks_rank(stage, test) and all(
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and any(p.startswith("warnings.") for p in stage.facts.paths(s.value.func))
        for s in body
    )


def _is_about_left_out_rows(test: ast.expr) -> bool:
    """`len(loader.sampler) * world_size < len(loader.dataset)`: the rows that a sampler with drop_last gives to nobody.

    A prepared loader leaves none out, so what is done for them is not done any more.
    """
    for node in walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            counted = left.startswith("len(") and ".sampler)" in left and "*" in left
            if counted and right.endswith(".dataset)"):
                return True
    return False


def _drop(stage: Stage, node: ast.If, arms: list[Arm], fates: list[str]) -> None:
    for number, ((test, body), fate) in enumerate(zip(arms, fates, strict=True)):
        if test is not None and fate != "keep":
            stage.gone.update(walk(test))
        if fate == "drop":
            stage.gone.update(body)
            report_lost_comments(stage, body, test if number else None)
    reason = "what one process does, prepare does on all"
    stage.edits.append(e.Fold(node, RULE, reason, arms=tuple(fates)))
    if stage.single.leaves(node):
        _never_reached(stage, node)


def _never_reached(stage: Stage, node: ast.If) -> None:
    """Removes the code below an `if` in which one process always returns."""
    suite = suite_of(stage.facts, node)
    behind = suite[suite.index(node) + 1 :]
    if not behind:
        return
    check_dispensable(stage, behind, node, [])
    report_lost_comments(stage, behind)
    for statement in behind:
        stage.edits.append(e.RemoveStatement(statement, RULE))
    stage.gone.update(behind)


def _shorten(stage: Stage, test: ast.expr, body: list[ast.stmt]) -> None:
    """`rank == 0 and epoch % 5 == 0`: removes the part about the rank, or asks the accelerator instead."""
    if not isinstance(test, ast.BoolOp):
        return
    known = [part for part in test.values if stage.single.launch_value(part) is not None]
    if not known:
        for part in test.values:
            _shorten(stage, part, body)
        return
    kept = [part for part in test.values if part not in known]
    guard = next((part for part in known if asks_rank(stage, part)), None)
    around = stage.parent(test)
    pieces: list[str] = []
    if guard is not None and isinstance(around, ast.If) and not run_on_all(stage, around, body):
        pieces.append(main_process(stage, guard))
    for number, part in enumerate(kept):
        nested = isinstance(part, ast.BoolOp | ast.IfExp) and (len(kept) > 1 or pieces)
        pieces.append(f"({{p{number}}})" if nested else f"{{p{number}}}")
    stage.gone.update(nodes_in(known))
    template = (" and " if isinstance(test.op, ast.And) else " or ").join(pieces)
    holes = {f"p{number}": part for number, part in enumerate(kept)}
    stage.replace(
        test, RULE, "what the main process alone does is guarded where it must be", template, **holes
    )
