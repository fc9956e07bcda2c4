"""For CT602: numbers of training that stay each process's own, and the decisions that all processes then take together.

What:   A number that cannot be made global is left as it is, with a note. Where it decides (an early stop, the best
        model, a plateau), every process takes the main process's answer.
Why:    A number that is only shown does no harm; processes that decide for themselves part ways.
        A test that keeps a batch from the step does so on all processes, where it does on one of them.
Before: `if entropy(out) > limit: break`
After:  `if broadcast_object_list([bool(entropy(out) > limit)])[0]: break`
"""

from __future__ import annotations

import ast
from collections import defaultdict

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values
from .flow import Flow
from .sinks import Sink
from .ungathered import Ungathered

RULE = "CT602"


class OwnNumbers:
    """The reads that are left as they are, and why."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts: Facts = context.facts
        self.reads: dict[Sink, Ungathered] = {}
        self._flows: dict[Sink, Flow] = {}

    def flow(self, read: Sink) -> Flow:
        if read not in self._flows:
            self._flows[read] = Flow(self.facts, read.node)
        return self._flows[read]

    def flows_back(self, read: Sink) -> bool:
        """Whether training goes on with what is kept of it."""
        return bool(self.flow(read).uses & self.facts.loss_slice)

    def leave_used_together(self, gathered: list[Sink]) -> bool:
        """Leaves those of the gathered reads that are used together with one that is left: the hits of all processes
        divided by the rows of one are no accuracy. Returns whether there were any."""
        joined = {
            read: Ungathered(
                RULE, read.node, f"it is used together with `{ast.unparse(other.node)}`", why.remedy
            )
            for read in gathered
            for other, why in self.reads.items()
            if read not in self.reads and self._are_used_together(read, other)
        }
        self.reads.update(joined)
        return bool(joined)

    def _are_used_together(self, one: Sink, other: Sink) -> bool:
        beside = self.flow(one).statements & self.flow(other).statements
        return bool(beside or self._origins(one) & self._origins(other))

    def _origins(self, read: Sink) -> set[ast.AST]:
        found = {o for s in batch_values(self.facts, read.node) for o in s.origins}
        return found - self.facts.loss_origins

    def plan(self) -> None:
        """The notes, one for each statement, and one answer for all processes where such a number decides."""
        statements: dict[ast.stmt, list[Sink]] = defaultdict(list)
        for read in sorted(self.reads, key=lambda r: place_of(r.node)):
            statements[self.facts.table.statement_of(read.node)].append(read)
        decisions: dict[ast.expr, None] = {}
        for reads in statements.values():
            self._note(reads)
            decisions |= dict.fromkeys(d for read in reads for d in self.flow(read).decisions)
        decisions = dict.fromkeys(self._whole(d, decisions) for d in decisions)
        inner = {n for d in decisions for n in walk(d) if n is not d}
        for decision in decisions:
            if decision not in inner:
                self._decide_once(decision)

    def _whole(self, decision: ast.expr, decisions: dict[ast.expr, None]) -> ast.expr:
        """The `a or b` around a decision, where all its parts are decisions."""
        around = self.facts.table.parents.get(decision)
        if isinstance(around, ast.BoolOp) and all(part in decisions for part in around.values):
            return self._whole(around, decisions | {around: None})
        return decision

    def _note(self, reads: list[Sink]) -> None:
        why = self.reads[reads[0]]
        numbers = list(dict.fromkeys(f"`{ast.unparse(read.node)}`" for read in reads))
        verb = "stays" if len(numbers) == 1 else "stay"
        decides = any(self.flow(read).decisions for read in reads)
        decided = "; where it decides something, every process follows the main process" if decides else ""
        self.context.note(
            RULE,
            reads[0].node,
            f"{', '.join(numbers)} {verb} local to each process: {why.why}{decided}",
            f"nothing to do if each process's own value is enough; otherwise {why.remedy}",
        )

    def _decide_once(self, decision: ast.expr) -> None:
        kind = "float" if self._is_number(decision) else "bool"
        agreed = self._of_a_guard(decision)
        function = "gather_object" if agreed else "broadcast_object_list"
        code = f"{agreed}(gather_object([bool({{x}})]))" if agreed else f"{function}([{kind}({{x}})])[0]"
        self.context.replace(decision, RULE, "all processes decide alike", code, x=decision)
        self.context.collective.add(decision)
        self.context.averaged.add(decision)
        file = self.facts.table.of_node[decision].file
        code = f"from {self.context.runtime}.utils import {function}"
        self.context.edits.append(e.AddImport(file, RULE, code=code))

    def _of_a_guard(self, decision: ast.expr) -> str:
        """`any` where a test leaves a step out, and `all` where it lets one through: what the author keeps from a step
        must not come to it on any process. Empty where it decides something else."""
        test = self.facts.table.parents.get(decision)
        if not isinstance(test, ast.If) or test.test is not decision:
            return ""
        if all(isinstance(s, ast.Continue | ast.Pass) for s in test.body):
            return "any"
        steps = {call for call, _ in self.facts.backward_calls}
        return "all" if not test.orelse and any(n in steps for s in test.body for n in walk(s)) else ""

    def _is_number(self, decision: ast.expr) -> bool:
        """What a call is given is a number; what a test asks is not."""
        given = isinstance(self.facts.table.parents.get(decision), ast.Call | ast.keyword)
        return given and not isinstance(decision, ast.Compare | ast.BoolOp)
