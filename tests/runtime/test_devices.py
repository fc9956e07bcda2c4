"""What a run does on devices, tried out where there are none: with patched calls and stand-ins."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from crosstrain import Accelerator, PartialState
from crosstrain.comm import hang_report, process_group
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.comm.visible_devices import device_index, see_all_again
from crosstrain.config import Place
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import run_ranks

GPU = torch.device("cuda", 0)


# -- which device -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("local_rank", "count", "env", "expected"),
    [
        (1, 2, {}, 1),
        (2, 2, {}, None),
        (1, 1, {}, None),
        (1, 1, {"SLURM_GPUS_PER_TASK": "1"}, 0),
        (3, 1, {"SLURM_TRES_PER_TASK": "gres/gpu:1"}, 0),
        (3, 1, {"CUDA_VISIBLE_DEVICES": "3"}, 0),
        (1, 1, {"CUDA_VISIBLE_DEVICES": "GPU-8a5c"}, 0),
        (2, 2, {"CUDA_VISIBLE_DEVICES": "0,1"}, None),
        (2, 2, {"SLURM_GPUS_PER_TASK": "2"}, None),
        (1, 1, {"CROSSTRAIN_SHARE_DEVICES": "1"}, 0),
        (3, 2, {"CROSSTRAIN_SHARE_DEVICES": "1"}, 1),
        (0, 0, {"CROSSTRAIN_SHARE_DEVICES": "1"}, None),
    ],
)
def test_each_process_takes_a_device_of_its_own(
    local_rank: int, count: int, env: dict[str, str], expected: int | None
) -> None:
    assert device_index(local_rank, count, "cuda", env) == expected


@pytest.mark.parametrize(
    ("chosen", "local_rank", "processes", "before", "left"),
    [
        ("0", 1, 2, None, None),  # meant for one process: undone
        ("2", 1, 2, "2,3", "2,3"),
        ("0,1", 3, 4, None, None),
        ("1,0", 1, 2, None, "1,0"),  # enough for all
        ("3", 1, 2, "3", "3"),  # not the script's choice
        ("1", 1, 2, None, "1"),  # this process's own
        ("3", 1, 2, "2,3", "3"),
        ("0", 0, 1, None, "0"),
        ("", 1, 2, None, ""),  # the choice of the CPU
        ("-1", 1, 2, None, "-1"),
    ],
)
def test_a_choice_of_one_device_is_not_for_several_processes(
    chosen: str, local_rank: int, processes: int, before: str | None, left: str | None
) -> None:
    name = "CUDA_VISIBLE_DEVICES"
    env = {name: chosen, "HOME": "/root"}
    undone = see_all_again(name, local_rank, processes, env, {} if before is None else {name: before})
    assert env.get(name) == left
    assert undone == (None if left == chosen else f"{name}={chosen}")


def test_launched_processes_do_not_share_the_device_that_the_script_chose(
    four_gpus: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from crosstrain.comm.devices import pick_device

    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("CROSSTRAIN_QUIET", raising=False)
    caplog.set_level("INFO", logger="crosstrain")
    assert pick_device(False, Place(0, 2, 0, 2)).index == 0
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None
    assert "CUDA_VISIBLE_DEVICES=0 is for one process" in caplog.text
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(RuntimeError, match="Make the Accelerator first"):
        pick_device(False, Place(1, 2, 1, 2))


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """torch believes in one GPU; the indices that are chosen."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: GPU)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
    return chosen


@pytest.fixture
def four_gpus(one_gpu: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """torch believes in four GPUs; the indices that are chosen."""
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    return one_gpu


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (2, "cuda:2"),
        ("3", "cuda:3"),
        ("cuda:1", "cuda:1"),
        (torch.device("cuda", 1), "cuda:1"),
        ("cuda", "cuda:0"),
        ("cpu", "cpu"),
        (torch.device("cpu"), "cpu"),
        (-1, "cuda:0"),
        ("auto", "cuda:0"),
        (None, "cuda:0"),
    ],
)
def test_a_process_that_nobody_launched_uses_the_device_that_the_script_names(
    four_gpus: list[int], given: Any, used: str
) -> None:
    assert str(Accelerator(device=given).device) == used
    assert four_gpus == ([int(used[-1])] if used[-1] in "123" else [])


def test_a_partial_state_may_have_taken_the_first_device(four_gpus: list[int]) -> None:
    assert str(PartialState().device) == "cuda:0"
    assert str(Accelerator(device=2).device) == "cuda:2"
    assert str(PartialState().device) == str(Accelerator().device) == "cuda:2"
    with pytest.raises(ValueError, match="already runs on cuda:2"):
        Accelerator(device=3)


def test_a_device_that_is_not_there_is_an_error(four_gpus: list[int]) -> None:
    with pytest.raises(RuntimeError, match="device 4 was asked for: there are 4 of type 'cuda'"):
        Accelerator(device=4)


def test_a_launched_process_keeps_its_own_device(
    four_gpus: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert str(Accelerator(device=1).device) == "cuda:0"  # the rank of the launcher's only process
    assert 1 not in four_gpus


PLACE = Place(1, 2, 1, 2, "localhost", 29500)


def test_two_processes_on_one_device_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise dist.DistBackendError(
            "NCCL: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
        )

    monkeypatch.setattr(dist, "init_process_group", refuses)
    with pytest.raises(RuntimeError, match="two processes of this machine use cuda:0"):
        process_group.start_group(GPU, PLACE, None, None, None)


def test_cpu_may_be_asked_for_after_a_partial_state(one_gpu: list[int]) -> None:
    """A converted script makes a PartialState first, and reads `--device cpu` afterwards."""
    assert PartialState().device == GPU
    accelerator = Accelerator(cpu=True)
    assert accelerator.device == PartialState().device == torch.device("cpu")
    assert accelerator.prepare(nn.Linear(1, 1)).weight.device.type == "cpu"


def test_cpu_may_not_be_asked_for_after_an_accelerator(one_gpu: list[int]) -> None:
    Accelerator()
    with pytest.raises(ValueError, match="already runs on cuda:0; cpu=True must be given to the first"):
        Accelerator(cpu=True)


# -- pending work -------------------------------------------------------------------------------------


class Work:
    """A device's collective."""

    def __init__(self, done: bool = False) -> None:
        self.done = done

    def is_completed(self) -> bool:
        return self.done


def _hangs_on_the_device() -> str:
    hang_report.INTERVAL = 0.1
    hang_report.REPORT_SECONDS = 1.0 if os.environ["RANK"] == "0" else 1000.0  # one of them asks
    said, sys.stderr = sys.stderr, io.StringIO()
    comm = TorchComm.start(cpu=True)
    if comm.rank == 0:
        comm._pending.add("the averaging of gradients", Work())
    deadline = time.monotonic() + 120
    while comm.rank == 0 and not sys.stderr.getvalue() and time.monotonic() < deadline:  # waits
        time.sleep(0.1)
    out, sys.stderr = sys.stderr.getvalue(), said
    comm.barrier()
    return out


def test_work_that_hangs_on_a_device_is_reported() -> None:
    text = run_ranks(_hangs_on_the_device, 2)[0]
    assert re.search(r"rank 0 has waited \d+ s in the averaging of gradients \(missing: rank 1\)", text)
    assert f"rank 0: waits in the averaging of gradients at {__file__}:" in text


# -- copies and waiting -------------------------------------------------------------------------------


def _under_a_default_device() -> tuple[list[float], float, list[list[int]], list[float], int]:
    """What a process finds that makes tensors on another device, unless it says where: as an old script's default tensor type."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = DataLoader(TensorDataset(torch.arange(8.0).view(4, 2)), batch_size=1)
    held_out = DataLoader(TensorDataset(torch.arange(3)), batch_size=1)
    with torch.device("meta"):
        model, optimizer, loader = accelerator.prepare(model, optimizer, rows)
        dealt, seen = accelerator.prepare_evaluation(held_out), []
        with accelerator.common_draws():
            pass
    for (x,) in loader:
        with torch.device("meta"):
            accelerator.backward(model(x).mean())
            optimizer.step()
            optimizer.zero_grad()
    for (row,) in dealt:
        seen.append(row.tolist())
    with torch.device("meta"):
        total = accelerator.merge(dealt, sum(map(sum, seen)))
        seen = accelerator.merge(dealt, seen)
        summed = accelerator.reduce(float(accelerator.process_index), "sum")
        accelerator.set_trigger()
        assert accelerator.check_trigger()
    return model.weight.flatten().tolist(), summed, seen, model.bias.tolist(), total


def test_a_default_device_of_the_script_does_not_reach_the_runtime() -> None:
    first, second = run_ranks(_under_a_default_device, 2)
    assert first == second
    assert (first[1], first[2], first[4]) == (1.0, [[0], [1], [2]], 3)
