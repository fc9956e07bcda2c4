"""What NCCL refuses does not reach it: the collectives are watched here while gloo carries them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from crosstrain import Accelerator
from crosstrain.comm import device_limits, torch_backend
from crosstrain.comm.torch_backend import TorchComm
from torch import Tensor, nn

from tests.support.ranks import run_ranks, this_rank

# `getNcclDataType` in torch's ProcessGroupNCCL knows these, dense.
NCCLS = {
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
}
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
    return (
        values.to(kind) if kind.is_complex else (values * (values % 2 if kind is torch.bool else 1)).to(kind)
    )


def _carry() -> list[tuple[str, bool]]:
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
    return [*seen, ("max", torch.equal(total, _values(torch.int16, 1)))]


def test_every_dtype_is_carried() -> None:
    for seen in run_ranks(_carry, 2):
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
    alone, plain, others = (
        run_ranks(_sparse, world, by_host) for world, by_host in ((1, False), (2, False), (2, True))
    )
    for value, whole in zip(plain[0][1:], alone[0][1:], strict=True):
        torch.testing.assert_close(value, whole)
    assert [rank[0] for rank in plain + others] == [False, False, True, True]
    assert plain[0][1:] == plain[1][1:] == others[0][1:] == others[1][1:]
