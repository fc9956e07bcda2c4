"""Causes that concern printed lines and written files."""

from __future__ import annotations

import math

from crosstrain_verify.judging.causes.evidence import CLOSE, Evidence
from crosstrain_verify.judging.evaluation import after_evaluation
from crosstrain_verify.judging.passes import batches_of, evaluation_loaders
from crosstrain_verify.judging.printed_lines import NUMBER
from crosstrain_verify.report.report import Cause


def shared_file(evidence: Evidence) -> Cause:
    return Cause(
        "unguarded-save",
        "every process writes the same file: save with accelerator.save, or under `if accelerator.is_main_process`",
    )


def printed(evidence: Evidence) -> Cause:
    lines = tuple(
        part.removeprefix("printed at ")
        for part in evidence.found.detail.split(", ")
        if part.startswith("printed at ")
    )
    if evidence.world == 1:
        return Cause("printed", "training is the same; what is printed about it is not", lines)
    before = NUMBER.findall(evidence.found.original)
    after = NUMBER.findall(evidence.found.migrated)
    changed = [(float(a), float(b)) for a, b in zip(before, after, strict=False) if a != b]
    if _after_evaluation(evidence) and any(
        a > 0 and math.isclose(b, a * evidence.world, rel_tol=CLOSE) for a, b in changed
    ):
        return Cause(
            "evaluation-counted-twice",
            "every process evaluates everything, and the results are still gathered or summed: prepare the loader, or "
            "do not gather",
            lines,
        )
    if (
        any(a > 0 and a < b < 2 * a for a, b in changed)
        and evidence.quantity == "evaluation"
        and _shared_evaluation(evidence)
    ):
        return Cause(
            "evaluation-not-gathered",
            "an evaluation counts other samples than the original's: predictions are gathered together with the copies that even out the last batch, or not at all (gather_for_metrics)",
            lines,
        )
    if evidence.quantity == "evaluation" or _after_evaluation(evidence):
        return Cause(
            "evaluation-not-gathered",
            "the evaluation counts the samples of one process only: gather predictions, or reduce the sums",
            lines,
        )
    return Cause(
        "printed-local",
        "the number of one process is printed instead of the global one (accelerator.reduce, gather_for_metrics)",
        lines,
    )


def _shared_evaluation(evidence: Evidence) -> bool:
    return any(batches_of(rank, evaluation_loaders(rank)) for rank in evidence.ranks)


def _after_evaluation(evidence: Evidence) -> bool:
    """Whether the line that differs was printed right after an evaluation."""
    rank = evidence.ranks[0]
    return any(repr(rank.lines[number]) == evidence.found.migrated for number in after_evaluation(rank))
