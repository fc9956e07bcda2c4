"""Which rank gets which rows of each step, and how many of them are real. Uses neither torch nor communication.

Every rank walks over the same list of index batches. So every rank knows how many rows each rank holds in each step
(`rows`), and how many of these are part of the pass (`real`); the others complete an uneven last step, or fill in for a
rank that would have none. Exact metrics and weighted gradients need nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

Even: TypeAlias = bool | Literal["weighted"]
Batch: TypeAlias = Sequence[Any]


class Counts(NamedTuple):
    """The rows of one step: how many each rank holds, and how many of these are real."""

    rows: tuple[int, ...]
    real: tuple[int, ...]

    @property
    def plain(self) -> bool:
        """Whether every rank holds the same number of rows, all of them real."""
        return self.rows == self.real and len(set(self.rows)) == 1

    def weights(self) -> tuple[float, ...]:
        """The factor of each rank's mean loss with which the average over the ranks is the mean over all real rows."""
        total = sum(self.real)
        return (
            tuple(real * len(self.real) / total for real in self.real) if total else (1.0,) * len(self.real)
        )


class Cut(NamedTuple):
    """How n rows are cut: rank r takes the rows `bounds[r]` of the n rows and those that complete them."""

    bounds: tuple[tuple[int, int], ...]
    counts: Counts


class RankStep(NamedTuple):
    """One step of one rank. `own` is its batch; None where it has none in this step."""

    own: Batch | None
    counts: Counts


@dataclass(frozen=True)
class BatchSplit:
    """How a list of index batches becomes steps of `parts` ranks, of which this one is `part`.

    size: the number of rows of a full batch; None where it varies (a batch sampler of the user's own).
    split: True cuts each batch over the ranks; False gives each rank a whole batch per step.
    even: True completes the last step from the start of the pass; False leaves it uneven, and a rank may have no batch
        in it; "weighted" splits its rows as evenly as possible, and a rank that would have none gets one row that is
        not real.
    drop_last: whether to leave out a step that is not full.
    devices: how many devices each rank feeds. So many batches, or shares of a split one, make its rows of a step.

    Raises ValueError where a batch cannot be split over the ranks.
    """

    parts: int
    part: int
    size: int | None
    split: bool = False
    even: Even = True
    drop_last: bool = False
    devices: int = 1

    def __post_init__(self) -> None:
        if self.split and not self.alone and self.even != "weighted":
            if self.size is None:
                raise ValueError(
                    "split_batches=True needs batches of one known size, but this batch sampler has no "
                    'batch_size. Give it one, use even_batches="weighted", or split_batches=False.'
                )
            if self.size % self.replicas:
                kind = "processes" if self.devices == 1 else "devices"
                raise ValueError(
                    f"split_batches=True: the batch size {self.size} is not a multiple of the {self.replicas} "
                    f'{kind}. Choose a multiple, or even_batches="weighted" to split any batch as evenly '
                    "as possible."
                )

    @cached_property
    def replicas(self) -> int:
        """The number of devices that share a step."""
        return self.parts * self.devices

    @cached_property
    def alone(self) -> bool:
        """Whether one device takes the list as it is."""
        return self.replicas == 1

    @cached_property
    def group(self) -> int:
        """How many batches of the list make a full step."""
        return 1 if self.split else self.replicas

    @cached_property
    def full(self) -> int | None:
        """The number of rows of a full step over all ranks; None where the sizes vary."""
        return None if self.size is None else self.size * self.group

    @cached_property
    def width(self) -> int:
        """The number of rows of one rank in a full step that is cut by row."""
        return (self.full or 0) // self.parts


@lru_cache(maxsize=512)
def cut(n: int, parts: int, width: int, even: Even) -> Cut:
    """Cut n >= 1 rows over the ranks, `width` rows for each, or with "weighted" as evenly as possible.

    Bounds beyond n are of rows that complete the step.
    """
    if even == "weighted":
        small, more = divmod(n, parts)
        starts = [r * small + min(r, more) for r in range(parts + 1)]
        held = list(pairwise(starts))
        real = tuple(hi - lo for lo, hi in held)
        bounds = tuple((lo, hi) if hi > lo else (0, 1) for lo, hi in held)
        return Cut(bounds, Counts(tuple(hi - lo for lo, hi in bounds), real))
    even_bounds = [(r * width, (r + 1) * width) for r in range(parts)]
    clipped = [(min(lo, n), min(hi, n)) for lo, hi in even_bounds]
    real = tuple(hi - lo for lo, hi in clipped)
    if even:
        return Cut(tuple(even_bounds), Counts((width,) * parts, real))
    return Cut(tuple(clipped), Counts(real, real))


def take(rows: Batch, start: Batch, lo: int, hi: int) -> Batch:
    """Rows lo to hi (exclusive) of `rows`, followed by `start` again and again."""
    n = len(rows)
    if hi <= n:
        return rows[lo:hi]
    return [*rows[lo:], *(start[(i - n) % len(start)] for i in range(max(lo, n), hi))]


def groups(batches: Iterable[Batch], size: int) -> Iterator[list[Batch]]:
    """The batches, `size` at a time; the last list may be shorter."""
    walk = iter(batches)
    while group := list(islice(walk, size)):
        yield group


def rank_steps(batches: Iterable[Batch], how: BatchSplit) -> Iterator[RankStep]:
    """The steps of one pass on rank `how.part`, read one at a time and never ahead."""
    if how.alone:
        for batch in batches:
            n = (len(batch),)
            yield RankStep(batch, Counts(n, n))
        return
    first: list[Batch] = []
    for group in groups(batches, how.group):
        first = first or group
        step = _by_row(group, first, how) if _rows_may_move(group, how) else _by_batch(group, first, how)
        if step is not None:
            yield step


def _rows_may_move(group: list[Batch], how: BatchSplit) -> bool:
    """Whether the rows of a batch in this step may go to different ranks.

    Batches of varying size stay whole, because a sampler has formed each of them on purpose (by length, by class).
    """
    return how.split or (how.size is not None and max(map(len, group)) <= how.size)


def _by_row(group: list[Batch], first: list[Batch], how: BatchSplit) -> RankStep | None:
    n = sum(map(len, group))
    full = n if how.full is None else how.full
    if n == full and not how.split and how.devices == 1:
        return RankStep(group[how.part], cut(n, how.parts, how.width, how.even).counts)
    if n < full and how.drop_last:
        return None
    if n > full and how.even != "weighted":
        raise ValueError(
            f"split_batches=True: the batch sampler gave a batch of {n} rows although its batch_size is "
            f'{full}. Use even_batches="weighted" for batches of varying size.'
        )
    piece = cut(n, how.parts, how.width, how.even)
    lo, hi = piece.bounds[how.part]
    if lo == hi:
        return RankStep(None, piece.counts)
    return RankStep(take(_joined(group), _joined(first), lo, hi), piece.counts)


def _by_batch(group: list[Batch], first: list[Batch], how: BatchSplit) -> RankStep | None:
    missing = how.group - len(group)
    if missing and how.drop_last:
        return None
    held = _by_part(group, how)
    real = tuple(sum(map(len, batches)) for batches in held)
    if how.even == "weighted":
        held = [batches or [group[0][:1]] for batches in held]
    elif how.even:
        held = _by_part([*group, *(first[i % len(first)] for i in range(missing))], how)
    rows = tuple(sum(map(len, batches)) for batches in held)
    mine = held[how.part]
    return RankStep(_joined(mine) if mine else None, Counts(rows, real))


def _by_part(group: list[Batch], how: BatchSplit) -> list[list[Batch]]:
    """The whole batches of each rank; the last ranks may have fewer, or none."""
    return [group[at : at + how.devices] for at in range(0, how.group, how.devices)]


def _joined(batches: list[Batch]) -> Batch:
    return batches[0] if len(batches) == 1 else list(chain.from_iterable(batches))


def steps(batches: int, how: BatchSplit, samples: int | None = None) -> int:
    """The number of steps that rank `how.part` takes part in, in a pass over `batches` batches.

    samples: the number of rows in all of them; None where it is unknown.
    """
    if how.alone:
        return batches
    whole, extra = divmod(batches, how.group)
    if how.drop_last:
        short = samples is not None and how.full is not None and whole * how.full > samples
        return whole - 1 if short else whole
    if how.even:
        return whole + bool(extra)
    if how.split:
        tail = (
            how.width * how.parts if samples is None or how.size is None else samples - (whole - 1) * how.size
        )
        return whole - (whole > 0 and tail <= how.part * how.width)
    return whole + (how.part * how.devices < extra)
