"""Which rank gets which rows of which step, and how many of them are real. No torch, no communication.

Every rank walks the same list of index batches, so every rank knows, for every step and every rank, how many
rows that rank holds (`rows`) and how many of them are part of the pass (`real`): the others complete an
uneven tail, or stand in on a rank that would have none. That is all that exact metrics and weighted gradients
need.
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
    """Rows of one step by rank: how many each rank holds, and how many of these are real."""

    rows: tuple[int, ...]
    real: tuple[int, ...]

    def weights(self) -> tuple[float, ...]:
        """What each rank's mean loss counts, so that the plain average over the ranks is the mean over all
        real rows.
        """
        total = sum(self.real)
        return (
            tuple(real * len(self.real) / total for real in self.real) if total else (1.0,) * len(self.real)
        )


class Cut(NamedTuple):
    """How n rows are cut: rank r takes rows `bounds[r]` of the n rows followed by the completion."""

    bounds: tuple[tuple[int, int], ...]
    counts: Counts


class RankStep(NamedTuple):
    """One step as one rank sees it. `own` is None on a rank that has no batch in this step."""

    own: Batch | None
    counts: Counts


@dataclass(frozen=True)
class BatchSplit:
    """How a list of index batches becomes steps of `parts` ranks.

    size: rows of a full batch of the list, None when the sizes vary (a batch sampler of the user's own).
    split: True cuts each batch over the ranks; False gives each rank a whole batch per step.
    even: True completes the last step from the start of the pass; False leaves it uneven, and a rank may have
    no
        batch in it; "weighted" splits its rows as evenly as possible, and gives a rank that would have none
        one row that is not real.
    drop_last: leave out a step that is not full.
    devices: that each part feeds: so many batches of the list (or shares of a split one) make its rows of a
        step.
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
        """Devices that share a step."""
        return self.parts * self.devices

    @cached_property
    def alone(self) -> bool:
        """One device takes the list as it is."""
        return self.replicas == 1

    @cached_property
    def group(self) -> int:
        """Batches of the list that make a full step."""
        return 1 if self.split else self.replicas

    @cached_property
    def full(self) -> int | None:
        """Rows of a full step over all ranks, None when the sizes vary."""
        return None if self.size is None else self.size * self.group

    @cached_property
    def width(self) -> int:
        """Rows of one rank in a full step that is cut by row."""
        return (self.full or 0) // self.parts


@lru_cache(maxsize=512)
def cut(n: int, parts: int, width: int, even: Even) -> Cut:
    """Cut n rows over the ranks; `width` rows for each but with "weighted", which knows no width.

    Bounds beyond n reach into the completion; n of at least 1 is the caller's business.
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
    """Rows lo..hi of `rows` followed by `start` over and over."""
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
    """The steps of one pass as rank `how.part` sees them, read one step at a time and never ahead."""
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
    """Whether a row of this step may go to another rank than the rest of its batch.

    Batches of varying size stay whole: a sampler that forms them (by length, by class) did it for a reason.
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
    """The batches of each part, whole; the last parts may have fewer, or none."""
    return [group[at : at + how.devices] for at in range(0, how.group, how.devices)]


def _joined(batches: list[Batch]) -> Batch:
    return batches[0] if len(batches) == 1 else list(chain.from_iterable(batches))


def steps(batches: int, how: BatchSplit, samples: int | None = None) -> int:
    """How many batches rank `how.part` gets in a pass over `batches` batches, of `samples` rows in all if known."""
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
