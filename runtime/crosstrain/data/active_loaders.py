"""The prepared loaders that are being iterated; `accumulate` and `backward` go by the innermost one."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from crosstrain.data import unprepared_loops
from crosstrain.data.draws import Draws
from crosstrain.data.loader import Pass, PreparedLoader
from crosstrain.data.pass_rows import PassRows


class PassWatcher(Protocol):
    """An object that is told where passes begin and end."""

    def begins(self, run: Pass) -> None:
        """A pass asks for its first batch."""
        ...

    def takes_last(self, run: Pass) -> None:
        """Every rank is about to get the last batch of a pass."""
        ...

    def ends(self, run: Pass) -> None:
        """A pass is exhausted, broken off, closed, or has failed."""
        ...


ENDED = 4  # passes that are remembered: those over training and evaluation data of two epochs


class ActiveLoaders:
    """Passes that have begun and not ended, outermost first.

    A pass enters with its first batch and leaves when it is exhausted, broken off, closed or failed, in
    whatever order: leaving the inner loop gives the outer one back.
    """

    def __init__(self) -> None:
        self.draws = Draws()  # this process draws its own random numbers while a pass is alive
        self._passes: list[Pass] = []
        self._ended: deque[PassRows] = deque(maxlen=ENDED)
        self._watchers: list[weakref.ref[PassWatcher]] = []

    def watch(self, watcher: PassWatcher) -> None:
        """Tell the watcher about passes, through a weak reference."""
        self._watchers.append(weakref.ref(watcher, self._watchers.remove))

    def enter(self, run: Pass) -> None:
        self._passes.append(run)
        run.thread = threading.get_ident()
        if run.draws_own:
            self.draws.enter(resumed=run.done > 0)
        for watcher in self._told():
            watcher.begins(run)

    def hand_out(self, run: Pass, batch: Any) -> Any:
        """Return the batch, after telling the watchers if it is the last one."""
        if self._watchers and run.last_for_all:
            for watcher in self._told():
                watcher.takes_last(run)
        return batch

    def leave(self, run: Pass) -> None:
        self._passes = [other for other in self._passes if other is not run]
        if run.draws_own:
            self.draws.leave()
        run.taken.end(self._outer)
        self._ended.append(run.taken)
        for watcher in self._told():
            watcher.ends(run)

    def _told(self) -> list[PassWatcher]:
        return [known for one in self._watchers if (known := one()) is not None]

    @property
    def _outer(self) -> PassRows | None:
        return self._passes[-1].taken if self._passes else None

    @property
    def ended(self) -> list[PassRows]:
        """The latest passes that ended since the `current` loader gave its batch.

        Outside every loop, the latest of all.
        """
        return [taken for taken in self._ended if taken.ended_beside(self._outer)]

    @property
    def current(self) -> PreparedLoader | None:
        """The innermost prepared loader that is being iterated, None outside every loop."""
        return self._passes[-1].loader if self._passes else None

    @property
    def innermost(self) -> Pass | None:
        """The pass of the `current` loader."""
        return self._passes[-1] if self._passes else None

    @property
    def foreign(self) -> bool:
        """Whether the innermost loader being iterated is a DataLoader that was not prepared.

        True in the body of a `for` loop over it, inside the loop of the `current` loader or outside every one;
        not for ``next(iterator)``, and not for the loop over ``zip(prepared, unprepared)``. Always False with
        one replica, where it makes no difference.
        """
        since, loops = (0, ()) if self.innermost is None else (self.innermost.entered, self.innermost.loops)
        return unprepared_loops.looping(since, loops)

    def __iter__(self) -> Iterator[PreparedLoader]:
        return (run.loader for run in self._passes)

    def weight(self, rank: int) -> float:
        """The factor of this rank's mean loss in a backward; 1.0 outside loops and unless `even_batches="weighted"`.

        Raises RuntimeError where loops over two loaders are running whose batches have different weights, because a
        loss may come from either or both. The weights of all ranks are compared, so that either every rank raises or
        none does.
        """
        if not self._passes:
            return 1.0
        weights = {run.weights() for run in self._passes}
        if len(weights) > 1:
            names = ", ".join(_describe(run) for run in self._passes)
            raise RuntimeError(
                f'even_batches="weighted": {len(self._passes)} loaders are being iterated and their batches '
                f"are split differently over the processes ({names}), so backward cannot know which one its "
                "loss belongs to. Give both loaders the same batch size and number of samples (or "
                "drop_last=True with a batch size that is a multiple of the processes), close an iterator "
                "that is no longer used, or use even_batches=True."
            )
        return weights.pop()[rank]

    def has_rows(self, rank: int) -> bool:
        """Whether the rank has real rows of the innermost loop's batch.

        It may have none in a "weighted" pass's last step.
        """
        return not self._passes or self._passes[-1].weights()[rank] > 0.0


def _describe(run: Pass) -> str:
    rows = "unknown" if run.counts is None else "+".join(map(str, run.counts.real))
    return f"{type(run.loader.dataset).__name__} of {rows} rows"
