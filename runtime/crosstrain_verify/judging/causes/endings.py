"""Causes of runs that fail, hang, or whose ranks diverge: one process does what the others do not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crosstrain_verify.judging.causes.evidence import Evidence, steps
from crosstrain_verify.report.report import Cause, Verdict

AT_LINE = re.compile(r"^\s*rank (\d+): (.+) at (.+:\d+)$", re.MULTILINE)
FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+) in (\S+)', re.MULTILINE)
IN_TRACEBACK = re.compile(r'^\s*File "([^"]+)", line (\d+), in ', re.MULTILINE)
LIBRARY = ("site-packages", "dist-packages", "/lib/python", "/crosstrain/", "/runtime/crosstrain", "<")
# A part of the runtime's error messages, and the rule that explains it.
ERRORS = (
    ("the ranks disagree about the next collective", "guarded-collective"),
    ("mix up training and validation data", "unseeded-split"),
    ("a sum over the rows of the batch", "sum-averaged"),
    ("the loss is a mean over the rows of the batch", "mean-summed"),
    ("loss.backward() trains ", "plain-backward"),
    ("still multiplied by the fp16 loss scale", "not-unscaled"),
    ("the learning rates differ from rank to rank", "local-decision"),
    ("but no model or optimizer was prepared", "model-not-prepared"),
    ("is not the same model on rank", "different-models"),
    ("unscale_() has already been called", "unscaled-twice"),
    ("unscale_() is being called after step()", "unscaled-late"),
)
MEANS = {
    "guarded-collective": "only some processes make a call that all of them must make together: it is under a guard, "
    "or follows a decision that is not the same on all of them",
    "unseeded-split": "the processes hold different samples because each draws another random split: make it after "
    "Accelerator(), or give it a seeded generator",
    "sum-averaged": 'a sum over rows is averaged over the processes (loss_reduction="sum")',
    "mean-summed": 'a mean over rows is added up over the processes: leave loss_reduction="sum" out',
    "plain-backward": "the loss is not scaled as accelerator.backward(loss) scales it",
    "not-unscaled": "steps are made with gradients that still carry the loss scale: the optimizer was not prepared",
    "local-decision": "a learning rate depends on a number that is not the same on every process",
    "model-not-prepared": "the gradients are not averaged over the processes: no model is prepared, or wrapped",
    "different-models": "the processes built different models",
    "unscaled-twice": "gradients are unscaled by the script and by accelerator.clip_grad_norm_",
    "unscaled-late": "gradients are unscaled after the step",
}


def known_error(evidence: Evidence) -> Cause | None:
    if evidence.run.verdict is not Verdict.FAILED:
        return None
    for text, rule in ERRORS:
        if text in evidence.run.error:
            named = tuple(
                f"rank {rank}: {what} at {where}" for rank, what, where in AT_LINE.findall(evidence.run.error)
            )
            return Cause(
                rule, MEANS[rule], named or _own_lines(IN_TRACEBACK.findall(evidence.run.error))[-1:]
            )
    return None


def waits_for_others(evidence: Evidence) -> Cause | None:
    if evidence.run.verdict is not Verdict.HUNG:
        return None
    lines = []
    for number, rank in enumerate(evidence.ranks):
        if rank.ending != "unfinished":
            lines.append(f"rank {number} is done")
            continue
        frames = [(file, line) for file, line, _ in FRAME.findall(rank.stack)]
        lines += [f"rank {number} waits at {where}" for where in _own_lines(frames)[:1]]
    return Cause(
        "guarded-collective",
        "the processes do not make the same calls: " + MEANS["guarded-collective"],
        tuple(lines),
    )


def _own_lines(frames: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The frames that belong to the script, as "file:line"."""
    return tuple(
        f"{file.removeprefix('./')}:{line}"
        for file, line in frames
        if not any(part in file for part in LIBRARY)
    )


def ranks_apart(evidence: Evidence) -> Cause | None:
    detail = evidence.found.detail
    place = steps(evidence.ranks[0])
    if detail.startswith("learning rate"):
        return Cause("local-decision", MEANS["local-decision"], place)
    if detail.startswith("weight norm") and evidence.found.step == 1:
        return Cause(
            "seeded-per-rank",
            "the processes start from different weights: a seed depends on the rank, or the model was not prepared",
            place,
        )
    if detail.startswith("gradient norm"):
        if not any(rank.wrapped for rank in evidence.ranks):
            return Cause("model-not-prepared", MEANS["model-not-prepared"], place)
        return Cause(
            "not-averaged",
            "gradients are not averaged over the processes, although the model is prepared: the forward goes around the "
            "wrapper (model.module), or no_sync is left on",
            place,
        )
    if detail == "another order" or "steps" in evidence.found.original:
        return Cause(
            "uneven-ranks",
            "the processes do not make the same number of steps: a loop or a decision depends on a number of one process",
            place,
        )
    return Cause("drift", "something changes the weights of one process only", place)
