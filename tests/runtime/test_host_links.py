"""Messages between processes of one host, past the process group."""

from __future__ import annotations

import os
import socket
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain.comm import host_links
from crosstrain.comm.host_links import SMALL, HostGather, HostLink
from crosstrain.comm.torch_backend import TorchComm
from torch import Tensor

from tests.support.ranks import run_ranks

GONE = r"closed by the other process|reset|Broken pipe"

pytestmark = pytest.mark.skipif(not host_links.SUPPORTED, reason="no shared memory without a name here")


def _pair(seconds: float = 20) -> tuple[HostLink, HostLink]:
    ends = socket.socketpair()
    return HostLink(ends[0], timedelta(seconds=seconds)), HostLink(ends[1], timedelta(seconds=seconds))


@pytest.mark.parametrize("size", [8, SMALL * 2])
def test_an_end_that_is_closed_is_an_error_of_the_other(size: int) -> None:
    sender, receiver = _pair()
    sender.send(torch.zeros(size, dtype=torch.uint8))
    receiver.close()
    with pytest.raises(RuntimeError, match=GONE):
        sender.wait()
    with pytest.raises(RuntimeError, match=GONE):
        sender.send(torch.zeros(size, dtype=torch.uint8))
    gone, left = _pair()
    gone.close()
    with pytest.raises(RuntimeError, match="closed by the other process"):
        left.receive(torch.zeros(size, dtype=torch.uint8))


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


@pytest.mark.parametrize("length", [1, 9, SMALL])
def test_what_is_gathered_does_not_depend_on_how_it_travels(length: int) -> None:
    near, far = run_ranks(_gathered, 3, [], length), run_ranks(_gathered, 3, [2], length)
    assert [nearby for nearby, _ in near] == [True] * 3
    assert [nearby for nearby, _ in far] == [False] * 3
    wanted = [[(rank, turn, "x" * length * (rank + 1)) for rank in range(3)] for turn in range(3)]
    for _, seen in [*near, *far]:
        assert seen == [wanted, [[rank] * length for rank in range(3)]]
