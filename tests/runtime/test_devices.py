"""What a run does on devices, tried out where there are none: with patched calls and stand-ins."""

import io
import os
import re
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from crosstrain import Accelerator, PartialState
from crosstrain.checkpoint import host_copies
from crosstrain.checkpoint.host_copies import HostCopies
from crosstrain.comm import device_limits, devices, hang_report, process_group, torch_backend
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.comm.visible_devices import device_index, see_all_again
from crosstrain.config import Place
from crosstrain.state import RUN
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import on_ranks, run_ranks, this_rank

GPU = torch.device("cuda", 0)


# -- which device -------------------------------------------------------------------------------------

DEVICES: list[Any] = [(1, 2, {}, 1), (2, 2, {}, None), (1, 1, {}, None)]
DEVICES += [(1, 1, {"SLURM_GPUS_PER_TASK": "1"}, 0), (3, 1, {"SLURM_TRES_PER_TASK": "gres/gpu:1"}, 0)]
DEVICES += [(3, 1, {"CUDA_VISIBLE_DEVICES": "3"}, 0), (1, 1, {"CUDA_VISIBLE_DEVICES": "GPU-8a5c"}, 0)]
DEVICES += [(2, 2, {"CUDA_VISIBLE_DEVICES": "0,1"}, None), (2, 2, {"SLURM_GPUS_PER_TASK": "2"}, None)]
DEVICES += [(1, 1, {"CROSSTRAIN_SHARE_DEVICES": "1"}, 0), (3, 2, {"CROSSTRAIN_SHARE_DEVICES": "1"}, 1)]
DEVICES += [(0, 0, {"CROSSTRAIN_SHARE_DEVICES": "1"}, None)]


@pytest.mark.parametrize(("local_rank", "count", "env", "expected"), DEVICES)
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


USED: list[Any] = [(2, "cuda:2"), ("3", "cuda:3"), ("cuda:1", "cuda:1"), (torch.device("cuda", 1), "cuda:1")]
USED += [("cuda", "cuda:0"), ("cpu", "cpu"), (torch.device("cpu"), "cpu"), (-1, "cuda:0"), ("auto", "cuda:0")]
USED += [(None, "cuda:0")]


@pytest.mark.parametrize(("given", "used"), USED)
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


def test_a_script_may_choose_its_gpu_later(four_gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """`CUDA_VISIBLE_DEVICES` counts until CUDA has started, and nothing has started it."""
    for name in ("torch.cuda.is_available", "torch.accelerator.current_device_index", "torch.cuda.init"):
        monkeypatch.setattr(name, lambda: pytest.fail("CUDA is started"))
    assert str(PartialState().device) == "cuda:0"
    assert str(Accelerator().device) == "cuda:0"


def test_a_script_may_hide_all_gpus(four_gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(PartialState().device) == "cuda:0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 0)
    assert str(Accelerator().device) == "cpu"


def test_gpus_that_a_launched_script_chooses_too_late_are_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CROSSTRAIN_QUIET", raising=False)
    caplog.set_level("INFO", logger="crosstrain")
    for gpus, rank in (("", 0), ("4,5", 1), ("2,3", 0)):
        monkeypatch.setattr(RUN, "_comm", SimpleNamespace(world=2, rank=rank, device=torch.device("cuda")))
        if gpus:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
        assert RUN.heed_hidden_devices(None, None) == (None, None)
    assert [one.split(":")[0] for one in caplog.messages] == ["CUDA_VISIBLE_DEVICES=2,3 comes too late"]


def test_a_device_that_is_not_there_is_an_error(four_gpus: list[int]) -> None:
    with pytest.raises(RuntimeError, match="device 4 was asked for: there are 4 of type 'cuda'"):
        Accelerator(device=4)


def test_a_launched_process_keeps_its_device(four_gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert str(Accelerator(device=1).device) == "cuda:0"  # the rank of the launcher's only process
    assert 1 not in four_gpus


PLACE = Place(1, 2, 1, 2, "localhost", 29500)


def test_two_processes_on_one_device_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise dist.DistBackendError("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000")

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


# -- What a run does on GPUs, as far as a CPU can show: torch's calls are recorded, or two processes on the CPU make t


def test_the_device_comes_before_the_group(four_gpus: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL uses the current device where a group is not bound to one."""

    class Stopped(Exception):
        pass

    def group(*_: Any, **options: Any) -> None:
        four_gpus.append(f"group on {options['device_id']}")
        raise Stopped

    monkeypatch.setattr(dist, "init_process_group", group)
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in (variables | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Stopped):
        TorchComm.start()
    assert four_gpus == [1, "group on cuda:1"]


@on_ranks(2)
def test_a_model_is_placed_before_its_values_are_sent() -> None:
    """NCCL cannot send what is on the CPU."""
    accelerator = Accelerator(cpu=True)
    comm: Any = accelerator._comm
    done: list[str] = []
    for name in ("move", "broadcast", "all_gather"):
        called = getattr(comm, name)
        setattr(comm, name, lambda *given, _of=called, _name=name: (done.append(_name), _of(*given))[1])
    accelerator.prepare(nn.Linear(2, 2))
    assert done[0] == "move" and done.count("move") == 1


class Calls(TorchFunctionMode):
    """Records copies of tensors, and whether they may return before they are done."""

    def __init__(self, done: list[str]) -> None:
        super().__init__()
        self.done = done

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.copy_, torch.Tensor.to):
            how = "beside" if (kwargs or {}).get("non_blocking") else "waiting"
            self.done.append(f"{func.__name__} {how}")
        return func(*args, **(kwargs or {}))


def test_a_background_save_waits_for_the_pinned_copies_that_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy to pinned memory runs on the current stream of the tensor's device; waiting for the device waits for it."""
    done: list[str] = []
    empty = torch.empty

    def buffer(*size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        done.append("pinned" if pin_memory else "plain")
        return empty(*size, **options)

    weights = torch.randn(2, 256, 256).unbind()
    monkeypatch.setattr(host_copies, "HOST", torch.device("meta"))  # what is on the CPU stands for a device's
    monkeypatch.setattr(devices, "PINNING", ("cpu",))
    monkeypatch.setattr(torch, "empty", buffer)
    monkeypatch.setattr(devices, "any_device", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda *device: done.append(f"wait {device}"))
    with Calls(done):
        frozen = HostCopies().freeze(list(weights))
    assert done == ["pinned", "copy_ beside"] * 2 + ["wait ()"]
    assert all(map(torch.equal, frozen.thaw(), weights))


# -- What NCCL refuses does not reach it: the collectives are watched here while gloo carries them ---------


# `getNcclDataType` in torch's ProcessGroupNCCL knows these, dense.
DENSE = "int8 uint8 int32 int64 float16 bfloat16 float32 float64 bool"
NCCLS = {getattr(torch, name) for name in DENSE.split()}
LARGE = 2**16  # elements: too many for a frame
KINDS = [torch.int16, torch.complex64, torch.uint16, torch.bfloat16, torch.bool, torch.float32]


def _refusing(call: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        for tensor in (one for one in args if isinstance(one, Tensor)):
            if tensor.dtype not in NCCLS or tensor.is_sparse:
                raise TypeError(f"Unconvertible NCCL type {tensor.dtype}")
        return call(*args, **kwargs)

    return refuse


def _values(kind: torch.dtype, rank: int) -> Tensor:
    values = torch.arange(LARGE) % 97 + rank
    return (values * (values % 2) if kind is torch.bool else values).to(kind)


@on_ranks(2)
def test_every_dtype_is_carried() -> None:
    comm = this_rank()
    torch_backend._gather_single = _refusing(torch_backend._gather_single)
    dist.all_reduce, dist.broadcast = _refusing(dist.all_reduce), _refusing(dist.broadcast)
    seen = []
    for kind in KINDS:
        mine, both = _values(kind, comm.rank), [_values(kind, rank) for rank in range(2)]
        seen.append((f"gather {kind}", torch.equal(comm.all_gather(mine), torch.stack(both))))
        seen.append((f"broadcast {kind}", torch.equal(comm.broadcast(mine.clone(), 1), both[1])))
        if kind not in (torch.bool, torch.uint16):  # which torch itself cannot add
            total = comm.all_reduce(mine, "sum")
            seen.append((f"reduce {kind}", total.dtype is kind and torch.equal(total, both[0] + both[1])))
    total = comm.all_reduce(_values(torch.int16, comm.rank), "max")
    assert torch.equal(total, _values(torch.int16, 1))
    assert [what for what, right in seen if not right] == []


def _sparse(by_host: bool) -> list[Any]:
    calls: list[str] = []
    if by_host:
        TorchComm._lacks_sparse = lambda self, kind: True  # type: ignore[method-assign]
        real = device_limits.SparseSum
        torch_backend.SparseSum = lambda tensor: (calls.append("host"), real(tensor))[1]  # type: ignore
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    net = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Linear(3, 1))
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.5))
    ranks = [accelerator.process_index] if accelerator.num_processes > 1 else [0, 1]
    for step in range(3):
        optimizer.zero_grad()
        rows = torch.tensor([row for rank in ranks for row in (step, 2 + 3 * rank)])
        accelerator.backward(model(rows).square().mean())
        optimizer.step()
    return [bool(calls), *(value.tolist() for value in model.state_dict().values())]


def test_sparse_gradients_go_by_the_hosts_where_the_devices_cannot_add_them() -> None:
    alone, plain, others = (run_ranks(_sparse, *how) for how in ((1, False), (2, False), (2, True)))
    for value, whole in zip(plain[0][1:], alone[0][1:], strict=True):
        torch.testing.assert_close(value, whole)
    assert [rank[0] for rank in plain + others] == [False, False, True, True]
    assert plain[0][1:] == plain[1][1:] == others[0][1:] == others[1][1:]
