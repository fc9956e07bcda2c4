"""`Accelerator()` in a second place is the first one's equal, and `prepare` knows what it has prepared."""

import weakref
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain import Accelerator, AcceleratorState, DataLoaderConfiguration, GradientState, PartialState
from crosstrain.utils import AutocastKwargs, GradientAccumulationPlugin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.checkpoints import Count
from tests.support.ranks import run_ranks

ROWS = 12


def _loader(batch_size: int = 2) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(float(ROWS)).view(-1, 1)), batch_size=batch_size)


def _train(second_place: bool) -> tuple[list[float], list[int]]:
    """Weights after each micro-batch, and the number of loaders after each epoch.

    ``second_place``: whether a function of a module that several scripts share makes the Accelerator that trains.
    """
    torch.manual_seed(0)
    plan: Any = {"loss_reduction": "sum", "even_batches": False}
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, **plan)
    model, data = nn.Linear(1, 1), _loader()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    weights, registered = [], []
    for _ in range(2):
        here = Accelerator() if second_place else accelerator
        loader = here.prepare(data)
        for (x,) in loader:
            with here.accumulate(model):
                here.backward(model(x).square().sum())
                here.clip_grad_norm_(model.parameters(), 50.0)
                optimizer.step()
                optimizer.zero_grad()
            weights.append(model.weight.item())
        registered.append(len(accelerator._dataloaders))
        assert loader._crosstrain.progress.epoch == registered[0] * len(registered)
    return weights, registered


@pytest.mark.parametrize("world", [1, 2])
def test_a_training_with_a_second_accelerator_is_that_of_the_first(world: int) -> None:
    alone, shared = (run_ranks(_train, world, place) for place in (False, True))
    assert alone == shared
    weights, registered = shared[0]
    assert registered == [1, 1]
    # Where it began, and after every second micro-batch and the last
    assert len(set(weights)) == {1: 7, 2: 5}[world]


def test_what_is_not_given_is_the_first_ones() -> None:
    given: Any = {"device_placement": False, "rng_types": ["torch"], "step_scheduler_with_optimizer": False}
    given["dataloader_config"] = DataLoaderConfiguration(split_batches=True, even_batches="weighted")
    plugin = GradientAccumulationPlugin(num_steps=3, sync_with_dataloader=False)
    given |= {"gradient_accumulation_plugin": plugin, "kwargs_handlers": [AutocastKwargs(enabled=False)]}
    first = Accelerator(cpu=True, project_dir="here", dynamo_backend="eager", **given)
    first.register_for_checkpointing(Count())
    second = Accelerator()
    same = ["device_placement", "dataloader_config", "rng_types", "step_scheduler_with_optimizer", "log_with"]
    same += ["loss_reduction", "downcast_bf16", "dynamo_plugin", "handlers", "project_dir", "scaler"]
    for name in same:
        assert getattr(second, name) == getattr(first, name), name
    assert second.gradient_accumulation_steps == 3
    assert not second._gradients.sync_with_dataloader
    assert second._models is first._models
    assert second._custom_objects is first._custom_objects and len(second._custom_objects) == 1
    assert second.trackers is first.trackers
    with first.accumulate():
        assert second.step == 1 and not second.sync_gradients
    second.even_batches = True
    assert first.even_batches is True


def test_the_same_loader_is_prepared_once_until_something_changes() -> None:
    accelerator, data = Accelerator(cpu=True), _loader()
    loader = accelerator.prepare(data)
    assert accelerator.prepare(data) is loader
    assert Accelerator().prepare(data) is loader
    assert accelerator.prepare(loader) is loader
    accelerator.even_batches = False
    changed = accelerator.prepare(data)
    assert changed is not loader
    assert accelerator._dataloaders == [changed]
    data.collate_fn = lambda rows: torch.stack([row for (row,) in rows])
    assert next(iter(accelerator.prepare(data))).shape == (2, 1)
    assert len(accelerator._dataloaders) == 1
    again = accelerator.prepare(data)
    accelerator.free_memory()
    assert accelerator._dataloaders == []
    assert accelerator.prepare(data) is not again
    other = _loader(3)
    number = len(accelerator._prepared.remembered._made)
    accelerator.prepare(other)
    del other
    assert len(accelerator._prepared.remembered._made) == number  # it is not kept alive


def _one_alone(after: str) -> list[str]:
    state = PartialState(cpu=True, timeout=timedelta(seconds=20))
    draws = []
    torch.manual_seed(1000 * state.process_index * 2**20)
    try:
        if after == "alike":
            Accelerator()
            draws.append(str(torch.rand(1).item()))
        elif state.is_main_process:
            Accelerator()
        state.wait_for_everyone()
    except RuntimeError as error:
        return [str(error)]
    return draws


def test_a_first_accelerator_on_one_rank_alone_is_an_error_with_both_places() -> None:
    for (said,) in run_ranks(_one_alone, 2, "barrier"):
        assert f"rank 0: the first Accelerator() of every process at {__file__}:" in said
        assert f"rank 1: wait_for_everyone at {__file__}:" in said
    zero, one = run_ranks(_one_alone, 2, "alike")
    assert zero == one  # a PartialState before it does not keep Accelerator() from making the streams alike


def _saved_by_rank_0(path: Path, started_by: str) -> tuple[float, float, float]:
    """A script that distributes itself saves by a helper, which makes an Accelerator, on rank 0 alone, and trains on."""
    if started_by == "a shared module":
        PartialState(cpu=True)  # that asks for the device where it is imported
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    torch.manual_seed(100 + rank)
    if rank == 0:
        Accelerator().save(model.module.state_dict(), path)
    drawn = torch.rand(1).item()
    model(torch.full((1, 1), float(rank))).sum().backward()
    loose = nn.Parameter(torch.ones(1))
    optimizer = Accelerator().prepare(torch.optim.SGD([loose], 1.0))
    Accelerator().backward(loose.sum() * rank)
    optimizer.step()
    return drawn, model.module.weight.grad.item(), loose.item()


@pytest.mark.parametrize("started_by", ["nobody", "a shared module"])
def test_an_accelerator_in_a_helper_of_one_rank_waits_for_nobody(tmp_path: Path, started_by: str) -> None:
    zero, one = run_ranks(_saved_by_rank_0, 2, tmp_path / "weights.pt", started_by)
    assert zero[0] != one[0]  # the script's own seeds
    assert zero[1:] == one[1:] == (0.5, 0.5)
    assert list(torch.load(tmp_path / "weights.pt")) == ["weight", "bias"]


def _unseeded(group_of_one: bool, is_first: bool) -> tuple[float, float]:
    np.random.seed()  # ranks are forked alike
    torch.seed()
    PartialState(cpu=True, group_of_one=group_of_one and is_first)
    Accelerator()
    torch.manual_seed(5)  # the script's own
    PartialState(group_of_one=group_of_one)
    return float(np.random.rand()), torch.rand(1).item()


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("group_of_one", [True, False])
def test_a_script_that_makes_its_group_draws_by_each_process_what_nobody_seeds(
    group_of_one: bool, is_first: bool
) -> None:
    (zero, seeded), (one, alike) = run_ranks(_unseeded, 2, group_of_one, is_first)
    assert (zero == one) is not group_of_one
    assert seeded == alike


def _made_on_rank_0_alone(first: str) -> tuple[int, float]:
    """How many messages this process has sent for objects that rank 0 alone makes, and a number drawn later."""
    PartialState(cpu=True) if first == "state" else None
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    accelerator.prepare(nn.Linear(1, 1), _loader(3))
    sent: list[int] = []
    frames: Any = accelerator._comm._frames  # type: ignore[attr-defined]
    gather = frames._gather
    frames._gather = lambda out, mine: (sent.append(1), gather(out, mine))[1]
    if accelerator.is_main_process:
        PartialState()
        PartialState(cpu=True, environment=True)
        AcceleratorState(mixed_precision="no")
        GradientState()
        Accelerator()
        Accelerator(cpu=True, gradient_accumulation_steps=2, split_batches=True, loss_reduction="mean")
        Accelerator(own_draws=True, rng_types=["generator"], log_with=None)
    number = len(sent)
    accelerator.wait_for_everyone()
    return number, torch.rand(1).item()


@pytest.mark.parametrize("debug", ["0", "1"])
@pytest.mark.parametrize("first", ["accelerator", "state"])
def test_whatever_is_constructed_again_on_one_rank_alone_waits_for_nobody(first: str, debug: str) -> None:
    """A helper that only the main process calls makes its own, after the first one of every process."""
    zero, one = run_ranks(_made_on_rank_0_alone, 2, first, env={"CROSSTRAIN_DEBUG": debug})
    assert zero == one
    assert zero[0] == 0


def _new_ones() -> tuple[list[bool], int, int]:
    """Of four optimizers that a function makes anew, which are alive; how many are known; and of two that are kept."""
    accelerator = Accelerator(cpu=True)
    model, made = accelerator.prepare(nn.Linear(3, 1)), []

    def epoch() -> None:
        optimizer = accelerator.prepare(torch.optim.Adam(model.parameters()))
        made.append(weakref.ref(optimizer))
        accelerator.backward(model(torch.ones(2, 3)).mean())
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(4):
        epoch()
    known = len(accelerator._optimizers)
    kept = [accelerator.prepare(torch.optim.SGD(model.parameters(), 0.1)) for _ in range(2)]
    assert [one is other for one, other in zip(kept, accelerator._optimizers, strict=True)] == [True, True]
    return [one() is not None for one in made], known, len(kept)


@pytest.mark.parametrize("world", [1, 2])
def test_an_optimizer_that_a_new_one_replaces_is_forgotten(world: int) -> None:
    """A script that makes one in each epoch would keep the states of all of them."""
    for alive, known, kept in run_ranks(_new_ones, world):
        assert (alive, known, kept) == ([False, False, False, False], 1, 2)
