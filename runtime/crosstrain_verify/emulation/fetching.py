"""Makes one process read data sets as several processes would: share by share, each with its own random state.

Augmentation, crops and pairs are drawn while samples are read. A process that shares a batch reads only its own rows,
from the state that all processes began with. So one process must do the same, share by share, to get the same samples
(see `draws.py`). A collate function that draws random numbers, such as one that masks tokens, is called for each share.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from crosstrain.data.rows import NotByRow, join_rows
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from crosstrain_verify.emulation.draws import SharedDraws, split

Host = tuple[Any, Any]


def install(draws: SharedDraws, shared: Callable[[], bool | None]) -> None:
    """Read batches share by share, for the rest of this process.

    shared: returns whether the processes share the loader that is being read, or each reads all of it; None if no loader
    is being read.
    """
    reader = _Reader(draws)
    fetcher: Any = _MapDatasetFetcher
    real: Callable[[Any, Any], Any] = fetcher.fetch

    @functools.wraps(real)
    def fetch(self: Any, index: Any) -> Any:
        by_all = shared()
        if not self.auto_collation or by_all is None:
            return real(self, index)
        return reader.share(self, index) if by_all else reader.repeat(lambda: real(self, index))

    fetcher.fetch = fetch


@dataclass(frozen=True)
class _Streams:
    """The states of Python's and NumPy's random streams in every process. drifted: they are not all equal."""

    host: list[Host]
    drifted: bool


class _Reader:
    def __init__(self, draws: SharedDraws) -> None:
        self._draws = draws
        self._left: _Streams | None = None  # after the last batch

    def share(self, fetcher: Any, index: list[int]) -> Any:
        """The batch of these samples. Each process's part is read, and collated, from its own state."""
        parts = _parts(index, self._draws.world)
        host = self._host_states()
        items: list[list[Any]] = []
        for rank, part in enumerate(parts):
            with self._as_process(rank, host):
                items.append(_read(fetcher.dataset, part.read))
        collated = self._collated(fetcher.collate_fn, items, parts, host)
        self._leave(host)
        return collated

    def repeat(self, read: Callable[[], Any]) -> Any:
        """A batch that every process reads as a whole, each drawing from its own state."""
        host = self._host_states()
        before = host[0]
        with self._as_process(0, host):
            batch = read()
        if self._draws.drew or not _same(before, host[0]):
            for rank in range(1, self._draws.world):
                with self._as_process(rank, host):
                    read()
        self._leave(host)
        return batch

    def _leave(self, host: list[Host]) -> None:
        self._left = _Streams(host, any(not _same(state, host[0]) for state in host[1:]))
        _set_host(host[0])

    def _host_states(self) -> list[Host]:
        """The current states of each process's streams. What the script drew since the last batch, all of them drew."""
        ours, left = _host(), self._left
        if left is not None and left.drifted and _same(ours, left.host[0]):
            return list(left.host)
        return [ours] * self._draws.world

    def _collated(self, collate: Any, items: list[list[Any]], parts: list[_Part], host: list[Host]) -> Any:
        """One batch of all rows that count, collated share by share if collating draws random numbers."""
        counted = [
            sample for part, group in zip(parts, items, strict=True) for sample in group[: part.counts]
        ]
        before, torch_before = list(host), torch.get_rng_state()
        with self._as_process(0, host):
            whole = collate(counted)
        if _same(host[0], before[0]) and torch.equal(torch_before, torch.get_rng_state()):
            return whole
        host[:] = before
        torch.set_rng_state(torch_before)
        batches = []
        for rank, group in enumerate(items):
            with self._as_process(rank, host):
                batches.append(collate(group))
        try:
            return join_rows([batch for batch, part in zip(batches, parts, strict=True) if part.counts])
        except NotByRow:  # the shares are padded to different lengths and cannot be joined
            return whole

    @contextmanager
    def _as_process(self, rank: int, host: list[Host]) -> Iterator[None]:
        """Inside, draws come from the streams of process ``rank``, which continue from there the next time."""
        _set_host(host[rank])
        with self._draws.as_process(rank):
            yield
        host[rank] = _host()


@dataclass(frozen=True)
class _Part:
    """The samples that a process reads. counts: how many are rows of the batch; a process without rows reads one sample."""

    read: list[int]
    counts: int


def _parts(index: list[int], world: int) -> list[_Part]:
    sizes = split(len(index), world)
    ends = [0, *accumulate(sizes)]
    return [_Part(index[low:high] or index[:1], high - low) for low, high in pairwise(ends)]


def _read(dataset: Any, index: list[int]) -> list[Any]:
    if getattr(dataset, "__getitems__", None):
        return list(dataset.__getitems__(index))
    return [dataset[number] for number in index]


def _host() -> Host:
    return random.getstate(), np.random.get_state(legacy=True)


def _set_host(state: Host) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])


def _same(a: Host, b: Host) -> bool:
    return a[0] == b[0] and all(np.array_equal(x, y) for x, y in zip(a[1], b[1], strict=True))
