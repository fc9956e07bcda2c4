"""What the batches of a trace show: which loaders train and which evaluate, and which process got which rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from crosstrain_verify.records.traces import Batch, RankTrace

# A process that trains on this share of the batches that it reads leaves none of them to the others.
ALL = 0.75


def trained_on(trace: RankTrace) -> Iterator[Batch]:
    """The batches that were trained on: a backward pass came before the next batch of any loader."""
    ends = [batch.at for batch in trace.batches[1:]] + [len(trace.events)]
    for batch, end in zip(trace.batches, ends, strict=False):
        if any(event.kind == "loss" for event in trace.events[batch.at : end]):
            yield batch


def training_loaders(trace: RankTrace) -> set[int]:
    """The loaders that give batches to train on."""
    return {batch.loader for batch in trained_on(trace)}


def evaluation_loaders(trace: RankTrace) -> set[int]:
    """The loaders that only evaluate."""
    return {batch.loader for batch in trace.batches} - training_loaders(trace)


def batches_of(trace: RankTrace, loaders: set[int]) -> list[Batch]:
    """The batches of these loaders, in order."""
    return [batch for batch in trace.batches if batch.loader in loaders]


def step_of(trace: RankTrace, at: int) -> int:
    """The number (from 1) of the optimizer step that comes next after `at` events."""
    return 1 + sum(event.kind == "step" for event in trace.events[:at])


def each_has_whole(original: Batch, shares: Sequence[Batch]) -> bool:
    """Whether every process got all rows of a batch."""
    return original.digest is not None and all(share.digest == original.digest for share in shares)


def unshared(original: RankTrace, ranks: Sequence[RankTrace]) -> Batch | None:
    """The first batch of a loader that trains and is not shared out: every process goes over all of it.

    The processes get the same rows in every step, or a pass is longer than a share of the original's. Where one batch holds
    everything, all processes may have to take it.
    """
    whole = {batch.loader: batch for batch in trained_on(original) if batch.first}
    for loader in training_loaders(ranks[0]):
        found = [[batch for batch in trained_on(rank) if batch.loader == loader] for rank in ranks]
        steps = [{batch.digest for batch in shares} for shares in zip(*found, strict=False)]
        alike = all(len(digests) == 1 and None not in digests for digests in steps)
        if alike and len(set().union(*steps)) > 1:
            return found[0][0]
        first, all_of_it = found[0][0], whole.get(loader)
        if (
            all_of_it is None
            or not first.length
            or not first.rows
            or len(found[0]) < ALL * len(batches_of(ranks[0], {loader}))
        ):
            continue
        most = -(-all_of_it.length // len(ranks)) * (all_of_it.rows or 0)
        if 0 < most < first.length * first.rows:
            return first
    return None


def shares_add_up(original: Batch, shares: Sequence[Batch]) -> bool:
    """Whether the processes' rows are together those of the batch, each once."""
    digests = [share.digest for share in shares]
    if original.digest is None or None in digests:
        return False
    return sum(digest for digest in digests if digest is not None) % (1 << 64) == original.digest


def shares_differ(original: Batch, shares: Sequence[Batch]) -> bool:
    """Whether the processes certainly got other rows than those of the batch."""
    known = original.digest is not None and all(share.digest is not None for share in shares)
    alike = all(share.width == original.width for share in shares if share.rows)
    return known and alike and not shares_add_up(original, shares)


def batches_with_shares(
    original: RankTrace, ranks: Sequence[RankTrace], loaders: set[int] | None = None
) -> Iterator[tuple[Batch, tuple[Batch, ...]]]:
    """The original's batches of these loaders, or of those that train, each with the batches that the processes got for it."""
    loaders = training_loaders(original) if loaders is None else loaders
    return zip(
        batches_of(original, loaders),
        zip(*(batches_of(rank, loaders) for rank in ranks), strict=False),
        strict=False,
    )


def whole_loaders(original: RankTrace, ranks: Sequence[RankTrace]) -> tuple[int, ...]:
    """The loaders that were not prepared, so that every process reads all of them.

    Each process may read them in another order, so rows are counted: a share has fewer rows than the original's batch.
    """
    whole = {batch.loader for batch in original.batches}
    for loader in tuple(whole):
        for batch, shares in batches_with_shares(original, ranks, {loader}):
            if any(share.rows != batch.rows for share in shares):
                whole.discard(loader)
                break
    return tuple(sorted(whole))


def first_steps(trace: RankTrace) -> list[int]:
    """The number (from 1) of the first optimizer step of each pass over the loader that gives most training batches."""
    loaders = training_loaders(trace)
    found = batches_of(trace, loaders)
    if not found:
        return []
    counts = {number: sum(1 for _ in group) for number, group in groupby(sorted(b.loader for b in found))}
    main = max(counts, key=lambda number: counts[number])
    return [step_of(trace, batch.at) for batch in found if batch.loader == main and batch.first]


def learning_rates(trace: RankTrace) -> list[tuple[float, ...]]:
    """The learning rates of the first optimizer, step by step."""
    return [event.values[2:] for event in trace.events_of("step") if event.index == 0]


def same_rates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether these are the same learning rates of as many parameter groups, up to rounding."""
    return len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-9) for x, y in zip(a, b, strict=True))
