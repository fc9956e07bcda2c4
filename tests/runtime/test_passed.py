"""`prepare` says at once what it could not prepare."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.state import AcceleratorState
from crosstrain.step.held_objects import gives_batches
from torch import nn
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.optim import SGD
from torch.optim.lr_scheduler import LRScheduler, StepLR
from torch.utils.data import DataLoader, IterableDataset

from tests.support.ranks import errors_of, run_ranks


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(True)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(torch.ones(4, 1))


def _loader() -> DataLoader[Any]:
    return DataLoader(torch.linspace(-1, 1, 24).view(8, 3), batch_size=2)


_LINEAR = nn.Linear(1, 1)


@pytest.mark.parametrize(
    "given",
    [
        list(_loader()),
        [(torch.ones(2), torch.ones(2))],
        [{"x": torch.ones(2)}],
        (x for x in range(3)),
        iter(_loader()),
        zip(_loader(), _loader(), strict=True),
        Stream(),
        ["a", "b"],
        range(3),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_a_loop_would_get_batches_from(given: Any) -> None:
    assert gives_batches(given)
    assert isinstance(Accelerator(cpu=True).prepare(given), DataLoader)


@pytest.mark.parametrize(
    "given",
    [
        None,
        "name",
        {"lr": 0.1, "sizes": [1, 2]},
        {"train": _loader()},
        [_loader()],
        [],
        torch.ones(3),
        nn.ParameterList([nn.Parameter(torch.ones(1))]),
        [_LINEAR],
        list(_LINEAR.parameters()),
        StepLR(SGD(_LINEAR.parameters(), 0.1), 1),
        io.StringIO("text"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_none(given: Any) -> None:
    assert not gives_batches(given)
    if not isinstance(given, (nn.Module, LRScheduler)):
        assert Accelerator(cpu=True).prepare(given) is given


def _spread(mixed: bool) -> None:
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta" if mixed else "cpu"))
    accelerator.prepare(model)


@pytest.mark.parametrize("world", [1, 2])
def test_a_model_on_several_devices(world: int) -> None:
    for said in errors_of(_spread, world, True):
        assert "the Sequential is spread over several devices (cpu, meta)" in said
    assert errors_of(_spread, world, False) == ["no error"] * world


def _train_unfed(kind: str) -> tuple[list[str], int]:
    """What is said on the screen in three steps of a training whose batches `prepare` has not seen, and the hooks left."""
    accelerator = Accelerator(cpu=True)
    rank, said = accelerator.process_index, io.StringIO()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    optimizer = SGD(model.parameters(), 0.1)
    if kind == "loose":
        accelerator.prepare(optimizer)
    else:
        accelerator.prepare(model, optimizer)
    batches: Any = [x + rank * (kind == "own") for x in _loader()]
    if kind == "prepared":
        batches = accelerator.prepare(_loader())
    elif kind == "dealt":
        batches = accelerator.prepare(list(_loader()))
    with contextlib.redirect_stderr(said):
        for x in batches:
            data = torch.randn(2, 3) if kind == "random" else x
            loss = model[::2](data) if kind == "loose" else model(data)
            accelerator.backward(loss.square().mean())
            optimizer.step()
            optimizer.zero_grad()
    return said.getvalue().splitlines(), len(_global_forward_pre_hooks)


def test_a_training_on_the_same_data_everywhere_is_said_in_its_second_step() -> None:
    for kind in ("same", "loose"):
        (zero, hooks), (one, _) = run_ranks(_train_unfed, 2, kind)
        assert [line for line in zero if f"every process trains on the same data: {__file__}:" in line], zero
        assert (one, hooks) == ([], 0)
    for kind in ("own", "random", "prepared", "dealt"):
        (zero, hooks), (one, _) = run_ranks(_train_unfed, 2, kind)
        assert not [line for line in zero + one if "same data" in line], (kind, zero)
        assert hooks == 0
