"""A loader goes on where it was: skipping batches, saving and loading its position."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.data.prepare import skip_first_batches
from crosstrain.utils import DataLoaderConfiguration
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info

from tests.runtime.loaders import LOADERS, Stream, interrupted, plain, prepare, seed_all
from tests.support.ranks import run_ranks


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 12), st.integers(1, 4), st.integers(0, 6), st.booleans(), st.booleans())
def test_skipping_gives_the_rest_in_order(n: int, batch: int, skip: int, drop: bool, shuffle: bool) -> None:
    """Peer bug 5: lengths, the last batch and the counts after `skip_first_batches`."""
    sampler = RandomSampler(range(n), generator=torch.Generator()) if shuffle and n else None

    def fresh() -> DataLoader[Any]:
        if sampler is not None:
            sampler.generator.manual_seed(5)
        return DataLoader(range(n), batch_size=batch, drop_last=drop, sampler=sampler)

    whole = [b.tolist() for b in fresh()]
    loader = prepare(fresh())
    skipped = skip_first_batches(loader, skip)
    assert len(skipped) == len(whole[skip:])
    ends = []
    assert [(b.tolist(), ends.append(skipped.end_of_dataloader))[0] for b in skipped] == whole[skip:]
    assert ends == [False] * (len(ends) - 1) + [True] * bool(ends)
    assert len(loader) == len(whole)
    assert [b.tolist() for b in skip_first_batches(fresh(), skip)] == whole[skip:]


def _resumes_exactly(make: Any, save_at: int) -> bool:
    def fresh() -> Any:
        seed_all()
        return prepare(make())

    def rest(loader: Any) -> Iterator[Any]:
        while loader.epoch < 3:
            for batch in loader:
                yield batch, torch.rand(())

    whole, resumed = interrupted(fresh, rest, save_at)
    return bool(plain(resumed) == plain(whole))


RESUMED = ["sequential", "shuffle", "drop last", "generator", "weighted", "subset", "eager batch sampler"]


@pytest.mark.parametrize("save_at", [1, 2, 4, 5, 7])
@pytest.mark.parametrize("name", [*RESUMED, "stream"])
def test_resume_is_exact(name: str, save_at: int) -> None:
    """Peer bug 1: neither the position nor the generator of a shuffled loader is saved, so a resumed run
    repeats samples and leaves others out. Here the batches, and every number drawn besides, are those of a
    run that was not interrupted."""
    assert _resumes_exactly(LOADERS[name] if name != "stream" else lambda: DataLoader(Stream(10), 3), save_at)


def persistent(generator: bool = False) -> DataLoader[Any]:
    own = torch.Generator().manual_seed(3) if generator else None
    return DataLoader(range(10), 3, shuffle=True, generator=own, num_workers=1, persistent_workers=True)


@pytest.mark.parametrize(("save_at", "generator"), [(2, False), (4, False), (6, False), (6, True), (8, True)])
def test_resume_with_workers_that_persist(save_at: int, generator: bool) -> None:
    """Torch draws a seed for new workers, and none for those that an earlier pass left: a new process would draw
    one more than the training that went on, and get another order."""
    assert _resumes_exactly(lambda: persistent(generator), save_at)


def test_skip_after_a_load_counts_from_the_start_of_the_epoch() -> None:
    """Scripts written for accelerate skip by hand after load_state; that must not skip twice."""

    def fresh() -> Any:
        return prepare(DataLoader(range(10), batch_size=2, shuffle=True, generator=torch.Generator()))

    loader = fresh()
    walk = iter(loader)
    whole = [next(walk).tolist() for _ in range(3)]
    state = loader.state_dict()
    whole += [b.tolist() for b in walk]
    by_itself, by_hand = fresh(), fresh()
    by_itself.load_state_dict(state)
    by_hand.load_state_dict(state)
    assert [b.tolist() for b in by_itself] == whole[3:]
    assert [b.tolist() for b in skip_first_batches(by_hand, 3)] == whole[3:]
    assert by_itself.epoch == by_hand.epoch == 1


# -- `use_stateful_dataloader`: a resumed pass goes on in the data set's own state, and reads nothing again ---

LENGTH = 23


def _share() -> tuple[int, int]:
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class Stateful:
    kept: tuple[str, ...]

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class Counted(Stateful, IterableDataset[Any]):
    """Numbers that follow from its state alone. `reads` is not part of the state: what is read again shows."""

    kept = ("at", "value")

    def __init__(self) -> None:
        self.at, self.value, self.reads = 0, 1, 0

    def __iter__(self) -> Iterator[Any]:
        number, workers = _share()
        while self.at < LENGTH // workers + number:  # the workers end at different rows
            self.at += 1
            self.reads += 1
            self.value = (self.value * 31 + number + 7) % 10007
            yield torch.tensor([self.value, self.at, number])
        self.at, self.value = 0, self.value + 1  # the next pass is another one


class Walk(Stateful):
    """An iterator with a state."""

    kept = ("at",)

    def __init__(self) -> None:
        self.number, self.workers = _share()
        self.at = self.number

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.at >= LENGTH:
            raise StopIteration
        self.at += self.workers
        return torch.tensor([self.at - self.workers, self.number, 0])


class OfWalks(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return Walk()


class Rows(Stateful, Dataset[Any]):
    """A map-style data set whose rows tell how many it has given before, and in each process begin at another number."""

    kept = ("given",)

    def __init__(self) -> None:
        self.given = 100 * int(os.environ.get("RANK", "0"))

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        self.given += 1
        return torch.tensor([index, self.given, 0])


KINDS: dict[str, Any] = {"data set": Counted, "iterator": OfWalks, "rows": Rows}
BATCH = 2


def _workers(number: int) -> dict[str, Any]:
    return {"num_workers": number, "multiprocessing_context": "fork"} if number else {}


def _raw(kind: str, workers: int) -> DataLoader[Any]:
    return DataLoader(
        KINDS[kind](),
        batch_size=BATCH,
        shuffle=True if kind == "rows" else None,
        generator=torch.Generator().manual_seed(3),
        **_workers(workers),
    )


def _checkpoints(folder: Path, kind: str, workers: int, dispatch: bool | None) -> tuple[Any, Any]:
    """Two passes without a break, and the same with a break behind some batches."""

    def fresh(state: str = "") -> tuple[Accelerator, Any]:
        torch.manual_seed(3)
        config = DataLoaderConfiguration(use_stateful_dataloader=True, dispatch_batches=dispatch)
        accelerator = Accelerator(cpu=True, dataloader_config=config)
        accelerator.free_memory()  # as in a process of its own
        loader = accelerator.prepare(_raw(kind, workers))
        if state:
            accelerator.load_state(state)
        return accelerator, loader

    _, loader = fresh()
    whole = [[batch.tolist() for batch in loader] for _ in range(2)]
    resumed = []
    for save_at in (1, 2, 4, 6):
        accelerator, loader = fresh()
        walk = iter(loader)
        first = [next(walk).tolist() for _ in range(save_at)]
        accelerator.save_state(str(folder / "state"))
        for _ in range(2):  # what the loop does behind the checkpoint is lost
            next(walk, None)
        walk.close()
        accelerator, _ = fresh(str(folder / "state"))
        accelerator.save_state(str(folder / "again"))  # before a batch is read: still the same position
        _, loader = fresh(str(folder / "again"))
        resumed.append([first + [batch.tolist() for batch in loader], [batch.tolist() for batch in loader]])
    return whole, resumed


CASES = [
    (kind, workers, dispatch, world)
    for kind in KINDS
    for workers in (0, 3)
    for world, dispatch in ((1, None), (2, None), (2, False))
]


@pytest.mark.parametrize(("kind", "workers", "dispatch", "world"), CASES)
def test_a_checkpoint_holds_the_state_of_every_process(
    tmp_path: Path, kind: str, workers: int, dispatch: bool | None, world: int
) -> None:
    ranks = run_ranks(_checkpoints, world, tmp_path, kind, workers, dispatch, forks=workers > 0)
    for whole, resumed in ranks:
        assert resumed == [whole] * len(resumed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 3])
def test_batches_are_those_of_torchdatas_stateful_loader(kind: str, workers: int) -> None:
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    seen = []
    for stateful in (lambda loader: loader, prepare):

        def fresh(stateful: Any = stateful) -> Any:
            return stateful(loaders.StatefulDataLoader(KINDS[kind](), batch_size=BATCH, **_workers(workers)))

        loader = fresh()
        walk = iter(loader)
        for _ in range(4):
            next(walk)
        state = loader.state_dict()
        again = fresh()
        again.load_state_dict(state)
        seen.append([batch.tolist() for batch in again])
    assert seen[0] == seen[1] != []
