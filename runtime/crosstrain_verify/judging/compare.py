"""Compares the traces of two runs: the first difference, and the largest error of each quantity."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from crosstrain_verify.judging.passes import (
    batches_with_shares,
    each_has_whole,
    step_of,
    trained_on,
)
from crosstrain_verify.judging.printed_lines import Volatile, printed_at, same_line
from crosstrain_verify.judging.tolerance import Tolerance, same
from crosstrain_verify.records.traces import Batch, Event, Parameter, RankTrace
from crosstrain_verify.report.report import Difference

GRADIENT = "gradient norm"
NAMED = 3  # parameters or files in one message


@dataclass
class Comparison:
    """The result of a comparison.

    difference: the first one; None if the runs are the same. largest: by quantity, the largest relative error.
    """

    difference: Difference | None = None
    largest: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def saw(self, quantity: str, error: float, scale: float) -> None:
        """Keep the largest relative error of a quantity."""
        relative = error / scale if scale > 0 else (math.inf if error > 0 else 0.0)
        self.largest[quantity] = max(self.largest.get(quantity, 0.0), relative)


def compare(
    original: RankTrace,
    ranks: Sequence[RankTrace],
    ignore: Sequence[re.Pattern[str]] = (),
    *,
    epsilon: float | None = None,
    volatile: Volatile | None = None,
) -> Comparison:
    """Compare the original with all ranks of a run: bit for bit with one rank, within the tolerance with several.

    Args:
        ignore: printed lines that match one of these are left out on both sides.
        epsilon: replaces the machine epsilon of the original's coarsest dtype in the tolerance.
        volatile: printed numbers that are left out.
    """
    result = Comparison()
    tolerance = Tolerance(epsilon or (original.epsilon if len(ranks) > 1 else 0.0))
    result.difference = (
        ranks_disagree(ranks)
        or compare_trained_parameters(original, ranks[0], step_by_step=original.steps == ranks[0].steps)
        or compare_events(original, ranks, tolerance, result)
        or _compare_batches(original, ranks)
        or compare_weights(original, ranks[0], tolerance, result)
        or compare_lines(original, ranks[0], tolerance, ignore, volatile)
        or next(iter(files_of_several(ranks, text=False)), None)
    )
    # A log file that every process writes is worth a note; only other files, such as checkpoints, are a difference.
    result.notes += [str(found) for found in files_of_several(ranks, text=True)]
    return result


def ranks_disagree(ranks: Sequence[RankTrace]) -> Difference | None:
    """The first difference between the ranks: they must make the same steps and end with identical weights."""
    first = ranks[0]
    for number, other in enumerate(ranks[1:], start=1):
        ours, theirs = first.events_of("step"), other.events_of("step")
        for step, (a, b) in enumerate(zip(ours, theirs, strict=False), start=1):
            for what, mine, other_s in zip(step_quantities(a), a.values, b.values, strict=False):
                if not same(mine, other_s, 0.0):
                    most = _where(first, a, b) if what == GRADIENT else ""
                    values = f"rank 0: {mine!r}", f"rank {number}: {other_s!r}"
                    return Difference("ranks", step, *values, f"{what}s differ{most}")
        if len(ours) != len(theirs):
            step = min(len(ours), len(theirs)) + 1
            return Difference(
                "ranks", step, f"rank 0: {len(ours)} steps", f"rank {number}: {len(theirs)} steps"
            )
        if first.weights.tobytes() != other.weights.tobytes():
            return _weights_disagree(first, other, number)
    return None


def compare_trained_parameters(
    original: RankTrace, run: RankTrace, *, step_by_step: bool
) -> Difference | None:
    """The parameters that have a gradient in one of the two runs and none in the other.

    step_by_step: both runs make the same steps, so a parameter must have a gradient in equally many of them. Otherwise
    (another launch, other random numbers) only parameters with a gradient in every step or in none are compared.
    """
    if [one.shape for one in original.parameters] != [one.shape for one in run.parameters]:
        return None  # the optimizers differ, which shows in the steps or the weights
    names: dict[tuple[str, str], list[str]] = {}
    for expected, got in zip(original.parameters, run.parameters, strict=True):
        opposite = {_usually(expected), _usually(got)} == {True, False}
        if expected.trained != got.trained if step_by_step else opposite:
            ours, theirs = (f"in {one.trained} of {one.steps} steps" for one in (expected, got))
            names.setdefault((ours, theirs), []).append(expected.name)
    for (ours, theirs), affected in names.items():
        return Difference("gradient", None, ours, theirs, listed(affected))
    return None


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _usually(parameter: Parameter) -> bool | None:
    """Whether it has a gradient: True in every step, False in none, None in some."""
    return None if 0 < parameter.trained < parameter.steps else parameter.trained > 0


def _where(trace: RankTrace, a: Event, b: Event) -> str:
    """Such as ", most in layer.weight": the parameter whose gradient differs most between two steps; "" if unknown."""
    if not a.parts or len(a.parts) != len(b.parts):
        return ""
    errors = [abs(x - y) for x, y in zip(a.parts, b.parts, strict=True)]
    sizes = {event.index: len(event.parts) for event in trace.events_of("step") if event.parts}
    place = sum(size for index, size in sizes.items() if index < a.index) + errors.index(max(errors))
    return f", most in {trace.parameters[place].name}" if place < len(trace.parameters) else ""


def step_quantities(event: Event) -> list[str]:
    """The names of a step event's values, in order."""
    return [GRADIENT, "weight norm", *["learning rate"] * (len(event.values) - 2)]


def _weights_disagree(first: RankTrace, other: RankTrace, number: int) -> Difference:
    """The first parameter of rank 0 whose final value differs on rank `number`."""
    for parameter, a, b in _by_parameter(first, other):
        if a.tobytes() != b.tobytes() and a.shape == b.shape:
            place = int(np.argmax(np.abs(a - b)))
            what = f"final {parameter.name}, element {place}"
            return Difference(
                "ranks", None, f"rank 0: {float(a[place])!r}", f"rank {number}: {float(b[place])!r}", what
            )
    sizes = [f"rank {rank}: {trace.weights.size} weights" for rank, trace in ((0, first), (number, other))]
    return Difference("ranks", None, *sizes)


def _by_parameter(
    first: RankTrace, other: RankTrace
) -> Iterator[tuple[Parameter, NDArray[np.float64], NDArray[np.float64]]]:
    """The parameters of the first trace, each with its final values in both."""
    start = 0
    for parameter in first.parameters:
        end = start + math.prod(parameter.shape)
        yield parameter, first.weights[start:end], other.weights[start:end]
        start = end


def _compare_batches(original: RankTrace, ranks: Sequence[RankTrace]) -> Difference | None:
    """One process must get the original's batches; several must not each get all rows of a batch to train on."""
    if len(ranks) == 1:
        return compare_batch_by_batch(original, ranks[0])
    trained = set(map(id, trained_on(original)))  # every process may look at other batches as a whole
    for expected, shares in batches_with_shares(original, ranks):
        if id(expected) in trained and (expected.rows or 0) > len(ranks) and each_has_whole(expected, shares):
            each = f"each of {len(ranks)} processes all {expected.rows} rows"
            return Difference("batch", step_of(original, expected.at), "a share of the rows each", each)
    return None


def compare_batch_by_batch(original: RankTrace, run: RankTrace) -> Difference | None:
    """The first batch that the run got and the original did not, or the other way round."""
    for expected, got in zip_longest(original.batches, run.batches):
        if expected is None or got is None:
            return Difference("batch", None, _batch(expected), _batch(got), "one of the two is the last")
        if _other_samples(expected, got):
            step = step_of(original, expected.at)
            return Difference("batch", step, _batch(expected), _batch(got), "other samples")
    return None


def _other_samples(a: Batch, b: Batch) -> bool:
    """Whether two batches differ in what is known of both. Only a loader can tell how many rows a batch of graphs has."""
    pairs = ((a.rows, b.rows), (a.digest, b.digest))
    return any(x is not None and y is not None and x != y for x, y in pairs)


def _batch(batch: Batch | None) -> str:
    if batch is None:
        return "nothing more"
    digest = "" if batch.digest is None else f" ({batch.digest:016x})"
    return f"{batch.rows} rows{digest}"


def files_of_several(ranks: Sequence[RankTrace], *, text: bool) -> list[Difference]:
    """Files that several processes write at once, which may damage them. text: those written as text, or all others.

    Files in the user's ``.cache`` do not count: they belong to libraries, and the first run of a script makes them.
    """
    found = []
    for name, binary in ranks[0].written.items():
        writers = [str(number) for number, rank in enumerate(ranks) if name in rank.written]
        if len(writers) > 1 and binary != text and "/.cache/" not in name:
            shown = name.removeprefix("work/")
            all_of_them = f"{shown} is written by ranks {' and '.join(writers)}"
            found.append(Difference("files", None, "by one process", all_of_them))
    return found


def out_of_order(ranks: Sequence[RankTrace]) -> Difference | None:
    """The first place at which the ranks do not make the same sequence of backward passes and steps."""
    for events in zip_longest(*(rank.events for rank in ranks)):
        names = [_name(event) for event in events]
        for rank, name in enumerate(names):
            if name != names[0]:
                return Difference(
                    "ranks", None, f"rank 0: {names[0]}", f"rank {rank}: {name}", "another order"
                )
    return None


def global_events(ranks: Sequence[RankTrace]) -> list[Event]:
    """The events of the run as a whole: the mean of the ranks' losses, and rank 0's steps. The ranks must be in order."""
    merged: list[Event] = []
    for events in zip(*(rank.events for rank in ranks), strict=True):
        head = events[0]
        if head.kind == "loss":
            head = Event("loss", 0, (math.fsum(event.values[0] for event in events) / len(events),))
        merged.append(head)
    return merged


def compare_events(
    original: RankTrace, ranks: Sequence[RankTrace], tolerance: Tolerance, result: Comparison
) -> Difference | None:
    """The first loss or step that differs; ``result`` keeps the largest errors."""
    disorder = out_of_order(ranks)
    if disorder:
        return disorder
    events = global_events(ranks)
    step, largest = 1, 0.0
    for expected, got in zip_longest(original.events, events):
        if expected is None or got is None or (expected.kind, expected.index) != (got.kind, got.index):
            return Difference("order", step, _name(expected), _name(got))
        if expected.kind == "loss":
            largest = max(largest, abs(expected.values[0]))
            allowed = tolerance.loss(step, expected.values[0], largest)
            difference = _compare_value("loss", step, expected.values[0], got.values[0], allowed, result)
        else:
            difference = _compare_step(step, expected, got, tolerance, result)
            if difference and difference.quantity == GRADIENT:
                difference = replace(difference, detail=difference.detail + _where(original, expected, got))
            step += 1
        if difference:
            return difference
    return None


def _compare_step(
    step: int, expected: Event, got: Event, tolerance: Tolerance, result: Comparison
) -> Difference | None:
    if len(expected.values) != len(got.values):
        groups = [f"{len(event.values) - 2} groups" for event in (expected, got)]
        return Difference("learning rate", step, *groups)
    norm, size, *rates = expected.values
    allowed = [tolerance.gradient(step, norm), tolerance.size(step, size), *map(tolerance.rate, rates)]
    for quantity, a, b, limit in zip(
        step_quantities(expected), expected.values, got.values, allowed, strict=True
    ):
        difference = _compare_value(quantity, step, a, b, limit, result)
        if difference:
            return difference
    return None


def _compare_value(
    quantity: str, step: int, a: float, b: float, allowed: float, result: Comparison
) -> Difference | None:
    if same(a, b, allowed):
        if math.isfinite(a):
            result.saw(quantity, abs(a - b), abs(a))
        return None
    limit = f"allowed: {allowed:.1e}" if allowed else "must be identical"
    return Difference(quantity, step, repr(a), repr(b), limit)


def compare_weights(
    original: RankTrace, run: RankTrace, tolerance: Tolerance, result: Comparison
) -> Difference | None:
    """The first parameter whose final value differs; ``result`` keeps the largest error and what was left out."""
    shapes = [parameter.shape for parameter in original.parameters]
    if shapes != [parameter.shape for parameter in run.parameters]:
        return Difference(
            "weights", None, f"{len(shapes)} parameters", f"{len(run.parameters)} parameters, or other shapes"
        )
    noise: list[str] = []
    for parameter, a, b in _by_parameter(original, run):
        if a.tobytes() == b.tobytes():
            result.saw("weights", 0.0, 1.0)
            continue
        if tolerance.is_noise(parameter.signal):
            noise.append(parameter.name)
            continue
        error = float(np.linalg.norm(a - b))
        allowed = tolerance.weights(original.steps, parameter.moved, float(np.linalg.norm(a)))
        if not tolerance.epsilon or not error <= allowed:
            limit = f"error {error:.3g} over a way of {parameter.moved:.3g}"
            return Difference("weights", None, f"final {parameter.name}", _worst(a, b), limit)
        result.saw("weights", error, parameter.moved)
    if noise:
        result.notes.append(f"gradient is rounding error only, not compared: {', '.join(noise)}")
    return None


def _worst(a: NDArray[np.float64], b: NDArray[np.float64]) -> str:
    place = int(np.argmax(np.abs(a - b)))
    return f"{float(a[place])!r} -> {float(b[place])!r} in element {place}"


def compare_lines(
    original: RankTrace,
    run: RankTrace,
    tolerance: Tolerance,
    ignore: Sequence[re.Pattern[str]],
    volatile: Volatile | None,
) -> Difference | None:
    """The first printed line that differs."""

    def kept(lines: Sequence[str]) -> list[str]:
        return [line for line in lines if not any(pattern.search(line) for pattern in ignore)]

    for expected, got in zip_longest(kept(original.lines), kept(run.lines)):
        if expected is None or got is None:
            return Difference("printed line", None, repr(expected or "nothing"), repr(got or "nothing"))
        if not same_line(expected, got, tolerance, original.steps, volatile):
            return Difference("printed line", None, repr(expected), repr(got), printed_at(run, got))
    return None


def _name(event: Event | None) -> str:
    if event is None:
        return "nothing more"
    return "backward" if event.kind == "loss" else f"step of optimizer {event.index}"
