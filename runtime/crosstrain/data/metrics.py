"""Gathering the results of a loader's batches, exactly once per sample and in the order of the data set."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from crosstrain.comm import double_reduction
from crosstrain.comm.collectives import gather
from crosstrain.comm.frames import Refused
from crosstrain.comm.protocol import Comm
from crosstrain.data.merging import Column, columns, in_list
from crosstrain.data.metric_rows import KIND, VALUE, BatchInHand
from crosstrain.data.sharding import Counts
from crosstrain.utils import checks
from crosstrain.utils.nested import leaves, only_tensors, pad_to, refill

if TYPE_CHECKING:
    from crosstrain.data.active_loaders import ActiveLoaders

logger = logging.getLogger(__name__)


def gather_for_metrics(data: Any, active: ActiveLoaders, comm: Comm, use_gather_object: bool = False) -> Any:
    """See `Accelerator.gather_for_metrics`. ``active``: the loaders that are being iterated."""
    if comm.replicas == 1:
        return data
    tensors = not use_gather_object and only_tensors(data)
    hand = BatchInHand.of(active, comm, whole=tensors and not comm.averages)
    found = [Column(leaf) for leaf in leaves(data)] if tensors else columns(data)
    try:
        sizes = _exchange(found, hand, comm)
    except Refused as error:
        checks.failed(KIND, str(error))
        raise
    _note(found, hand)
    counts = hand.counts
    if not tensors:
        collected = any(map(hand.collected, found))
        return in_list(comm.all_gather_object(data), None if collected else counts, hand.scalars)
    if counts is None or counts.plain:
        return data if hand.whole else gather(data, comm)
    per_sample = hand.rows_per_sample(found, sizes)
    if hand.whole:
        return _cut_whole(data, counts, per_sample)
    return _gather_tensors(data, counts, comm, per_sample, hand.scalars)


def _exchange(found: list[Column], hand: BatchInHand, comm: Comm) -> list[list[int | None]]:
    """The columns' sizes on every rank if the ranks must exchange them, else on this rank only.

    Raises Refused on every rank where one of them finds a problem. The other ranks learn of it in their next exchange
    of objects. Tensors on a device are gathered without one, so the ranks exchange the sizes first, at a line's first
    use and in uneven steps. They also do so where one rank has a single row and another more, because a tensor of shape
    [1] may then be that row or one value per rank.
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
    """Record that the columns passed the checks, and warn the user about several rows per sample."""
    if hand.data is None:
        return
    if hand.counts is None:
        checks.expect(KIND)
        logger.debug("the loader cannot tell completed rows from real ones; nothing is dropped")
        return
    if any(column.array for column in found):
        checks.held(KIND)
    hand.warn_of_several(found)


def _cut_whole(data: Any, counts: Counts, per_sample: list[int]) -> Any:
    """Keep the real rows of tensors that already hold the rows of all ranks, in rank order."""
    out: list[Tensor] = []
    for tensor, times in zip(leaves(data), per_sample, strict=True):
        if times == VALUE or counts.rows == counts.real:
            out.append(tensor)
            continue
        parts = torch.split(tensor, [held * times for held in counts.rows])
        kept = [part[: real * times] for part, real in zip(parts, counts.real, strict=True)]
        out.append(kept[0] if len(kept) == 1 else torch.cat(kept))
    return refill(data, out)


def _gather_tensors(data: Any, counts: Counts, comm: Comm, per_sample: list[int], scalars: list[bool]) -> Any:
    """Gather tensors of which ranks may hold different numbers of rows: pad, gather, keep each rank's real rows."""
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
            out.append(rows[scalars])
        else:
            out.append(rows.flatten(0, 1))
    double_reduction.remember(out, "gather_for_metrics")
    return refill(data, out)
