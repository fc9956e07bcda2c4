"""One device: training, precision, checkpoints, and two processes that share it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, DistributedDataParallelKwargs, PartialState
from torch import nn

from tests.gpu import training
from tests.support.ranks import run_ranks

pytestmark = pytest.mark.gpu
SHARED = {"CROSSTRAIN_SHARE_DEVICES": "1"}
SPLIT = {"split_batches": True}


def furthest(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


def test_the_device_is_taken(kind: str) -> None:
    state = PartialState(cpu=kind == "cpu")
    assert state.device.type == kind
    assert kind == "cpu" or state.device.index is not None


def test_one_process_trains_as_plain_torch(kind: str) -> None:
    torch.backends.cudnn.deterministic = True
    assert furthest(training.plain(kind), training.train(kind)) == 0.0


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_stays_near(precision: str, kind: str) -> None:
    plain = training.plain(kind)
    assert 0.0 < furthest(plain, training.train(kind, {"mixed_precision": precision})) < 0.1


def test_a_loss_that_overflows_is_skipped(kind: str) -> None:
    accelerator = Accelerator(cpu=kind == "cpu", mixed_precision="fp16")
    model = nn.Linear(4, 4)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = model.weight.detach().clone()
    accelerator.backward(model(torch.full((1, 4), 3e4, device=accelerator.device)).sum() * 1e30)
    optimizer.step()
    assert accelerator.optimizer_step_was_skipped
    assert torch.equal(before, model.weight)


def test_channels_last(kind: str) -> None:
    near = training.train(kind, memory_format=torch.channels_last)
    assert furthest(training.plain(kind), near) < 1e-4


@pytest.mark.parametrize("blocking", [True, False])
def test_a_checkpoint_continues_exactly(blocking: bool, kind: str, tmp_path: Path) -> None:
    torch.backends.cudnn.deterministic = True
    went_on, again = training.resumed(kind, tmp_path / "state", blocking=blocking)
    assert all(torch.equal(a, b) for a, b in zip(went_on, again, strict=True))


def test_two_processes_share_a_device(kind: str) -> None:
    ranks = run_ranks(training.train, 2, kind, SPLIT, env=SHARED)
    assert furthest(ranks[0], ranks[1]) == 0.0


def _train(kind: str, options: dict[str, Any]) -> dict[str, torch.Tensor]:
    return training.train(kind, options, statistics=False)


@pytest.mark.parametrize("views", [False, True])
def test_two_processes_train_as_one(views: bool, kind: str) -> None:
    handlers = [DistributedDataParallelKwargs(gradient_as_bucket_view=views)]
    options = SPLIT | {"kwargs_handlers": handlers}
    (alone,) = run_ranks(_train, 1, kind, options)
    for rank in run_ranks(_train, 2, kind, options, env=SHARED):
        assert furthest(alone, rank) < 1e-5


def test_collectives_of_tensors_on_the_device(kind: str) -> None:
    for found in run_ranks(training.gathered, 2, kind, env=SHARED):
        assert found == {"gather": [0.0, 0.0, 1.0, 1.0], "sum": [1.0, 1.0], "max": [1.0, 1.0], "device": kind}


@pytest.mark.filterwarnings("ignore")
def test_two_devices_train_as_one(kind: str) -> None:
    if kind == "cpu" or torch.accelerator.device_count() < 2:
        pytest.skip("needs two devices")
    (alone,) = run_ranks(_train, 1, kind, SPLIT)
    for rank in run_ranks(_train, 2, kind, SPLIT):
        assert furthest(alone, rank) < 1e-5
