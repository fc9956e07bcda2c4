"""CT602 by use: what a training loop adds up and shows behind it becomes the number of all processes.

What is added tells how: counts of rows, and losses times such a count, are added; batch means are averaged. What a number
is divided by behind the loop must agree. Numbers that meet in one statement are made global together or not at all.
Everything else stays the main process's own, with one note.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import replace

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.certain import is_array
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import Frame, Loop, is_method, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.core.training.losses import losses_in, sums_over_rows
from crosstrain_migrate.core.training.taken import knows
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .accumulators import Pass, adds_itself
from .changes import Change, counts_rows, is_bound_before
from .means import objects_told
from .returned import returns_loss, without_tail
from .whole_counts import WholeCounts, divisor, plan_bars

RULE = "CT602"
GROUP = "numbers of training"
LOCAL = "numbers of this training loop are the main process's own"
PASS = "a pass has the batches of one process"
REDUCE = "reduce them by `accelerator.reduce` where they are shown, if they must be exact"
SUM, MEAN, STEPS, MERGED, UNSURE = "sum", "mean", "steps", "merged", "?"
_ROWS = re.compile(r"dataset|num_(samples|examples|rows)|n_(samples|examples)", re.I)
_BATCHES = re.compile(
    r"len\(\w*(loader|batches|iter|dl)\w*\)|num_batches|n_batches"
    r"|\b(i|step|steps|batch_idx|batch_index|idx|it|iteration)\b",
    re.I,
)
_MEANS = ("mean", "fmean", "average", "sum", "len")
_VARIABLES = (ast.Name, ast.Attribute, ast.Subscript)


def pass_over(script: Script, roles: Roles, data: Data) -> Loop | None:
    """The loop that goes over data; where `next` takes its batches, the one that ends with them: `for i in range(len(loader)):`."""
    if data.loop is not None:
        return data.loop
    loops = (n for n in script.within(data.frame) if isinstance(n, ast.For))
    around = (n for n in loops if any(script.table.is_inside(one.call, n) for one in roles.backwards))
    return next((n for n in around if knows(script, data.frame, n.iter, written(data.node))), None)


class TrainingNumbers:
    """Plans the reductions behind the training loops."""

    def __init__(
        self,
        plan: Plan,
        roles: Roles,
        accelerators: Accelerators,
        of_phases: dict[ast.AST, str] | None = None,
    ) -> None:
        """of_phases: loops of which the training is dealt, and the evaluation whole, with the names of their loaders."""
        self.of_phases = of_phases or {}
        self.plan = plan
        self.script: Script = plan.script
        self.roles = roles
        self.accelerators = accelerators
        self.alike: dict[tuple[Frame, str], Loop] = {}  # what is made global behind which loop
        self._loss_is_sum = sums_over_rows(self.script, roles)

    def run(self, dealt: list[ast.For]) -> None:
        done: set[ast.For] = set()
        for data in self.roles.data:
            loop = pass_over(self.script, self.roles, data)
            if isinstance(loop, ast.For) and loop not in dealt:
                if loop not in done:  # `zip(loader, other)`
                    self._behind(data, loop)
                plan_bars(self.plan, data)
                done.add(loop)

    def _behind(self, data: Data, loop: ast.For) -> None:
        found = Pass(self.script, data.frame, loop)
        kinds = self._kinds(data, found)
        if any(isinstance(node, ast.Return) for node in walk_all(loop.body)):
            if any(kind != STEPS for kind in kinds.values()):  # not all may come behind the loop
                self.plan.note(RULE, loop, LOCAL, REDUCE)
            return
        further: dict[ast.For, dict[str, str]] = defaultdict(dict)
        for text in [text for text, kind in kinds.items() if kind == UNSURE]:
            if (outer := self._sums_further_out(found, text)) is not None:
                del kinds[text]
                around, added = replace(data, loop=outer), [node for _, node in found.changes()[text]]
                counts = self._counts(data.frame, found.changes())
                behind = Pass(self.script, data.frame, outer)
                further[outer][text] = self._kind_of_sum(around, behind, text, added, counts)
        for outer, those in further.items():
            self._make_global(replace(data, loop=outer), outer, those)
        if kinds:
            self._make_global(data, loop, kinds)

    def _sums_further_out(self, found: Pass, text: str) -> ast.For | None:
        """The loop around a loop over parts of the data, or over epochs, behind which alone a sum of all of them is read."""
        if {kind for kind, _ in found.changes().get(text, ())} != {Change.SUM}:
            return None
        for outer in self.script.loops_around(found.loop):
            if not isinstance(outer, ast.For) or any(isinstance(n, ast.Return) for n in walk(outer)):
                return None
            whole = Pass(self.script, found.frame, outer)
            names = [*self.script.reads(found.frame, text), *self.script.stores(found.frame, text)]
            within = [one for one in names if self.script.table.is_inside(one, outer)]
            if not all(self.script.table.is_inside(one, found.loop) for one in within):
                return None
            if whole.start(text) is not None:
                return outer if whole.read_behind(text) else None
        return None

    def _make_global(self, data: Data, loop: ast.For, kinds: dict[str, str]) -> None:
        """Plans what becomes of each number behind a loop."""
        if loop in self.of_phases:  # `merge` adds the training's, and leaves the evaluation's as they are
            kinds |= {text: MERGED for text, kind in kinds.items() if kind == SUM}
        kinds |= {text: UNSURE for text in kinds if not is_bound_before(self.script, loop, text)}
        self._keep_together(data, Pass(self.script, data.frame, loop), kinds)
        kinds = {
            text: kind for text, kind in kinds.items() if not adds_itself(self.script, data.frame, loop, text)
        }
        source = data.node if isinstance(data.node, ast.Name | ast.Attribute) else None
        merged = [text for text, kind in kinds.items() if kind == MERGED]
        loader = self.of_phases.get(loop) or (written(source) if source is not None else "")
        is_named = loop in self.of_phases or (
            source is not None
            and not self.plan.is_replaced(source)
            and self.script.frame(source) is data.frame
        )
        if not is_named:
            kinds |= dict.fromkeys(merged, UNSURE)
            merged = []
        wanted = any(kind in (SUM, MEAN, MERGED) for kind in kinds.values())
        accelerator = self.accelerators.may_be_at(loop) if wanted else None
        for kind, way in ((SUM, "added"), (MEAN, "averaged")):
            names = [text for text, its in kinds.items() if its == kind]
            if names and accelerator is not None:
                self.alike |= {(data.frame, text): loop for text in names}
                listed = ", ".join(names)
                given = f"({listed})" if len(names) > 1 else listed
                code = f'{listed} = {accelerator}.reduce({given}, "{kind}")'
                self.plan.after(loop, RULE, f"what the processes have is {way}", code, GROUP)
        if merged and accelerator is not None:
            self.alike |= {(data.frame, text): loop for text in merged}
            listed = ", ".join(merged)
            code = f"{listed} = {accelerator}.merge({loader}, {listed})"
            self.plan.after(loop, RULE, "what the processes have is merged", code, GROUP)
        if UNSURE in kinds.values() or (wanted and accelerator is None):
            self.plan.note(RULE, loop, LOCAL, REDUCE)
        counts = WholeCounts(self.plan, data, loop)
        shares = [text for text, kind in kinds.items() if kind in (MEAN, UNSURE)]
        for read in (one for text in shares for one in self.script.reads_behind(loop, text)):
            by = divisor(self.script, read)
            if by is None or self.plan.is_replaced(by):
                continue
            is_whole = self._is_asked_whole(data, by)
            if isinstance(by, ast.Call) and is_whole and not is_array(self.script, data.frame, data.node):
                code = f"{self.accelerators.anywhere(by)}.prepare({{it}})"
                self.plan.replace(by.args[0], RULE, PASS, code, it=by.args[0])
            elif is_named and counts.is_of_rows(by) and not knows(self.script, data.frame, by, loader):
                self.plan.replace(by, RULE, PASS, f"min({{by}}, len({loader}))", by=by)

    def _is_asked_whole(self, data: Data, by: ast.expr) -> bool:
        """Whether a number is the length of what is prepared in the loop's header, as it is before that: of all of it."""
        return written(by) == f"len({written(data.node)})" and self.plan.is_replaced(data.node)

    def kind_in_loop(self, data: Data, loop: ast.For, text: str) -> str:
        """What a variable is that a loop adds to and begins anew: SUM, MEAN, STEPS or UNSURE; empty where it is neither."""
        made = Pass(self.script, data.frame, loop).changes().get(text, [])
        kinds = {self._kind_of_added(data.frame, node) for change, node in made if change is Change.SUM}
        if kinds and not _only_begins_anew(made):
            return UNSURE
        return "" if not kinds or self._is_global(made) else kinds.pop() if len(kinds) == 1 else UNSURE

    def _is_global(self, made: list[tuple[Change, ast.AST]]) -> bool:
        """Whether a number counts what all processes have."""
        return any(self.plan.is_replaced(getattr(node, "value", node)) for _, node in made)

    # -- of what kind ------------------------------------------------------------------------------------------

    def _kinds(self, data: Data, found: Pass) -> dict[str, str]:
        """What the loop accumulates and is read behind it, each with what is to become of it."""
        kinds: dict[str, str] = {}
        changes = found.changes()
        counts = self._counts(data.frame, changes)
        for text, made in changes.items():
            if self._is_global(made):
                continue
            changed = {kind for kind, _ in made}
            if not found.read_behind(text) or Change.SUM not in changed:
                continue
            added = [node for kind, node in made if kind is Change.SUM]
            if changed == {Change.SUM} and found.start(text) is not None:
                kinds[text] = self._kind_of_sum(data, found, text, added, counts)
            elif _only_begins_anew(made) and any(self._kind_of_added(data.frame, n) != STEPS for n in added):
                kinds[text] = UNSURE
        return kinds | self._kinds_of_objects(data, found)

    def _counts(self, frame: Frame, changes: dict[str, list[tuple[Change, ast.AST]]]) -> dict[str, str]:
        """What it says of a number that it is divided by what the loop counts: rows, or steps."""
        found: dict[str, str] = {}
        for text, made in changes.items():
            added = {self._kind_of_added(frame, node) for _, node in made}
            if {kind for kind, _ in made} == {Change.SUM} and added in ({SUM}, {STEPS}):
                found[text] = SUM if added == {SUM} else MEAN
        return found

    def _kind_of_sum(
        self, data: Data, found: Pass, text: str, made: list[ast.AST], counts: dict[str, str]
    ) -> str:
        added = {self._kind_of_added(data.frame, node) for node in made}
        counts = {} if UNSURE in added else counts
        ways = {self._way(data, counts, read) for read in self.script.reads_behind(found.loop, text)}
        if added == {STEPS}:
            return STEPS
        if len(ways) == 1 and ways != {UNSURE}:
            return ways.pop()  # by rows of all processes, or by batches of one: whatever was added
        evidence = (added - {UNSURE}) | (ways - {UNSURE})
        if UNSURE in added and added != {UNSURE}:
            return UNSURE
        return evidence.pop() if len(evidence) == 1 else UNSURE

    def _kinds_of_objects(self, data: Data, found: Pass) -> dict[str, str]:
        """Meters, and lists of which the mean alone is read, are merged as an evaluation's are."""
        kinds: dict[str, str] = {}
        for statement in found.loop.body:
            for call in walk(statement):
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                    continue
                text = written(call.func.value)
                if not isinstance(self.script.parent(call), ast.Expr) or not found.read_behind(text):
                    continue
                if call.func.attr == "append":
                    is_fresh = isinstance(found.start(text), ast.List)
                    reads = self.script.reads_behind(found.loop, text)
                    is_mean = all(self._is_of_mean(data, read) for read in reads)
                    kinds[text] = MERGED if is_fresh and is_mean and kinds.get(text) != UNSURE else UNSURE
                elif found.is_meter(text, call.func.attr):
                    kinds[text] = MERGED if found.is_fresh(text) else UNSURE
        return kinds

    def _is_of_mean(self, data: Data, read: ast.expr) -> bool:
        """Whether a list's mean is read, or its sum or length, which the process's own number of batches does not divide."""
        parent = self.script.parent(read)
        is_mean = isinstance(parent, ast.Call) and last_name(parent.func) in _MEANS
        return is_mean and self._way(data, {}, read) != MEAN

    def _kind_of_added(self, frame: Frame, node: ast.AST) -> str:
        value = node.value if isinstance(node, ast.AugAssign | ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(value, ast.BinOp):
            value = value.right  # x = x + value
        if value is None or self._entry_by_variable(node):
            return UNSURE
        if isinstance(value, ast.Constant) and counts_rows(self.script, self.roles, node):
            return SUM
        return self._kind_of_value(frame, value, 0)

    def _entry_by_variable(self, node: ast.AST) -> bool:
        """`sums[k] += ...`: processes may have different keys."""
        target = getattr(node, "target", None)
        return isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant)

    def _kind_of_value(self, frame: Frame, value: ast.expr, depth: int) -> str:
        """Of what is added in one step: a number of rows, a sum over rows, or a mean over them."""
        if isinstance(value, ast.Constant):
            return STEPS
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div):
            sides = [self._kind_of_value(frame, side, depth) for side in (value.left, value.right)]
            if isinstance(value.op, ast.Div):
                return sides[0] if sides[1] == STEPS else MEAN if sides == [SUM, SUM] else UNSURE
            if MEAN in sides and (SUM in sides or STEPS in sides):
                return SUM if SUM in sides else MEAN
            if sides[1] == STEPS:
                return sides[0]
            return SUM if SUM in sides else UNSURE  # anything times a number of rows
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
            terms = {self._kind_of_value(frame, side, depth) for side in (value.left, value.right)}
            return terms.pop() if len(terms) == 1 else UNSURE
        if self._counts_rows(value):
            return SUM
        if returns_loss(self.script, self.roles, value):
            return SUM if self._loss_is_sum else MEAN
        value = without_tail(value)
        if self._counts_rows(value):
            return SUM
        text = written(value) if isinstance(value, ast.Name | ast.Attribute | ast.Subscript) else ""
        if text and text in losses_in(self.roles, frame):
            return SUM if self._loss_is_sum else MEAN
        if isinstance(value, ast.Name) and self._is_first_of_shape(frame, value.id):
            return SUM
        if isinstance(value, ast.Name) and depth < 3:
            made = self.script.values(frame, value.id)
            if len(made) == 1:
                return self._kind_of_value(frame, made[0], depth + 1)
            if (
                not made
                and isinstance(frame, ast.FunctionDef)
                and value.id not in self.script.parameters(frame)
            ):
                return UNSURE
            return STEPS if value.id.isupper() or not made else UNSURE
        return UNSURE

    def _is_first_of_shape(self, frame: Frame, name: str) -> bool:
        """`n` of `n, width = x.shape`"""
        return any(
            isinstance(statement := self.script.statement(store), ast.Assign)
            and isinstance(target := statement.targets[0], ast.Tuple)
            and target.elts[0] is store
            and re.search(r"\.(shape|size\(\))$", ast.unparse(statement.value)) is not None
            for store in self.script.stores(frame, name)
        )

    def _counts_rows(self, value: ast.expr) -> bool:
        """`len(x)`, `x.size(0)`, `x.shape[0]`, `(a == b).sum()`"""
        if isinstance(value, ast.Subscript):
            return isinstance(value.value, ast.Attribute) and value.value.attr == "shape"
        if not isinstance(value, ast.Call):
            return False
        if last_name(value.func) == "len" or is_method(value, "size", "numel"):
            return True
        return last_name(value.func) == "sum" and any(
            isinstance(n, ast.Compare) or is_method(n, "eq") for n in walk(value)
        )

    # -- what it meets behind the loop -------------------------------------------------------------------------

    def _keep_together(self, data: Data, found: Pass, kinds: dict[str, str]) -> None:
        """Where one of the numbers of a statement stays local, all of them do, and those that they meet elsewhere, but for sums
        that are divided by the number of all rows: they would be a part of what they are."""
        told = objects_told(self.script, found.frame, found.loop) - kinds.keys()
        groups = [
            {written(n) for n in walk(statement) if isinstance(n, _VARIABLES)} & (kinds.keys() | told)
            for statement in self._statements_behind(found.loop, kinds)
        ]
        sums = {
            text for text, kind in kinds.items() if kind == SUM and self._is_shared_by_all(data, found, text)
        }
        local = {text for text, kind in kinds.items() if kind == UNSURE} | told
        while met := {text for group in groups if local & group for text in group} - local - sums:
            local |= met
        kinds |= dict.fromkeys(local - told, UNSURE)

    def _is_shared_by_all(self, data: Data, found: Pass, text: str) -> bool:
        divisors = (divisor(self.script, read) for read in self.script.reads_behind(found.loop, text))
        return any(by is not None and self._divisor(data, {}, by) == SUM for by in divisors)

    def _statements_behind(self, loop: ast.For, kinds: dict[str, str]) -> list[ast.AST]:
        frame = self.script.frame(loop)
        end = loop.end_lineno or 0
        roots = {text.partition(".")[0] for text in kinds}
        return [
            node
            for node in self.script.within(frame)
            if isinstance(node, ast.stmt)
            and not hasattr(node, "body")
            and node.lineno > end
            and names_in(node) & roots
        ]

    def _way(self, data: Data, counts: dict[str, str], read: ast.expr) -> str:
        """What a read is divided by behind the loop says: rows, or batches. counts: what the loop's own counts say."""
        by = divisor(self.script, read)
        return self._divisor(data, counts, by) if by is not None else UNSURE

    def _divisor(self, data: Data, counts: dict[str, str], node: ast.expr) -> str:
        text = written(node)
        if text in counts:
            return counts[text]
        number = written(data.loop.target) if isinstance(data.loop, ast.For) else ""
        if any(self.plan.is_replaced(n) for n in walk(node) if isinstance(n, ast.Name) and n.id == number):
            return MEAN  # of a dealt number: the process's own turns
        if self._is_asked_whole(data, node):
            return SUM if is_array(self.script, data.frame, data.node) else MEAN
        if isinstance(data.loop, ast.For) and WholeCounts(self.plan, data, data.loop).counts_all(node):
            return SUM
        if text == f"len({written(data.node)})" or _BATCHES.search(text):
            return MEAN
        return SUM if _ROWS.search(text) else UNSURE


def _only_begins_anew(made: list[tuple[Change, ast.AST]]) -> bool:
    """Whether what a loop adds to is otherwise only set back to a constant in it."""
    others = [node for change, node in made if change is not Change.SUM]
    return all(isinstance(getattr(node, "value", None), ast.Constant) for node in others)
