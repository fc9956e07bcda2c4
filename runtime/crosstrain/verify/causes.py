"""The likely cause of a difference, by rule: what was seen, what usually does that, and the lines involved.

Each rule looks at the traces and answers with a `Cause` or with nothing; the first answer counts, so what is
certain comes before what is likely.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from crosstrain.verify.lines import NUMBER
from crosstrain.verify.passes import (
    apart,
    batches_of,
    evaluation_loaders,
    everywhere,
    learning_rates,
    side_by_side,
    training_loaders,
)
from crosstrain.verify.report import Cause, Difference, Run, Verdict
from crosstrain.verify.traces import RankTrace

CLOSE = 2e-3  # relative: a ratio that is meant, after rounding
FACTORS = range(2, 65)
AT_LINE = re.compile(r"^\s*rank (\d+): (.+) at (.+:\d+)$", re.MULTILINE)
FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+) in (\S+)', re.MULTILINE)
IN_TRACEBACK = re.compile(r'^\s*File "([^"]+)", line (\d+), in ', re.MULTILINE)
LIBRARY = ("site-packages", "dist-packages", "/lib/python", "/crosstrain/", "/runtime/crosstrain", "<")
# What the runtime's own errors say, and what it means.
ERRORS = (
    ("the ranks disagree about the next collective", "guarded-collective"),
    ("is not the same loader on rank", "unseeded-split"),
    ("subset", "unseeded-split"),
    ("holds no parameter of a prepared model", "not-averaged"),
    ("but no model was prepared", "not-averaged"),
    ("is not the same model on rank", "different-models"),
    ("unscale_() has already been called", "unscaled-twice"),
    ("unscale_() is being called after step()", "unscaled-late"),
)
MEANS = {
    "guarded-collective": "a call that all processes must make together is made by some of them only: it stands "
    "under a guard, or after a decision that is not the same on all of them",
    "unseeded-split": "the processes hold other samples: a random split is drawn differently by each; make it after "
    "Accelerator(), or give it a seeded generator",
    "not-averaged": "the gradients are not averaged over the processes: the model that trains was not prepared",
    "different-models": "the processes built different models",
    "unscaled-twice": "gradients are unscaled by the script and by accelerator.clip_grad_norm_",
    "unscaled-late": "gradients are unscaled after the step",
}


@dataclass(frozen=True)
class Evidence:
    """What a rule may look at. `frozen`: the difference was found between frozen runs."""

    original: RankTrace
    ranks: tuple[RankTrace, ...]
    run: Run
    difference: Difference | None
    frozen: bool = False

    @property
    def world(self) -> int:
        return len(self.ranks)

    @property
    def quantity(self) -> str:
        return self.difference.quantity if self.difference else ""

    def values(self, kind: str, rank: int | None = None, position: int = 0) -> list[tuple[float, float]]:
        """(original, migrated) of every loss or step, the mean over the ranks or one rank's."""
        ours = [event.values[position] for event in self.original.events if event.kind == kind]
        chosen = self.ranks if rank is None else (self.ranks[rank],)
        theirs = [[event.values[position] for event in r.events if event.kind == kind] for r in chosen]
        return [(a, math.fsum(b) / len(b)) for a, b in zip(ours, zip(*theirs, strict=False), strict=False)]


def likely_cause(evidence: Evidence) -> Cause | None:
    """The first rule's answer; None where nothing is wrong or nothing fits."""
    if evidence.run.verdict.ok and evidence.difference is None:
        return None
    for rule in RULES:
        cause = rule(evidence)
        if cause is not None:
            return cause
    return None


# -- failed and hung runs --------------------------------------------------------------------------


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
    """file:line of the frames that are the script's."""
    return tuple(
        f"{file.removeprefix('./')}:{line}"
        for file, line in frames
        if not any(part in file for part in LIBRARY)
    )


# -- ranks that disagree ---------------------------------------------------------------------------


def ranks_apart(evidence: Evidence) -> Cause | None:
    if evidence.quantity != "ranks" or evidence.difference is None:
        return None
    detail = evidence.difference.detail
    place = _steps(evidence.ranks[0])
    if detail.startswith("learning rate"):
        return Cause(
            "local-decision",
            "a learning rate is decided by a number that is not the same on every process",
            place,
        )
    if detail.startswith("weight norm") and evidence.difference.step == 1:
        return Cause(
            "seeded-per-rank",
            "the processes start from different weights: a seed depends on the rank, or the model was not prepared",
            place,
        )
    if detail.startswith("gradient norm"):
        return Cause(
            "not-averaged",
            "gradients are not averaged over the processes: the model was not prepared, or the loss does not come from accelerator.backward",
            place,
        )
    if detail == "another order" or "steps" in evidence.difference.original:
        return Cause(
            "uneven-ranks",
            "the processes do not make the same number of steps: a loop or a decision depends on a number of one process",
            place,
        )
    return Cause("drift", "something changes the weights of one process only", place)


def _steps(trace: RankTrace) -> tuple[str, ...]:
    return _places(trace, "step")


def _places(trace: RankTrace, kind: str) -> tuple[str, ...]:
    """The first line that makes such an event."""
    found = [event.place.rpartition(":")[0] for event in trace.events if event.kind == kind and event.place]
    return tuple(dict.fromkeys(found))[:1]


# -- data ------------------------------------------------------------------------------------------


def whole_batches(evidence: Evidence) -> Cause | None:
    if evidence.world == 1:
        return None
    pairs = list(side_by_side(evidence.original, evidence.ranks, training_loaders(evidence.original)))
    if pairs and all(everywhere(batch, shares) for batch, shares in pairs) and (pairs[0][0].rows or 0) > 1:
        lines = (pairs[0][1][0].place.rpartition(":")[0],)
        return Cause(
            "loader-not-prepared",
            "every process trains on the whole batch: the loader was not prepared",
            lines,
        )
    return None


def other_rows(evidence: Evidence) -> Cause | None:
    """Another number of rows in a step than the original has in it."""
    if evidence.frozen or evidence.quantity not in ("loss", "gradient norm", "batch", "weights", "order"):
        return None
    for batch, shares in side_by_side(evidence.original, evidence.ranks, training_loaders(evidence.original)):
        rows = [share.rows for share in shares]
        if batch.rows is None or None in rows:
            return None
        total = sum(row for row in rows if row is not None)
        lines = (shares[0].place.rpartition(":")[0],)
        if total != batch.rows and evidence.world == 1:
            text = f"a batch has {total} rows where the original's has {batch.rows}: another batch size, or the last batch is dropped"
            return Cause("other-batches", text, lines)
        if total != batch.rows:
            text = f"the processes together take {total} rows in a step where the original takes {batch.rows}: another global batch"
            return Cause("global-batch", text, lines)
    return None


def other_start(evidence: Evidence) -> Cause | None:
    if evidence.quantity not in ("loss", "gradient norm", "weights", "weight norm"):
        return None
    first = evidence.values("step", position=1)[:1]
    if any(not math.isclose(a, b, rel_tol=1e-6) for a, b in first):
        return Cause(
            "other-start",
            "the model starts from other weights: random numbers are drawn in another order, or from another "
            "seed, than in the original",
            _steps(evidence.ranks[0]),
        )
    return None


def other_samples(evidence: Evidence) -> Cause | None:
    if evidence.quantity not in ("loss", "gradient norm", "batch", "weights"):
        return None
    if evidence.world > 1 and evidence.original.draws:
        return None  # augmented rows differ from process to process
    for batch, shares in side_by_side(evidence.original, evidence.ranks, training_loaders(evidence.original)):
        if apart(batch, shares):
            return Cause(
                "other-samples",
                "the loader gives other samples than in the original: another split or seed, or random "
                "numbers are drawn before it that the original draws later",
                (shares[0].place.rpartition(":")[0],),
            )
    return None


# -- steps -----------------------------------------------------------------------------------------


def accumulation(evidence: Evidence) -> Cause | None:
    if evidence.quantity != "order":
        return None
    ours, theirs = _window(evidence.original), _window(evidence.ranks[0])
    if ours and theirs and ours != theirs:
        return Cause(
            "accumulation",
            f"the optimizer steps after {theirs} backward passes where the original steps after {ours}: "
            "gradient_accumulation_steps is another number, or the optimizer was not prepared",
            _steps(evidence.ranks[0]),
        )
    return Cause(
        "other-length",
        "training goes on for another number of steps: a loop's length, a break or early stopping is decided by "
        "another number than in the original",
        _steps(evidence.ranks[0]),
    )


def _window(trace: RankTrace) -> int:
    """Backward passes before the first step."""
    kinds = [event.kind for event in trace.events]
    return kinds.index("step") if "step" in kinds else 0


def schedule(evidence: Evidence) -> Cause | None:
    if evidence.quantity != "learning rate":
        return None
    ours = _distinct(learning_rates(evidence.original))
    theirs = _distinct(learning_rates(evidence.ranks[0]))
    place = _steps(evidence.ranks[0])
    if len(theirs) == 1 and len(ours) > 1 and _near(ours[0], theirs[0]):
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
    for factor in FACTORS[:7]:
        jumped = ours[::factor][: len(theirs)]
        skipped = len(jumped) > 1 and all(_near(a, b) for a, b in zip(jumped, theirs, strict=False))
        if skipped or _power(ours, theirs, factor):
            return Cause(
                "scheduler-per-process",
                f"the schedule runs {factor} times as fast: the scheduler is stepped by every process, or was prepared although the script steps it by the epoch (step_scheduler_with_optimizer=False)",
                place,
            )
    ratio = _factor(ours[0][0], theirs[0][0]) if ours and theirs and ours[0] and theirs[0] else None
    if ratio:
        return Cause("learning-rate-scaled", f"the learning rate is {ratio} from the first step on", place)
    return Cause(
        "schedule",
        "the scheduler is stepped at other moments, or with another value, than in the original",
        place,
    )


def _late(evidence: Evidence) -> bool:
    """Whether each of the larger steps has the learning rate of the original's step of that number."""
    ours, theirs = learning_rates(evidence.original), learning_rates(evidence.ranks[0])
    return len(set(theirs)) > 1 and all(_near(a, b) for a, b in zip(ours, theirs, strict=False))


def _power(ours: list[tuple[float, ...]], theirs: list[tuple[float, ...]], factor: int) -> bool:
    """Whether the first change is that of the original, `factor` times over."""
    if len(ours) < 2 or len(theirs) < 2 or not _near(ours[0], theirs[0]):
        return False
    pairs = [
        (a / start, b / start) for start, a, b in zip(ours[0], ours[1], theirs[1], strict=False) if start
    ]
    return bool(pairs) and all(math.isclose(a**factor, b, rel_tol=1e-9) for a, b in pairs)


def _distinct(rates: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    return [key for key, _ in groupby(rates)]


def _near(a: Sequence[float], b: Sequence[float]) -> bool:
    return len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-9) for x, y in zip(a, b, strict=True))


def _factor(a: float, b: float) -> str | None:
    """ "4 times as large" where b is a multiple of a, "divided by 4" where it is a fraction."""
    if not a or not b or not math.isfinite(a) or not math.isfinite(b):
        return None
    for factor in FACTORS:
        if math.isclose(b, a * factor, rel_tol=CLOSE):
            return f"{factor} times as large"
        if math.isclose(b * factor, a, rel_tol=CLOSE):
            return f"divided by {factor}"
    return None


# -- losses and gradients --------------------------------------------------------------------------


def scaled_loss(evidence: Evidence) -> Cause | None:
    if evidence.quantity not in ("loss", "gradient norm"):
        return None
    first = evidence.values("loss")[:1]
    factor = _factor(*first[0]) if first else None
    if factor is None:
        return None
    place = _places(evidence.ranks[0], "loss")
    if evidence.world > 1 and factor == f"divided by {evidence.world}":
        return Cause(
            "sum-averaged",
            f'the loss is {factor} on {evidence.world} processes: a sum over rows is averaged (loss_reduction="sum")',
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
    if evidence.quantity != "gradient norm" or not max(rank.scale for rank in evidence.ranks):
        return None
    pairs = evidence.values("step")
    if any(b > 1.5 * a for a, b in pairs):
        return Cause(
            "not-unscaled",
            "steps are made with gradients that still carry the loss scale: the optimizer was not prepared",
            _steps(evidence.ranks[0]),
        )
    if any(b < a / 16 for a, b in pairs):
        return Cause(
            "clipped-before-unscale",
            "gradients are clipped while they still carry the loss scale: clip with accelerator.clip_grad_norm_",
            _steps(evidence.ranks[0]),
        )
    return None


def gradient_only(evidence: Evidence) -> Cause | None:
    if evidence.quantity != "gradient norm" or evidence.difference is None:
        return None
    step = evidence.difference.step or 1
    pairs = evidence.values("step")[step - 1 : step]
    factor = _factor(*pairs[0]) if pairs else None
    place = _steps(evidence.ranks[0])
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


def drawn_apart(evidence: Evidence) -> Cause | None:
    if evidence.world == 1 or evidence.quantity not in ("loss", "gradient norm", "weights"):
        return None
    if not evidence.original.draws:
        return None
    return Cause(
        "per-rank-draws",
        "training draws random numbers (dropout, noise, augmentation), and the processes do not draw those that their rows would get: seeds differ by rank",
        _places(evidence.ranks[0], "loss"),
    )


def local_count(evidence: Evidence) -> Cause | None:
    if evidence.world == 1 or evidence.quantity not in ("loss", "gradient norm", "weights"):
        return None
    return Cause(
        "local-count",
        "the data are right and the loss is not the mean over all rows: it is normalised by a count that each process takes from its own rows (valid tokens, pairs within the batch)",
        _places(evidence.ranks[0], "loss"),
    )


# -- what is printed and written -------------------------------------------------------------------


def shared_file(evidence: Evidence) -> Cause | None:
    if evidence.quantity != "files":
        return None
    return Cause(
        "unguarded-save",
        "every process writes the same file: save with accelerator.save, or under `if accelerator.is_main_process`",
    )


def printed(evidence: Evidence) -> Cause | None:
    if evidence.quantity not in ("printed line", "evaluation") or evidence.difference is None:
        return None
    lines = tuple(
        part.removeprefix("printed at ")
        for part in evidence.difference.detail.split(", ")
        if part.startswith("printed at ")
    )
    if evidence.world == 1:
        return Cause("printed", "training is the same; what is printed about it is not", lines)
    before = NUMBER.findall(evidence.difference.original)
    after = NUMBER.findall(evidence.difference.migrated)
    changed = [(float(a), float(b)) for a, b in zip(before, after, strict=False) if a != b]
    if _after_evaluation(evidence) and any(
        a > 0 and math.isclose(b, a * evidence.world, rel_tol=CLOSE) for a, b in changed
    ):
        return Cause(
            "evaluation-counted-twice",
            "every process evaluates everything, and the results are gathered or summed all the same: "
            "prepare the loader, or do not gather",
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
    """Whether the line that differs was printed when an evaluation had just been run."""
    rank = evidence.ranks[0]
    if evidence.difference is None or len(rank.printed) != len(rank.lines):
        return False
    loaders = evaluation_loaders(rank)
    for where, text in zip(rank.printed, rank.lines, strict=True):
        if repr(text) == evidence.difference.migrated and where.batches:
            return rank.batches[where.batches - 1].loader in loaders
    return False


RULES: tuple[Callable[[Evidence], Cause | None], ...] = (
    known_error,
    waits_for_others,
    shared_file,
    ranks_apart,
    schedule,
    whole_batches,
    other_rows,
    accumulation,
    scaled_loss,
    clipped_scaled,
    other_start,
    other_samples,
    printed,
    drawn_apart,
    gradient_only,
    local_count,
)
