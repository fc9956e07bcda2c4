"""What may stand in the place of an evaluation loader, how its loop may look, and what `merge` refuses."""

import contextlib
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin
from crosstrain.step.training_mode import differs_by_mode
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from tqdm import tqdm

from tests.runtime.loaders import Stream
from tests.support.ranks import infos, on_ranks, run_ranks


def _rows(n: int = 23, batch: int = 3, **options: Any) -> DataLoader[Any]:
    return DataLoader(range(n), batch, **options)  # type: ignore[arg-type]


class Prefetched(DataLoader[Any]):
    """The user's own way to iterate."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        yield from super().__iter__()


class Images(Dataset[int]):
    """Has an attribute that the script reads."""

    classes = ("cat", "dog")

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


@on_ranks(1, 2, 3)
def test_what_the_script_asks_its_loader_for_is_the_originals() -> None:
    accelerator = Accelerator(cpu=True)
    rank, world = accelerator.process_index, accelerator.num_processes
    original = DataLoader(Images(), 3, num_workers=0)
    loader = accelerator.prepare_evaluation(original)
    assert isinstance(loader, DataLoader)
    assert (len(loader), len(loader.dataset), loader.batch_size) == (4, 10, 3)
    assert loader.dataset.classes == ("cat", "dog")
    assert len(loader.batch_sampler) == 4
    assert loader.whole is (world == 1)
    first, end = -(-rank * 4 // world), -(-(rank + 1) * 4 // world)
    assert (loader.start, loader.own_length) == (first, end - first)
    # The same object given again, the original or the prepared one, is the same loader.
    assert accelerator.prepare_evaluation(original) is accelerator.prepare_evaluation(loader) is loader
    # A bar is as long as the original.
    with tqdm(loader, disable=None) as bar:
        assert len(bar) == 4
        seen = [i for i, _ in enumerate(bar, loader.start)]
    assert accelerator.merge(loader, seen) == accelerator.merge(bar, seen) == list(range(4))
    # Given to `prepare` it is the user's loader, to be trained on.
    trained = accelerator.prepare(loader)
    assert len(trained) == -(-4 // world)
    assert len(accelerator.prepare_evaluation(trained)) == 4


@on_ranks(1, 2, 3, forks=True)
def test_workers_that_persist() -> None:
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare_evaluation(_rows(shuffle=True, num_workers=2, persistent_workers=True))
    for _ in range(2):
        total, rows = 0, []
        for batch in loader:
            total += int(batch.sum())
            rows.extend(batch.tolist())
        total, rows = accelerator.merge(loader, total, rows)
        assert (total, sorted(rows)) == (sum(range(23)), list(range(23)))


@on_ranks(1, 2, 3)
def test_what_stays_whole() -> None:
    accelerator = Accelerator(cpu=True)
    for kept in ([1, 2], ("a.png",), range(5), {"a": 1}, "text", None, iter([1]), {1, 2}, np.arange(3)):
        assert accelerator.prepare_evaluation(kept) is kept
        assert accelerator.merge(kept, 5, [1]) == (5, [1])
    for original in (DataLoader(Stream(7), 2), Prefetched(range(7), 2)):  # type: ignore[arg-type]
        loader = accelerator.prepare_evaluation(original)
        assert loader.whole
        assert loader.start == 0
        assert sum(int(batch.sum()) for batch in loader) == 21
        assert accelerator.merge(loader, 21, True) == (21, True)
    never_prepared = _rows()
    assert accelerator.merge(never_prepared, 3) == 3
    names = [len(list(accelerator.prepare_evaluation(names))) for names in (["a", "b"], range(3))]
    assert names == [2, 3]


def _bar_on_one() -> list[str]:
    said = infos()
    accelerator = Accelerator(cpu=True)
    original: Any = _rows()
    for _ in range(2):
        given = tqdm(original, disable=True) if accelerator.is_main_process else original
        loader = accelerator.prepare_evaluation(given)
        total = sum(int(batch.sum()) for batch in loader)
        assert accelerator.merge(loader, total) == total == sum(range(23))
    # A bar over what is prepared already changes nothing.
    loader = accelerator.prepare_evaluation(original)
    given = tqdm(loader, disable=True) if accelerator.is_main_process else loader
    again = accelerator.prepare_evaluation(given)
    assert accelerator.merge(again, sum(int(batch.sum()) for batch in again)) == sum(range(23))
    return said


@on_ranks(1, 2, 3)
def test_a_loop_may_be_written_as_before() -> None:
    accelerator = Accelerator(cpu=True)
    world = accelerator.num_processes
    first = accelerator.prepare_evaluation(_rows())
    second = accelerator.prepare_evaluation(_rows(9, 2))
    # One evaluation inside another, and merges of both behind them.
    a = b = 0
    for x in first:
        a += int(x.sum())
        if first.start == 0 and a == 3:  # an inner loop on some processes alone, which needs no other
            list(iter(second))
    for y in second:
        b += int(y.sum())
    assert accelerator.merge(first, a) == sum(range(23))
    assert accelerator.merge(second, b) == sum(range(9))
    # `zip`, `next` and a generator over the loader.
    third = accelerator.prepare_evaluation(_rows())
    pairs = [int(x.sum() + y.sum()) for x, y in zip(first, third, strict=True)]
    assert sum(accelerator.merge(first, pairs)) == sum(accelerator.merge(third, pairs)) == 2 * sum(range(23))
    walk, total = iter(first), 0
    for _ in range(first.own_length):
        total += int(next(walk).sum())
    assert accelerator.merge(first, total) == sum(range(23))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            summed = torch.zeros(2)
            for x in first:
                summed += torch.ones(2) * x.sum()
            found = accelerator.merge(first, summed)
        assert found.tolist() == [sum(range(23))] * 2
    # Within a loop over a training loader, whose metrics stay its own.
    train = accelerator.prepare(_rows(8 * world, 2))
    gathered = []
    for x in train:
        assert accelerator.merge(first, sum(len(batch) for batch in first)) == 23
        gathered += accelerator.gather_for_metrics(x).tolist()
    assert gathered == list(range(8 * world))
    # A training loader's loop: sums and lists of all processes.
    train = accelerator.prepare(_rows(4 * world, 2))
    rows: list[int] = []
    for x in train:
        rows.extend(x.tolist())
    merged, count = accelerator.merge(train, rows, len(rows))
    assert (sorted(merged), count) == (list(range(4 * world)), 4 * world)
    # A loader that the script shards itself keeps its batches, and they are added up.
    rank = accelerator.process_index
    sampler = DistributedSampler(range(4 * world), world, rank, shuffle=False)  # type: ignore[arg-type, var-annotated]
    own = accelerator.prepare_evaluation(DataLoader(range(4 * world), 2, sampler=sampler))  # type: ignore[arg-type]
    assert (own.whole, own.start, len(own), own.own_length) == (world == 1, 0, 2, 2)
    assert accelerator.merge(own, sum(int(x.sum()) for x in own)) == sum(range(4 * world))


@on_ranks(1, 2, 3)
def test_types_stay() -> None:
    """Exact integers, float64 sums, device and dtype."""
    accelerator = Accelerator(cpu=True)
    rank, world = accelerator.process_index, accelerator.num_processes
    loader = accelerator.prepare_evaluation(_rows(world, 1))
    for _ in loader:
        pass
    merge = lambda *values, **how: accelerator.merge(loader, *values, **how)  # noqa: E731
    assert merge(2**70 + rank) == world * 2**70 + sum(range(world))
    wide = merge(torch.tensor([1e8, 1.0]) if rank else torch.tensor([1.0, 1.0]))
    assert wide.dtype == torch.float32
    assert wide[0] == torch.tensor(1e8 * (world - 1) + 1, dtype=torch.float64).float()
    assert merge(torch.tensor(200, dtype=torch.uint8)).tolist() == 200 * world % 256
    assert merge(f"at {rank}", torch.tensor(rank), True, last=True) == (f"at {world - 1}", world - 1, True)
    assert merge(None) is None
    assert world == 1 or not merge(nn.Parameter(torch.ones(2))).requires_grad


def test_a_bar_on_the_main_process_alone_leaves_the_loader_whole() -> None:
    lines, others = run_ranks(_bar_on_one, 2)
    assert len(lines) == 1
    assert "every process evaluates all batches" in lines[0]
    assert "test_evaluation_cases.py" in lines[0]
    assert others == []


def _beside_a_training(sharded: bool) -> list[Any]:
    """The exact numbers of evaluations between the epochs of a training, and the weights."""
    accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin() if sharded else None)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    model, optimizer, train = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=1e-3), _rows(24, 2, shuffle=True)
    )
    original, found = _rows(7, 2, shuffle=True), []
    for _ in range(2):
        model.train()
        for x in train:
            optimizer.zero_grad()
            accelerator.backward(model(x[:, None].float()).pow(2).mean())
            optimizer.step()
        model.eval()
        held = accelerator.prepare_evaluation(original)  # as at the head of a function
        assert held.whole is (sharded or accelerator.num_processes == 1)
        total, rows, outputs = 0.0, [], []
        with torch.no_grad():
            for x in held:
                outputs += model(x[:, None].float()).flatten().tolist()
                total += float(x.sum())
                rows += x.tolist()
        total, rows, outputs = accelerator.merge(held, total, rows, outputs)
        whole = model(torch.tensor(rows)[:, None].float()).flatten().tolist()
        assert outputs == pytest.approx(whole, rel=1e-4, abs=1e-6)  # float32, batches of other sizes
        assert sorted(rows) == list(range(7))
        found.append((total, rows, outputs))
    return found


@pytest.mark.parametrize("sharded", [False, True])
def test_evaluations_between_epochs(sharded: bool) -> None:
    """Uneven numbers of batches hold nobody up; where the model's forward communicates, the loader stays whole."""
    one, other = run_ranks(_beside_a_training, 2, sharded)
    assert one == other


# -- what is refused, on all processes ------------------------------------------------------------


def _early(accelerator: Accelerator, loader: Any) -> Any:
    for _ in loader:
        if accelerator.process_index == 1:
            break
    return 1


def _only_main(accelerator: Accelerator, loader: Any) -> Any:
    return sum(1 for _ in loader) if accelerator.is_main_process else 0


def _value(of: Callable[[int], Any], **how: Any) -> Callable[[Accelerator, Any], Any]:
    def loop(accelerator: Accelerator, loader: Any) -> Any:
        for _ in loader:
            pass
        return accelerator.merge(loader, of(accelerator.process_index), **how)

    return loop


class Smoothed:
    """No sum of values: an average that forgets."""

    def __init__(self) -> None:
        self.value = 0.0

    def update(self, value: float) -> None:
        self.value = 0.9 * self.value + 0.1 * value


class Kept:
    """A list that grows in one place and is added to in another."""

    def __init__(self) -> None:
        self.rows = [0]

    def add(self, value: int) -> None:
        self.rows.append(value)
        self.rows[0] += value


class Placed:
    """Each value has a place of its own, which another process leaves empty."""

    def __init__(self) -> None:
        self.found, self.total = [0] * 4, 0

    def add(self, at: int, value: int) -> None:
        self.found[at] = value
        self.total += value


REFUSED: dict[str, tuple[Callable[[Accelerator, Any], Any], str]] = {
    "left early": (_early, "process 1 has taken 1 of its 4 batches"),
    "on one process": (_only_main, "process 1 has made no loop"),
    "a bool": (_value(lambda rank: True), "a bool cannot be added up"),
    "a tensor of bools": (_value(lambda rank: torch.tensor([True])), "a bool cannot be added up"),
    "on some": (_value(lambda rank: 1.0 if rank else None), "some processes have accumulated a value"),
    "other types": (_value(lambda rank: 1 if rank else [1]), "accumulated a list, and process 1 a number"),
    "other keys": (_value(lambda rank: {rank: 1}), "process 0 has no entry 1"),
    "other shapes": (_value(lambda rank: torch.ones(rank + 1)), "different shapes .* join=True"),
    "other columns": (_value(lambda rank: torch.ones(2, rank + 1), join=True), "along dimension 0"),
    "a module": (_value(lambda rank: nn.Linear(1, 1)), "a Linear cannot be added up"),
    "what cannot be sent": (_value(lambda rank: [lambda: 1]), "cannot be sent"),
    "a list in two ways": (_value(lambda rank: Kept()), "added to in several ways"),
    "a list of places": (_value(lambda rank: Placed()), "Placed.found is not only added to"),
    "a moving average": (_value(lambda rank: Smoothed()), "Smoothed.value is not only added to"),
}


@on_ranks(2)
def test_what_cannot_be_merged_is_an_error_on_every_process() -> None:
    accelerator, said = Accelerator(cpu=True), {}
    for name, (loop, _) in REFUSED.items():
        loader = accelerator.prepare_evaluation(_rows(8, 1))
        try:
            accelerator.merge(loader, loop(accelerator, loader))
        except (RuntimeError, TypeError) as error:
            said[name] = str(error)
    # Values of two evaluations, merged in another order, and another number of values.
    loaders = [accelerator.prepare_evaluation(_rows(8, 1)) for _ in range(2)]
    for loader in loaders:
        for _ in loader:
            pass
    for name, loader, values in [
        ("another loader", loaders[accelerator.process_index], (1,)),
        ("another number", loaders[0], (1, 2)[accelerator.process_index :]),
    ]:
        try:
            accelerator.merge(loader, *values)
        except RuntimeError as error:
            said[name] = str(error)
    with contextlib.suppress(RuntimeError):
        for x in loaders[0]:
            accelerator.gather_for_metrics(x)
        said["gathered"] = "no error"
    for name, (_, words) in REFUSED.items():
        assert name in said, f"{name} passed"
        assert re.search(words, said[name]), said[name]
        assert "test_evaluation_cases.py:" in said[name]
    assert "process 1 merges values of another loader" in said["another loader"]
    assert "process 1 merges other values or options" in said["another number"]
    assert "gathered" not in said


# -- the cost, and the model's mode ---------------------------------------------------------------


def _in_training_mode(prepared: bool) -> list[list[str]]:
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    if prepared:
        model = accelerator.prepare(model)
    loader = accelerator.prepare_evaluation(_rows(8, 2))

    def loop() -> list[str]:
        with warnings.catch_warnings(record=True) as caught, torch.no_grad():
            warnings.simplefilter("always")
            for x in loader:
                model(x[:, None].float())
        return [str(w.message) for w in caught]

    said = [loop()]
    model.eval()
    said.append(loop())
    assert not model._forward_pre_hooks
    return said


def _whole_model_after(ends_early: bool) -> bool:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(1, 1))
    for x in accelerator.prepare_evaluation(_rows(8, 2)):  # decodes by another method than `forward`
        model.weight.detach() * x
        if ends_early:
            break
    return bool(pickle.dumps(model))


@pytest.mark.parametrize("ends_early", [True, False])
def test_a_model_that_an_evaluation_never_calls_is_pickled_as_a_whole(ends_early: bool) -> None:
    assert run_ranks(_whole_model_after, 2, ends_early) == [True, True]


@pytest.mark.parametrize("prepared", [True, False])
def test_a_model_in_training_mode_is_said(prepared: bool) -> None:
    main, other = run_ranks(_in_training_mode, 2, prepared)
    assert [len(said) for said in main] == [1, 0]
    assert "the Sequential is in training mode" in main[0][0]
    assert "model.eval()" in main[0][0]
    assert other == [[], []]
    forwards = [lambda self, x: x, lambda self, x: nn.functional.dropout(x, 0.1, self.training)]
    plain, drops = (type("Own", (nn.Module,), {"forward": one})() for one in forwards)
    assert not any(map(differs_by_mode, [nn.Linear(1, 1), nn.Dropout(0.0), nn.GRU(1, 1), plain]))
    assert all(map(differs_by_mode, [nn.Dropout(0.1), nn.Sequential(nn.LSTM(1, 1, 2, dropout=0.1)), drops]))
