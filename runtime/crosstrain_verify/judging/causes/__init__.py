"""The likely cause of a difference, found by rules: what usually has this effect, and the source lines involved.

Each rule looks at the traces and returns a `Cause` or None. The first cause counts, so certain ones come before likely
ones.
"""

from __future__ import annotations

from collections.abc import Callable

from crosstrain_verify.judging.causes.data import other_rows, other_samples, other_start, whole_batches
from crosstrain_verify.judging.causes.endings import known_error, ranks_apart, waits_for_others
from crosstrain_verify.judging.causes.evidence import Evidence
from crosstrain_verify.judging.causes.gradients import (
    clipped_scaled,
    drawn_alike,
    drawn_apart,
    gradient_only,
    local_count,
    not_trained,
    scaled_loss,
)
from crosstrain_verify.judging.causes.printing import printed, shared_file
from crosstrain_verify.judging.causes.stepping import accumulation, schedule
from crosstrain_verify.report.report import Cause

__all__ = ["Evidence", "likely_cause"]

RULES: tuple[Callable[[Evidence], Cause | None], ...] = (
    known_error,
    waits_for_others,
    shared_file,
    ranks_apart,
    not_trained,
    schedule,
    whole_batches,
    other_rows,
    accumulation,
    scaled_loss,
    clipped_scaled,
    other_start,
    other_samples,
    printed,
    drawn_alike,
    drawn_apart,
    gradient_only,
    local_count,
)


def likely_cause(evidence: Evidence) -> Cause | None:
    """The cause that the first matching rule gives; None if nothing is wrong or no rule matches."""
    if evidence.run.verdict.ok and evidence.difference is None:
        return None
    for rule in RULES:
        cause = rule(evidence)
        if cause is not None:
            return cause
    return None
