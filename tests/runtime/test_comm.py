"""The backend: collectives over real processes, and the errors a wrong start gives."""

from __future__ import annotations

import pytest
import torch
from crosstrain.comm.frames import CAPACITY
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.comm.types import DistributedType
from crosstrain.config import first_host, read_launch_config, read_place

from tests.support.ranks import run_ranks


def _collectives() -> dict[str, object]:
    comm = TorchComm.start()
    mine = torch.tensor([comm.rank, 10 + comm.rank])
    kinds = {}
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64):
        kinds[str(dtype)] = comm.all_gather(torch.full((2, 1), comm.rank, dtype=dtype)).shape
    out = {
        "gather": comm.all_gather(mine).tolist(),
        "scalar": comm.all_gather(torch.tensor(float(comm.rank))).tolist(),
        "empty": tuple(comm.all_gather(torch.empty(0, 3)).shape),
        "sum": comm.all_reduce(mine, "sum").tolist(),
        "mean": comm.all_reduce(mine, "mean").tolist(),
        "max": comm.all_reduce(mine, "max").tolist(),
        "strided": comm.broadcast(torch.full((2, 3), float(comm.rank)).t(), src=1).tolist(),
        "objects": comm.all_gather_object({"rank": comm.rank}),
        "object": comm.broadcast_object(f"from {comm.rank}", src=1),
        "kinds": kinds,
        "device": str(comm.device),
        "type": comm.distributed_type,
    }
    parts = [torch.tensor([r, r]) for r in range(comm.world)] if comm.rank == 0 else None
    out["scatter"] = comm.scatter(parts, torch.zeros(2, dtype=torch.int64)).tolist()
    comm.barrier()
    return out


def test_collectives_over_two_processes() -> None:
    for rank, seen in enumerate(run_ranks(_collectives, 2)):
        assert seen["gather"] == [[0, 10], [1, 11]]
        assert seen["scalar"] == [0.0, 1.0]
        assert seen["empty"] == (2, 0, 3)
        assert seen["sum"] == [1, 21]
        assert seen["mean"] == [0.5, 10.5]
        assert seen["max"] == [1, 11]
        assert seen["strided"] == [[1.0, 1.0]] * 3
        assert seen["objects"] == [{"rank": 0}, {"rank": 1}]
        assert seen["object"] == "from 1"
        assert set(seen["kinds"].values()) == {(2, 2, 1)}
        assert seen["scatter"] == [rank, rank]
        assert seen["type"] == DistributedType.MULTI_CPU
        # accelerate says cpu:0 here, which is unequal to torch.device("cpu") and which torch.load refuses.
        assert seen["device"] == "cpu"


def _several(size: int) -> list[list[float]]:
    comm = TorchComm.start()
    odd = torch.full((size,), comm.rank + 5, dtype=torch.uint8)
    return [
        found[:, -1].tolist() for found in comm.all_gather_several([odd, torch.tensor([comm.rank - 0.25])])
    ]


@pytest.mark.parametrize("size", [3, CAPACITY + 3])
def test_tensors_that_are_gathered_together_keep_their_values(size: int) -> None:
    assert run_ranks(_several, 2, size) == [[[5, 6], [-0.25, 0.75]]] * 2


def test_one_process_needs_no_other() -> None:
    (seen,) = run_ranks(_alone, 1)
    assert seen == (True, 1, [[3.0]], "NO")


def _alone() -> tuple[object, ...]:
    comm = TorchComm.start()
    gathered = comm.all_gather(torch.tensor([3.0])).tolist()
    return torch.distributed.is_initialized(), comm.world, gathered, comm.distributed_type.name


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "one JSON object"),
        ('{"precision": 1}', r"unknown options \['precision'\]"),
        ('{"mixed_precision": "fp4"}', "choose one of no, fp16, bf16"),
    ],
)
def test_a_wrong_configuration_names_the_choices(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_launch_config({"CROSSTRAIN_CONFIG": text})
