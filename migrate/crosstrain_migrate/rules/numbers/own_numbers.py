"""For CT602: numbers of training that stay each process's own, and the decisions that all processes then take together.

What:   A number that cannot be made global is left as it is, with a note. Where it decides (an early stop, the best
        model, a plateau), every process takes the main process's answer. Numbers that nothing reads, or only a progress
        bar in every step, are left as they are, too; a note names those that a bar shows.
Why:    A number that is only shown does no harm; processes that decide for themselves part ways. A test that keeps a
        batch from the step does so on all processes, where it does on one of them. A display is not worth a collective
        in every step, and a number that nobody reads needs none.
Before: `if entropy(out) > limit: break`
After:  `if broadcast_object_list([bool(entropy(out) > limit)])[0]: break`
"""

from __future__ import annotations

import ast
from collections import defaultdict

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.contents import FILLS
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import External, Iterator, Sequence, Value
from crosstrain_migrate.files.notebooks import is_linked
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.output.loggers import BARS
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.program import parts
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values
from .bindings import receiver, targets_of
from .flow import Flow
from .shared_reductions import variable_of
from .sinks import Sink
from .ungathered import Ungathered

RULE = "CT602"
DISPLAYS = frozenset({"set_postfix", "set_postfix_str", "set_description", "set_description_str"})
COMPUTE = ("builtins.", "torch.", "numpy.", "math.", "statistics.")
TELLS = frozenset(
    {"builtins.print", "builtins.open", "builtins.setattr", "builtins.exec", "torch.save", "numpy.save"}
)
READS = frozenset(
    {"host", "print", "store", "collect", "call"}
)  # ways in which a number may leave its batch for nobody


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


class UnreadNumbers:
    """Finds the reads of training's numbers that stay as they are because they reach nobody."""

    def __init__(self, context: Context, own: OwnNumbers) -> None:
        self.context = context
        self.facts: Facts = context.facts
        self.own = own

    def of(self, sinks: list[Sink]) -> set[Sink]:
        """The reads that nothing shows, and that are not computed together with one that is shown."""
        if is_linked(self.context.text):
            return set()  # a notebook's other cells read what training leaves behind
        found = {sink for sink in sinks if sink.how in READS and self._tells_nobody(sink)}
        while found:
            told = [sink for sink in sinks if sink not in found]
            joined = {
                sink
                for sink in found
                if any(self._are_one_number(sink, other) or self._is_there(sink, other) for other in told)
            }
            if not joined:
                break
            found -= joined
        return found

    def note_unread(self, sinks: set[Sink]) -> None:
        """Notes which of the numbers that a progress bar shows are each process's own."""
        shown: dict[ast.expr, ast.stmt] = {}
        for sink in sinks:
            displays = [s for s in self.own.flow(sink).statements if self.displays(s)]
            if displays:
                shown[sink.node] = min(displays, key=place_of)
        self._note_displays(shown)

    def note_shown(self, nodes: list[ast.expr]) -> None:
        """Notes the same of numbers that stand in a display themselves."""
        self._note_displays({node: self.facts.table.statement_of(node) for node in nodes})

    def _note_displays(self, shown: dict[ast.expr, ast.stmt]) -> None:
        """Adds a note for each display, of all numbers that it shows."""
        displayed: dict[ast.stmt, list[str]] = defaultdict(list)
        for node in sorted(shown, key=place_of):
            displayed[shown[node]].append(f"`{ast.unparse(node)}`")
        for statement, numbers in displayed.items():
            verb = "is" if len(numbers) == 1 else "are"
            self.context.note(
                RULE,
                statement,
                f"{', '.join(dict.fromkeys(numbers))} {verb} the main process's own here: only a progress bar shows it",
                'to show the mean of all processes, use `accelerator.reduce(x, reduction="mean")`',
            )

    def _tells_nobody(self, sink: Sink) -> bool:
        decides = bool(self.own.flow(sink).decisions)
        if decides or self.own.flows_back(sink) or self.facts.batch_loop_around(sink.node) is None:
            return False
        return all(self._is_silent(statement, sink) for statement in self.own.flow(sink).statements)

    def _is_silent(self, statement: ast.stmt, sink: Sink) -> bool:
        """Whether a statement does no more with a number than pass it on."""
        if self.displays(statement):
            return self.facts.batch_loop_around(statement) is self.facts.batch_loop_around(sink.node)
        uses = self.own.flow(sink).uses
        calls = [n for n in walk(statement) if isinstance(n, ast.Call) and uses & set(walk(n))]
        if isinstance(statement, ast.Assign | ast.AugAssign):
            return all(map(self._is_followed, targets_of(statement))) and all(map(self._only_computes, calls))
        if isinstance(statement, ast.Return):
            function = self.facts.enclosing_function(statement)
            called = bool(self.facts.callers.get(function or statement))
            followed = called and function not in self.facts.interp.escaped
            return followed and not self._is_shared(statement) and all(map(self._only_computes, calls))
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not all(self._only_computes(c) for c in calls if c is not call):
            return False
        return self._collects(call) or call in uses  # or it returns the number, and the result is dropped

    def _is_shared(self, statement: ast.stmt) -> bool:
        """Whether other scripts, which may show what this one drops, run the statement, too."""
        own = (part for part in parts(self.context.text) if part.first <= statement.lineno < part.last)
        return any(part.shared for part in own)

    def _collects(self, call: ast.Call) -> bool:
        """`losses.append(x)`"""
        held = receiver(call, *FILLS)
        return isinstance(held, ast.Name) and all(isinstance(v, Sequence) for v in self.facts.of(held))

    def _only_computes(self, call: ast.Call) -> bool:
        """Whether the arguments of a call affect nothing but its result, where they are not followed into it."""
        if self.facts.targets(call):
            return True
        paths = self.facts.paths(call.func)
        if paths:
            return all(path.startswith(COMPUTE) and path not in TELLS for path in paths)
        if not isinstance(call.func, ast.Attribute):
            return False
        return bool(batch_values(self.facts, call.func.value)) or call.func.attr in {
            "format",
            *api.HOST_METHODS,
        }

    def _is_followed(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Tuple | ast.List):
            return all(self._is_followed(part) for part in target.elts)
        held = target.value if isinstance(target, ast.Subscript) else target
        return isinstance(held, ast.Name)

    def displays(self, statement: ast.stmt) -> bool:
        """`bar.set_postfix(loss=x)`"""
        bar = receiver(statement.value, *DISPLAYS) if isinstance(statement, ast.Expr) else None
        held = self.facts.of(bar) if bar is not None else frozenset()
        return bool(held) and all(map(self._is_bar, held))

    def _is_bar(self, value: Value) -> bool:
        if isinstance(value, Iterator):
            return isinstance(value.site, ast.Call) and bool(self.facts.paths(value.site.func) & BARS)
        return isinstance(value, External) and value.path in BARS

    def _are_one_number(self, one: Sink, other: Sink) -> bool:
        """Whether something is computed from both: hits of one process by rows of all would be no accuracy."""
        return bool(self._computed_from(one) & self._computed_from(other))

    def _is_there(self, one: Sink, other: Sink) -> bool:
        """Whether all processes' number is computed for another reader whenever this one reads it."""
        mine, others = variable_of(one.node), variable_of(other.node)
        if mine is None or others is None or self.facts.bindings(mine) != self.facts.bindings(others):
            return False
        suite = suite_of(self.facts, self.facts.table.statement_of(other.node))
        return any(self.facts.table.is_inside(one.node, statement) for statement in suite)

    def _computed_from(self, sink: Sink) -> set[ast.AST]:
        """The assignments that a number takes part in, and the sums and quotients that a bar is given."""
        flow = self.own.flow(sink)
        found: set[ast.AST] = {s for s in flow.statements if isinstance(s, ast.Assign | ast.AugAssign)}
        for use in flow.uses:
            if isinstance(use, ast.expr) and self.displays(self.facts.table.statement_of(use)):
                found.add(self.whole(use))
        return found

    def whole(self, node: ast.expr) -> ast.expr:
        """The arithmetic around a number: `100 * hits / seen`."""
        around = self.facts.table.parents.get(node)
        if isinstance(around, ast.BinOp) and not isinstance(around.op, ast.Mod):
            return self.whole(around)
        method = isinstance(around, ast.Attribute) or (isinstance(around, ast.Call) and around.func is node)
        return self.whole(around) if method and isinstance(around, ast.expr) else node
