"""Whether the values that a script gathers hold rows of the batch in hand, and how many rows per sample."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from crosstrain.data.evaluation_loader import EvaluationLoader
from crosstrain.data.merging import Column
from crosstrain.data.sharding import Counts
from crosstrain.utils import checks

if TYPE_CHECKING:
    from crosstrain.comm.protocol import Comm
    from crosstrain.data.active_loaders import ActiveLoaders
    from crosstrain.data.pass_rows import PassRows

KIND = "rows"
VALUE = 0  # the rows per sample of a value without rows, of which each process has one


class Unfit(ValueError):
    """Dimension 0 is neither the rows of the batch nor one value."""


def rows_per_sample(size: int | None, held: int) -> int:
    """How many of ``size`` rows belong to one sample of a batch of ``held`` rows; `VALUE` for one value.

    For a batch of one row, any size counts as rows of that sample. Raises `Unfit` for any other size.
    """
    if size is None:
        return VALUE
    if size == held:
        return 1
    if held and size and size % held == 0:
        return size // held
    if size == 1:
        return VALUE
    raise Unfit


class BatchInHand(NamedTuple):
    """The batch of the innermost loop where values are gathered.

    data: the name of its data set; None outside every loop. counts: the rows of the batch; None where they are unknown.
    whole: whether a tensor holds the rows of all ranks, because one program computes for all of them. foreign: whether
    the innermost loop is one over an unprepared loader, inside that of a prepared one. ended: see
    `ActiveLoaders.ended`. evaluation: whether each process has batches of its own, of `prepare_evaluation`. weighted: whether a
    rank that would have no rows has one of weight 0.
    """

    data: str | None
    counts: Counts | None
    rank: int
    whole: bool
    foreign: bool
    ended: list[PassRows]
    evaluation: bool = False
    weighted: bool = False

    @classmethod
    def of(cls, active: ActiveLoaders, comm: Comm, whole: bool) -> BatchInHand:
        loader = active.current
        if loader is None:  # rows of a loop over an unprepared loader belong to no ended pass
            return cls(None, None, comm.rank, whole, False, [] if active.foreign else active.ended)
        name = type(loader.dataset).__name__
        own, weighted = (
            isinstance(loader, EvaluationLoader),
            loader._crosstrain.plan.even_batches == "weighted",
        )
        return cls(
            name, loader._crosstrain_counts, comm.rank, whole, active.foreign, active.ended, own, weighted
        )

    @property
    def scalars(self) -> list[bool]:
        """For each rank, whether its value without rows counts; it does not where its batch is a filler of weight 0."""
        return [not self.weighted or real > 0 for real in self.counts.real] if self.counts is not None else []

    @property
    def is_ambiguous(self) -> bool:
        """Whether one rank has a single row and another more, so that shape [1] may be a row or a value."""
        return self.counts is not None and 1 in self.counts.rows and max(self.counts.rows) > 1

    def rows_per_sample(self, found: list[Column], sizes: list[list[int | None]]) -> list[int]:
        """The rows per sample of each column.

        ``sizes``: of every rank's columns where they were exchanged, else this one's.
        """
        assert self.counts is not None, "without counts nothing is cut"
        held = self.held(self.counts)
        return [
            VALUE
            if (self.is_ambiguous and set(of_ranks) == {1}) or self.collected(column)
            else rows_per_sample(column.size, held)
            for column, of_ranks in zip(found, zip(*sizes, strict=True), strict=True)
        ]

    def held(self, counts: Counts) -> int:
        """The size of a value with one row per sample."""
        return sum(counts.rows) if self.whole else counts.rows[self.rank]

    def problem(self, columns: Iterable[Column]) -> str | None:
        """An error message about the first of these columns that cannot be gathered here; None if all can."""
        if self.foreign:
            return (
                f"{checks.here()}: gather_for_metrics is called in the loop of a DataLoader that was not prepared, "
                f"inside the loop of one that was (over {self.data}), so it cannot know which rows "
                f"count. Pass the inner loader to accelerator.prepare(); or do not gather: every process has all rows of an "
                f"unprepared loader. accelerator.gather() collects them from every process all the same, "
                f"accelerator.reduce() sums or averages."
            )
        if self.evaluation:
            return (
                f"{checks.here()}: gather_for_metrics is called in a loop that prepare_evaluation divides (over "
                f"{self.data}), where processes may have different numbers of batches. Add the values up in the loop, "
                f"and accelerator.merge() them after it; or prepare the loader with accelerator.prepare()."
            )
        found = (self._problem_of(column) for column in columns)
        return next((said for said in found if said is not None), None)

    def _problem_of(self, column: Column) -> str | None:
        if self.data is None:
            return next((_counted(column, t) for t in self.ended if self._completes(column, t)), None)
        for taken in self.ended:
            if self.is_of(column, taken):
                return _counted(column, taken) if taken.completed else None
        counts = self.counts
        if counts is None or (not column.array and counts.rows == counts.real):
            return None  # a list may have any length where no rows are left out
        try:
            rows_per_sample(column.size, self.held(counts))
        except Unfit:
            return self._neither(column, self.held(counts))
        return None

    def collected(self, column: Column) -> bool:
        """Whether these are the rows of an ended loop inside this one, and not of the batch in hand."""
        return self.data is not None and any(self.is_of(column, taken) for taken in self.ended)

    def is_of(self, column: Column, taken: PassRows) -> bool:
        """Whether there are as many rows as an ended pass gave, and not as many as the batch in hand has."""
        total = taken.held_by_all if self.whole else taken.held
        return column.size == total and (self.counts is None or total != self.held(self.counts))

    def _completes(self, column: Column, taken: PassRows) -> bool:
        """Whether these seem to be rows of an ended pass, some of which only complete a batch."""
        if not taken.completed or taken.last is None or column.size is None or column.size < 2:
            return False
        total = taken.held_by_all if self.whole else taken.held
        last = sum(taken.last.rows) if self.whole else taken.last.rows[self.rank]
        return column.size % total == 0 or (column.size == last and taken.last.rows != taken.last.real)

    def _neither(self, column: Column, held: int) -> str:
        return (
            f"{checks.here()}: gather_for_metrics got {column.name}, but the batch over {self.data} has {held} rows "
            f"on this process. Dimension 0 must be these rows ({held}, or a multiple for several rows per sample), or "
            f"one value (a scalar, or shape [1]). For anything else use accelerator.gather(), which collects it from "
            f"all processes as it is, or accelerator.reduce(), which sums or averages it."
        )

    def warn_of_several(self, columns: Iterable[Column]) -> None:
        """Warn, once per calling line, where several rows per sample are assumed and some are left out.

        Of a list every process says it, because it may as well be one list for each of them.
        """
        counts = self.counts
        if counts is None or counts.rows == counts.real or not self.held(counts):
            return
        held = self.held(counts)
        for column in columns:
            size = column.size or 0
            several = size > held and size % held == 0 and not self.collected(column)
            if several and (self.rank == 0 or not column.array) and checks.first_use("rows per sample"):
                gathered = "accelerator.gather() or accelerator.reduce()"
                instead = gathered if column.array else "crosstrain.utils.gather_object()"
                warnings.warn(
                    f"{checks.here()}: gather_for_metrics got {column.name} for a batch of {held} rows, and takes it "
                    f"for {size // held} rows of each sample, one sample after the other; those of samples "
                    f"that only complete the batch are left out. If {'dimension 0' if column.array else 'the list'} is something else, "
                    f"use {instead}.",
                    stacklevel=2,
                )


def _counted(column: Column, taken: PassRows) -> str:
    return (
        f"{checks.here()}: gather_for_metrics got {column.name} after the loop over {taken.name}, which gave this "
        f"process {taken.held} rows. Some rows of that loop only complete a batch, so that every process has as many, "
        f"and would be counted here. Call gather_for_metrics for each batch, in the loop; accelerator.gather() "
        f"collects all rows, those that complete a batch included, and accelerator.reduce() sums or averages."
    )
