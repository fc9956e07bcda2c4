"""Losses that the code of a batch reads are reduced together: one statement above their first reader.

A loss that is read several times is reduced once, and several losses are reduced by one call. What is written into a
file is reduced before the file is opened, so that the main process can write it alone.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.distribution.process_dependent import ProcessDependent
from crosstrain_migrate.rules.output.opened_files import writes_into
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values
from .bindings import mentions
from .row_counts import first_common


@dataclass(frozen=True, eq=False)
class Reduction(e.Replace):
    """A loss becomes that of all processes where it is read: `by` their "mean" or their "sum"."""

    accelerator: str = ""
    by: str = ""


def reduction(context: Context, node: ast.expr, rule: str, by: str) -> Reduction:
    accelerator = context.accelerator(node)
    template = f'{accelerator}.reduce({{x}}, reduction="{by}")'
    reason = "the loss of the global batch, not of this rank's share"
    return Reduction(node, rule, reason, template=template, holes={"x": node}, accelerator=accelerator, by=by)


def reduce_statement(names: list[str], accelerator: str, by: str) -> str:
    """`a, b = accelerator.reduce((a, b), reduction="mean")`"""
    joined = ", ".join(names)
    given = f"({joined})" if len(names) > 1 else joined
    return f'{joined} = {accelerator}.reduce({given}, reduction="{by}")'


def is_replicated(facts: Facts, differing: ProcessDependent, node: ast.expr) -> bool:
    """Whether all processes have the same value here: nothing in it is of a batch, or depends on the process."""
    own = any(batch_values(facts, part) for part in walk(node) if isinstance(part, ast.expr))
    return not own and differing.asks(node) is None


@dataclass
class _Loss:
    """A variable whose readers see one value of it, and the statement before which it can be reduced for all of them."""

    name: str
    value: frozenset[ast.AST]
    readers: dict[ast.Name, Reduction]
    above: ast.stmt

    @property
    def edit(self) -> Reduction:
        """How each of the readers is reduced now."""
        return next(iter(self.readers.values()))


def reduce_once(context: Context) -> None:
    """Moves reductions above the first reader, where nothing else uses the variables from there on."""
    for losses in _together(context.facts, _losses(context)):
        if len(losses) > 1 or len(losses[0].readers) > 1 or writes_into(context.facts, losses[0].above):
            _move(context, losses)


def _losses(context: Context) -> list[_Loss]:
    """The variables that can be reduced above their readers, in the order of these."""
    readers: dict[tuple[str, frozenset[ast.AST], str], dict[ast.Name, Reduction]] = defaultdict(dict)
    for edit in [x for x in context.edits if isinstance(x, Reduction)]:
        variable = variable_of(edit.node)
        if variable is not None:
            value = context.facts.bindings(variable)
            readers[variable.id, value, edit.template][variable] = edit
    found = []
    for (name, value, _), edits in readers.items():
        above = _above(context.facts, name, value, edits.keys()) if value else None
        if above is not None:
            found.append(_Loss(name, value, edits, above))
    return sorted(found, key=lambda loss: min(place_of(reader) for reader in loss.readers))


def variable_of(node: ast.AST) -> ast.Name | None:
    """`loss` of `loss`, `loss.data`, `loss.data[0]` and `loss.detach()`."""
    match node:
        case ast.Name():
            return node
        case (
            ast.Call(ast.Attribute(inner, "detach"), [])
            | ast.Attribute(inner, "data")
            | ast.Subscript(inner, ast.Constant())
        ):
            return variable_of(inner)
    return None


def _together(facts: Facts, losses: list[_Loss]) -> list[list[_Loss]]:
    """Groups the losses that one statement can reduce: all are computed before the first of them is read."""
    groups: list[list[_Loss]] = []
    for loss in losses:
        group = next((g for g in groups if _joins(facts, loss, g)), None)
        if group is None:
            groups.append([loss])
        else:
            group.append(loss)
    return groups


def _joins(facts: Facts, loss: _Loss, group: list[_Loss]) -> bool:
    first = group[0]
    if loss.edit.accelerator != first.edit.accelerator or {loss.edit.by, first.edit.by} != {"mean"}:
        return False
    if facts.batch_loop_around(first.above) is None:
        return False  # after the loop, only the last loss itself still has its weight
    if any(loss.name == other.name for other in group):
        return False
    same_suite = suite_of(facts, loss.above) is suite_of(facts, first.above)
    return same_suite and _can_stand(facts, loss.name, loss.value, loss.readers.keys(), first.above)


def _move(context: Context, losses: list[_Loss]) -> None:
    first = losses[0]
    gone = {edit for loss in losses for edit in loss.readers.values()}
    read = {edit.node for edit in gone}
    context.edits[:] = [one for one in context.edits if one not in gone]
    edit = first.edit
    code = reduce_statement([loss.name for loss in losses], edit.accelerator, edit.by)
    context.edits.append(e.InsertBefore(first.above, edit.rule, edit.reason, code=code))
    context.collective -= read
    context.averaged -= read
    in_file = writes_into(context.facts, first.above)
    (context.below_collective if in_file else context.collective).add(first.above)


def _above(facts: Facts, name: str, value: frozenset[ast.AST], readers: Set[ast.Name]) -> ast.stmt | None:
    """The statement before which the variable can be reduced for all of its readers."""
    statements = [facts.table.statement_of(reader) for reader in readers]
    above = first_common(facts, statements)
    if above is None or facts.table.is_whole_else(above):
        return None  # nothing can stand above an `elif`
    if not any(s in suite_of(facts, above) for s in statements):
        return None  # each may be left out: it would be reduced for nobody
    if not _can_stand(facts, name, value, readers, above):
        return None
    block = facts.table.parents[above]
    if not isinstance(block, ast.With) or not writes_into(facts, block):  # which is the main process's
        return above
    return block if _can_stand(facts, name, value, readers, block) else above


def _can_stand(
    facts: Facts, name: str, value: frozenset[ast.AST], readers: Set[ast.Name], above: ast.stmt
) -> bool:
    """Whether the variable has its value above a statement, and nothing but the readers uses it from there on."""
    made = max(place_of(definition) for definition in value)
    if made >= place_of(above) or any(facts.table.is_inside(d, above) for d in value):
        return False
    others = (m for m in mentions(facts, name, next(iter(readers))) if m not in readers)
    return all(_is_over(facts, other, value, above) for other in others)


def _is_over(facts: Facts, mention: ast.Name, value: frozenset[ast.AST], above: ast.stmt) -> bool:
    """Whether a mention of the variable stands before its reduction, or sees another value."""
    if isinstance(mention.ctx, ast.Del):
        return False
    first = min(place_of(definition) for definition in value)
    if isinstance(mention.ctx, ast.Store):
        added = isinstance(facts.table.parents[mention], ast.AugAssign)
        return not added or first <= place_of(mention) < place_of(above)
    seen = facts.interp.reaching.get(mention)
    if seen is None or facts.table.of_node[mention] is not facts.table.of_node[above]:
        return False  # in a function of its own, which may be called at any time
    return not seen & value or first < place_of(mention) < place_of(above)
