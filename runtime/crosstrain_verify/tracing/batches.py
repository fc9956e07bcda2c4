"""Records the batches that loaders give: the rows and a checksum of each batch.

The checksum of a batch is the sum of its rows' checksums mod 2**64. So the checksums of the shares of several processes
add up to that of the whole batch, whichever process has which row.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import zlib
from collections.abc import Callable, Iterator, Sized
from typing import Any

import numpy as np
import torch
from crosstrain.data.rows import NotByRow
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from crosstrain_verify.emulation.single_process import NUMBER
from crosstrain_verify.records.traces import Batch
from crosstrain_verify.tracing.script_lines import place

WORD = 8  # bytes
# By module of another library, its prepared loaders. They read from a loader inside, some one batch ahead.
PREPARED = {
    "accelerate.data_loader": ("DataLoaderShard", "DataLoaderDispatcher"),
    "lightning_fabric.wrappers": ("_FabricDataLoader",),
    "lightning.fabric.wrappers": ("_FabricDataLoader",),
}
_MASK = (1 << 64) - 1


class WatchedBatches:
    """An iterator over a loader that records every batch before it gives it to the script."""

    def __init__(self, batches: Any, watch: LoaderWatch, loader: Any, prepared: bool) -> None:
        self._batches = batches
        self._watch = watch
        self._loader = loader
        self._prepared = prepared
        self._given = 0
        # Rows and loader of the batch that the script had before this pass.
        self._around: tuple[int | None, int | None] | None = None

    def __iter__(self) -> WatchedBatches:
        return self

    def __del__(self) -> None:
        self._leave()  # the script left the loop by break

    def _leave(self) -> None:
        """After the pass its last batch is no longer current: what is drawn then, all processes draw alike."""
        if self._around is not None and self._watch.last == self._watch.number(self._loader):
            self._watch.rows, self._watch.last = self._around
        self._around = None
        self._watch.pass_ended()

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __next__(self) -> Any:
        watch, loader, given = self._watch, self._loader, self._given
        first = not given
        if any(ends(loader, given) for ends in watch.ends):
            self._leave()
            raise StopIteration
        watch.opening = watch.draws_order(loader) if first else None
        watch.source = watch.number(loader)
        try:
            with watch.reading(loader, first), watch.inside(self._prepared):
                batch = next(self._batches)
        except StopIteration:
            self._leave()
            raise
        batch = watch.replaced(loader, batch, given)
        watch.opening = watch.source = None
        if first:
            self._around = watch.rows, watch.last
        watch.saw(loader, batch, first, given)
        self._given += 1
        return watch.alter(batch, first, loader)


class LoaderWatch:
    """Watches every loader of this process.

    Args:
        events: returns how many events were recorded so far.
        reading: (loader, whether it is the first batch of its pass) -> a context around the reading of a batch.

    Attributes:
        rows: rows of the current batch, without those that complete or fill it; None if there is no current batch.
        last: the loader that gave the current batch.
        opening: the loader that is about to draw its order.
        source: the loader whose next batch is being read.
        replaced: (loader, batch, batches given) -> the batch that takes its place and is recorded.
        alter: (batch, whether it is the first of its pass, loader) -> what the script gets instead of the batch.
        pass_ended: called when the last batch of a pass is no longer current.
        ends: (loader, batches given) -> whether its pass ends here.
        handed_out: called for every batch.
        whole_batches: count the rows that complete the last batch, too.
    """

    def __init__(self, events: Callable[[], int], reading: Callable[[Any, bool], Any]) -> None:
        self.batches: list[Batch] = []
        self.rows: int | None = None
        self.opening: int | None = None
        self.source: int | None = None
        self.last: int | None = None
        self.reading = reading
        self.replaced: Callable[[Any, Any, int], Any] = lambda loader, batch, given: batch
        self.alter: Callable[[Any, bool, Any], Any] = lambda batch, first, loader: batch
        self.pass_ended: Callable[[], object] = lambda: None
        self.ends: list[Callable[[Any, int], bool]] = []
        self.handed_out: Callable[[], object] = lambda: None
        self.whole_batches = False
        self._events = events
        self._unnumbered = 0
        self._inside = False

    def install(self) -> None:
        """Replace the iteration of torch's and of prepared loaders.

        What is dealt by whole batches is no loader in the original, whose batches are not recorded either.
        """
        from crosstrain.data.dealt import DealtLoader
        from crosstrain.data.loader import PreparedLoader

        for kind in (DataLoader, PreparedLoader, *_of_others()):
            self._wrap(kind, DealtLoader)

    def _wrap(self, kind: Any, dealt: type[Any]) -> None:
        real: Callable[[Any], Iterator[Any]] = kind.__iter__
        prepared_kind = kind is not DataLoader

        @functools.wraps(real)
        def iterate(loader: Any) -> Iterator[Any]:
            # A prepared loader reads from an inner loader, whose batches the script does not see.
            inner = hasattr(loader, "_crosstrain") and not prepared_kind
            if self._inside or inner or isinstance(loader, dealt):
                return real(loader)
            self.opening = self.draws_order(loader)
            with self.inside(prepared_kind):
                batches = real(loader)
            self.opening = None
            return WatchedBatches(batches, self, loader, prepared_kind)

        kind.__iter__ = iterate

    @contextlib.contextmanager
    def inside(self, prepared: bool) -> Iterator[None]:
        """While a prepared loader reads, the loaders inside it are not watched."""
        before, self._inside = self._inside, self._inside or prepared
        try:
            yield
        finally:
            self._inside = before

    def number(self, loader: Any) -> int:
        """The loader's number: the order in which loaders were made, from 0, which a prepared copy keeps.

        Loaders that are not made by torch's DataLoader get negative numbers at their first use.
        """
        number = getattr(loader, NUMBER, None)
        if number is None:
            self._unnumbered += 1
            number = -self._unnumbered
            setattr(loader, NUMBER, number)
        return int(number)

    def draws_order(self, loader: Any) -> int | None:
        """The loader's number if its order is drawn at random; None if it is always the same."""
        sampler = getattr(loader, "sampler", None)
        fixed = sampler is None or isinstance(sampler, (SequentialSampler, list, tuple, range))
        return None if fixed else self.number(loader)

    def saw(self, loader: Any, batch: Any, first: bool, given: int) -> None:
        """Record a batch that the script is about to get; `given`: those that it got before in this pass."""
        prepared = getattr(loader, "_crosstrain", None)
        real = None if prepared is None or self.whole_batches else loader.real_rows(prepared.comm.rank)
        samples = samples_of(loader, given) if prepared is None else loader.rows(prepared.comm.rank)
        batch = rows_first(batch, samples)
        rows, digest = checksum(batch, real)
        self.rows, self.last = rows, self.number(loader)
        self.handed_out()
        length = length_of(loader) if first else 0
        self.batches.append(
            Batch(self.last, self._events(), rows, digest, first, place(), width(batch), length)
        )


def _of_others() -> Iterator[Any]:
    """The classes of prepared loaders in the libraries that are loaded."""
    for module, names in PREPARED.items():
        if module in sys.modules:
            yield from (getattr(sys.modules[module], name) for name in names)


def length_of(loader: Any) -> int:
    """How many batches the loader says that a pass has; 0 if it does not say."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return 0


def samples_of(loader: Any, given: int) -> int | None:
    """How many samples the next batch of a torch loader is made of, after `given` others; None if that is not known."""
    sampler = getattr(loader, "batch_sampler", None)
    if type(sampler) is not BatchSampler or not isinstance(sampler.sampler, Sized):
        return None
    return min(sampler.batch_size, len(sampler.sampler) - given * sampler.batch_size)


def rows_first(batch: Any, samples: int | None) -> Any:
    """The batch with one entry per sample in the first dimension of every tensor, for checksums.

    A collate function may put the samples into the second dimension, as recurrent layers like them: (steps, rows, ...).
    A batch that has a tensor without `samples` entries in one of the two is returned as it is.
    """
    if samples is None:
        return batch
    try:
        return _rows_first(batch, samples)
    except NotByRow:
        return batch


def _rows_first(batch: Any, samples: int) -> Any:
    if isinstance(batch, Tensor) and batch.dim() > 0:
        if batch.shape[0] == samples:
            return batch
        if batch.dim() > 1 and batch.shape[1] == samples:
            return batch.transpose(0, 1)
        raise NotByRow
    if isinstance(batch, dict):
        return {key: _rows_first(value, samples) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)) and any(
        isinstance(item, (Tensor, dict, list, tuple)) for item in batch
    ):
        return [_rows_first(item, samples) for item in batch]
    return batch


def checksum(batch: Any, real: int | None = None) -> tuple[int | None, int | None]:
    """The number of rows of a batch, and the checksum of the first `real` rows or of all.

    Every tensor must have the same first dimension, and every list of plain values that length; otherwise the result is
    (real, None).
    """
    columns: list[Any] = []
    if not _columns(batch, columns) or not columns:
        return real, None
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        return real, None
    rows = lengths.pop()
    kept = rows if real is None else min(real, rows)
    total = np.full(kept, len(columns), dtype=np.uint64)
    for position, column in enumerate(columns):
        total = _mixed(total * np.uint64(2 * position + 3) + _row_sums(column[:kept]))
    return kept, int(total.sum(dtype=np.uint64)) & _MASK


def width(batch: Any) -> int:
    """How many bytes of a batch's tensors belong to each row."""
    columns: list[Any] = []
    _columns(batch, columns)
    tensors = [column for column in columns if isinstance(column, Tensor) and column.dim()]
    return sum(tensor.nbytes // max(1, tensor.shape[0]) for tensor in tensors)


def _columns(batch: Any, found: list[Any]) -> bool:
    """Collect what has an entry for each row; False if the batch contains anything else."""
    if isinstance(batch, Tensor):
        found.append(batch)
        return batch.dim() > 0 and batch.layout is torch.strided
    if isinstance(batch, dict):
        return all(_columns(batch[key], found) for key in sorted(batch, key=str))
    if isinstance(batch, (list, tuple)):
        if batch and all(isinstance(item, (str, int, float, bytes)) for item in batch):
            found.append(list(batch))
            return True
        return all(_columns(item, found) for item in batch)
    return False


def _row_sums(column: Any) -> NDArray[np.uint64]:
    if isinstance(column, list):
        return np.array([zlib.crc32(repr(item).encode()) for item in column], dtype=np.uint64)
    rows = column.shape[0]
    data = column.detach().cpu().contiguous()
    if data.is_conj():
        data = data.resolve_conj()
    raw = (
        data.view(torch.uint8)
        if data.dim() > 1 or data.element_size() == 1
        else data.view(-1, 1).view(torch.uint8)
    )
    plain = raw.reshape(rows, -1).numpy() if rows else np.zeros((0, 0), dtype=np.uint8)
    padded = np.zeros((rows, -(-plain.shape[1] // WORD) * WORD), dtype=np.uint8)
    padded[:, : plain.shape[1]] = plain
    words = padded.view(np.uint64)
    factors = _factors(words.shape[1])
    sums: NDArray[np.uint64] = (_mixed(words ^ factors) * factors).sum(axis=1, dtype=np.uint64)
    return sums


@functools.lru_cache(maxsize=64)
def _factors(count: int) -> NDArray[np.uint64]:
    """Odd numbers that differ from position to position."""
    return _mixed(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Permute the 64-bit values by multiplications and xor-shifts, so that every bit depends on all bits."""
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    values = (values ^ (values >> np.uint64(29))) * np.uint64(0xA0761D6478BD642F)
    return values ^ (values >> np.uint64(32))
