"""The process group beside a script's own calls of torch.distributed: started, found again, left."""

import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from crosstrain import Accelerator, PartialState

from tests.support.ranks import free_port, infos, on_ranks, run_ranks


@on_ranks(1, 2)
def test_kept_calls_of_torch_work_in_every_launch() -> None:
    """accelerate makes no group for one process, and the script's `dist.get_rank()` raises there."""
    accelerator = Accelerator(cpu=True)
    world = int(os.environ["WORLD_SIZE"])
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    assert (dist.get_world_size(), total.item()) == (world, world * (world + 1) / 2)
    assert accelerator.state.backend == "gloo"
    dist.barrier()
    accelerator.end_training()
    assert not dist.is_initialized()


def test_plain_python_starts_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    plain = dist.init_process_group
    assert PartialState(cpu=True).num_processes == 1
    assert not dist.is_initialized()
    assert dist.init_process_group is plain


ALONE = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": 29500}


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_plain_script_may_ask_for_a_group(asked_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For samplers and collectives of its own, also when something else has asked for the process before."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    if asked_before:
        assert PartialState(cpu=True).backend is None
    state = PartialState(cpu=True, group_of_one=True)
    assert (dist.get_rank(), dist.get_world_size(), state.backend) == (0, 1, "gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == 1.0
    assert Accelerator(cpu=True).num_processes == 1
    assert not any(name in os.environ for name in ALONE)  # by which a script finds out about it
    PartialState._reset_state()
    assert not dist.is_initialized()


def test_scripts_that_read_the_launchers_variables_may_ask_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ALONE, "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_PORT", "1234")
    state = PartialState(cpu=True, group_of_one=True, environment=True)
    assert {name: int(os.environ[name]) for name in ALONE} == {**ALONE, "MASTER_PORT": 1234}
    assert state.device == torch.device("cpu")
    dist.init_process_group("gloo", init_method="env://")  # the script's own call changes nothing
    assert Accelerator(cpu=True).num_processes == 1
    PartialState._reset_state()
    assert not any(name in os.environ for name in ALONE if name != "MASTER_PORT")


# -- a second start ---------------------------------------------------------------------------------


def _imported() -> Any:
    """A module of the user's that imported the function before there was an Accelerator."""
    module = ModuleType("users_own")
    sys.modules["users_own"] = module
    exec("from torch.distributed import init_process_group", module.__dict__)
    return module


def _again(calls: list[dict[str, Any]]) -> list[str]:
    users = _imported()
    plain = dist.init_process_group
    said = infos()
    accelerator = Accelerator(cpu=True)
    for start in (dist.init_process_group, users.init_process_group):
        for call in calls:
            try:
                start(**call)
            except ValueError as error:
                said.append(str(error))
    accelerator.wait_for_everyone()
    accelerator.end_training()
    assert dist.init_process_group is users.init_process_group is plain
    return said


@pytest.mark.parametrize("world", [1, 2])
def test_a_second_start_of_the_same_group_changes_nothing(world: int) -> None:
    calls = [{"backend": "gloo"}, {}, {"backend": "gloo", "init_method": "env://", "world_size": world}]
    said, *others = run_ranks(_again, world, calls)
    assert len(said) == 6
    assert all(line.startswith(f"init_process_group at {__file__}:") for line in said)
    assert all(one.endswith("changes nothing: Accelerator() has started this group already.") for one in said)
    assert others == [[]] * (world - 1)


@pytest.mark.parametrize(
    ("call", "differs"),
    [({"backend": "mpi"}, "backend='mpi'"), ({"world_size": 7, "rank": 0}, "world_size=7")],
)
def test_a_second_start_of_another_group_is_an_error(call: dict[str, Any], differs: str) -> None:
    for said in run_ranks(_again, 2, [call]):
        assert "trying to initialize the default process group twice" in said[0]
        assert f"asks for {differs}" in said[0] or f"asks for rank=0, {differs}" in said[0]
        assert "Remove the call" in said[0]
        assert __file__ in said[0]


# -- leaving ----------------------------------------------------------------------------------------

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from crosstrain import Accelerator
if "own" in sys.argv:
    dist.init_process_group("gloo")
accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Linear(2, 1))
accelerator.backward(model(torch.ones(1, 2)).mean())
dist.destroy_process_group()
if "end" in sys.argv:
    accelerator.end_training()
if "state" in sys.argv:
    accelerator.state.destroy_process_group()
if "gather" in sys.argv:
    try:
        accelerator.gather(torch.ones(1))
    except RuntimeError as error:
        print(error)
"""


def by_hand(world: int, script: str, *arguments: str) -> list[tuple[int, str, str]]:
    """The exit code, output and errors of each process of a script, started as launchers do."""
    port = str(free_port())
    ranks = []
    for rank in range(world):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
        env = os.environ | place | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        how: Any = {"env": env | {"LOCAL_WORLD_SIZE": str(world)}, "text": True}
        how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        ranks.append(subprocess.Popen([sys.executable, "-c", script, *arguments], **how))
    outputs = [process.communicate(timeout=300) for process in ranks]
    return [(process.returncode, *output) for process, output in zip(ranks, outputs, strict=True)]


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("arguments", [(), ("end", "state"), ("own", "end")])
def test_the_scripts_own_end_of_the_group_breaks_no_later_end(world: int, arguments: tuple[str, ...]) -> None:
    assert by_hand(world, SCRIPT, *arguments) == [(0, "", "")] * world


def test_what_needs_the_group_after_the_scripts_own_end_says_so() -> None:
    for code, output, _ in by_hand(2, SCRIPT, "gather"):
        assert code == 0
        assert output.startswith("this process has left its group")
