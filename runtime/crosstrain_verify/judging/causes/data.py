"""Causes that concern batches: which process got which rows."""

from __future__ import annotations

import math

from crosstrain_verify.judging.causes.evidence import Evidence, steps
from crosstrain_verify.judging.passes import batches_with_shares, shares_differ, unshared
from crosstrain_verify.records.traces import source_line
from crosstrain_verify.report.report import Cause


def whole_batches(evidence: Evidence) -> Cause | None:
    if evidence.world == 1:
        return None
    if batch := unshared(evidence.original, evidence.ranks):
        return Cause(
            "loader-not-prepared",
            "every process trains on all of the data: the loader is not shared out (prepare it, or give it a "
            "DistributedSampler)",
            (source_line(batch.place),),
        )
    return None


def other_rows(evidence: Evidence) -> Cause | None:
    """The number of rows in a step is not the original's."""
    if evidence.frozen:
        return None
    for batch, shares in batches_with_shares(evidence.original, evidence.ranks):
        rows = [share.rows for share in shares]
        if batch.rows is None or None in rows:
            return None
        total = sum(row for row in rows if row is not None)
        lines = (source_line(shares[0].place),)
        if total != batch.rows and evidence.world == 1:
            text = f"a batch has {total} rows where the original's has {batch.rows}: another batch size, or the last batch is dropped"
            return Cause("other-batches", text, lines)
        if total != batch.rows:
            text = f"the processes together take {total} rows in a step where the original takes {batch.rows}: another global batch"
            return Cause("global-batch", text, lines)
    return None


def other_start(evidence: Evidence) -> Cause | None:
    first = evidence.values("step", position=1)[:1]
    if any(not math.isclose(a, b, rel_tol=1e-6) for a, b in first):
        return Cause(
            "other-start",
            "the model starts from other weights: random numbers are drawn in another order, or from another "
            "seed, than in the original",
            steps(evidence.ranks[0]),
        )
    return None


def other_samples(evidence: Evidence) -> Cause | None:
    if evidence.world > 1 and evidence.original.draws:
        return None  # augmented rows may differ from process to process
    for batch, shares in batches_with_shares(evidence.original, evidence.ranks):
        if shares_differ(batch, shares):
            return Cause(
                "other-samples",
                "the loader gives other samples than in the original: another split or seed, or random "
                "numbers are drawn before it that the original draws later",
                (source_line(shares[0].place),),
            )
    return None
