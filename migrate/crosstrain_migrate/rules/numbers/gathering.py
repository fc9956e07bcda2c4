"""Where to gather: one statement that rebinds the rows, or a gather around an operand.

A collapse (`.sum()`, a loss, `len`) of rows must see the rows of all ranks. Its operands are gathered either in one
statement before the first collapse, `output, target = accelerator.gather_for_metrics((output, target))`, after which
the code reads as before; or in place, where a statement would take rows away from code that needs the local ones.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, count

from crosstrain_migrate.facts import tensors
from crosstrain_migrate.facts.evidence import is_assumed
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import FromBatch, Unknown, Value
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.output import files
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, line_of, place_of
from crosstrain_migrate.syntax.walks import walk

from .batch_parts import parts_around, region_of, smallest_part
from .batch_values import batch_values, held_batch_values, kinds_of
from .bindings import LOOPS, names_in, receiver
from .opaque_calls import differentiates, runs_model
from .own_sums import OwnSums, add_behind
from .ragged_batches import is_padded
from .row_counts import Collapse, RowCounts, first_common
from .sinks import Sink
from .ungathered import NotAgain, Ungathered, check_in_loop, inside_module

MIXED = "CT604"


@dataclass
class _Cut:
    """One gather statement: which expressions, under which names, and which expressions read those names instead."""

    before: ast.stmt
    names: dict[str, str] = field(default_factory=dict)  # name -> source of what is gathered
    replaced: list[tuple[ast.expr, str]] = field(default_factory=list)


def _on_device(node: ast.expr) -> ast.expr:
    """`x` of `x.cpu()`: it is gathered where it was computed."""
    moved = receiver(node, "cpu") if isinstance(node, ast.Call) and not node.args else None
    return node if moved is None else _on_device(moved)


def _outside_calls(node: ast.AST) -> Iterator[ast.AST]:
    """The parts from which an expression is computed directly, without the arguments of calls: a function that attacks
    the model trains with its arguments, whatever becomes of its result."""
    yield node
    for part in ast.iter_child_nodes(node) if not isinstance(node, ast.Call) else ():
        yield from _outside_calls(part)


class Gatherer:
    """Collects the collapses of batches of `loaders`, and plans the gathers before them."""

    def __init__(
        self,
        context: Context,
        loaders: set[Value],
        rule: str,
        reason: str,
        reduced: frozenset[ast.expr] = frozenset(),
    ) -> None:
        self.context = context
        self.reduced = reduced  # losses that are not computed again
        self.facts: Facts = context.facts
        self.loaders = loaders
        self.rule = rule
        self.reason = reason
        self.counts = RowCounts(context, rule)
        self.collapses: dict[ast.expr, Collapse] = {}
        self.sums: OwnSums | None = None  # where the processes may add up what their own rows give
        self.read: Sink | None = None  # the read at hand, and by node the reads for which it is gathered
        self.asked_by: dict[ast.AST, list[Sink]] = defaultdict(list)

    def add(self, collapse: Collapse) -> None:
        if self.facts.in_module(collapse.node):
            raise inside_module(self.rule, collapse.node)
        if differentiates(self.facts, collapse.node):
            raise Ungathered(
                self.rule,
                collapse.node,
                "it computes gradients with respect to the rows of this process's share, and gathered rows have none",
                "return one value per row, and read or print a number computed from those",
            )
        if not collapse.counted:  # a variable may be counted where it is bound
            check_in_loop(self.facts, self.rule, collapse.node)
        padded = next((o for o in collapse.operands if is_padded(self.context, o)), None)
        if padded is not None:
            raise Ungathered(
                self.rule,
                padded,
                "every process pads it to the longest row of its own share, so the rows of all processes do not fit together",
                "pad to a fixed length in the collate function, or add up a number per batch",
            )
        self.collapses.setdefault(collapse.node, collapse)
        if self.read is not None:
            for node in (collapse.node, *collapse.operands):
                self.asked_by[node].append(self.read)

    def emit(self) -> None:
        """Plans the gathers of all collapses, grouped by the batch loop (or function) they stand in."""
        groups: dict[ast.AST | None, list[Collapse]] = defaultdict(list)
        for collapse in sorted(self.collapses.values(), key=lambda c: place_of(c.node)):
            groups[region_of(self.facts, collapse.node)].append(collapse)
        for around, group in groups.items():
            self._emit_group(around, group)

    def _emit_group(self, around: ast.AST | None, group: list[Collapse]) -> None:
        if all(c.counted for c in group):
            defined = self.counts.where_defined(group)
            group = [c for c in group if c.node not in defined]
            for collapse in group:
                check_in_loop(self.facts, self.rule, collapse.node)
        counts = [c for c in group if self._is_known(c)] if not any(map(self._is_older, group)) else []
        group = [c for c in group if c not in counts]
        cut = None if not group or self._reads_better_inline(group) else self._cut(around, group)
        left = [c for c in counts if cut is None or not self._is_gathered(c, cut)]
        done = self.counts.once([c for c in left if c.counted])
        for collapse in left:
            if collapse.node not in done:
                self.counts.count(collapse.node, collapse.counted or collapse.operands[0])
        if cut is not None:
            joined = [*group, *(c for c in counts if c not in left)]
            self._emit_cut(cut, around, [] if left else self._own_sums(cut, around, joined))
            self.context.gathered.update(c.node for c in group)
            return
        for collapse in group:
            if collapse.above:
                raise Ungathered(
                    self.rule,
                    collapse.node,
                    "a loop goes over the rows of this process's share one by one and keeps something of them, and they "
                    "are needed as they are, too, so they cannot be gathered before it",
                    "gather copies of the rows above the loop: `rows = accelerator.gather_for_metrics(x)`",
                )
        for collapse in group:
            if collapse.again:
                raise NotAgain(collapse.node)
        self._emit_inline(group)

    def _is_known(self, collapse: Collapse) -> bool:
        """Whether the loader knows how many rows all processes have, so that nothing has to be gathered to count them."""
        size = bool(collapse.counted) or (collapse.counts and self.counts.is_size(collapse.node))
        return self.context.runtime == "crosstrain" and size and len(collapse.operands) == 1

    def _is_older(self, collapse: Collapse) -> bool:
        """Whether rows of an earlier batch may be among the operands: `last` of `last = x` at the end of the loop."""
        return any(
            line_of(definition) > name.lineno
            and self.facts.table.of_node[definition] is self.facts.table.of_node[name]
            for operand in collapse.operands
            for name in names_in(operand)
            if batch_values(self.facts, name)
            for definition in self.facts.bindings(name)
        )

    def _is_gathered(self, collapse: Collapse, cut: _Cut) -> bool:
        """Whether a cut gathers the rows that are counted, what they are computed from, or as many other rows, which
        are then counted in their place."""
        if not self._at_or_after(collapse.node, cut.before):
            return False
        if collapse.counted:
            if collapse.counted in cut.names:
                cut.replaced.append((collapse.node, f"len({collapse.counted})"))
            return collapse.counted in cut.names
        rows = collapse.operands[0]
        for name in names_in(rows):
            made = self.facts.bindings(name)
            if name.id in cut.names or any(self._at_or_after(d, cut.before) for d in made):
                return True
        part = smallest_part(self.facts, rows)
        if part is None or part not in cut.names:
            return False
        cut.replaced.append((rows, part))
        return True

    def assume(self) -> None:
        """Records as assumptions what is gathered and has rows only as far as the code around it tells."""
        found = (n for collapse in self.collapses.values() for n in self._computed_from(collapse))
        for node in dict.fromkeys(found):
            if is_assumed(self.facts.interp, node):
                claim = "has one row for each of the labels it is compared with"
            elif self._goes_into_a_loss(node):
                claim = "has one row for each of the labels that go into the loss with it"
            elif self._is_only_seen(node):
                claim = f"`{ast.unparse(node)}` has a row for each of the batch"
                self.context.observed("rows", self.rule, node, claim)
                continue
            else:
                continue
            self.context.assume("rows", self.rule, node, f"`{ast.unparse(node)}` {claim}")

    def _is_only_seen(self, node: ast.AST) -> bool:
        """Whether only an observed run tells what a value is; a variable counts where it is bound."""
        interp = self.facts.interp
        here = interp.observed.get(node)
        used = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        return here is not None and not here.values and node in interp.only_observed and not used

    def _goes_into_a_loss(self, node: ast.AST) -> bool:
        """Whether a value is known to have rows only because a loss compares it with labels."""
        assumed = self.facts.interp.assumed.get(node, ())
        return any(isinstance(v, FromBatch) and v.kind == "rows" for v in assumed)

    def _computed_from(self, collapse: Collapse) -> Iterator[ast.AST]:
        """What stands in an expression, and in the definitions of its variables."""
        seen: set[ast.AST] = set()
        work: list[ast.AST] = [collapse.node, *collapse.operands]
        while work:
            for node in walk(work.pop()):
                if node in seen:
                    continue
                seen.add(node)
                yield node
                for definition in self.facts.bindings(node):
                    yield definition
                    statement = self.facts.table.statement_of(definition)
                    work += [statement.value] if isinstance(statement, ast.Assign) else []

    @staticmethod
    def _reads_better_inline(group: list[Collapse]) -> bool:
        """Whether gathers inside the expressions read better than one statement above them."""
        if any(c.again or c.above for c in group):
            return False
        operands = [o for c in group for o in c.operands]
        if len(operands) == 1:
            return True
        one_each = all(len(c.operands) == 1 and not c.counts for c in group)
        two_by_themselves = one_each and len(group) == 2 and all(c.node in c.operands for c in group)
        return two_by_themselves and not all(
            isinstance(receiver(o, "detach") or o, ast.Name) for o in operands
        )

    # -- in place --------------------------------------------------------------------------------------------

    def _emit_inline(self, group: list[Collapse]) -> None:
        # A function's argument may belong to one collapse, and its result to another.
        gathered: set[ast.expr] = self.counts.once(group)
        for collapse in group:
            if not collapse.counted:
                for operand in map(_on_device, collapse.operands):
                    if operand not in gathered:
                        gathered.add(operand)
                        self._gather_in_place(operand, collapse)
            elif collapse.node not in gathered:
                gather = f"{self.context.accelerator(collapse.node)}.gather_for_metrics({collapse.counted})"
                self.context.replace(collapse.node, self.rule, "rows of the global batch", f"len({gather})")
                self.context.collective.add(collapse.node)

    def _gather_in_place(self, operand: ast.expr, collapse: Collapse) -> None:
        if any(n in self.facts.loss_slice for n in _outside_calls(operand)):
            raise Ungathered(
                self.rule,
                operand,
                "the loss that is trained is computed from it, so its rows cannot be gathered here",
                "compute the number that is read from a tensor of its own",
            )
        accelerator = self.context.accelerator(operand)
        if self._goes_into_file(operand) and not collapse.to_cpu:
            self._gather_above(operand, accelerator)
            return
        part = smallest_part(self.facts, operand) if collapse.counts else None
        gather = f"{accelerator}.gather_for_metrics({part or '{x}'})" + (".cpu()" if collapse.to_cpu else "")
        holes = {} if part is not None else {"x": operand}
        self.context.replace(operand, self.rule, self.reason, gather, **holes)
        self.context.collective.add(operand)

    def _goes_into_file(self, operand: ast.expr) -> bool:
        """Whether a statement writes a variable into a file: the main process does that, but all must gather."""
        statement = self.facts.table.statement_of(operand)
        return (
            isinstance(operand, ast.Name)
            and isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and files.writes_file(self.context, statement.value)
        )

    def _gather_above(self, operand: ast.expr, accelerator: str) -> None:
        name = self._fresh_name(operand, ("gathered", "all_rows"))
        code = f"{name} = {accelerator}.gather_for_metrics({self.context.source(operand)})"
        statement = self.facts.table.statement_of(operand)
        self.context.edits.append(e.InsertBefore(statement, self.rule, self.reason, code=code))
        self.context.replace(operand, self.rule, "", name)

    # -- as a statement --------------------------------------------------------------------------------------

    def _cut(self, around: ast.AST | None, group: list[Collapse]) -> _Cut | None:
        position = first_common(self.facts, [self.facts.table.statement_of(c.node) for c in group])
        if around is None or position is None or not self.facts.table.is_inside(position, around):
            return None
        if self.facts.table.is_whole_else(position):
            return None  # nothing can stand above an `elif`
        cut = _Cut(self._out_of_inner_loops(position, around))
        for collapse in group:
            for operand in collapse.operands:
                smaller = (
                    self.counts.computed_row_by_row(operand, group, cut.before) if collapse.counts else None
                )
                if smaller is not None:
                    cut.replaced.append((operand, smaller))
                elif not self._add_operand(cut, collapse, operand):
                    return None
            if collapse.again:
                cut.replaced.append((collapse.node, collapse.again))
        if not cut.names or any(c.to_cpu for c in group):
            return None
        return cut if self._locals_free(cut, around) else None

    def _out_of_inner_loops(self, position: ast.stmt, around: ast.AST) -> ast.stmt:
        """The statement above all inner loops: rows are gathered once per batch."""
        for outer in self.facts.table.ancestors(position):
            if outer is around:
                break
            if isinstance(outer, LOOPS):
                position = outer
        return position

    def _add_operand(self, cut: _Cut, collapse: Collapse, operand: ast.expr) -> bool:
        if collapse.counted:
            cut.replaced.append((operand, f"len({collapse.counted})"))
            cut.names.setdefault(collapse.counted, collapse.counted)
            return True
        if collapse.counts and isinstance(operand, ast.Name):
            part = smallest_part(self.facts, operand)
            if part is not None and part != operand.id:
                cut.replaced.append((operand, part))
                cut.names.setdefault(part, part)
                return True
        if self._calls_module(operand):
            if not self.facts.table.is_inside(operand, cut.before) or not isinstance(operand, ast.Call):
                return False
            if any(isinstance(n, ast.Call) and last_name(n.func) in {"to", "cuda"} for n in walk(operand)):
                return False  # its source would be copied as it is, and the move in it goes
            name = self._fresh_name(operand)
            cut.names[name] = self.context.source(operand)
            cut.replaced.append((operand, name))
            return True
        return self._add_names(cut, operand, set())

    def _add_names(self, cut: _Cut, operand: ast.expr, seen: set[ast.AST]) -> bool:
        for name in names_in(operand):
            if not isinstance(name.ctx, ast.Load):
                continue
            values = [s for s in batch_values(self.facts, name) if s.loader in self.loaders and not s.host]
            if not values:
                if self._may_hold_rows(name):
                    return False
                continue
            if any(s.kind != "rows" for s in values):
                return False
            later = [d for d in self.facts.bindings(name) if self._at_or_after(d, cut.before)]
            if not later:
                cut.names.setdefault(name.id, name.id)
            for definition in later:  # derived after the cut: what it derives from is what must be gathered
                statement = self.facts.table.statement_of(definition)
                if (
                    definition in seen
                    or not isinstance(statement, ast.Assign)
                    or self._calls_module(statement.value)
                    or not self._add_names(cut, statement.value, seen | {definition})
                ):
                    return False
        return True

    def _may_hold_rows(self, name: ast.Name) -> bool:
        """A dictionary or a list of rows, `outputs` of `outputs["out"].argmax(1)`, or a variable that is bound anew for
        every batch to something that could not be followed."""
        values = self.facts.of(name)
        if held_batch_values(self.facts, values, self.loaders):
            return True
        loop = self.facts.batch_loop_around(name)
        if loop is None or any(not isinstance(v, Unknown) for v in values):
            return False
        return any(self.facts.table.is_inside(d, loop) for d in self.facts.bindings(name))

    def _at_or_after(self, definition: ast.AST, statement: ast.stmt) -> bool:
        return line_of(definition) >= statement.lineno and not isinstance(definition, ast.arg)

    def _locals_free(self, cut: _Cut, around: ast.AST) -> bool:
        """Whether no code of this batch after the cut needs the process's own rows under the gathered names."""
        names = {n for n, source in cut.names.items() if n == source}
        replaced = {part for node, _ in cut.replaced for part in walk(node)}
        return not any(
            name.id in names
            and isinstance(name.ctx, ast.Load)
            and name.lineno >= cut.before.lineno
            and name not in replaced
            and (name in self.facts.loss_slice or self._needed_locally(name))
            for name in names_in(around)
        )

    def _needed_locally(self, name: ast.Name) -> bool:
        """Whether a model, the trained loss or a training step of the script's own is given a variable."""
        for around in self.facts.table.ancestors(name):
            if isinstance(around, ast.stmt):
                return False
            if not isinstance(around, ast.Call):
                continue
            if around in self.facts.loss_origins:
                return True
            if any(self.facts.interp.is_module(v) for v in self.facts.of(around.func)):
                return not kinds_of(self.facts, around) & tensors.SCALARS  # a loss that is only read is none
            if receiver(around, "backward") is not None or runs_model(self.facts, around):
                return True
        return False

    def _calls_module(self, node: ast.AST) -> bool:
        return any(isinstance(n, ast.Call) and runs_model(self.facts, n) for n in walk(node))

    def _fresh_name(
        self, node: ast.AST, candidates: tuple[str, ...] = ("output", "outputs", "gathered", "all_outputs")
    ) -> str:
        scope = self.facts.table.of_node[node]
        taken = scope.names | scope.module.names
        numbered = (f"{candidates[-1]}_{number}" for number in count(2))
        name = next(n for n in chain(candidates, numbered) if n not in taken)
        scope.names.add(name)
        return name

    def _emit_cut(self, cut: _Cut, around: ast.AST | None, sums: list[str]) -> None:
        accelerator = self.context.accelerator(cut.before)
        parts = parts_around(self.facts, cut.before)
        targets = sorted(cut.names, key=lambda name: parts.index(name) + 1 if name in parts else 0)
        sources = [cut.names[t] for t in targets]
        method = "own_rows" if sums else "gather_for_metrics"
        given = sources[0] if len(targets) == 1 else f"({', '.join(sources)})"
        code = f"{', '.join(targets)} = {accelerator}.{method}({given})"
        reason = self.reason
        if sums:
            code += f"\nif not len({targets[-1]}):\n    continue"
            reason = "each process adds up what its own rows give"
            add_behind(self.context, self.rule, around, sums)
            self.context.gathered.add(cut.before)
        else:
            self.context.collective.add(cut.before)
        self.context.edits.append(e.InsertBefore(cut.before, self.rule, reason, code=code))
        for node, name in cut.replaced:
            self.context.edits.append(e.Replace(node, self.rule, template=name))

    def _own_sums(self, cut: _Cut, around: ast.AST | None, joined: list[Collapse]) -> list[str]:
        """The variables that add up what the rows of a cut give, where each process may do so with its own rows."""
        moved = {node for node, name in cut.replaced if cut.names.get(name, name) != name}
        return [] if self.sums is None else self.sums.of(around, cut.before, joined, moved)
