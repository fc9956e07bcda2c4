"""Batches that come from no DataLoader are dealt whole: every batch once, and as many steps on every process."""

import contextlib
import dataclasses
import io
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain import Accelerator, InitProcessGroupKwargs, skip_first_batches
from torch import nn
from torch.utils.data import DataLoader

from tests.support.ranks import on_ranks, run_ranks

# -- iterables and items ----------------------------------------------------------------------------


class Epochs:
    """A class with a length, a method and a random order, as older libraries have them."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.resets = 0
        self.batch_size = 4

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return (self.items[i] for i in torch.randperm(len(self.items)).tolist())

    def reset(self) -> None:
        self.resets += 1


class Restarting:
    """An iterator that begins anew with each `iter`."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        self.walk = iter(self.items)
        return self

    def __next__(self) -> Any:
        return next(self.walk)


def _generator(items: list[Any]) -> Iterator[Any]:
    order = list(range(len(items)))
    random.shuffle(order)
    for i in order:
        np.random.rand()
        yield items[i]


def _one_buffer(items: list[Any]) -> Iterator[Any]:
    """Gives the same memory again and again where the items are tensors."""
    if not items or not isinstance(items[0], torch.Tensor):
        yield from items
        return
    buffer = torch.empty_like(items[0])
    for item in items:
        yield buffer.copy_(item)


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    names: list[str]


class Rows:
    """Answers to every name, as a data set of torchtext's does, which each batch holds."""

    def __getattr__(self, name: str) -> Iterator[str]:
        yield name


KINDS: dict[str, Callable[[list[Any]], Iterable[Any]]] = {
    "list": list,
    "class": Epochs,
    "generator": _generator,
    "buffer": _one_buffer,
    "restarting": Restarting,
    "zip": lambda items: map(next, [iter(items)] * len(items)),
}
ITEMS: dict[str, tuple[Callable[[int], Any], Callable[[Any], int]]] = {
    "tensor": (lambda i: torch.full((2, 1), float(i)), lambda item: int(item[0, 0])),
    "pair": (lambda i: (torch.full((i % 3 + 1,), i), [f"{i}"]), lambda item: int(item[1][0])),
    "dict": (lambda i: {"x": {"y": torch.tensor(i)}, "text": f"{i}"}, lambda item: int(item["x"]["y"])),
    "numpy": (lambda i: [np.full(2, i), None], lambda item: int(item[0][0])),
    "number": (lambda i: i, lambda item: item),
    "dataclass": (lambda i: Batch(torch.tensor([i]), ["a"]), lambda item: int(item.x)),
    "holder": (lambda i: SimpleNamespace(x=i, of=Rows()), lambda item: int(item.x)),
    "sparse": (lambda i: torch.tensor([[0.0, i]]).to_sparse(), lambda item: int(item.to_dense()[0, 1])),
}


def _seed(seed: int) -> None:
    torch.manual_seed(seed), random.seed(seed), np.random.seed(seed)


def _cases(seed: int, count: int) -> Iterator[tuple[int, str, str, int]]:
    chosen = random.Random(seed)
    for number in range(count):
        yield number, chosen.choice(list(KINDS)), chosen.choice(list(ITEMS)), chosen.randrange(10)


def _dealt(seed: int, count: int) -> list[tuple[list[int], list[int], list[int]]]:
    """For each case: the plain sequence, and what two passes over one prepared object give this process."""
    accelerator = Accelerator(cpu=True)
    found = []
    for number, kind, item, length in _cases(seed, count):
        make, ident = ITEMS[item]
        items = [make(i) for i in range(length)]
        _seed(number)
        plain = [ident(x) for x in KINDS[kind](items)]
        _seed(number)
        batches = accelerator.prepare(KINDS[kind](items))
        found.append((plain, [ident(x) for x in batches], [ident(x) for x in batches]))
    return found


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_batch_once_and_as_many_steps_everywhere(world: int) -> None:
    count = 60
    results = run_ranks(_dealt, world, 7, count)
    for case, rows in zip(_cases(7, count), zip(*results, strict=True), strict=True):
        plain = rows[0][0]
        firsts, seconds = [row[1] for row in rows], [row[2] for row in rows]
        missing = -(-len(plain) // world) * world - len(plain)
        completed = plain + [plain[i % min(world, len(plain))] for i in range(missing)]
        assert firsts == [completed[rank::world] for rank in range(world)], case
        used_up = case[1] in ("generator", "buffer", "zip")
        for first, second in zip(firsts, seconds, strict=True):
            assert len(second) == (0 if used_up else len(first)), case
        assert set(itertools.chain(*seconds)) == (set() if used_up else set(plain)), case


# -- loops ------------------------------------------------------------------------------------------


def _endless() -> Iterator[torch.Tensor]:
    for i in itertools.count():
        yield torch.tensor([float(i)])


class Bare:
    """It has `__next__`, and no `__iter__`."""

    def __init__(self) -> None:
        self.batches = _endless()

    def __next__(self) -> torch.Tensor:
        return next(self.batches)


@on_ranks(1, 2, 3)
def test_loops_over_what_is_dealt() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    rank, world = accelerator.process_index, accelerator.num_processes
    stream = accelerator.prepare(_endless())
    assert [int(next(stream)) for _ in range(3)] == [rank, rank + world, rank + 2 * world]
    assert [int(next(iter(stream))), int(next(stream))] == [rank + 3 * world, rank + 4 * world]
    bare = accelerator.prepare(Bare())
    assert [int(next(bare)), int(next(bare))] == [rank, rank + world]
    refilled = _one_buffer([torch.tensor([float(i)]) for i in range(4 * world)])
    assert [int(x) for x in accelerator.prepare(refilled)] == list(range(rank, 4 * world, world))
    whole = [0, 2, 4, 6, 8, 0, 2, 4][: -(-5 // world) * world]
    assert list(accelerator.prepare(range(0, 10, 2))) == whole[rank::world]
    batches = Epochs([torch.ones(3) * i for i in range(5)])
    dealt = accelerator.prepare(batches)
    assert accelerator.prepare(batches) is dealt and accelerator.prepare(dealt) is dealt
    dealt.reset()
    dealt.extra = 3
    assert (batches.resets, batches.extra, dealt.batch_size, len(dealt)) == (1, 3, 4, -(-5 // world))
    own = [torch.tensor([float(10 * rank + i)]) for i in range(3)]
    assert [int(x) for x in accelerator.prepare(own)] == [10 * rank, 10 * rank + 1, 10 * rank + 2]
    timed = [(time.perf_counter() + rank, torch.tensor(i)) for i in range(world)]  # each process's clock
    assert [int(x) for _, x in accelerator.prepare(timed)] == [rank]
    assert list(accelerator.prepare([0.5 + rank, 1.5])) == [0.5 + rank, 1.5]
    for _ in range(3):  # made anew in each epoch
        for batch in accelerator.prepare(_generator([torch.ones(1)] * 4)):
            assert batch.item() == 1
    assert [loader.epoch for loader in accelerator._dataloaders][-1] == 3
    syncs = []
    for _ in accelerator.prepare(torch.arange(3.0 * world).view(-1, 1).split(1)):
        with accelerator.accumulate():
            syncs.append(accelerator.sync_gradients)
    assert syncs == [False, True, True]
    walk = accelerator.prepare(iter([torch.tensor([float(i)]) for i in range(4 * world)]))
    for i, batch in enumerate(walk):
        with accelerator.accumulate():  # reads one step ahead, because the length is unknown
            assert int(batch) == rank + i * world
        if i == 1:
            break
    assert [int(x) for x in walk] == [rank + 2 * world, rank + 3 * world]
    uneven = [torch.full((n, 2), float(n)) for n in (1, 3, 2)]
    gathered = [accelerator.gather_for_metrics(x * 2)[:, 0].tolist() for x in accelerator.prepare(uneven)]
    assert list(itertools.chain(*gathered)) == [2.0] + [6.0] * 3 + [4.0] * 2
    whole = [*range(0, 30, 3), 0, 3][: -(-10 // world) * world]
    assert list(skip_first_batches(accelerator.prepare(range(0, 30, 3)), 1)) == whole[rank::world][1:]


def _resumed(folder: str) -> None:
    """Batches after a checkpoint in mid-pass: of the run that goes on, of one that loads it, and of one that prepares
    its batches only then."""
    accelerator = Accelerator(cpu=True)

    def start(*, load: str) -> Any:
        _seed(5)
        accelerator.free_memory()
        accelerator.prepare(nn.Linear(1, 1))
        if load == "before":
            accelerator.load_state(folder)
        batches = accelerator.prepare(Epochs([torch.tensor([float(i)]) for i in range(9)]))
        if load == "behind":
            accelerator.load_state(folder)
        return batches

    def rest(batches: Any, passes: int) -> list[float]:
        return [number for _ in range(passes) for x in batches for number in (x.item(), torch.rand(1).item())]

    batches = start(load="")
    walk = iter(batches)
    for _ in range(2):
        next(walk), torch.rand(1)
    accelerator.save_state(folder)
    whole = [number for x in walk for number in (x.item(), torch.rand(1).item())] + rest(batches, 1)
    assert rest(start(load="behind"), 2) == whole
    late = [x.item() for x in start(load="before")]
    assert late and late == whole[: 2 * len(late) : 2]


@pytest.mark.parametrize("world", [1, 2])
def test_a_resumed_pass_goes_on(world: int, tmp_path: Path) -> None:
    run_ranks(_resumed, world, str(tmp_path / "state"))


# -- bad input --------------------------------------------------------------------------------------


class Broken:
    def __iter__(self) -> Iterator[Any]:
        raise ValueError("no such file")


class Opaque:
    __slots__ = ()


def _bad(what: str) -> Any:
    patience = InitProcessGroupKwargs(timeout=timedelta(seconds=8))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[patience])
    rank = accelerator.process_index
    model = accelerator.prepare(nn.Linear(1, 1))
    given: dict[str, Iterable[Any]] = {
        "raises": Broken() if rank == 0 else Epochs([torch.ones(1)]),
        "later": (torch.ones(1) if i < 2 else 1 / 0 for i in range(3)),
        "none here": Epochs([torch.ones(1)] * rank),
        "shorter": Epochs([torch.ones(1)] * (6 if rank else 2)),
        "structure": Epochs([torch.ones(1)] if rank else [(torch.ones(1), 2)]),
        "opaque": Epochs([Opaque(), Opaque()]),
        "some opaque": Epochs([np.array([Opaque(), i], dtype=object) for i in range(2)]),
    }
    said = io.StringIO()
    try:
        taken = 0
        with contextlib.redirect_stderr(said):
            for batch in accelerator.prepare(given[what]):
                taken += 1
                if what == "shorter":
                    model(batch).sum().backward()
    except (RuntimeError, ValueError, ZeroDivisionError) as error:
        return f"{type(error).__name__}: {error}"
    return taken, said.getvalue()


def test_bad_input_is_an_error_on_all_or_passes_through() -> None:
    zero, one = run_ranks(_bad, 2, "raises")
    assert zero == "ValueError: no such file"
    assert "process 0 could not read the first batch of `given[what]`" in one and "no such file" in one
    assert all("ZeroDivisionError" in said for said in run_ranks(_bad, 2, "later"))
    for said in run_ranks(_bad, 2, "none here"):
        assert "has batches on some processes only, and none on process 0" in said
    zero, one = run_ranks(_bad, 2, "shorter")
    assert "RuntimeError" in f"{zero}{one}"
    assert run_ranks(_bad, 2, "structure") == [(1, ""), (1, "")]
    (taken, said), nothing = run_ranks(_bad, 2, "opaque")
    assert "every process trains on the same data: the batches of `given[what]` (test_dealt.py:" in said
    assert (taken, nothing) == (2, (2, ""))
    assert run_ranks(_bad, 2, "some opaque") == [(1, ""), (1, "")]


# -- what is inside ---------------------------------------------------------------------------------


class Forever:
    """A wrapper that loops for ever."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self.total = 8  # as a bar

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.loader


class Prefetcher:
    """A wrapper that has begun to read."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.batches = iter(loader)

    def next(self) -> Any:
        return next(self.batches)


class Endless(DataLoader[Any]):  # its own iterator
    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.walk = itertools.cycle(super().__iter__())
        return self

    def __next__(self) -> Any:
        return next(self.walk)


def _inside() -> tuple[dict[str, list[int]], str]:
    accelerator = Accelerator(cpu=True)
    rows = torch.arange(8.0)
    wrapper = Forever(DataLoader(rows, batch_size=1))
    outer = Forever(Forever(DataLoader(rows, batch_size=1)))  # type: ignore[arg-type]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), Path(__file__).open() as file:
        assert accelerator.prepare(wrapper) is wrapper
        assert accelerator.prepare(file) is file
        accelerator.prepare(outer)
        prefetcher = accelerator.prepare(Prefetcher(DataLoader(rows, batch_size=1)))
        begun, late = (Endless(rows, batch_size=1, shuffle=True) for _ in range(2))
        early, late = accelerator.prepare(iter(begun), late)
        found = {
            "early": [int(next(early)) for _ in range(8)],
            "late": [int(x) for x in itertools.islice(late, 4)],
            "forever": [int(x) for x in itertools.islice(wrapper, 5)],
            "outer": [int(x) for x in itertools.islice(outer, 2)],
            "totals": [wrapper.total, outer.total],
            "prefetcher": [int(prefetcher.next()) for _ in range(2)],
        }
    return found, said.getvalue()


def test_the_loader_inside_a_wrapper_is_prepared() -> None:
    (zero, said), (one, silent) = run_ranks(_inside, 2, env={"CROSSTRAIN_QUIET": ""})
    for rank, found in enumerate((zero, one)):
        assert found["forever"] == [rank, rank + 2, rank + 4, rank + 6, rank]
        assert found["outer"] == found["prefetcher"] == [rank, rank + 2]
        assert found["totals"] == [4, 8]  # the outer one holds no loader itself
    assert silent == ""
    for name, at in (("early", 0), ("early", 4), ("late", 0)):
        assert sorted(zero[name][at : at + 4] + one[name][at : at + 4]) == list(range(8))
    assert "prepared the DataLoader inside `wrapper` (test_dealt.py:" in said and "Forever.loader" in said
    assert said.count("prepared the DataLoader inside `outer`") == 1


class Named(DataLoader[Any]):  # by its name alone: its constructor leaves torch's out
    def __init__(self, dataset: Any, batch_size: int) -> None:
        self.dataset, self.batch_size, self.batch_sampler = dataset, batch_size, None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return (self.dataset[n : n + 2] for n in range(0, len(self.dataset), 2))

    def __len__(self) -> int:
        return len(self.dataset) // 2


def _named() -> tuple[list[int], int]:
    loader = Accelerator(cpu=True).prepare(Named(torch.arange(8), 2))
    return [int(x) for batch in loader for x in batch], len(loader)


@pytest.mark.parametrize(
    ("world", "found"), [(1, [(list(range(8)), 4)]), (2, [([0, 1, 4, 5], 2), ([2, 3, 6, 7], 2)])]
)
def test_what_only_has_the_name_of_a_loader_is_dealt_by_whole_batches(world: int, found: list[Any]) -> None:
    assert run_ranks(_named, world) == found


class Rates:
    """Steps an optimizer under a name of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.inner = optimizer

    def step_and_update(self) -> None:
        self.inner.step()


def test_the_optimizer_inside_a_wrapper_is_prepared() -> None:
    """Or its steps are not the accumulation's, and the run's summary says that it made none."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(1, 1)
    rates, loader = accelerator.prepare(
        Rates(torch.optim.SGD(model.parameters(), 0.1)), DataLoader(torch.ones(4, 1), batch_size=1)
    )
    weights = []
    for x in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(x).mean())
            rates.step_and_update()
            weights.append(model.weight.item())
    assert weights[0] != weights[1] == weights[2] != weights[3]
