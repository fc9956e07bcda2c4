"""The backend: collectives over real processes, and the errors a wrong start gives."""

import os
import socket
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain.comm import host_links
from crosstrain.comm.frames import CAPACITY
from crosstrain.comm.host_links import SMALL, HostGather
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.comm.types import DistributedType
from crosstrain.config import first_host, read_launch_config, read_place
from torch import Tensor

from tests.support.ranks import on_ranks, run_ranks


@on_ranks(2)
def test_collectives_over_two_processes() -> None:
    comm = TorchComm.start()
    mine = torch.tensor([comm.rank, 10 + comm.rank])
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64):
        assert comm.all_gather(torch.full((2, 1), comm.rank, dtype=dtype)).shape == (2, 2, 1)
    assert comm.all_gather(mine).tolist() == [[0, 10], [1, 11]]
    assert comm.all_gather(torch.tensor(float(comm.rank))).tolist() == [0.0, 1.0]
    assert comm.all_gather(torch.empty(0, 3)).shape == (2, 0, 3)
    assert comm.all_reduce(mine, "sum").tolist() == [1, 21]
    assert comm.all_reduce(mine, "mean").tolist() == [0.5, 10.5]
    assert comm.all_reduce(mine, "max").tolist() == [1, 11]
    assert comm.broadcast(torch.full((2, 3), float(comm.rank)).t(), src=1).tolist() == [[1.0, 1.0]] * 3
    assert comm.all_gather_object({"rank": comm.rank}) == [{"rank": 0}, {"rank": 1}]
    assert comm.broadcast_object(f"from {comm.rank}", src=1) == "from 1"
    parts = [torch.tensor([r, r]) for r in range(comm.world)] if comm.rank == 0 else None
    assert comm.scatter(parts, torch.zeros(2, dtype=torch.int64)).tolist() == [comm.rank, comm.rank]
    comm.barrier()
    assert comm.distributed_type == DistributedType.MULTI_CPU
    # accelerate says cpu:0 here, which is unequal to torch.device("cpu") and which torch.load refuses.
    assert str(comm.device) == "cpu"


@pytest.mark.parametrize("size", [3, CAPACITY + 3])
@on_ranks(2)
def test_tensors_that_are_gathered_together_keep_their_values(size: int) -> None:
    comm = TorchComm.start()
    odd = torch.full((size,), comm.rank + 5, dtype=torch.uint8)
    found = comm.all_gather_several([odd, torch.tensor([comm.rank - 0.25])])
    assert [one[:, -1].tolist() for one in found] == [[5, 6], [-0.25, 0.75]]


def test_variables_without_an_address_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(RuntimeError, match=r"not MASTER_ADDR.*crosstrain launch"):
        TorchComm.start(cpu=True)
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ValueError, match="WORLD_SIZE='two' is not a whole number"):
        TorchComm.start(cpu=True)


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("node1", "node1"), ("gpu[03-07,12],cpu1", "gpu03"), ("a,b", "a"), ("n[1-2]-ib", "n1-ib")],
)
def test_first_host_of_a_slurm_list(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


def test_place_under_srun_but_not_in_a_batch_script() -> None:
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}
    assert read_place(batch) is None
    step = batch | {"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "n[1-2]"}
    place = read_place(step | {"SLURM_PROCID": "5", "SLURM_LOCALID": "1"})
    assert place is not None
    assert (place.rank, place.world, place.local_rank, place.local_world) == (5, 8, 1, 4)
    assert (place.master_addr, place.master_port) == ("n1", 15007)


def test_launcher_options_beat_accelerates_variables() -> None:
    env = {
        "ACCELERATE_MIXED_PRECISION": "fp16",
        "ACCELERATE_USE_CPU": "true",
        "CROSSTRAIN_CONFIG": '{"mixed_precision": "bf16", "even_batches": "weighted"}',
    }
    config = read_launch_config(env)
    assert (config.mixed_precision, config.cpu, config.even_batches) == ("bf16", True, "weighted")


WRONG = [("{", "not JSON"), ("[1]", "one JSON object")]
WRONG += [('{"precision": 1}', r"unknown options \['precision'\]")]
WRONG += [('{"mixed_precision": "fp4"}', "choose one of no, fp16, bf16")]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_configuration_names_the_choices(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_launch_config({"CROSSTRAIN_CONFIG": text})


# -- Messages between processes of one host, past the process group ----------------------------------------

GONE = r"closed by the other process|reset|Broken pipe"

LINKED = pytest.mark.skipif(not host_links.SUPPORTED, reason="no shared memory without a name here")


@LINKED
def test_a_message_that_comes_too_late_is_not_taken_for_the_next_one() -> None:
    """A script may go on behind the error of a time-out."""
    ends = socket.socketpair()
    first = HostGather(0, [ends[0]], timedelta(seconds=0.1))
    second = HostGather(1, [ends[1]], timedelta(seconds=0.1))
    out, mine = torch.zeros(16, dtype=torch.uint8), torch.ones(8, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="Timed out"):
        first.gather(out, mine)
    with pytest.raises(RuntimeError, match=GONE):
        second.gather(out.clone(), mine)
    with pytest.raises(RuntimeError):
        first.gather(out, mine)


# -- several processes --------------------------------------------------------------------------------


def _scattered(far: list[int], folder: str) -> dict[str, Any]:
    """Messages to every rank; those in `far` are on another host."""
    tempfile.tempdir = folder
    comm = TorchComm.start()
    if comm.rank in far:
        host_links.SUPPORTED = False
    out = []
    for size in (4, SMALL, 10, SMALL * 2):
        parts: list[Tensor] | None = None
        if comm.rank == 0:
            parts = [torch.full((size,), size + rank) for rank in range(comm.world)]
        out.append(comm.scatter(parts, torch.zeros(size, dtype=torch.int64)).unique().tolist())
    comm.flush()
    assert comm._outbox is not None
    linked = sorted(comm._outbox._links)
    comm.barrier()
    comm.close()
    return {"out": out, "linked": linked, "left": list(Path(folder).iterdir())}


@LINKED
@pytest.mark.parametrize("far", [[], [1], [0], [0, 1, 2]])
def test_each_rank_is_reached_as_it_can_be(far: list[int], tmp_path: Path) -> None:
    results = run_ranks(_scattered, 3, far, str(tmp_path))
    for rank, seen in enumerate(results):
        assert seen["out"] == [[size + rank] for size in (4, SMALL, 10, SMALL * 2)]
        assert seen["left"] == []
    near = [rank for rank in (1, 2) if rank not in far] if 0 not in far else []
    assert results[0]["linked"] == near
    assert [rank for rank in (1, 2) if results[rank]["linked"] == [0]] == near


def _gathered(far: list[int], length: int) -> tuple[bool, list[Any]]:
    host_links.SUPPORTED = int(os.environ["RANK"]) not in far
    comm = TorchComm.start(cpu=True)
    nearby = comm._nearby is not None
    said = [comm.all_gather_object((comm.rank, turn, "x" * length * (comm.rank + 1))) for turn in range(3)]
    tensors = comm.all_gather(torch.full((length,), comm.rank)).tolist()
    comm.close()
    return nearby, [said, tensors]


@LINKED
@pytest.mark.parametrize("length", [1, 9, SMALL])
def test_what_is_gathered_does_not_depend_on_how_it_travels(length: int) -> None:
    near, far = run_ranks(_gathered, 3, [], length), run_ranks(_gathered, 3, [2], length)
    assert [nearby for nearby, _ in near] == [True] * 3
    assert [nearby for nearby, _ in far] == [False] * 3
    wanted = [[(rank, turn, "x" * length * (rank + 1)) for rank in range(3)] for turn in range(3)]
    for _, seen in [*near, *far]:
        assert seen == [wanted, [[rank] * length for rank in range(3)]]
