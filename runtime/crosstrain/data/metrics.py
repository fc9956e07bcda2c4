"""Gathering what a loader's batches gave, exactly once per sample and in the order of the data set."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from crosstrain.comm import double_reduction
from crosstrain.comm.collectives import gather
from crosstrain.comm.frames import Refused
from crosstrain.comm.protocol import Comm
from crosstrain.data.merging import Column, RowsByRank, columns, in_list, in_place
from crosstrain.data.metric_rows import KIND, VALUE, BatchInHand, rows_per_sample
from crosstrain.utils import checks
from crosstrain.utils.nested import leaves, only_tensors, pad_to, refill

if TYPE_CHECKING:
    from crosstrain.data.active_loaders import ActiveLoaders

logger = logging.getLogger(__name__)


def gather_for_metrics(data: Any, active: ActiveLoaders, comm: Comm, use_gather_object: bool = False) -> Any:
    """`gather`, less the rows that were added to even out a batch; objects are joined in a list.

    In the loop of a prepared loader. Dim 0 of a tensor is this process's rows of the batch, or k times as many (k
    rows for each sample, one sample behind the other), or one value (a scalar, or shape [1]), of which every
    process gives one. Over one pass of a loader that drops nothing exactly N rows come out, in the order of the
    data set. Where tensors stand beside other values (a dict of logits and names) each is gathered in its place;
    ``use_gather_object`` makes one list of what the processes bring. One device: ``data``.

    Raises RuntimeError on every process for a tensor of another size; in the loop of an unprepared loader inside
    that of a prepared one; and after a loop for what was collected in it, if rows that complete a batch are among
    it. `gather` and `reduce` are for all of these.
    """
    if comm.replicas == 1:
        return data
    tensors = not use_gather_object and only_tensors(data)
    hand = BatchInHand.of(active, comm, whole=tensors and not comm.averages)
    found = [Column(leaf) for leaf in leaves(data)] if tensors else list(columns(data))
    try:
        sizes = _exchange(found, hand, comm)
    except Refused as error:
        checks.failed(KIND, str(error))
        raise
    _note(found, hand)
    counts = hand.counts
    if not tensors:
        return _gather_objects(data, found, hand, comm, use_gather_object)
    if counts is None or counts.plain:
        return data if hand.whole else gather(data, comm)
    per_sample = hand.rows_per_sample(found, sizes)
    return (
        _cut_whole(data, counts, per_sample)
        if hand.whole
        else _gather_tensors(data, counts, comm, per_sample)
    )


def global_rows(data: Any, active: ActiveLoaders, comm: Comm) -> int:
    """How many rows `gather_for_metrics` would return for ``data``, which has this process's rows of the batch.

    The loader in hand knows it, so nothing is exchanged but where it does not (a stream of unknown length, rows from
    outside its loop). Raises RuntimeError as `gather_for_metrics` does.
    """
    if comm.replicas == 1:
        return len(data)
    column = Column(data)
    hand = BatchInHand.of(active, comm, whole=isinstance(data, Tensor) and not comm.averages)
    if hand.counts is None or hand.foreign or hand.collected(column):
        return len(gather_for_metrics(data, active, comm))
    problem = hand.problem([column])
    if problem is not None:
        checks.failed(KIND, problem)
        comm.refuse(problem)
    _note([column], hand)
    return sum(hand.counts.real) * max(1, rows_per_sample(column.size, hand.held(hand.counts)))


def own_rows(data: Any, active: ActiveLoaders, comm: Comm) -> Any:
    """This process's part of what `gather_for_metrics` returns for ``data``: its rows of the batch in hand, less those
    that only complete it.

    Nothing is exchanged. A process may have no row of the last batch that counts, and gets none then. Raises
    RuntimeError for what has no row for each of the batch's, and as `gather_for_metrics` does.
    """
    if comm.replicas == 1:
        return data
    hand = BatchInHand.of(active, comm, whole=not comm.averages)
    found = [Column(leaf) for leaf in leaves(data, strict="own_rows")]
    problem = hand.problem(found) or hand.problem_of_values(found)
    if problem is not None:
        checks.failed(KIND, problem)
        comm.refuse(problem)
    _note(found, hand)
    counts = hand.counts
    if counts is None or counts.rows == counts.real or any(map(hand.collected, found)):
        return data
    times = [max(1, rows_per_sample(column.size, hand.held(counts))) for column in found]
    if hand.whole:
        return _cut_whole(data, counts, times)
    real = counts.real[comm.rank]
    return refill(data, [tensor[: real * k] for tensor, k in zip(leaves(data), times, strict=True)])


def _exchange(found: list[Column], hand: BatchInHand, comm: Comm) -> list[list[int | None]]:
    """The columns' sizes on every rank, where the ranks have to meet; else only here.

    Raises Refused on every rank where one of them finds a problem. The others learn of it in the exchange that
    they make next; tensors on a device travel without one, so the ranks meet before them at a line's first use and
    in uneven steps. They also meet where one rank has a single row and another more: a tensor of shape [1] may then
    be that row, or one value for each rank.
    """
    on_device = any(column.on_device for column in found) and not hand.whole
    meet = not hand.whole and hand.is_ambiguous
    if on_device:
        meet = checks.first_use(KIND) or meet or (hand.counts is not None and not hand.counts.plain)
    tensors = (column.value for column in found if isinstance(column.value, Tensor))
    problem = hand.problem(found) or double_reduction.problem(tensors, "gather_for_metrics", of="gather")
    if problem is not None:
        if comm.world == 1 or (on_device and not meet):
            raise Refused(problem)
        comm.refuse(problem)
    sizes = [column.size for column in found]
    return comm.all_gather_object(sizes) if meet else [sizes]


def _note(found: list[Column], hand: BatchInHand) -> None:
    """Nothing is wrong with these: what the journal and the user are told."""
    if hand.data is None:
        return
    if hand.counts is None:
        checks.expect(KIND)
        logger.debug("the loader cannot tell completed rows from real ones; nothing is dropped")
    elif any(column.array for column in found):
        checks.held(KIND)
        hand.warn_of_several(found)


def _gather_objects(data: Any, found: list[Column], hand: BatchInHand, comm: Comm, listed: bool) -> Any:
    if comm.world == 1 and not isinstance(data, (list, tuple)):
        return data
    counts = None if any(map(hand.collected, found)) else hand.counts
    parts = comm.all_gather_object(data)
    return in_list(parts, counts) if listed else in_place(parts, counts)


def _cut_whole(data: Any, counts: RowsByRank, per_sample: list[int]) -> Any:
    """The tensors hold the rows of all ranks already, one rank's behind the other's: keep the real ones."""
    out: list[Tensor] = []
    for tensor, times in zip(leaves(data), per_sample, strict=True):
        if times == VALUE or counts.rows == counts.real:
            out.append(tensor)
            continue
        parts = torch.split(tensor, [held * times for held in counts.rows])
        kept = [part[: real * times] for part, real in zip(parts, counts.real, strict=True)]
        out.append(kept[0] if len(kept) == 1 else torch.cat(kept))
    return refill(data, out)


def _gather_tensors(data: Any, counts: RowsByRank, comm: Comm, per_sample: list[int]) -> Any:
    """Ranks may hold different numbers of rows: pad to the longest, gather, cut each rank's real rows."""
    most = max(counts.rows)
    padded = [
        tensor if times == VALUE else pad_to(tensor, most * times)
        for tensor, times in zip(leaves(data), per_sample, strict=True)
    ]
    out: list[Tensor] = []
    for rows, times in zip(comm.all_gather_several(padded), per_sample, strict=True):
        if times != VALUE:
            out.append(torch.cat([rows[rank, : real * times] for rank, real in enumerate(counts.real)]))
        elif rows.dim() == 1:
            out.append(rows[[counts.counts_scalar(rank) for rank in range(comm.world)]])
        else:
            out.append(rows.flatten(0, 1))
    double_reduction.remember(out, "gather_for_metrics")
    return refill(data, out)
