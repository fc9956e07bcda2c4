"""Gathering what a loader's batches gave, exactly once per sample and in the order of the data set."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from crosstrain.comm import Comm
from crosstrain.merging import Counts, in_list, in_place
from crosstrain.ops import gather, leaves, only_tensors, pad_to, refill

if TYPE_CHECKING:
    from crosstrain.data import PreparedLoader

logger = logging.getLogger(__name__)


def counts_of(loader: PreparedLoader, comm: Comm) -> Counts | None:
    """What the loader knows about the batch in hand; None where its data set has no known length."""
    rows, real = [], []
    for rank in range(comm.world):
        held, true = loader.rows(rank), loader.real_rows(rank)
        if held is None or true is None:
            return None
        rows.append(held)
        real.append(true)
    weighted = loader._crosstrain.plan.even_batches == "weighted"
    return Counts(rows, real, weighted)


def gather_for_metrics(
    data: Any, loader: PreparedLoader | None, comm: Comm, use_gather_object: bool = False
) -> Any:
    """`gather`, less the rows that were added to even out a batch; objects are joined in a list.

    Over one pass of a loader that drops nothing exactly N rows come out, in the order of the data set. Dim
    0 of a tensor may hold several rows per sample. Values without rows give one entry per rank. Where tensors
    stand beside other values (a dict of logits and names) each is gathered in its place; ``use_gather_object``
    makes one list of what the ranks bring. One device: ``data``.
    """
    if comm.replicas == 1:
        return data
    counts = None if loader is None else counts_of(loader, comm)
    if loader is not None and counts is None:
        logger.debug("the loader cannot tell completed rows from real ones; nothing is dropped")
    if not comm.averages and not use_gather_object and only_tensors(data):
        return data if counts is None else _cut_whole(data, counts)
    if use_gather_object or not only_tensors(data):
        if comm.world == 1 and not isinstance(data, (list, tuple)):
            return data
        parts = comm.all_gather_object(data)
        return in_list(parts, counts) if use_gather_object else in_place(parts, counts)
    if counts is None or counts.plain:
        return gather(data)
    return _gather_tensors(data, counts, comm)


def _cut_whole(data: Any, counts: Counts) -> Any:
    """The tensors hold the rows of all ranks already, one rank's behind the other's: keep the real ones."""
    total = sum(counts.rows)
    out: list[Tensor] = []
    for tensor in leaves(data):
        times = _rows_per_sample(tensor, total)
        if times is None or counts.rows == counts.real:
            out.append(tensor)
            continue
        parts = torch.split(tensor, [held * times for held in counts.rows])
        kept = [part[: real * times] for part, real in zip(parts, counts.real, strict=True)]
        out.append(kept[0] if len(kept) == 1 else torch.cat(kept))
    return refill(data, out)


def _gather_tensors(data: Any, counts: Counts, comm: Comm) -> Any:
    """Ranks may hold different numbers of rows: pad to the longest, gather, cut each rank's real rows."""
    mine = counts.rows[comm.rank]
    most = max(counts.rows)
    tensors = leaves(data)
    per_row = [_rows_per_sample(tensor, mine) for tensor in tensors]
    padded = [
        tensor if times is None else pad_to(tensor, most * times)
        for tensor, times in zip(tensors, per_row, strict=True)
    ]
    out: list[Tensor] = []
    for rows, times in zip(comm.all_gather_several(padded), per_row, strict=True):
        if rows.dim() == 1:
            out.append(rows[[counts.counts_scalar(rank) for rank in range(comm.world)]])
        elif times is None:
            out.append(rows.flatten(0, 1))
        else:
            out.append(torch.cat([rows[rank, : real * times] for rank, real in enumerate(counts.real)]))
    return refill(data, out)


def _rows_per_sample(tensor: Tensor, rows: int) -> int | None:
    """How many rows of the tensor belong to one sample; None if it is not laid out by sample."""
    if tensor.dim() == 0 or rows == 0 or tensor.shape[0] % rows:
        return None
    return tensor.shape[0] // rows
