"""The frozen comparison: what an evaluation prints must not depend on how many processes share it.

The model never changes in a frozen run (`frozen_weights.py`), so what a script prints about its evaluation depends on
the evaluation data alone. To find these numbers, the original runs twice, the second time with less training data: a
number that stays the same is not about training.

The migrated script runs on several processes in the default launch. Its global batch is larger, and uneven batches are
completed with samples from the start of the pass, so results that are not gathered, or are gathered with these samples,
differ here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from crosstrain_verify.judging.compare import Comparison, compare_trained_parameters, ranks_disagree
from crosstrain_verify.judging.passes import (
    batches_of,
    evaluation_loaders,
    first_steps,
    learning_rates,
    same_rates,
    training_loaders,
)
from crosstrain_verify.judging.printed_lines import Volatile, aligned, numbers, same_number, words
from crosstrain_verify.judging.tolerance import Tolerance
from crosstrain_verify.records.traces import RankTrace, source_line
from crosstrain_verify.report.report import Difference

NEAR = 0.15  # how far a schedule that is computed by hand may be off, as a share of a pass


@dataclass(frozen=True)
class Line:
    """A printed line about an evaluation. number: among all lines. fixed: which of its numbers do not depend on training."""

    number: int
    text: str
    fixed: tuple[bool, ...]


def after_evaluation(trace: RankTrace, ignore: Sequence[re.Pattern[str]] = ()) -> list[int]:
    """The numbers of the lines that were printed when the last batch was one of an evaluation."""
    loaders = evaluation_loaders(trace)
    if len(trace.printed) != len(trace.lines):
        return []
    return [
        number
        for number, (where, text) in enumerate(zip(trace.printed, trace.lines, strict=True))
        if where.batches
        and trace.batches[where.batches - 1].loader in loaders
        and not any(one.search(text) for one in ignore)
    ]


def evaluation_lines(
    full: RankTrace, less: RankTrace, ignore: Sequence[re.Pattern[str]] = (), volatile: Volatile | None = None
) -> list[Line]:
    """The lines of `full` that are about an evaluation: they have numbers that stay the same with less training data.

    full, less: traces of runs with all training data and with less. volatile: numbers that do not count as fixed. Empty
    if both runs had the same training data, because a stream cannot be shortened.
    """
    loaders = training_loaders(full)
    if loaders and len(batches_of(full, loaders)) == len(batches_of(less, loaders)):
        digests = [[batch.digest for batch in batches_of(trace, loaders)] for trace in (full, less)]
        if digests[0] == digests[1]:
            return []
    ours, theirs = after_evaluation(full, ignore), after_evaluation(less, ignore)
    found: list[Line] = []
    for a, b in aligned([full.lines[i] for i in ours], [less.lines[i] for i in theirs]):
        text = full.lines[ours[a]]
        left_out = (volatile or {}).get(words(text), frozenset())
        pairs = enumerate(zip(numbers(text), numbers(less.lines[theirs[b]]), strict=True))
        fixed = tuple(x == y and place not in left_out for place, (x, y) in pairs)
        if any(fixed):
            found.append(Line(ours[a], text, fixed))
    return found


def compare_frozen(
    full: RankTrace,
    less: RankTrace,
    ranks: Sequence[RankTrace],
    ignore: Sequence[re.Pattern[str]] = (),
    volatile: Volatile | None = None,
) -> Comparison:
    """Compare frozen runs of the original, with all its training data and with less, with a frozen default launch."""
    result = Comparison(
        ranks_disagree(ranks) or compare_trained_parameters(full, ranks[0], step_by_step=False)
    )
    if result.difference is None:
        lines = evaluation_lines(full, less, ignore, volatile)
        result.difference = _compare_lines(full, lines, ranks, ignore, result)
    if result.difference is None:
        result.difference = compare_rates(full, ranks)
    return result


def _compare_lines(
    full: RankTrace,
    lines: Sequence[Line],
    ranks: Sequence[RankTrace],
    ignore: Sequence[re.Pattern[str]],
    result: Comparison,
) -> Difference | None:
    tolerance = Tolerance(full.epsilon)
    pairs = _side_by_side(full, lines, ranks[0], ignore)
    for line, place in pairs:
        text = ranks[0].lines[place]
        printed = zip(numbers(line.text), numbers(text), line.fixed, strict=True)
        if not all(same_number(x, y, tolerance, full.steps) for x, y, fixed in printed if fixed):
            detail = f"an evaluation of the same model{_by(ranks[0], place)}"
            return Difference("evaluation", None, repr(line.text), repr(text), detail)
    result.largest["evaluation lines"] = float(len(pairs))
    if not pairs:
        result.notes.append("no printed line was recognised as the result of an evaluation")
    return None


def _side_by_side(
    full: RankTrace, lines: Sequence[Line], rank: RankTrace, ignore: Sequence[re.Pattern[str]]
) -> list[tuple[Line, int]]:
    """The lines about an evaluation, each with the number of the corresponding line of another run.

    Lines are aligned with all those printed after evaluations: some, such as "saved", may appear only if a result is the
    best so far.
    """
    about = {line.number: line for line in lines}
    ours, theirs = after_evaluation(full, ignore), after_evaluation(rank, ignore)
    pairs = aligned([full.lines[i] for i in ours], [rank.lines[i] for i in theirs])
    return [(about[ours[a]], theirs[b]) for a, b in pairs if ours[a] in about]


def _by(trace: RankTrace, line: int) -> str:
    place = source_line(trace.printed[line].place)
    return f", printed at {place}" if place else ""


def compare_rates(full: RankTrace, ranks: Sequence[RankTrace]) -> Difference | None:
    """The first pass over the training data that begins with another learning rate than in the original.

    Several processes make fewer, larger steps. A schedule that counts steps advances several times in each, so in every
    pass it may be ahead by less than one larger step. A schedule that is computed by hand from fixed numbers of steps,
    such as a warm-up, may be off by a small part of a pass. A loop that counts steps instead of passes makes as many as
    the original, with the same rates.
    """
    ours, theirs = learning_rates(full), learning_rates(ranks[0])
    if len(ours) == len(theirs) and all(map(same_rates, ours, theirs)):
        return None
    starts = zip(first_steps(full), first_steps(ranks[0]), strict=False)
    for number, (a, b) in enumerate(starts, start=1):
        if a > len(ours) or b > len(theirs):
            break
        allowed = ours[a - 1 : a + (len(ranks) - 1) * (number - 1)]
        near = int(NEAR * (a - 1) / (number - 1)) if number > 1 else 0
        around = ours[a - 1 - near : a + near]
        if any(same_rates(theirs[b - 1], rates) for rates in allowed) or _passed(theirs[b - 1], around):
            continue
        detail = f"at the start of pass {number} over the training data, which is step {a} of the original"
        return Difference("learning rate", b, _show(ours[a - 1]), _show(theirs[b - 1]), detail)
    return None


def _passed(rates: Sequence[float], around: Sequence[Sequence[float]]) -> bool:
    """Whether the rates lie between those of a schedule that changes in every one of these steps."""
    if len(around) < 3 or any(list(a) == list(b) for a, b in pairwise(around)):
        return False
    columns = list(zip(*around, strict=False))
    return len(columns) == len(rates) and all(
        min(column) <= rate <= max(column) for rate, column in zip(rates, columns, strict=True)
    )


def _show(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:.6g}" for rate in rates)
