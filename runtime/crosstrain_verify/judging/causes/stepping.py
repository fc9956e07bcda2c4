"""Causes that concern optimizer steps: their number and their learning rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from crosstrain_verify.judging.causes.evidence import FACTORS, Evidence, factor_of, steps
from crosstrain_verify.judging.passes import learning_rates, same_rates
from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.report.report import Cause


def accumulation(evidence: Evidence) -> Cause:
    ours, theirs = _window(evidence.original), _window(evidence.ranks[0])
    if ours and theirs and ours != theirs:
        return Cause(
            "accumulation",
            f"the optimizer steps after {theirs} backward passes where the original steps after {ours}: "
            "gradient_accumulation_steps differs, or the optimizer was not prepared",
            steps(evidence.ranks[0]),
        )
    return Cause(
        "other-length",
        "training makes another number of steps: a loop's length, a break or early stopping depends on a number that "
        "differs from the original's",
        steps(evidence.ranks[0]),
    )


def _window(trace: RankTrace) -> int:
    """The number of backward passes before the first step."""
    kinds = [event.kind for event in trace.events]
    return kinds.index("step") if "step" in kinds else 0


def schedule(evidence: Evidence) -> Cause:
    ours = _distinct(learning_rates(evidence.original))
    theirs = _distinct(learning_rates(evidence.ranks[0]))
    place = steps(evidence.ranks[0])
    if len(theirs) == 1 and len(ours) > 1 and same_rates(ours[0], theirs[0]):
        return Cause(
            "scheduler-not-stepped", "the learning rate does not change: the scheduler is not stepped", place
        )
    if evidence.frozen and _late(evidence):
        return Cause(
            "scheduler-late",
            f"the schedule goes on by one step where {evidence.world} processes have done the work of "
            f"{evidence.world}: the scheduler was not prepared",
            place,
        )
    right = evidence.world if _by_larger_steps(evidence, ours) else 1
    for factor in FACTORS[:7]:
        jumped = ours[::factor][: len(theirs)]
        skipped = len(jumped) > 1 and all(same_rates(a, b) for a, b in zip(jumped, theirs, strict=False))
        if factor > right and (skipped or _power(ours, theirs, factor)):
            return Cause(
                "scheduler-per-process",
                f"the schedule runs {factor // right} times as fast: the scheduler is stepped by every process, or was prepared although the script steps it by the epoch (step_scheduler_with_optimizer=False)",
                place,
            )
    ratio = factor_of(ours[0][0], theirs[0][0]) if ours and theirs and ours[0] and theirs[0] else None
    if ratio:
        return Cause("learning-rate-scaled", f"the learning rate is {ratio} from the first step on", place)
    return Cause(
        "schedule",
        "the scheduler is stepped at other moments, or with another value, than in the original",
        place,
    )


def _by_larger_steps(evidence: Evidence, ours: list[tuple[float, ...]]) -> bool:
    """Whether the schedule goes by steps, and each of them does the work of one of the original's for every process."""
    return evidence.frozen and len(ours) == len(learning_rates(evidence.original))


def _late(evidence: Evidence) -> bool:
    """Whether every step has the original's learning rate of the same step, though its steps are smaller."""
    ours, theirs = learning_rates(evidence.original), learning_rates(evidence.ranks[0])
    return len(set(theirs)) > 1 and all(same_rates(a, b) for a, b in zip(ours, theirs, strict=False))


def _power(ours: list[tuple[float, ...]], theirs: list[tuple[float, ...]], factor: int) -> bool:
    """Whether the first change of the rate is the original's, made `factor` times."""
    if len(ours) < 2 or len(theirs) < 2 or not same_rates(ours[0], theirs[0]):
        return False
    pairs = [
        (a / start, b / start) for start, a, b in zip(ours[0], ours[1], theirs[1], strict=False) if start
    ]
    return bool(pairs) and all(math.isclose(a**factor, b, rel_tol=1e-9) for a, b in pairs)


def _distinct(rates: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    return [key for key, _ in groupby(rates)]
