"""What a run does on GPUs, as far as a CPU can show: torch's calls are recorded, or two processes on the CPU make them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from crosstrain import Accelerator
from crosstrain.checkpoint import host_copies
from crosstrain.checkpoint.host_copies import HostCopies
from crosstrain.comm import devices
from crosstrain.comm.torch_backend import TorchComm
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.support.ranks import run_ranks

SECOND = torch.device("cuda", 1)


def test_the_process_takes_its_device_before_the_group_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL uses the current device where a group is not bound to one."""
    done: list[str] = []

    class Stopped(Exception):
        pass

    def group(*_: Any, **options: Any) -> None:
        done.append(f"group on {options['device_id']}")
        raise Stopped

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: SECOND)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 1)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: done.append(f"device {index}"))
    monkeypatch.setattr(dist, "init_process_group", group)
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in (variables | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Stopped):
        TorchComm.start()
    assert done == ["device 1", "group on cuda:1"]


def prepared() -> list[str]:
    accelerator = Accelerator(cpu=True)
    comm: Any = accelerator._comm
    done: list[str] = []
    for name in ("move", "broadcast", "all_gather"):
        called = getattr(comm, name)
        setattr(comm, name, lambda *given, _of=called, _name=name: (done.append(_name), _of(*given))[1])
    accelerator.prepare(nn.Linear(2, 2))
    return done


def test_a_model_is_placed_before_its_values_are_sent() -> None:
    """NCCL cannot send what is on the CPU."""
    for done in run_ranks(prepared, 2):
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
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda *device: done.append(f"wait {device}"))
    with Calls(done):
        frozen = HostCopies().freeze(list(weights))
    assert done == ["pinned", "copy_ beside"] * 2 + ["wait ()"]
    assert all(map(torch.equal, frozen.thaw(), weights))
