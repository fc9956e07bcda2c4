"""One process: a prepared loader is the user's own loader, bit for bit, plus the knowledge of where it
stands.
"""

from __future__ import annotations

import copy
import pickle
import random
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain.comm import TorchComm
from crosstrain.data import ActiveLoaders, DataPlan, PreparedLoader, prepare_loader, skip_first_batches
from crosstrain.data.place import Placer
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)


def prepare(loader: DataLoader[Any], active: ActiveLoaders | None = None, **plan: Any) -> Any:
    return prepare_loader(loader, TorchComm.start(cpu=True), DataPlan(**plan), active or ActiveLoaders())


class Noisy(Dataset[Tensor]):
    """Augments in the process: every item draws a random number from three streams."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Tensor:
        drawn = float(torch.rand(())) + random.random() + float(np.random.rand())
        return torch.tensor([float(index), drawn])


class Stream(IterableDataset[int]):
    def __init__(self, n: int, noisy: bool = False) -> None:
        self.n = n
        self.noisy = noisy

    def __iter__(self) -> Iterator[Any]:
        for i in range(self.n):
            yield i + float(torch.rand(())) if self.noisy else i


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.n


class EagerBatches(Sampler[list[int]]):
    """Draws its order in __iter__, before torch draws the workers' seed."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(10).tolist()
        return iter([order[:4], order[4:6], order[6:]])

    def __len__(self) -> int:
        return 3


LOADERS = {
    "sequential": lambda: DataLoader(Noisy(10), batch_size=3),
    "shuffle": lambda: DataLoader(Noisy(10), batch_size=3, shuffle=True),
    "drop last": lambda: DataLoader(Noisy(10), batch_size=3, shuffle=True, drop_last=True),
    "generator": lambda: DataLoader(
        Noisy(10), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "replacement": lambda: DataLoader(Noisy(10), batch_size=3, sampler=RandomSampler(range(10), True, 70)),
    "weighted": lambda: DataLoader(Noisy(10), batch_size=3, sampler=WeightedRandomSampler([1.0] * 10, 8)),
    "subset": lambda: DataLoader(Noisy(10), batch_size=3, sampler=SubsetRandomSampler([1, 4, 7, 2, 9, 0, 5])),
    "eager batch sampler": lambda: DataLoader(Noisy(10), batch_sampler=EagerBatches()),
    "no batching": lambda: DataLoader(Noisy(10), batch_size=None, shuffle=True),
    "batches of indices": lambda: DataLoader(
        TensorDataset(torch.rand(10)),
        batch_size=None,
        sampler=BatchSampler(RandomSampler(range(10)), 3, False),
    ),
    "workers": lambda: DataLoader(Noisy(10), batch_size=3, shuffle=True, num_workers=2),
    "stream": lambda: DataLoader(Stream(10, noisy=True), batch_size=3),
    "sized stream": lambda: DataLoader(SizedStream(10, noisy=True), batch_size=3),
    "stream without batching": lambda: DataLoader(Stream(4), batch_size=None),
}


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def _record(loader: Any, passes: int = 2) -> list[Any]:
    """Every batch of some passes, and a number drawn after each batch from each stream, as dropout would."""
    seen: list[Any] = []
    for _ in range(passes):
        walk = iter(loader)
        seen.append(torch.rand(()))  # between iter() and the first batch, as in `data = iter(loader)`
        for batch in walk:
            seen += [batch, torch.rand(()), random.random(), np.random.rand()]
    return seen


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)


@pytest.mark.parametrize("name", LOADERS)
def test_same_batches_and_same_random_streams_as_the_plain_loader(name: str) -> None:
    """Peer bug 3: accelerate reads one batch ahead, so the data set draws before the model's dropout does."""
    _seed()
    plain = _record(LOADERS[name]())
    _seed()
    prepared = _record(prepare(LOADERS[name]()))
    assert _equal(plain, prepared)


@pytest.mark.parametrize("even", [True, False, "weighted"])
@pytest.mark.parametrize("split", [True, False])
def test_no_option_changes_what_one_process_reads(even: Any, split: bool) -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=3)
    batches = [b[0].tolist() for b in prepare(loader, split_batches=split, even_batches=even)]
    assert batches == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


@pytest.mark.parametrize("name", LOADERS)
def test_the_last_batch_is_known_as_such_in_the_loops_body(name: str) -> None:
    loader = prepare(LOADERS[name]())
    ends = [loader.end_of_dataloader for _ in loader]
    assert ends == [False] * (len(ends) - 1) + [True]
    assert not loader.end_of_dataloader  # outside a loop


def test_a_stream_is_read_ahead_only_when_somebody_asks_for_its_end() -> None:
    read: list[int] = []

    class Watched(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            for i in range(3):
                read.append(i)
                yield i

    loader = prepare(DataLoader(Watched(), batch_size=None))
    walk = iter(loader)
    next(walk)
    assert read == [0]
    assert not loader.end_of_dataloader
    assert read == [0, 1]
    assert [next(walk), next(walk)] == [1, 2]
    assert loader.end_of_dataloader


def test_a_subclass_keeps_its_class_and_attributes_and_batch_size() -> None:
    """Peer bug 14: accelerate's prepared loader says batch_size=None and loses attributes of a subclass."""

    class Mine(DataLoader[Any]):
        def __init__(self, *args: Any, tag: str, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.tag = tag

        def shout(self) -> str:
            return self.tag.upper()

    sampler = SequentialSampler(range(10))
    raw = Mine(range(10), batch_size=4, sampler=sampler, tag="mine", drop_last=True)
    loader = prepare(raw)
    assert isinstance(loader, Mine) and isinstance(loader, PreparedLoader)
    assert type(loader).__name__ == "Mine"
    assert (loader.tag, loader.shout(), loader.batch_size, loader.drop_last) == ("mine", "MINE", 4, True)
    assert loader.sampler is sampler and loader.dataset is raw.dataset
    assert isinstance(loader.batch_sampler, BatchSampler)
    assert prepare(loader) is loader
    assert not isinstance(raw, PreparedLoader)


def test_a_subclass_that_changes_its_batches_still_does() -> None:
    class Doubled(DataLoader[Any]):
        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            for batch in super().__iter__():
                yield 2 * batch

        def __len__(self) -> int:
            return super().__len__()

    loader = prepare(Doubled(range(5), batch_size=2))
    assert [b.tolist() for b in loader] == [[0, 2], [4, 6], [8]]


def test_loader_options_are_kept() -> None:
    def init(worker: int) -> None: ...

    def collate(rows: list[int]) -> list[int]:
        return rows

    options: dict[str, Any] = {
        "num_workers": 1,
        "persistent_workers": True,
        "prefetch_factor": 3,
        "timeout": 9,
        "worker_init_fn": init,
        "collate_fn": collate,
        "generator": torch.Generator(),
    }
    loader = prepare(DataLoader(range(10), batch_size=2, **options))
    assert {name: getattr(loader, name) for name in options} == options
    assert [list(loader) for _ in range(2)] == [[[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]] * 2


@pytest.mark.parametrize("leave", ["break", "raise", "close", "exhaust", "delete"])
def test_no_way_out_of_a_loop_leaves_an_active_loader(leave: str) -> None:
    """Peer bug 7: after a `break` at the last batch accelerate believes for ever to be at an end of a loader."""
    active = ActiveLoaders()
    loader = prepare(DataLoader(range(4), batch_size=2), active)
    walk = iter(loader)
    assert active.current is None
    next(walk)
    next(walk)
    assert active.current is loader and loader.end_of_dataloader
    if leave == "break":
        for _ in loader:
            break
        assert active.current is loader and loader.end_of_dataloader  # the outer loop again
        walk.close()
    elif leave == "raise":
        with pytest.raises(KeyError):
            walk.throw(KeyError)
    elif leave == "close":
        walk.close()
    elif leave == "exhaust":
        assert list(walk) == []
    else:
        del walk
    assert active.current is None
    assert not loader.end_of_dataloader


def test_an_error_in_the_loops_body_leaves_the_loader() -> None:
    active = ActiveLoaders()
    loader = prepare(DataLoader(range(4), batch_size=2), active)
    with pytest.raises(ZeroDivisionError):
        for batch in loader:
            batch / (1 // 0)
    assert active.current is None


def test_nested_loops_know_which_loader_is_inner() -> None:
    active = ActiveLoaders()
    train = prepare(DataLoader(range(6), batch_size=2), active)
    valid = prepare(DataLoader(range(3), batch_size=2), active)
    seen = []
    for _ in train:
        for _ in valid:
            assert active.current is valid
            seen.append(valid.end_of_dataloader)
            if train.end_of_dataloader:
                break
        assert active.current is train
        seen.append(train.end_of_dataloader)
    assert seen == [False, True, False, False, True, False, False, True]
    assert active.current is None


def test_the_same_loader_inside_itself() -> None:
    loader = prepare(DataLoader(range(4), batch_size=2))
    ends = []
    for _ in loader:
        ends.append([loader.end_of_dataloader for _ in loader])
        ends.append(loader.end_of_dataloader)  # type: ignore[arg-type]
    assert ends == [[False, True], False, [False, True], True]
    assert [
        (loader.end_of_dataloader, a.tolist() == b.tolist()) for a, b in zip(loader, loader, strict=True)
    ] == [
        (False, True),
        (True, True),
    ]


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 12),
    batch=st.integers(1, 4),
    skip=st.integers(0, 6),
    drop=st.booleans(),
    shuffle=st.booleans(),
)
def test_skipping_gives_the_rest_of_the_same_order(
    n: int, batch: int, skip: int, drop: bool, shuffle: bool
) -> None:
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


@pytest.mark.parametrize("skip", [0, 2, 9])
def test_skipping_in_a_stream(skip: int) -> None:
    for loader in (DataLoader(Stream(7), batch_size=2), DataLoader(SizedStream(7), batch_size=2)):
        whole = [b.tolist() for b in loader]
        for skipped in (skip_first_batches(loader, skip), skip_first_batches(prepare(loader), skip)):
            assert [b.tolist() for b in skipped] == whole[skip:]
    assert len(skip_first_batches(DataLoader(SizedStream(7), batch_size=2), 3)) == 1


def test_nothing_is_read_for_what_is_skipped() -> None:
    read: list[int] = []

    class Watched(Dataset[int]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> int:
            read.append(index)
            return index

    for loader in (DataLoader(Watched(), batch_size=2), prepare(DataLoader(Watched(), batch_size=2))):
        read.clear()
        list(skip_first_batches(loader, 2))
        assert read == [4, 5]


def _resumes_exactly(make: Any, save_at: int) -> bool:
    """Whether a run that is interrupted after `save_at` batches and loaded into a new loader is the one that went on."""

    def batches(loader: Any) -> Iterator[Any]:
        for _ in range(3):
            yield from loader

    _seed()
    whole = [(batch, torch.rand(())) for batch in batches(prepare(make()))]
    _seed()
    loader = prepare(make())
    first, state = [], None
    for batch in batches(loader):
        first.append((batch, torch.rand(())))
        if len(first) == save_at:
            state = pickle.loads(pickle.dumps(loader.state_dict()))
            streams = torch.get_rng_state(), random.getstate(), np.random.get_state()
            break
    torch.manual_seed(99)  # a new process
    again = prepare(make())
    again.load_state_dict(state)
    torch.set_rng_state(streams[0])
    random.setstate(streams[1])
    np.random.set_state(streams[2])

    def rest(loader: Any) -> Iterator[Any]:
        while loader.epoch < 3:
            yield from loader

    return _equal(first + [(batch, torch.rand(())) for batch in rest(again)], whole)


@pytest.mark.parametrize("save_at", [1, 2, 4, 5, 7])
@pytest.mark.parametrize(
    "name", ["sequential", "shuffle", "drop last", "generator", "weighted", "subset", "eager batch sampler"]
)
def test_resume_is_exact(name: str, save_at: int) -> None:
    """Peer bug 1: neither the position nor the generator of a shuffled loader is saved, so a resumed run
    repeats samples and leaves others out. Here the batches, and every number drawn besides, are those of a
    run that was
    not interrupted."""
    assert _resumes_exactly(LOADERS[name], save_at)


@pytest.mark.parametrize("save_at", [1, 4, 6])
def test_resume_of_a_stream(save_at: int) -> None:
    assert _resumes_exactly(lambda: DataLoader(Stream(10), batch_size=3), save_at)


def test_resume_between_two_passes() -> None:
    generator = torch.Generator().manual_seed(1)
    loader = prepare(DataLoader(range(9), batch_size=2, shuffle=True, generator=generator))
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batches_done"]) == (1, 0)
    following = [b.tolist() for b in loader]
    other = prepare(DataLoader(range(9), batch_size=2, shuffle=True, generator=torch.Generator()))
    other.load_state_dict(state)
    assert [b.tolist() for b in other] == following
    assert other.epoch == 2


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


def test_a_state_from_inside_a_skipped_pass() -> None:
    def fresh() -> Any:
        return prepare(DataLoader(range(10), batch_size=2, shuffle=True, generator=torch.Generator()))

    loader = fresh()
    whole = [b.tolist() for b in fresh()]
    walk = iter(skip_first_batches(loader, 1))
    next(walk)
    other = fresh()
    other.load_state_dict(loader.state_dict())  # the checkpoint knows the loader, not its skipped copy
    assert [b.tolist() for b in other] == whole[2:]


def test_set_epoch_for_another_epoch_gives_the_saved_position_up() -> None:
    loader = prepare(DataLoader(range(6), batch_size=2))
    walk = iter(loader)
    next(walk)
    state = loader.state_dict()
    same, other = (prepare(DataLoader(range(6), batch_size=2)) for _ in range(2))
    same.load_state_dict(state)
    same.set_epoch(0)
    assert len(list(same)) == 2
    other.load_state_dict(state)
    other.set_epoch(4)
    assert len(list(other)) == 3


def test_loading_something_else_says_so() -> None:
    with pytest.raises(ValueError, match="not the state of a prepared loader"):
        prepare(DataLoader(range(6))).load_state_dict({"epoch": 1})


def test_the_state_needs_no_unpickling_of_objects(tmp_path: Any) -> None:
    loader = prepare(LOADERS["eager batch sampler"]())
    walk = iter(loader)
    next(walk)
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    again = prepare(LOADERS["eager batch sampler"]())
    again.load_state_dict(state)
    assert len(list(again)) == 2


def test_a_seedable_order_is_a_function_of_seed_and_epoch() -> None:
    def orders(seed: int | None) -> list[list[int]]:
        loader = prepare(
            DataLoader(range(8), batch_size=8, shuffle=True), use_seedable_sampler=True, data_seed=seed
        )
        return [next(iter(list(loader))).tolist() for _ in range(2)]

    torch.manual_seed(1)
    first = orders(7)
    torch.manual_seed(2)
    assert orders(7) == first
    assert first[0] != first[1]
    assert first[0] == torch.randperm(8, generator=torch.Generator().manual_seed(7)).tolist()
    assert orders(None)[0] == torch.randperm(8, generator=torch.Generator().manual_seed(2)).tolist()


def test_set_epoch_reaches_samplers_and_data_sets() -> None:
    class Epochs(Dataset[int]):
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return index

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    dataset = Epochs()
    sampler = DistributedSampler(range(4), 1, 0, shuffle=True)
    loader = prepare(DataLoader(dataset, sampler=sampler))
    loader.set_epoch(3)
    assert (sampler.epoch, dataset.epochs, loader.epoch) == (3, [3], 3)
    list(loader)
    assert loader.epoch == 4


def test_a_wrong_length_is_reported() -> None:
    class Lying(SequentialSampler):
        def __len__(self) -> int:
            return 6

    loader = prepare(DataLoader(range(4), sampler=Lying(range(4))))
    with pytest.warns(UserWarning, match="said it had 6 batches and gave 4"):
        list(loader)


def test_real_rows_and_remainder_in_one_process() -> None:
    loader = prepare(DataLoader(range(5), batch_size=2))
    seen = [(loader.rows(0), loader.real_rows(0), loader.remainder, loader.weight) for _ in loader]
    assert seen == [(2, 2, 0, 1.0), (2, 2, 0, 1.0), (1, 1, 1, 1.0)]
    assert loader.rows(0) is None and loader.remainder == -1
    assert (loader.total_batch_size, loader.total_dataset_length) == (2, 5)


def test_copies_and_pickles() -> None:
    loader = prepare(DataLoader(range(5), batch_size=2))
    assert [b.tolist() for b in copy.copy(loader)] == [[0, 1], [2, 3], [4]]
    raw = pickle.loads(pickle.dumps(loader))  # a run does not travel, the user's loader does
    assert type(raw) is DataLoader and [b.tolist() for b in raw] == [[0, 1], [2, 3], [4]]


def test_what_is_no_loader_is_refused() -> None:
    with pytest.raises(TypeError, match="not list"):
        prepare([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="even_batches='maybe'"):
        DataPlan(even_batches="maybe")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="DistributedSampler"):
        prepare(DataLoader(range(4), sampler=DistributedSampler(range(4), 2, 0)))
    with pytest.raises(ValueError, match="-1 batches"):
        skip_first_batches(DataLoader(range(4)), -1)


Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Sample:
    x: Tensor
    name: str


class Bag(UserDict):  # type: ignore[type-arg]
    """A mapping whose constructor takes something else."""

    def __init__(self, owner: int) -> None:
        super().__init__()
        self.owner = owner


class Mover:
    def __init__(self) -> None:
        self.where = "host"

    def to(self, device: torch.device) -> Mover:
        moved = Mover()
        moved.where = str(device)
        return moved


def test_placement_moves_every_tensor_and_keeps_every_container() -> None:
    bag = Bag(7)
    bag["x"] = torch.ones(2)
    batch = {
        "pair": Pair(torch.ones(2), "y"),
        "list": [torch.ones(1), 3, None],
        "ordered": OrderedDict(a=torch.ones(1)),
        "bag": bag,
        "sample": Sample(torch.ones(1), "n"),
        "mover": Mover(),
        "packed": torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]),
        "text": ["a", "b"],
    }
    placed = Placer(torch.device("meta"))(batch)
    assert type(placed["pair"]) is Pair and placed["pair"].x.is_meta and placed["pair"].y == "y"
    assert placed["list"][0].is_meta and placed["list"][1:] == [3, None]
    assert type(placed["ordered"]) is OrderedDict and placed["ordered"]["a"].is_meta
    assert type(placed["bag"]) is Bag and placed["bag"].owner == 7 and placed["bag"]["x"].is_meta
    assert type(placed["sample"]) is Sample and placed["sample"].x.is_meta and placed["sample"].name == "n"
    assert placed["mover"].where == "meta"
    assert placed["packed"].data.is_meta
    assert placed["text"] is batch["text"]
    assert not bag["x"].is_meta and not batch["pair"].x.is_meta  # the user's batch is untouched


def test_what_is_in_place_already_is_handed_on_as_it_is() -> None:
    batch = {"x": [torch.ones(2)], "y": (1, 2)}
    assert Placer(torch.device("cpu"), non_blocking=True)(batch) is batch
