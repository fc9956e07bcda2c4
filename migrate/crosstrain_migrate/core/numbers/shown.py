"""CT602 by use: the loss that a training loop prints is that of the whole batch.

`print(loss.item())` shows one process's share of it. Where every process comes to the print alike, its mean over the
processes is shown instead. A bar's own text may be a share.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import replace
from typing import TypeGuard

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import comes_alike, counters_of, what_may_differ
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import Frame, Loop, is_method, names_in
from crosstrain_migrate.core.reading.ranges import is_range
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.core.training.losses import parts_of, sums_over_rows, trained_loss
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.walks import texts_in, walk, walk_all

from .means import is_next
from .returned import returns_loss
from .training_numbers import LOCAL, MEAN, REDUCE, SUM, UNSURE, TrainingNumbers

RULE = "CT602"
GROUP = "printed losses"
REASON = "the loss of the whole batch is shown"


def plan_shown_losses(plan: Plan, roles: Roles, accelerators: Accelerators, dealt: list[ast.For]) -> None:
    """Plans the reductions of the losses, and of the running totals, that are printed in the training loops.

    dealt: the loops that deal an evaluation, in which the processes have different numbers of batches.
    """
    script = plan.script
    losses: dict[Data, set[str]] = defaultdict(set)
    steps = (replace(data, loop=_turns(script, roles, data)) for data in roles.data)
    loops = {data.loop: data for data in steps if isinstance(data.loop, ast.For)}
    for one in roles.backwards:
        loop = next((around for around in script.loops_around(one.call) if around in loops), None)
        if isinstance(loop, ast.For) and accelerators.at_hand(one.call):
            losses[loops[loop]] |= parts_of(script, one.frame, trained_loss(script, one))
    numbers = TrainingNumbers(plan, roles, accelerators)
    for loop, data in loops.items():
        if isinstance(loop, ast.For) and loop not in dealt and accelerators.at_hand(loop):
            _plan_returned(plan, roles, accelerators.name, data, loop)
    for data, names in losses.items():
        assert isinstance(data.loop, ast.For)
        for call in _prints(script, data.frame, data.loop):
            totals = _totals(numbers, data, data.loop, call)
            means = _means(script, data.frame, call, names)
            if data.loop in dealt and (totals or means):
                plan.note(RULE, data.loop, LOCAL, REDUCE)
            elif totals is not None and means is not None:
                _reduce(plan, accelerators.name, totals, means)
                for rows in _rows(call, data.loop):
                    template = f'{accelerators.name}.reduce({{rows}}, "sum")'
                    plan.replace(
                        rows, RULE, "the rows of the whole batch are counted", template, GROUP, rows=rows
                    )
        for call in prints_behind(script, data.frame, data.loop):
            # What the loop added up is reduced behind it already.
            means = _means(script, data.frame, call, names)
            is_alike = _is_alike_behind(script, call, data.loop)
            if means and is_alike and _totals(numbers, data, data.loop, call) is not None:
                _reduce(plan, accelerators.name, {}, means)


def _turns(script: Script, roles: Roles, data: Data) -> Loop | None:
    """The loop over data, or that over numbers in whose turns `next` takes its batches."""
    if data.loop is not None:
        return data.loop
    passes = (one.call for one in roles.backwards if one.frame is data.frame)
    around = (loop for call in passes for loop in script.loops_around(call)[:1] if isinstance(loop, ast.For))
    counted = (loop for loop in around if any(map(is_range, walk(loop.iter))))
    return next((one for one in counted if any(map(is_next, walk_all(one.body)))), None)


def _plan_returned(plan: Plan, roles: Roles, accelerator: str, data: Data, loop: ast.For) -> None:
    """Plans the reductions of what the steps of a loop return, where it is printed as it is."""
    script = plan.script
    made = [n for n in walk(loop) if isinstance(n, ast.Assign) and returns_loss(script, roles, n.value)]
    own = {written(target) for n in made for target in n.targets if isinstance(target, ast.Name)}
    own = {name for name in own if len(script.values(data.frame, name)) == 1}
    if not own or sums_over_rows(script, roles):
        return
    behind = [c for c in prints_behind(script, data.frame, loop) if _is_alike_behind(script, c, loop)]
    for call in (*_prints(script, data.frame, loop), *behind):
        for node in walk(call):
            if isinstance(node, ast.Name) and node.id in own and _is_shown_as_it_is(script, node, call):
                plan.replace(node, RULE, REASON, f'{accelerator}.reduce({node.id}, "mean")', GROUP)


def _is_shown_as_it_is(script: Script, node: ast.Name, call: ast.Call) -> bool:
    return script.parent(node) is call or _is_formatted(script, node, with_format=False)


def _reduce(plan: Plan, accelerator: str, totals: dict[ast.Name, str], means: list[ast.expr]) -> None:
    for read in means:
        of, tail = (read.func.value, ".item()") if is_method(read, "item") else (read, "")
        plan.replace(read, RULE, REASON, f'{accelerator}.reduce({{loss}}, "mean"){tail}', GROUP, loss=of)
    for name, kind in totals.items():
        share = _since_last(plan.script, name)
        plan.replace(share, RULE, REASON, f'{accelerator}.reduce({{it}}, "{kind}")', GROUP, it=share)


def _since_last(script: Script, total: ast.Name) -> ast.expr:
    """What has been added since the last line, `total - told`, where `told = total` keeps one process's own; else the total."""
    share = script.parent(total)
    if not isinstance(share, ast.BinOp) or not isinstance(share.op, ast.Sub) or share.left is not total:
        return total
    kept = script.values(script.frame(total), written(share.right))
    return share if any(written(one) == total.id for one in kept) else total


def _totals(
    numbers: TrainingNumbers, data: Data, loop: ast.For, call: ast.Call
) -> dict[ast.Name, str] | None:
    """The running totals of a print, each with how it is reduced; None where one may be something else."""
    found: dict[ast.Name, str] = {}
    added = {ast.unparse(n.target) for n in walk(loop) if isinstance(n, ast.AugAssign)}
    for node in walk(call):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            kind = numbers.kind_in_loop(data, loop, node.id)
            entry = numbers.script.parent(node)  # `kept["losses"]` may be a list beside `kept["sum"] += loss`
            is_other = isinstance(entry, ast.Subscript) and ast.unparse(entry) not in added
            if kind == UNSURE or (kind and is_other):
                return None
            if kind in (SUM, MEAN):
                found[node] = kind
    return found


def _rows(call: ast.Call, loop: ast.For) -> list[ast.expr]:
    """How far a pass is, in rows: `len(x)` of `i * len(x)`, where `x` is of the batch and `i` counts the batches; and of how
    many, `len(loader) * len(x)`."""
    batch, counters = names_in(loop.target), counters_of(loop)
    lengths = {f"len({text})" for text in texts_in(loop.iter)} if isinstance(loop, ast.For) else set()
    found: list[ast.expr] = []
    for node in walk(call):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for rows, times in ((node.left, node.right), (node.right, node.left)):
                is_batches = names_in(times) & counters or ast.unparse(times) in lengths
                if is_batches and _counts_rows(rows, batch - counters):
                    found.append(rows)
    return found


def _counts_rows(node: ast.expr, batch: set[str]) -> bool:
    counts = ("len({})", "{}.size(0)", "{}.shape[0]")
    return ast.unparse(node) in {one.format(name) for one in counts for name in batch}


def _prints(script: Script, frame: Frame, loop: Loop) -> list[ast.Call]:
    """The prints in a loop to which every process comes alike."""
    return [
        call
        for call in _all_prints(script, frame)
        if script.table.is_inside(call, loop) and _is_alike(script, call, loop)
    ]


def prints_behind(script: Script, frame: Frame, loop: ast.For) -> list[ast.Call]:
    """The prints behind a loop of what it left."""
    return shown_behind(script, frame, loop, _all_prints(script, frame))


def shown_behind(script: Script, frame: Frame, loop: ast.For, calls: list[ast.Call]) -> list[ast.Call]:
    """Those of some calls that stand behind a loop, in its own block or inside it, with nothing of its own bound anew in
    between."""
    stored = [n for n in script.within(frame) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    own = {n.id for n in stored if script.table.is_inside(n, loop)}
    suite, end = script.suite_of(loop), loop.end_lineno or 0
    behind = suite[suite.index(loop) + 1 :]
    return [
        call
        for call in calls
        if any(script.table.is_inside(call, one) for one in behind)
        and not {n.id for n in stored if end < n.lineno < call.lineno} & names_in(call) & own
    ]


def _is_alike_behind(script: Script, call: ast.Call, loop: ast.For) -> bool:
    """Whether every process comes to a call behind a loop: no test above it, and above each way out, asks for what changes in
    the loop's own block."""
    block, suite = script.parent(loop), script.suite_of(loop)
    behind = suite[suite.index(loop) + 1 :]
    assert block is not None
    stored = (
        n for n in walk(block) if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store)
    )
    own = {written(n) for n in stored} - (names_in(block.target) if isinstance(block, ast.For) else set())
    ways_out = [
        n
        for one in behind
        for n in walk(one)
        if isinstance(n, ast.Return)
        or (
            isinstance(n, ast.Continue | ast.Break)
            and not script.table.is_inside(script.loops_around(n)[0], one)
        )
    ]
    before = [n for n in ways_out if place_of(n) < place_of(call)]
    return all(comes_alike(script, node, block, own) for node in (call, *before))


def _all_prints(script: Script, frame: Frame) -> list[ast.Call]:
    """The prints of a function to the terminal."""
    found = [
        call
        for call in script.calls_in(frame)
        if script.dotted(call.func) == "print" and is_statement_call(script, call)
    ]
    return [call for call in found if not any(keyword.arg == "file" for keyword in call.keywords)]


def _means(script: Script, frame: Frame, call: ast.Call, losses: set[str]) -> list[ast.expr] | None:
    """Every `x.item()` of a print, where each is a mean over the batch, and the losses that it formats as they are; None
    where one may be something else."""
    items = [n for n in walk(call) if is_method(n, "item")]
    parts = [n.value for n in walk(call) if isinstance(n, ast.Attribute) and n.attr == "data"]
    parts = [n for n in parts if isinstance(n, ast.Name) and _is_formatted(script, n)]
    if not all(_is_mean(script, frame, of, losses, 0) for of in (*parts, *(n.func.value for n in items))):
        return None
    formatted = [n for n in walk(call) if _is_loss(n, losses) and _is_formatted(script, n)]
    return [*items, *formatted]


def _is_loss(node: ast.AST, losses: set[str]) -> TypeGuard[ast.expr]:
    """`loss`, `first + second`"""
    if isinstance(node, ast.BinOp):
        is_sum = isinstance(node.op, ast.Add | ast.Sub)
        return is_sum and _is_loss(node.left, losses) and _is_loss(node.right, losses)
    return isinstance(node, ast.Name) and node.id in losses


def _is_formatted(script: Script, node: ast.expr, with_format: bool = True) -> bool:
    """`"%.4f" % loss`, `"%d %.4f" % (step, loss)`, `"{:.4f}".format(loss.data)`, `f"{loss:.4f}"`"""
    parent = script.parent(node)
    if isinstance(parent, ast.Attribute) and parent.attr == "data":
        parent = script.parent(parent)
    if isinstance(parent, ast.Tuple):
        parent = script.parent(parent)
    if isinstance(parent, ast.FormattedValue):
        return parent.format_spec is not None or not with_format
    is_text = (
        isinstance(parent, ast.BinOp)
        and isinstance(parent.op, ast.Mod)
        and isinstance(parent.left, ast.Constant)
    )
    return is_text or (parent is not None and is_method(parent, "format"))


def _is_mean(script: Script, frame: Frame, node: ast.expr, losses: set[str], depth: int) -> bool:
    """Whether a value is a trained loss, a sum of such, or the mean of something."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return all(_is_mean(script, frame, side, losses, depth) for side in (node.left, node.right))
    if is_method(node, "mean", "detach"):
        return node.func.attr == "mean" or _is_mean(script, frame, node.func.value, losses, depth)
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return _is_mean(script, frame, node.value, losses, depth)
    if not isinstance(node, ast.Name) or depth > 3:
        return False
    values = script.values(frame, node.id)
    made = bool(values) and all(_is_mean(script, frame, value, losses, depth + 1) for value in values)
    return node.id in losses or made


def _is_alike(script: Script, call: ast.Call, loop: Loop) -> bool:
    """Whether every process comes to a print in a loop when one does, also past each `continue` and `break` above it."""
    ways_out = [n for n in walk(loop) if isinstance(n, ast.Continue | ast.Break | ast.Return)]
    before = [n for n in ways_out if place_of(n) < place_of(call)]
    own = what_may_differ(script, loop)
    return all(comes_alike(script, node, loop, own) for node in (call, *before))
