"""The permutation test: if the rows of a batch are permuted, the rows that are gathered must move with them.

If a process has k rows of a batch of B, the runtime takes a tensor of shape [k, B] for one of k rows. So one process of
the migrated script runs twice with its steps undone, the second time with the first batch of every pass permuted. What
`gather_for_metrics` gets for that batch must be permuted along dimension 0. A tensor that is permuted along another
dimension has its rows there, which is a mistake. A tensor that is permuted along none (random numbers, values for pairs
of rows) proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from crosstrain_verify.records.journal import Check
from crosstrain_verify.records.operands import Operand, misplaced
from crosstrain_verify.report.report import Cause, Difference, Run, Verdict
from crosstrain_verify.running.client import Rows
from crosstrain_verify.running.runs import Finished, Runner, Variant


def judge(runner: Runner, after: Path, runs: Sequence[Run], training: Collection[int]) -> Run | None:
    """A failed run if a tensor is gathered whose rows are not in dimension 0; None if none was found.

    runs: those made so far, whose checks say whether anything is gathered. training: the loaders that train; their
    passes end after one step.
    """
    if not any(check.kind == "rows" for run in runs for check in run.checks):
        return None
    plain = _run(runner, after, training, "kept")
    if not plain.ranks[0].gathered:
        return None  # no tensor can have its rows in another dimension
    done = _run(runner, after, training, "permuted")
    pairs = zip(plain.ranks[0].gathered, done.ranks[0].gathered, strict=False)
    for a, b in pairs:
        dimension = misplaced(a, b) if (a.file, a.line, a.rows) == (b.file, b.line, b.rows) else None
        if dimension is not None:
            return _failed(done.run, a, dimension)
    return None


def _run(runner: Runner, after: Path, training: Collection[int], rows: Rows) -> Finished:
    """Run one step and the evaluation that follows."""
    name = f"1 process, rows {rows}"
    return runner.run(
        after, Variant(name, True, steps=1, frozen=True, cut_short=tuple(sorted(training)), rows=rows)
    )


def _failed(run: Run, operand: Operand, dimension: int) -> Run:
    place, shape = f"{operand.file}:{operand.line}", list(operand.values.shape)
    found = Difference("rows", None, "dimension 0", f"dimension {dimension} of shape {shape}", place)
    advice = (
        "gather_for_metrics joins along dimension 0: transpose the tensor, or gather what it is computed from"
    )
    return Run(
        run.processes,
        Verdict.DIFFERENT,
        run.steps,
        found,
        seconds=run.seconds,
        name=run.name,
        cause=Cause("rows-elsewhere", advice, (place,)),
        checks=(Check("rows", operand.file, operand.line, "failed", f"{found}; {advice}"),),
    )
