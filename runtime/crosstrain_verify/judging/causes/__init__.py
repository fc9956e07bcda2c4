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

# The differences that a rule explains; a run that failed or hangs has none.
COMPUTED = ("loss", "gradient norm", "weights")
ANY = None
RULES: tuple[tuple[Callable[[Evidence], Cause | None], tuple[str, ...] | None], ...] = (
    (known_error, ANY),
    (waits_for_others, ANY),
    (shared_file, ("files",)),
    (ranks_apart, ("ranks",)),
    (not_trained, ("gradient",)),
    (schedule, ("learning rate",)),
    (whole_batches, ANY),
    (other_rows, (*COMPUTED, "batch", "order")),
    (accumulation, ("order",)),
    (scaled_loss, ("loss", "gradient norm")),
    (clipped_scaled, ("gradient norm",)),
    (other_start, (*COMPUTED, "weight norm")),
    (other_samples, (*COMPUTED, "batch")),
    (printed, ("printed line", "evaluation")),
    (drawn_alike, ("noise",)),
    (drawn_apart, COMPUTED),
    (gradient_only, ("gradient norm",)),
    (local_count, COMPUTED),
)


def likely_cause(evidence: Evidence) -> Cause | None:
    """The cause that the first matching rule gives; None if nothing is wrong or no rule matches."""
    if evidence.run.verdict.ok and evidence.difference is None:
        return None
    for rule, quantities in RULES:
        if quantities is ANY or evidence.quantity in quantities:
            cause = rule(evidence)
            if cause is not None:
                return cause
    return None
