"""A process group for a script that talks to its other processes by itself, where XLA's one process is alone.

gloo cannot exchange XLA's tensors, and torch_xla's own backend refuses SPMD. Alone there is nothing to exchange: a sum over one
process is the tensor itself, and what is gathered is a copy of it. Tensors on the device are global already.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

NAME = "crosstrain_alone"
Options = Any
_ProcessGroup: Any = dist.ProcessGroup  # torch types each method in a way of its own


def start_group_of_one() -> None:
    """Start the group, unless there is one."""
    if dist.is_initialized():
        return
    backend = cast("Any", dist.Backend)
    if NAME not in backend.backend_list:
        backend.register_backend(
            NAME, lambda _store, rank, size, _timeout: GroupOfOne(rank, size), devices=["cpu", "xla"]
        )
    store = cast("Any", dist).HashStore()
    dist.init_process_group(NAME, store=store, rank=0, world_size=1)


class GroupOfOne(_ProcessGroup):  # type: ignore[misc]
    """Every collective of one process, as torch calls them."""

    def getBackendName(self) -> str:
        return NAME

    def allreduce(self, tensors: Any, *_: Options, **__: Options) -> Any:
        return _done(tensors)

    allreduce_coalesced = reduce = broadcast = allreduce

    def barrier(self, *_: Options, **__: Options) -> Any:
        return _done([])

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], *_: Options, **__: Options) -> Any:
        return _copied([one for [one] in outputs], inputs)

    gather = allgather_coalesced = allgather

    def allgather_into_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], *_: Options, **__: Options
    ) -> Any:
        return _copied(outputs, inputs)

    reduce_scatter_tensor_coalesced = alltoall = allgather_into_tensor_coalesced

    def reduce_scatter(
        self, outputs: list[Tensor], inputs: list[list[Tensor]], *_: Options, **__: Options
    ) -> Any:
        return _copied(outputs, [one for [one] in inputs])

    scatter = reduce_scatter

    def _allgather_base(self, output: Tensor, given: Tensor, *_: Options, **__: Options) -> Any:
        return _copied([output], [given])

    _reduce_scatter_base = alltoall_base = _allgather_base


def _copied(outputs: list[Tensor], inputs: list[Tensor]) -> Any:
    with torch.no_grad():
        for output, given in zip(outputs, inputs, strict=True):
            output.copy_(given.view(output.shape))
    return _done(outputs)


def _done(result: Any) -> Any:
    """The work of a collective that has ended."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    return cast("Any", torch._C)._distributed_c10d._create_work_from_future(future)
