"""Causes that concern losses and gradients: they are scaled, clipped, drawn or normalised differently."""

from __future__ import annotations

from crosstrain_verify.judging.causes.evidence import Evidence, factor_of, places, steps
from crosstrain_verify.report.report import Cause


def not_trained(evidence: Evidence) -> Cause | None:
    """Some parameters have gradients in only one of the two scripts."""
    place = places(evidence.ranks[0], "loss")
    if evidence.found.migrated.startswith("in 0 "):
        return Cause(
            "not-trained",
            "the loss no longer reaches these parameters: a term of it is gathered, reduced or detached before backward "
            "(gather what is printed, and only that)",
            place,
        )
    return Cause("other-parameters", "the loss reaches other parameters than in the original", place)


def scaled_loss(evidence: Evidence) -> Cause | None:
    first = evidence.values("loss")[:1]
    factor = factor_of(*first[0]) if first else None
    if factor is None:
        return None
    place = places(evidence.ranks[0], "loss")
    if evidence.world > 1 and factor == f"divided by {evidence.world}":
        return Cause(
            "scaled-twice",
            f"the loss is {factor} although gradients are averaged over the {evidence.world} processes: it is scaled twice, "
            "or is a sum over rows",
            place,
        )
    if factor.startswith("divided"):
        return Cause(
            "divided-twice",
            f"the loss is {factor}: it is divided once more than in the original (accelerator.backward divides by the accumulation steps)",
            place,
        )
    return Cause("loss-scaled", f"the loss is {factor}", place)


def clipped_scaled(evidence: Evidence) -> Cause | None:
    if not max(rank.scale for rank in evidence.ranks):
        return None
    pairs = evidence.values("step")
    if any(b > 1.5 * a for a, b in pairs):
        return Cause(
            "not-unscaled",
            "steps are made with gradients that still carry the loss scale: the optimizer was not prepared",
            steps(evidence.ranks[0]),
        )
    if any(b < a / 16 for a, b in pairs):
        return Cause(
            "clipped-before-unscale",
            "gradients are clipped while they still carry the loss scale: clip with accelerator.clip_grad_norm_",
            steps(evidence.ranks[0]),
        )
    return None


def gradient_only(evidence: Evidence) -> Cause | None:
    step = evidence.found.step or 1
    pairs = evidence.values("step")[step - 1 : step]
    factor = factor_of(*pairs[0]) if pairs else None
    place = steps(evidence.ranks[0])
    if factor:
        return Cause(
            "gradient-scaled",
            f"the loss is right and the gradient is {factor}: gradients are not averaged, summed twice, or not cleared",
            place,
        )
    return Cause(
        "gradient",
        "the loss is right and the gradient is not: clipping, zero_grad or an unprepared model",
        place,
    )


def drawn_alike(evidence: Evidence) -> Cause | None:
    return Cause(
        "drawn-alike",
        "the processes draw the same dropout masks and noise for different rows: give each its own seed before the first "
        "pass, after the model is made",
        places(evidence.ranks[0], "loss"),
    )


def drawn_apart(evidence: Evidence) -> Cause | None:
    if evidence.world == 1 or not evidence.original.draws:
        return None
    return Cause(
        "per-rank-draws",
        "training draws random numbers (dropout, noise, augmentation), and the processes do not draw those that their rows would get: seeds differ by rank",
        places(evidence.ranks[0], "loss"),
    )


def local_count(evidence: Evidence) -> Cause | None:
    if evidence.world == 1:
        return None
    return Cause(
        "local-count",
        "the data are right and the loss is not the mean over all rows: it is normalised by a count that each process takes from its own rows (valid tokens, pairs within the batch)",
        places(evidence.ranks[0], "loss"),
    )
