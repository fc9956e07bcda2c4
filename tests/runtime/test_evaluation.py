"""`prepare_evaluation` and `merge`: an evaluation that is divided among processes has one process's numbers."""

import functools
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain import Accelerator
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler

from tests.runtime.loaders import plain
from tests.support.ranks import on_ranks, run_ranks


class AverageMeter:
    def __init__(self, name: str = "loss") -> None:
        self.name = name
        self.reset()

    def reset(self) -> None:
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val: float, n: int = 1) -> None:
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class Table:
    """No meter by its names: sums by rows and columns, lists by class, and a quotient of each."""

    def __init__(self) -> None:
        self.hits = [[0, 0] for _ in range(3)]
        self.rows: list[list[int]] = [[] for _ in range(3)]
        self.total = [0] * 3
        self.share = [0.0] * 3
        self.by_name = {"odd": [0, 0], "even": [0, 0]}

    def add(self, row: int) -> None:
        self.hits[row % 3][row % 2] += 1
        self.rows[row % 3].append(row)
        self.total[row % 3] = self.total[row % 3] + row
        self.by_name["odd" if row % 2 else "even"][row % 2] += 1
        for k in range(3):
            self.share[k] = self.total[k] / sum(self.total) if sum(self.total) else 0.0


class Averager:
    """Adds up in its own way, and shows a quotient."""

    def __init__(self) -> None:
        self.n_count = 0
        self.v: Any = 0
        self.most = -1.0
        self.history: list[float] = []

    def add(self, v: Tensor) -> None:
        self.n_count += v.numel()
        self.v = self.v + v.double().sum()
        self.most = max(self.most, float(v.max()))
        self.history.append(float(v.max()))
        self.mean = self.v / self.n_count


class Confusion:
    """A segmentation metric: `classes` is an option and is not added up, the matrix is."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.names = [str(i) for i in range(classes)]
        self.matrix = np.zeros((classes, classes))

    def update(self, rows: Tensor) -> None:
        for row in rows.flatten().tolist():
            self.matrix[row % self.classes, row % 3 % self.classes] += 1
        self.accuracy = np.diag(self.matrix).sum() / self.matrix.sum()


def evaluate(batches: Any, start: int = 0, merge: Any = lambda *values, **_: values) -> list[Any]:
    """A loop that accumulates in all the ways scripts do; ``merge`` makes the values those of all processes."""
    total, correct, loss, largest = 0, 0, 0.0, None
    squares: Any = 0
    names: list[str] = []
    pairs: tuple[Any, ...] = ()
    recent: deque[int] = deque(maxlen=7)
    joined, stacked = None, np.array([])
    by_class = {"even": 0, "odd": 0, "nested": {"sum": torch.zeros((), dtype=torch.int32), "rows": []}}
    seen: dict[int, int] = defaultdict(int)
    met: Counter[int] = Counter()
    meter, averager, confusion = AverageMeter(), Averager(), Confusion(5)
    table = Table()
    unique: set[int] = set()
    log = ""
    histogram = torch.zeros(4, dtype=torch.float16)
    last, index = None, None
    for i, batch in enumerate(batches, start):
        rows = [int(row) for row in batch.flatten()]
        total += 1
        correct += sum(row % 3 == 0 for row in rows)
        loss += float(batch.double().mean())
        squares = squares + batch.float().pow(2).sum()
        names.extend(f"row {row}" for row in rows)
        pairs += ((i, batch),)
        recent.extend(rows)
        joined = batch if joined is None else torch.cat([joined, batch])
        stacked = np.concatenate([stacked, batch.numpy()])
        for row in rows:
            by_class["even" if row % 2 == 0 else "odd"] += 1
            by_class["nested"]["sum"] += row
            by_class["nested"]["rows"].append({"row": row, "text": str(row), "value": torch.tensor(row)})
            seen[row % 4] += 1
            histogram[row % 4] += 1
        met.update(row % 5 for row in rows)
        meter.update(rows[0], len(rows))
        for row in rows:
            table.add(row)
        averager.add(batch)
        confusion.update(batch)
        unique |= {row % 6 for row in rows}
        log += f"{i};"
        last, index, largest = batch, i, np.float32(rows[-1])
    numbers = merge(total, correct, loss, squares, names, pairs, recent, by_class, seen, met)
    more = merge(meter, table, averager, confusion, unique, log, histogram)
    joins = merge(joined, stacked, join=True)
    return [*numbers, *more, *joins, *merge(last, index, largest, last=True)]


def same(found: Any, wanted: Any) -> None:
    """Equal to the bit, but for sums of floats, whose terms come in another order."""
    if isinstance(wanted, (list, tuple)) and wanted[:1] != ("tensor",):
        assert type(found) is type(wanted)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-12)  # fewer than 100 terms of float64
    elif isinstance(wanted, tuple) and wanted[1] == "torch.float32":
        assert found[:2] == wanted[:2]
        assert found[2] == pytest.approx(wanted[2], rel=1e-5)  # 40 terms of float32: 40 * 6e-8
    else:
        assert found == wanted
        assert type(found) is type(wanted)


# -- loops of real processes ----------------------------------------------------------------------


class Rows(Dataset[Tensor]):
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(index * 7 % 31)


class IndexedRows(Rows):
    """A data set that makes batches itself."""

    def __getitem__(self, index: Any) -> Tensor:
        return torch.as_tensor(index).reshape(-1) * 7 % 31


class Buckets(Sampler[list[int]]):
    """A batch sampler that draws from python's stream, with batches of its own sizes."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(self.n))
        random.shuffle(order)
        cuts = [0, self.n // 5, self.n // 5 + 1, self.n // 2, self.n]
        return (order[a:b] for a, b in pairwise(cuts) if a < b)

    def __len__(self) -> int:
        return sum(a < b for a, b in pairwise([0, self.n // 5, self.n // 5 + 1, self.n // 2, self.n]))


def _loaders() -> dict[str, DataLoader[Any]]:
    loaders = {
        f"{n} rows, {size} a batch{', shuffled' * shuffle}": DataLoader(Rows(n), size, shuffle=shuffle)
        for n, size, shuffle in [(0, 2, False), (1, 4, True), (3, 2, False), (23, 3, True), (16, 4, False)]
    }
    return loaders | {
        "drop_last": DataLoader(Rows(23), 4, shuffle=True, drop_last=True),
        "buckets": DataLoader(Rows(23), batch_sampler=Buckets(23)),
        "own generator": DataLoader(Rows(10), 2, shuffle=True, generator=torch.Generator().manual_seed(3)),
        "drawn": DataLoader(Rows(10), 3, sampler=RandomSampler(range(10), replacement=True, num_samples=40)),
        "no batching": DataLoader(IndexedRows(5), batch_size=None),
        "batches of indices": DataLoader(
            IndexedRows(11),
            batch_size=None,
            sampler=BatchSampler(RandomSampler(range(11)), 4, drop_last=False),
        ),
    }


def _passes(make: Callable[[DataLoader[Any]], Any], merge: Callable[..., Any]) -> dict[str, Any]:
    """Two passes over each loader, and a number of each stream behind them."""
    found: dict[str, Any] = {}
    for name, loader in _loaders().items():
        torch.manual_seed(0)
        random.seed(0)
        ready = make(loader)
        for number in range(2):
            merged = functools.partial(merge, ready)
            found[f"{name}, pass {number}"] = plain(evaluate(ready, getattr(ready, "start", 0), merged))
        found[f"{name}, length"] = len(ready)
        found[f"{name}, streams"] = [float(torch.rand(())), random.random()]
    return found


def _evaluated(split_batches: bool) -> list[dict[str, Any]]:
    accelerator = Accelerator(cpu=True, split_batches=split_batches)
    wanted = _passes(lambda loader: loader, lambda loader, *values, **_: values)
    found = _passes(accelerator.prepare_evaluation, accelerator.merge)
    assert accelerator.prepare_evaluation(loader := _loaders()["drop_last"]) is not loader
    return [found, wanted]


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_loops_have_the_numbers_of_one_process(processes: int) -> None:
    """Also where there are fewer batches than processes, or none."""
    for found, wanted in run_ranks(_evaluated, processes, processes == 3):
        assert found.keys() == wanted.keys()
        for name in wanted:
            same(found[name], wanted[name])


class Batches:
    """A class of the script's own around a loader, whose DataLoader `prepare` prepares in place."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        yield from self.loader


@on_ranks(2)
def test_what_came_through_a_wrapper_of_a_prepared_loader_is_merged() -> None:
    accelerator = Accelerator(cpu=True)
    batches = accelerator.prepare(Batches(DataLoader(range(8), batch_size=2)))  # type: ignore[arg-type]
    assert accelerator.merge(batches, sum(int(batch.sum()) for batch in batches)) == sum(range(8))
