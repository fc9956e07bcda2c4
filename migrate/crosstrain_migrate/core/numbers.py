"""CT602 by use: what a training loop adds up and shows behind it becomes the number of all processes.

Sums over rows, divided by a number of rows of the whole data set or by a count that is added up beside them, are added;
sums of batch means, divided by a number of batches, are averaged. Numbers that meet in one expression are made global
together or not at all. Everything else stays the main process's own, with one note.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

from .accelerator import Accelerators
from .accumulators import Change, Pass
from .plan import Plan
from .roles import Data, Roles
from .script import Script, names_in

RULE = "CT602"
GROUP = "numbers of training"
_ROWS = re.compile(
    r"dataset|len\((?!.*loader)\w*(data|set|x|images|train)\w*\)|num_(samples|examples|rows)|n_(samples|examples)",
    re.I,
)
_BATCHES = re.compile(
    r"len\(\w*(loader|batches|iter|dl)\w*\)|num_batches|n_batches|\b(i|step|steps|batch_idx|batch_index|idx|it|iteration)\b",
    re.I,
)


class TrainingNumbers:
    """Plans the reductions behind the training loops."""

    def __init__(self, plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.roles = roles
        self.accelerators = accelerators

    def run(self, dealt: list[ast.For]) -> None:
        for data in self.roles.data:
            if isinstance(data.loop, ast.For) and data.loop not in dealt:
                self._behind(data, data.loop)

    def _behind(self, data: Data, loop: ast.For) -> None:
        found = Pass(self.script, data.frame, loop)
        sums = self._sums(found)
        shown = [text for text in sums if found.read_behind(text)]
        if not shown or any(isinstance(n, ast.Break | ast.Return) for s in loop.body for n in walk(s)):
            return
        kinds = self._kinds(found, loop, shown)
        local = [text for text in shown if text not in kinds]
        accelerator = self.accelerators.may_be_at(loop) if kinds else None
        for kind, way in (("sum", "added"), ("mean", "averaged")):
            names = [text for text in shown if kinds.get(text) == kind]
            if names and accelerator is not None:
                listed = ", ".join(names)
                given = f"({listed})" if len(names) > 1 else listed
                reason = f"what the processes have is {way}"
                self.plan.after(
                    loop, RULE, reason, f'{listed} = {accelerator}.reduce({given}, "{kind}")', GROUP
                )
        if local or (kinds and accelerator is None):
            remedy = "reduce them by `accelerator.reduce` where they are shown, if they must be exact"
            self.plan.note(RULE, loop, "numbers of this training loop are the main process's own", remedy)

    def _sums(self, found: Pass) -> list[str]:
        """The variables that the loop only adds to, from zero."""
        kept = []
        for text, made in found.changes().items():
            kinds = {kind for kind, _ in made}
            plain = all(
                isinstance(getattr(node, "target", None), ast.Name | ast.Attribute | None) for _, node in made
            )
            if kinds == {Change.SUM} and plain and found.start(text) is not None:
                kept.append(text)
        return kept

    def _kinds(self, found: Pass, loop: ast.For, shown: list[str]) -> dict[str, str]:
        """How each is to be reduced; those of which it is not sure are left out, with all they meet."""
        kinds: dict[str, str] = {}
        for text in shown:
            ways = {self._way(read, shown) for read in self._reads_behind(found, loop, text)}
            ways.discard("")
            if len(ways) == 1:
                kinds[text] = ways.pop()
        meet = [_mentioned(statement, shown) for statement in self._statements_behind(loop, shown)]
        for group in meet:
            if any(text not in kinds for text in group):
                for text in group:
                    kinds.pop(text, None)
        return kinds

    def _reads_behind(self, found: Pass, loop: ast.For, text: str) -> list[ast.expr]:
        end = loop.end_lineno or 0
        return [read for read in self.script.reads(found.frame, text) if read.lineno > end]

    def _statements_behind(self, loop: ast.For, shown: list[str]) -> list[ast.stmt]:
        frame = self.script.frame(loop)
        end = loop.end_lineno or 0
        found = []
        for node in self.script.within(frame):
            if not isinstance(node, ast.stmt) or hasattr(node, "body"):
                continue
            if node.lineno > end and names_in(node) & {t.partition(".")[0] for t in shown}:
                found.append(node)
        return found

    def _way(self, read: ast.expr, shown: list[str]) -> str:
        """ "sum" or "mean", by what a read is divided by; "?" where it is divided by nothing that says so."""
        below: ast.AST = read
        for one in self.script.around(read):
            if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div):
                divisor = written(one.right)
                if below is one.right:
                    return "sum"  # a count, by which a sum over rows is divided
                if divisor in shown or _ROWS.search(divisor):
                    return "sum"
                return "mean" if _BATCHES.search(divisor) else "?"
            if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Div):
                divisor = written(one.value)
                return (
                    "sum"
                    if divisor in shown or _ROWS.search(divisor)
                    else "mean"
                    if _BATCHES.search(divisor)
                    else "?"
                )
            if isinstance(one, ast.stmt):
                break
            below = one
        statement = self.script.statement(read)
        if (
            isinstance(statement, ast.AugAssign)
            and isinstance(statement.op, ast.Div)
            and read is statement.target
        ):
            divisor = written(statement.value)
            return "sum" if _ROWS.search(divisor) else "mean" if _BATCHES.search(divisor) else "?"
        return "?"


def _mentioned(statement: ast.stmt, texts: list[str]) -> set[str]:
    """Which of the variables and attributes a statement mentions."""
    found = {written(n) for n in walk(statement) if isinstance(n, ast.Name | ast.Attribute)}
    return found & set(texts)
