"""One process: a prepared loader is the user's own loader, bit for bit, plus the knowledge of where it stands."""

import copy
import pickle
from collections import namedtuple
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from crosstrain.data.active_loaders import ActiveLoaders
from crosstrain.data.counted import Counted
from crosstrain.data.loader import PreparedLoader
from crosstrain.data.options import DataPlan
from crosstrain.data.prepare import skip_first_batches
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset

from tests.runtime.loaders import LOADERS, plain, prepare, record, seed_all
from tests.support.ranks import on_ranks


@pytest.mark.parametrize("name", LOADERS)
def test_batches_and_random_streams_are_the_plain_loaders_and_the_last_batch_is_known(name: str) -> None:
    """Peer bug 3: accelerate reads one batch ahead, so the data set draws before the model's dropout does."""
    seed_all()
    wanted = record(LOADERS[name]())
    seed_all()
    loader = prepare(LOADERS[name]())
    assert plain(wanted) == plain(record(loader))
    ends = [loader.end_of_dataloader for _ in loader]
    assert ends == [False] * (len(ends) - 1) + [True]
    assert not loader.end_of_dataloader  # outside a loop


def test_a_subclass_keeps_its_class_and_attributes_and_batch_size() -> None:
    """Peer bug 14: accelerate's prepared loader says batch_size=None and loses attributes of a subclass."""

    class Mine(DataLoader[Any]):
        def __init__(self, *args: Any, tag: str, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.tag = tag

        def shout(self) -> str:
            return self.tag.upper()

    sampler = torch.utils.data.SequentialSampler(range(10))
    raw = Mine(range(10), batch_size=4, sampler=sampler, tag="mine", drop_last=True)
    loader = prepare(raw)
    assert isinstance(loader, Mine) and isinstance(loader, PreparedLoader)
    assert type(loader).__name__ == "Mine"
    assert (loader.tag, loader.shout(), loader.batch_size, loader.drop_last) == ("mine", "MINE", 4, True)
    assert loader.sampler is sampler and loader.dataset is raw.dataset
    assert isinstance(loader.batch_sampler, BatchSampler)
    assert prepare(loader) is loader
    assert not isinstance(raw, PreparedLoader)


@pytest.mark.parametrize("leave", ["break", "close", "exhaust", "delete"])
def test_no_way_out_of_a_loop_leaves_an_active_loader(leave: str) -> None:
    """Peer bug 7: after a `break` at the last batch accelerate believes for ever to be at an end of a loader."""
    active = ActiveLoaders()
    loader = prepare(DataLoader(range(4), batch_size=2), active)
    walk = iter(loader)
    assert active.current is None
    assert len(walk) == len(iter(DataLoader(range(4), batch_size=2))) == 2
    assert walk._num_workers == 0 and not hasattr(walk, "colour")  # type: ignore[attr-defined]  # torch's own has it, or not
    assert not hasattr(chain.__new__(Counted), "colour"), (
        "one that is half made, as copies are, has nothing to ask"
    )
    next(walk)
    next(walk)
    assert active.current is loader and loader.end_of_dataloader
    if leave == "break":
        for _ in loader:
            break
        assert active.current is loader and loader.end_of_dataloader  # the outer loop again
        walk.close()
    elif leave == "close":
        walk.close()
    elif leave == "exhaust":
        assert list(walk) == []
    else:
        del walk
    assert active.current is None
    assert not loader.end_of_dataloader


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


class Stubborn(DataLoader[Any]):
    """Has its own way to be pickled."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Stubborn, (self.dataset, self.batch_size)


class Short(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


@on_ranks(1, 2)
def test_a_pickled_loader_is_the_users_own() -> None:
    """Of every kind, before a pass and in the middle of one."""
    found = []
    plain, stream = DataLoader(range(5), 2), DataLoader(Short(), 2)
    shorter = [skip_first_batches(loader, 1) for loader in (plain, stream)]
    for raw in (plain, stream, Stubborn(range(5), 2), *shorter):
        ready = prepare(raw)
        walk = iter(ready)
        next(walk)
        for again in (pickle.loads(pickle.dumps(ready)), copy.deepcopy(ready)):
            known = not isinstance(again, PreparedLoader) and isinstance(again, type(raw))
            found.append([known, *(batch.tolist() for batch in again)])
        list(walk)
    whole = [[0, 1], [2, 3], [4]]
    assert found == [[True, *whole]] * 6 + [[True, *whole[1:]]] * 4


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
