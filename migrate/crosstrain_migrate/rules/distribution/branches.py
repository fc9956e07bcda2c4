"""Branches whose test is about distribution: one process takes one of them, and the others must be dispensable.

Which branch a single process takes is `Alone`'s to say. A branch it does not take may only hold what distribution is
made of (the group, the wrapper, samplers, devices, reductions); anything else is refused, for dropping it would change
what several processes compute.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import FromBatch, Function, Method
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .dispensable import check_dispensable, lose_comments
from .group_setup import only_sets_up
from .guards import asks_rank, is_elif, main_process, runs_everywhere, runs_on_all
from .launcher_settings import DIST, WRAPPERS
from .plain import Stage
from .samplers import SAMPLERS

RULE = "CT303"
EXITS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit"})


def plan(stage: Stage) -> None:
    for node in stage.facts.nodes:
        if stage.alone.dead(node) or stage.is_settled(node):
            continue
        if isinstance(node, ast.If) and not is_elif(stage, node):
            _chain(stage, node)
        elif isinstance(node, ast.IfExp):
            _choice(stage, node)
        elif (
            isinstance(node, ast.While | ast.Assert)
            and stage.alone.by_hand(node.test) is not None
            and isinstance(node, ast.Assert)
        ):
            stage.remove(node, RULE, "it asks how the script distributes itself")


def _choice(stage: Stage, node: ast.IfExp) -> None:
    test = stage.alone.by_hand(node.test)
    if test is None:
        return
    chosen, other = (node.body, node.orelse) if test.truth else (node.orelse, node.body)
    if any(isinstance(v, FromBatch) for v in stage.facts.of(other)) and not _reduces(stage, other):
        raise refuse(RULE, other, "only several processes compute this", "compute it in both cases")
    if asks_rank(stage, node.test) and not any(_distributes(stage, arm) for arm in (chosen, other)):
        stage.gone.update(walk(node.test))
        main = main_process(stage, node.test)
        stage.replace(
            node.test,
            RULE,
            "the accelerator knows which process this is",
            main if test.truth else f"not {main}",
        )
        return
    if _is_size(stage, chosen, other):
        chosen, other = other, chosen
    parent = stage.parent(node)
    around = stage.parent(parent) if isinstance(parent, ast.withitem) else None
    if isinstance(around, ast.With) and len(around.items) == 1 and _enters_nothing(stage, chosen):
        stage.gone.update(walk(node))
        stage.edits.append(e.Unwrap(around, RULE, "gradients that are averaged each time add up the same"))
        return
    bare = isinstance(
        chosen, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant | ast.JoinedStr
    )
    whole = isinstance(parent, ast.Assign | ast.Return | ast.keyword | ast.Call)
    stage.gone.update(walk(node.test))
    stage.gone.update(walk(other))
    stage.replace(
        node,
        RULE,
        "what one process does, prepare does on all",
        "{x}" if bare or whole else "({x})",
        x=chosen,
    )


def _enters_nothing(stage: Stage, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and "contextlib.nullcontext" in stage.facts.paths(node.func)


def _distributes(stage: Stage, node: ast.expr) -> bool:
    """Whether an arm is made of distribution, or of this process's share of the data."""
    return any(
        any(p.startswith(DIST) or p in SAMPLERS | WRAPPERS for p in stage.facts.paths(n))
        or any(isinstance(v, FromBatch) for v in stage.facts.of(n))
        for n in walk(node)
        if isinstance(n, ast.expr)
    )


def _is_size(stage: Stage, chosen: ast.expr, other: ast.expr) -> bool:
    """`dist.get_world_size() if distributed else 1`: the same question, which the accelerator answers."""
    asked = isinstance(other, ast.Call) and any(p.startswith(DIST) for p in stage.facts.paths(other.func))
    known = stage.alone.by_hand(other) if asked else None
    return known is not None and isinstance(chosen, ast.Constant) and chosen.value == known.value


def _reduces(stage: Stage, node: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Call) and any(p.startswith(DIST) for t in _bodies(stage, n) for p in t)
        for n in walk(node)
    )


def _bodies(stage: Stage, call: ast.Call) -> list[set[str]]:
    found = [stage.facts.paths(call.func)]
    for value in stage.facts.of(call.func):
        if isinstance(value, Function | Method):
            function = value.function.node if isinstance(value, Method) else value.node
            found += [stage.facts.paths(n.func) for n in walk(function) if isinstance(n, ast.Call)]
    return found


# -- chains of if, elif, else --------------------------------------------------------------------------------


def _chain(stage: Stage, node: ast.If) -> None:
    arms: list[tuple[ast.expr | None, list[ast.stmt]]] = []
    current: ast.If | None = node
    while current is not None:
        arms.append((current.test, current.body))
        inner = (
            current.orelse[0] if len(current.orelse) == 1 and isinstance(current.orelse[0], ast.If) else None
        )
        if inner is not None and is_elif(stage, inner):
            current = inner
            continue
        if current.orelse:
            arms.append((None, current.orelse))
        current = None
    if arms[-1][0] is None and only_sets_up(stage, node, [body for _, body in arms]):
        _drop(stage, node, arms, ["drop"] * len(arms))
        return
    fates: list[str] = []
    settled = False
    for test, body in arms:
        known = stage.alone.by_hand(test) if test is not None else None
        if known is not None and known.truth and not settled and _gives_up(stage, body):
            _demands(stage, node)
            fates.append("drop")
        elif (
            settled
            or (known is not None and not known.truth)
            or (known is not None and test is not None and len(arms) == 1 and _only_warns(stage, test, body))
        ):
            fates.append("drop")
        elif known is not None:
            fates.append("always")
            settled = True
        else:
            fates.append("keep")
            if test is not None:
                _shorten(stage, test, body)
    if "drop" not in fates and "always" not in fates:
        return
    taken = [s for (_, body), fate in zip(arms, fates, strict=True) if fate != "drop" for s in body]
    for (test, body), fate in zip(arms, fates, strict=True):
        if fate == "drop" and not (test is not None and _left_out(test)) and not _gives_up(stage, body):
            check_dispensable(stage, body, node, taken)
    if fates == ["always"] and not runs_everywhere(stage, node):
        main = main_process(stage, node.test)
        stage.gone.update(walk(node.test))
        stage.replace(node.test, RULE, "the accelerator knows which process this is", main)
        return
    _drop(stage, node, arms, fates)


def _gives_up(stage: Stage, body: list[ast.stmt]) -> bool:
    """Whether a branch ends the script: there are too few devices or processes for it."""
    last = body[-1]
    if isinstance(last, ast.Raise):
        return True
    call = last.value if isinstance(last, ast.Expr) else None
    return isinstance(call, ast.Call) and bool(stage.facts.paths(call.func) & EXITS)


def _demands(stage: Stage, node: ast.If) -> None:
    reason = "the script stopped here when it found too few devices or processes; now it runs on as many as it is given"
    stage.note(RULE, node, reason, "choose the number with `crosstrain launch --num-processes`")


def _only_warns(stage: Stage, test: ast.expr, body: list[ast.stmt]) -> bool:
    """A warning about how the script is distributed, which it no longer decides."""
    return not asks_rank(stage, test) and all(
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and any(p.startswith("warnings.") for p in stage.facts.paths(s.value.func))
        for s in body
    )


def _left_out(test: ast.expr) -> bool:
    """`len(loader.sampler) * world_size < len(loader.dataset)`: rows that a sampler with drop_last left to nobody.

    A prepared loader leaves none out, so what is done for them is not done any more.
    """
    for node in walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            if (
                left.startswith("len(")
                and ".sampler)" in left
                and "*" in left
                and right.endswith(".dataset)")
            ):
                return True
    return False


def _drop(
    stage: Stage, node: ast.If, arms: list[tuple[ast.expr | None, list[ast.stmt]]], fates: list[str]
) -> None:
    for number, ((test, body), fate) in enumerate(zip(arms, fates, strict=True)):
        if test is not None and fate != "keep":
            stage.gone.update(walk(test))
        if fate == "drop":
            stage.gone.update(body)
            lose_comments(stage, body, test if number else None)
    reason = "what one process does, prepare does on all"
    stage.edits.append(e.Fold(node, RULE, reason, arms=tuple(fates)))
    if stage.alone.leaves(node):
        _never_reached(stage, node)


def _never_reached(stage: Stage, node: ast.If) -> None:
    """What stands behind an `if` that one process always leaves the function by."""
    suite = suite_of(stage.facts, node)
    behind = suite[suite.index(node) + 1 :]
    if not behind:
        return
    check_dispensable(stage, behind, node, [])
    lose_comments(stage, behind)
    for statement in behind:
        stage.edits.append(e.RemoveStatement(statement, RULE))
    stage.gone.update(behind)


def _shorten(stage: Stage, test: ast.expr, body: list[ast.stmt]) -> None:
    """`rank == 0 and epoch % 5 == 0`: the part about the rank goes, or becomes the accelerator's."""
    if not isinstance(test, ast.BoolOp):
        return
    parts = [(p, stage.alone.by_hand(p)) for p in test.values]
    if all(k is None for _, k in parts):
        for part, _ in parts:
            _shorten(stage, part, body)
        return
    kept = [p for p, k in parts if k is None]
    guard = next((p for p, k in parts if k is not None and asks_rank(stage, p)), None)
    holes = {f"p{i}": p for i, p in enumerate(kept)}
    word = " and " if isinstance(test.op, ast.And) else " or "
    pieces = [
        ("({p%d})" if isinstance(p, ast.BoolOp | ast.IfExp) else "{p%d}") % i for i, p in enumerate(kept)
    ]
    around = stage.parent(test)
    if guard is not None and isinstance(around, ast.If) and not runs_on_all(stage, around, body):
        pieces.insert(0, main_process(stage, guard))
    for part, known in parts:
        if known is not None:
            stage.gone.update(walk(part))
    template = (
        word.join(pieces) if len(pieces) > 1 else pieces[0].strip("()") if len(kept) == 1 else pieces[0]
    )
    stage.replace(
        test, RULE, "what the main process alone does is guarded where it must be", template, **holes
    )
