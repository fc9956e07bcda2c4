"""Whose random numbers are drawn: each process's own while a prepared loader is iterated, the same ones elsewhere."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain import Accelerator
from crosstrain.comm.types import DistributedType
from crosstrain.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.support.ranks import infos, run_ranks

Drawn = tuple[float, float, float]


def draw() -> Drawn:
    """A number of each global stream."""
    return torch.rand(()).item(), random.random(), float(np.random.rand())


def rows(n: int = 12) -> TensorDataset:
    return TensorDataset(torch.arange(n))


def start(**options: Any) -> Accelerator:
    accelerator = Accelerator(cpu=True, **options)
    set_seed(3)
    return accelerator


def differ(one: Drawn, other: Drawn) -> bool:
    return all(a != b for a, b in zip(one, other, strict=True))


def _loops() -> dict[str, list[Drawn]]:
    """Numbers drawn inside and outside of loops that are used up, broken off, nested, zipped, raised from and held."""
    accelerator = start()
    loader = accelerator.prepare(DataLoader(rows(), batch_size=2, shuffle=True))
    inner = accelerator.prepare(DataLoader(rows(4), batch_size=2))
    inside, outside = [], [draw()]
    for _ in range(2):
        inside += [draw() for _ in loader]
        outside.append(draw())
    for _ in loader:
        inside.append(draw())
        for _ in inner:
            inside.append(draw())
        inside.append(draw())
        break
    outside.append(draw())
    for _ in zip(loader, inner, strict=False):
        inside.append(draw())
    outside.append(draw())

    def batches() -> Iterator[Any]:
        for (batch,) in loader:
            yield batch

    try:
        for _ in batches():
            inside.append(draw())
            raise KeyError
    except KeyError:
        pass
    outside.append(draw())
    next(iter(loader))  # thrown away at once
    outside.append(draw())
    held = iter(loader)
    outside.append(draw())  # a pass comes to life with its first batch
    next(held)
    inside.append(draw())
    with accelerator.common_draws():
        outside.append(draw())
        with accelerator.own_draws():
            inside.append(draw())
        outside.append(draw())
    inside.append(draw())
    del held
    outside.append(draw())
    with accelerator.own_draws():
        inside.append(draw())
        with accelerator.common_draws():
            outside.append(draw())
        inside.append(draw())
    return {"inside": inside, "outside": outside}


@pytest.mark.parametrize("world", [2, 3])
def test_each_process_draws_its_own_in_passes_and_all_the_same_elsewhere(world: int) -> None:
    found = run_ranks(_loops, world)
    for rank, one in enumerate(found):
        for other in found[:rank]:
            assert one["outside"] == other["outside"]
            assert all(map(differ, one["inside"], other["inside"]))
    every = [number for one in found for drawn in one["inside"] for number in drawn]
    assert len(set(every)) == len(every), "a pass drew what another one or another process drew"


def test_common_draws_are_one_stream_as_without_passes() -> None:
    """With `own_draws=False` and with the launcher's variable, nothing is switched: rank r draws what one process draws."""
    plain = _common_run()
    for options, env in (({"own_draws": False}, {}), ({}, {"CROSSTRAIN_COMMON_DRAWS": "1"})):
        for drawn in run_ranks(_common_run, 2, options, env=env):
            assert drawn == plain
    kept = run_ranks(_common_run, 2, {"rng_types": ["generator", "python"]})
    assert [row[1] for row in kept[0]] == [row[1] for row in kept[1]] == [row[1] for row in plain]
    assert kept[0][0][0] != kept[1][0][0]


def _common_run(options: dict[str, Any] | None = None) -> list[Drawn]:
    accelerator = start(**(options or {}))
    assert accelerator.num_processes in (1, 2)
    loader = accelerator.prepare(DataLoader(rows(), batch_size=2 if options is None else 1, shuffle=True))
    drawn = [draw() for _ in loader] + [draw()]
    if options is None:
        Accelerator().state._reset_state()
    return drawn


class Numbers(IterableDataset[float]):
    """Rows that are drawn while they are read, from numpy's stream."""

    def __iter__(self) -> Iterator[float]:
        for _ in range(12):
            yield float(np.random.rand())


def _orders() -> dict[str, Any]:
    accelerator = start()
    held = iter(accelerator.prepare(DataLoader(rows())))
    next(held)  # from here on, each process draws its own
    loaders = {
        "shuffle": accelerator.prepare(DataLoader(rows(), batch_size=2, shuffle=True)),
        "read by all": Accelerator(dispatch_batches=False).prepare(DataLoader(Numbers(), batch_size=2)),
    }
    found: dict[str, Any] = {}
    for name, loader in loaders.items():
        found[name] = []
        for _ in range(2):
            taken = []
            for batch in loader:
                batch = batch[0] if isinstance(batch, list) else batch
                draw()
                taken += accelerator.gather(batch).tolist()
            found[name].append(taken)
    del held
    found["outside"] = draw()
    return found


def test_orders_drawn_within_a_pass_are_alike_on_all_ranks() -> None:
    zero, one = run_ranks(_orders, 2)
    assert zero == one
    for taken in zero["shuffle"]:
        assert sorted(taken) == list(range(12))
    assert zero["shuffle"][0] != zero["shuffle"][1]
    assert len({*zero["read by all"][0], *zero["read by all"][1]}) == 24


def _model(accelerator: Accelerator) -> Any:
    model = nn.Linear(2, 1)
    return accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))


def _step(accelerator: Accelerator, model: Any, optimizer: Any, loss: Any = None) -> float:
    crops = torch.rand(4, 2)
    accelerator.backward(model(crops).mean())
    optimizer.step()
    optimizer.zero_grad()
    return float(crops.sum())


def _no_loader() -> dict[str, Any]:
    accelerator = start()
    model, optimizer = _model(accelerator)
    evaluation = accelerator.prepare(DataLoader(rows(), batch_size=2))
    for _ in evaluation:  # a look before the training
        pass
    before = draw()
    said = infos()
    first = _step(accelerator, model, optimizer)
    later = [_step(accelerator, model, optimizer) for _ in range(3)]
    for _ in evaluation:
        later.append(torch.rand(()).item())
    later.append(torch.rand(()).item())
    weights = [param.tolist() for param in model.parameters()]
    with accelerator.common_draws():
        shared = draw()
    return {"alike": (before, first, weights, shared), "own": later, "said": said}


def test_without_a_loader_processes_draw_their_own_from_the_first_step_on() -> None:
    zero, one = run_ranks(_no_loader, 2)
    assert zero["alike"] == one["alike"]
    assert not {*zero["own"]} & {*one["own"]}
    (said,) = zero["said"]
    assert said.startswith("the training steps stand in no loop over a prepared loader")
    assert "accelerator.common_draws()" in said
    assert one["said"] == []


def _by_hand(how: str) -> list[Drawn]:
    """A training without a loader, of a script that decides itself what each process draws."""
    accelerator = start()
    if how == "seeds by rank":
        torch.manual_seed(7 + accelerator.process_index)
    else:
        globals()["dist"] = torch.distributed
    model, optimizer = _model(accelerator)
    drawn = []
    for _ in range(3):
        drawn.append(draw())
        _step(accelerator, model, optimizer)
    return drawn


@pytest.mark.parametrize("how", ["seeds by rank", "uses torch.distributed"])
def test_a_script_that_distributes_itself_keeps_its_streams(how: str) -> None:
    for rank, drawn in enumerate(run_ranks(_by_hand, 2, how)):
        torch.manual_seed(7 + rank if how == "seeds by rank" else 3)
        nn.Linear(2, 1)
        for number, _, _ in drawn:
            assert number == torch.rand(()).item()
            torch.rand(4, 2)


def _cached(folder: str, in_pass: bool) -> float:
    """Only who finds no file draws, as for the vectors of words that a vocabulary lacks."""
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.zeros(8, 1)), batch_size=2))
    drawn = 0.0
    for _ in loader if in_pass else [None]:
        found = Path(folder) / "vectors"
        with accelerator.main_process_first():
            if not found.exists():
                draw()
                found.touch()
        drawn += sum(draw())
    return drawn


@pytest.mark.parametrize("in_pass", [False, True])
def test_what_rank_0_draws_alone_counts_for_all_outside_of_passes(tmp_path: Path, in_pass: bool) -> None:
    first, second = run_ranks(_cached, 2, str(tmp_path), in_pass)
    assert (first == second) is not in_pass


def _seeded_by_rank() -> tuple[Drawn, Drawn]:
    accelerator = Accelerator(cpu=True)
    set_seed(3, device_specific=True)
    with accelerator.main_process_first():
        within = draw()
    return within, draw()


def test_streams_that_are_seeded_by_rank_stay_apart_behind_such_a_block() -> None:
    (first, later), (second, latest) = run_ranks(_seeded_by_rank, 2)
    assert differ(first, second) and differ(later, latest)


# -- Random streams at `Accelerator()`: alike where nobody seeded them, apart where the script seeded by rank ---


def _start(how: str) -> dict[str, Any]:
    rank = int(os.environ["RANK"])
    said = infos()
    seed = 42 if how == "one seed" else 1000 * rank + 42
    if how == "nothing":  # as processes that were not forked from one begin
        torch.seed()
        random.seed()
        np.random.seed()
    else:
        torch.manual_seed(seed)
    if how in ("one seed", "all"):
        random.seed(seed)
        np.random.seed(seed)
    if how == "torch":
        random.seed()
        np.random.seed()
    seed_of = torch.initial_seed()
    assert Accelerator(cpu=True).distributed_type == DistributedType.MULTI_CPU
    return {
        "torch": torch.rand(1).item(),
        "python": random.random(),
        "numpy": float(np.random.rand()),
        "plain": torch.rand(2, generator=torch.Generator().manual_seed(seed_of))[0].item(),
        "said": said,
    }


@pytest.mark.parametrize(
    ("how", "apart"),
    [("nothing", set()), ("one seed", set()), ("torch", {"torch"}), ("all", {"torch", "python", "numpy"})],
)
def test_streams_stay_apart_only_where_the_script_seeded_them_so(how: str, apart: set[str]) -> None:
    zero, one = run_ranks(_start, 2, how)
    assert {name for name in ("torch", "python", "numpy") if zero[name] != one[name]} == apart
    assert zero["torch"] == zero["plain"]
    if apart:
        assert one["torch"] == one["plain"]  # what the same script draws without an Accelerator
    assert len(zero["said"]) == (1 if apart else 0)
    assert one["said"] == []
