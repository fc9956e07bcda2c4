"""The prepared loader: a copy of the user's DataLoader that gives this rank's batches on the device."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch.utils.data import DataLoader

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import State
from crosstrain.data import unprepared_loops
from crosstrain.data.counted import Counted
from crosstrain.data.options import DataPlan
from crosstrain.data.order_rng import OrderRng
from crosstrain.data.pass_rows import PassRows
from crosstrain.data.peekable import Peekable
from crosstrain.data.samplers import SeedableRandomSampler
from crosstrain.data.sharding import BatchSplit, Counts

Read = Callable[[], Iterator[Any]]
"""A function that begins a pass over the user's own loader."""


class Pass:
    """One iteration over a prepared loader.

    batches: what is left to read. done: how many batches of the pass were given out, skipped ones included.
    length: how many batches the whole pass has on this rank; None where only reading tells.
    counts: the rows of the batch in hand by rank; None where they are unknown.
    start: the random state in which the pass began.
    first: whether no pass over the loader began before it.
    snapshots: the states of the data set, see `dataset_state.Snapshots`.
    draws_own: whether each process draws its own random numbers meanwhile, as long as the script does not shard it.
    entered, thread, loops: when its first batch was asked for, and by which `for` statements.
    """

    first = True
    entered = 0
    thread = 0
    loops: tuple[unprepared_loops.Loop, ...] = ()
    snapshots: Any = None

    def __init__(self, loader: PreparedLoader, batches: Iterator[Any], start: State, done: int) -> None:
        self.loader = loader
        self.length = loader._crosstrain.feed.length()
        self.batches = batches if self.length is not None else Peekable(batches)
        self.done = done
        self._start = start
        self.taken = PassRows(type(loader.dataset).__name__, loader._crosstrain.comm.rank)
        self._counts: Counts | None = None
        self.place = loader._crosstrain.place
        self.draws_own = loader._crosstrain.own is None

    @property
    def start(self) -> State:
        return self._start

    def first_asked(self) -> None:
        """Called when the first batch is asked for, because a stream may draw its order then."""
        if "order" not in self._start:
            self._start = self.loader._crosstrain.feed.rng.order(self._start)

    @property
    def counts(self) -> Counts | None:
        return self._counts

    @counts.setter
    def counts(self, counts: Counts | None) -> None:
        self._counts = counts
        if counts is not None:
            self.taken.add(counts)

    def known_counts(self) -> Counts | None:
        """The rows of the batch in hand by rank; None where they are unknown."""
        return self.counts

    def left(self) -> None:
        """Called when the loop is over or was broken off."""

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        """A function that makes the user's batch of what was read; None where both are the same."""
        return self.place

    @property
    def at_end(self) -> bool:
        if isinstance(self.batches, Peekable):
            return self.batches.exhausted()
        return self.done == self.length

    @property
    def last_for_all(self) -> bool:
        """Whether this batch is known, without reading ahead, to be the last one on every rank."""
        how = self.loader._crosstrain.feed.how
        uneven = how.even is False and not how.drop_last
        return not (uneven or isinstance(self.batches, Peekable)) and self.at_end

    def weights(self) -> tuple[float, ...]:
        prepared = self.loader._crosstrain
        if self.counts is None or prepared.plan.even_batches != "weighted":
            return (1.0,) * prepared.comm.world
        return self.counts.weights()


class Iterations(Protocol):
    """An object that is told of every pass: see `active_loaders.ActiveLoaders`."""

    def enter(self, run: Pass) -> None:
        """A pass asks for its first batch."""
        ...

    def hand_out(self, run: Pass, batch: Any) -> Any:
        """Return the batch, on its way to the loop."""
        ...

    def leave(self, run: Pass) -> None:
        """The pass is over."""
        ...


class Feed(Protocol):
    """The source of a prepared loader's batches."""

    rng: OrderRng
    index_sampler: Any

    @property
    def how(self) -> BatchSplit: ...

    def begin(self, loader: PreparedLoader, read: Read, skip: int, resume: State | None) -> Pass:
        """Begin a pass without its first ``skip`` batches, in the random state ``resume`` if it is given."""
        ...

    def length(self) -> int | None:
        """The number of batches of a whole pass on this rank; None where it is not certain."""
        ...

    def __len__(self) -> int:
        """The number of batches of a whole pass on this rank by the data set's own length; TypeError without one."""
        ...


@dataclass
class Progress:
    """The progress of training with one loader; a loader and its `skip_first_batches` copies share it.

    begun: whether a pass has begun, in this process or before the loaded state was saved.
    resume: batches done and random state of the pass that a loaded state continues.
    data: the state of the data set there, see `dataset_state`.
    over: whether that pass must be read to its end first, without giving its batches out.
    sampler_epoch: the epoch of the script's own DistributedSampler in that pass.
    """

    epoch: int = 0
    runs: list[Pass] = field(default_factory=list)
    current: Pass | None = None
    begun: bool = False
    resume: tuple[int, State] | None = None
    data: dict[str, Any] | None = None
    over: bool = False
    sampler_epoch: int | None = None


@dataclass
class Prepared:
    """What preparation adds to a loader.

    feed: the source of its batches. place: a function that moves a batch to the device; None where it stays.
    raw: the user's loader. skip: how many batches each pass leaves out; None for the number in a loaded state, if any.
    own: the sampler by which the script itself shards the loader. kept: the state of its data set
    (`dataset_state.DatasetState`); None where the options do not ask for it.
    """

    comm: Comm
    plan: DataPlan
    active: Iterations
    feed: Feed
    place: Callable[[Any], Any] | None
    progress: Progress
    raw: DataLoader[Any]
    seedable: SeedableRandomSampler | None = None
    skip: int | None = None
    own: Any = None
    kept: Any = None


class PreparedLoader(DataLoader[Any]):
    """A DataLoader that gives this rank's batches.

    `prepare_loader` makes it, without calling `__init__`, as a copy of the user's loader. Its class derives from this
    one and from the user's own, so that attributes, `batch_size`, samplers and overridden methods are the user's.
    """

    _crosstrain: Prepared

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        prepared = self._crosstrain
        progress = prepared.progress
        begin, begun = super().__iter__, list[Iterator[Any]]()
        skip, resume = self._restored(begin)
        if prepared.seedable is not None:
            prepared.seedable.set_epoch(progress.epoch)
        if prepared.skip is not None:
            skip = prepared.skip
        # The pass begins here and not at its first batch: torch draws worker seeds and starts workers in iter().

        def read() -> Iterator[Any]:
            begun[:] = [begin()]
            return begun[0]

        return Counted(self._run(self._begin(read, skip, resume)), self, begun)

    def _begin(self, read: Read, skip: int, resume: State | None) -> Pass:
        prepared, snapshots = self._crosstrain, None
        progress = prepared.progress
        if prepared.kept is not None:
            there = progress.resume is not None and progress.resume[0] == skip
            read, snapshots = prepared.kept.reading(read, skip, progress.data if there else None)
        run = prepared.feed.begin(self, read, skip, resume)
        run.snapshots = snapshots
        run.first, progress.begun = not progress.begun, True
        return run

    def restarts_workers(self) -> bool:
        """Whether the next pass starts persistent workers anew: in a copy of the loader, or after a resume.

        Torch draws a seed whenever it starts workers, and the order must not depend on that.
        """
        return self.persistent_workers and self._iterator is None and self._crosstrain.progress.begun

    def _restored(self, read: Read) -> tuple[int, State | None]:
        """The number of batches to skip and the random state, for the pass that begins now after a load.

        A state that was saved at the last batch of an epoch continues after it: the first loop gets no batches. Where
        the loop gives its own place, by `skip_first_batches` or `set_epoch`, that refers to the next epoch, whose order
        begins where that of the last one ends.
        """
        prepared = self._crosstrain
        progress = prepared.progress
        self._follow_own_sampler()
        done, state = progress.resume or (0, None)
        if state is None or not self._ends_at(done):
            return done, state
        if progress.over or (prepared.skip is not None and prepared.skip < done):
            if prepared.seedable is not None:
                prepared.seedable.set_epoch(progress.epoch)
            for _ in self._run(self._begin(read, done, state)):
                pass
            return 0, None
        if prepared.skip is None:
            warnings.warn(
                f"the checkpoint was saved after the last batch of epoch {progress.epoch}: no batches of it are "
                f"left, and this pass over {type(self.dataset).__name__} is empty. If your loop starts with the "
                f"next epoch, say so before it: loader.set_epoch({progress.epoch + 1}), or "
                "skip_first_batches(loader, 0).",
                stacklevel=3,
            )
        return done, state

    def _follow_own_sampler(self) -> None:
        """Give up a loaded position if the script has set its own sampler to another epoch since."""
        prepared = self._crosstrain
        progress = prepared.progress
        before, now = progress.sampler_epoch, getattr(prepared.own, "epoch", None)
        if progress.resume is None or before is None or now is None or before == now:
            return
        progress.epoch += now - before
        progress.resume, progress.over = None, False

    def _ends_at(self, done: int) -> bool:
        length = self._crosstrain.feed.length()
        return length is not None and done >= length

    def _run(self, run: Pass) -> Generator[Any, None, None]:
        prepared = self._crosstrain
        progress = prepared.progress
        receive = run.receive
        done = prepared.comm.batch_done
        if prepared.comm.replicas > 1:
            run.entered, run.loops = unprepared_loops.tick(), unprepared_loops.asking(sys._getframe(1))
        # Only now, because iter() alone must not give up a position.
        progress.resume, progress.over = None, False
        prepared.active.enter(run)
        progress.runs.append(run)
        try:
            run.first_asked()
            for item in run.batches:
                run.done += 1
                progress.current = run
                yield prepared.active.hand_out(run, item if receive is None else receive(item))
                done()
        finally:
            prepared.active.leave(run)
            progress.runs.remove(run)
            progress.current = progress.runs[-1] if progress.runs else None
            run.left()
        if run.length is not None and run.done != max(run.length, prepared.skip or 0):
            warnings.warn(
                f"the loader over {type(self.dataset).__name__} said it had {run.length} batches and gave "
                f"{run.done}: the last batch was not recognised as such (accumulation and metrics go by it). "
                "Correct the length of the data set or sampler.",
                stacklevel=2,
            )
        progress.epoch += 1

    def __copy__(self) -> PreparedLoader:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Preparation belongs to this process's run: a pickle or a deep copy is the user's own loader, unprepared.
        return unprepared, (self._crosstrain.raw,)

    def __len__(self) -> int:
        prepared = self._crosstrain
        return max(0, len(prepared.feed) - (prepared.skip or 0))

    @property
    def _index_sampler(self) -> Any:
        """The sampler of torch's iterator; the user's own samplers stay in their attributes."""
        return self._crosstrain.feed.index_sampler

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch in hand is the last of its pass.

        Where the length is unknown, this reads one batch ahead.
        """
        run = self._crosstrain.progress.current
        return run is not None and run.at_end

    @property
    def _crosstrain_counts(self) -> Counts | None:
        """The rows of the batch in hand by rank; None where they are unknown, and outside of every loop."""
        run = self._crosstrain.progress.current
        return None if run is None else run.known_counts()

    @property
    def remainder(self) -> int:
        """The number of real rows of the global batch in hand if it is not a full one; 0 if it is, -1 if unknown."""
        counts = self._crosstrain_counts
        if counts is None:
            return -1
        full, real = self._crosstrain.feed.how.full, sum(counts.real)
        return real if real < (sum(counts.rows) if full is None else full) else 0

    def rows(self, rank: int) -> int | None:
        """How many rows `rank` holds of the batch in hand, with those that complete or fill it; None if unknown."""
        counts = self._crosstrain_counts
        return None if counts is None else counts.rows[rank]

    def real_rows(self, rank: int) -> int | None:
        """How many rows of `rank`'s batch in hand belong to the pass; None if unknown."""
        counts = self._crosstrain_counts
        return None if counts is None else counts.real[rank]

    @property
    def weight(self) -> float:
        """The factor of this rank's mean loss, its real rows * P / all real rows with "weighted", else 1.0."""
        run = self._crosstrain.progress.current
        return 1.0 if run is None else run.weights()[self._crosstrain.comm.rank]

    @property
    def already_sharded(self) -> bool:
        """Whether the script itself shards this loader, by a DistributedSampler.

        Its length and batches are then this process's own before `prepare`, too.
        """
        return self._crosstrain.own is not None

    @property
    def total_batch_size(self) -> int | None:
        """The number of rows of a full step over all ranks; None where the batches have no common size."""
        return self._crosstrain.feed.how.full

    @property
    def total_dataset_length(self) -> int:
        """The number of samples of the data set; TypeError where it has no length."""
        dataset: Any = self.dataset
        return len(dataset)

    @property
    def epoch(self) -> int:
        """The number of completed passes, unless `set_epoch` or a loaded state has set another one."""
        progress = self._crosstrain.progress
        return progress.epoch + progress.over

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, also in the samplers and the data set where these have `set_epoch`.

        A position that `load_state_dict` has restored counts for the epoch in which it was saved, and is given up for
        any other. A position after the last batch is where the next epoch begins.
        """
        progress = self._crosstrain.progress
        begins = progress.resume is not None and self._ends_at(progress.resume[0])
        if begins and epoch == progress.epoch + 1:
            progress.over = True
        else:
            if epoch != progress.epoch:
                progress.resume = None
            progress.epoch = epoch
        _forward_epoch(self.batch_sampler, epoch)
        _forward_epoch(self.sampler, epoch)
        _forward_epoch(self.dataset, epoch)

    def state_dict(self) -> dict[str, Any]:
        """The exact position: the epoch, the batches done in the running pass, and the random state it began in.

        The state holds tensors, numbers, strings and lists only, and is the same on every rank where the order is
        random.
        """
        progress = self._crosstrain.progress
        how = self._crosstrain.feed.how
        done, start, first = 0, None, not progress.begun
        if progress.current is not None:
            done, start, first = progress.current.done, progress.current.start, progress.current.first
        elif progress.resume is not None:
            done, start = progress.resume
        data = {} if self._crosstrain.kept is None else {"data": self._data_state(done)}
        return data | {
            "epoch": progress.epoch,
            "batches_done": done,
            "start": start or {"generators": self._crosstrain.feed.rng.generator_states()},
            "batches_per_step": how.group,
            "first": first,
            "sampler_epoch": getattr(self._crosstrain.own, "epoch", None),
        }

    def _data_state(self, done: int) -> dict[str, Any] | None:
        progress, kept = self._crosstrain.progress, self._crosstrain.kept
        run = progress.current
        if run is None and progress.resume is not None and progress.data is not None:
            return progress.data
        state: dict[str, Any] | None = kept.position(None if run is None else run.snapshots, done)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a position of `state_dict`: the next pass begins with the next batch of the same order.

        With another number of processes, the position is the same number of samples, rounded down to a whole step with
        a warning. Raises ValueError for a state that is not of a prepared loader.
        """
        missing = {"epoch", "batches_done", "start", "batches_per_step"} - set(state)
        if missing:
            raise ValueError(f"this is not the state of a prepared loader: {sorted(missing)} missing")
        how, progress = self._crosstrain.feed.how, self._crosstrain.progress
        read = state["batches_done"] * state["batches_per_step"]
        done, rest = divmod(read, how.group)
        if rest:
            warnings.warn(
                f"the state was saved with another number of processes, after {read} batches: the pass continues "
                f"{rest} batches earlier, at step {done}.",
                stacklevel=2,
            )
        progress.epoch = state["epoch"]
        progress.begun = not state.get("first", True)  # unknown to older checkpoints
        progress.sampler_epoch = state.get("sampler_epoch")
        if progress.sampler_epoch is not None and self._crosstrain.own is not None:
            self._crosstrain.own.set_epoch(progress.sampler_epoch)
        self._iterator = None  # its workers belong to another pass
        progress.resume = (done, state["start"]) if done else None
        progress.data = None
        if self._crosstrain.kept is not None:
            data = self._crosstrain.kept.load(state.get("data"))
            progress.data = data if done and state["batches_per_step"] == how.group else None
        if not done:
            self._crosstrain.feed.rng.set_generator_states(state["start"]["generators"])


def _forward_epoch(holder: Any, epoch: int) -> None:
    for owner in (holder, getattr(holder, "sampler", None)):
        forward = getattr(owner, "set_epoch", None)
        if callable(forward):
            forward(epoch)


def unprepared(raw: DataLoader[Any]) -> DataLoader[Any]:
    """What pickle calls to make a prepared loader again: the user's own."""
    return raw
