"""Replicas that have parted before their first step are put together; later, a difference is an error.

A first forward pass may set weights: an activation normalisation that starts from its first batch, a codebook that
starts by k-means. Each rank has a batch of its own, and so gets other values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from crosstrain.comm.collectives import broadcast_tensors
from crosstrain.comm.protocol import Comm
from crosstrain.step.gradients import GradientSync
from crosstrain.step.loose_parameters import named_parameters
from crosstrain.step.model import is_sharded, sync_of
from crosstrain.step.optimizer import gate_of
from crosstrain.step.prepared import PreparedObjects
from crosstrain.step.replica_consistency import ReplicaConsistency, checksums
from crosstrain.utils.messages import say

LOOK_AFTER = 100  # steps after which weights are compared if no pass has ended before


class FirstSteps:
    """Compares the ranks' weights before the first step of each optimizer, and after its first 100 steps."""

    def __init__(self, comm: Comm, prepared: PreparedObjects, consistency: ReplicaConsistency) -> None:
        self._comm = comm
        self._prepared = prepared
        self._consistency = consistency
        # What was alike, or made so, before an optimizer's first step.
        self._compared: Any = WeakIdKeyDictionary()

    def before(self, optimizer: Optimizer) -> None:
        """Called before each step; collective before the first one, and before the 101st.

        Raises RuntimeError on all ranks where weights have drifted apart after 100 steps.
        """
        gate = gate_of(optimizer)
        if gate is None:
            return
        if gate.steps == 0:
            self._put_together(optimizer)
        elif gate.steps == LOOK_AFTER and not self._consistency.has_compared:
            self._consistency.compare(f"step {LOOK_AFTER + 1} of the {type(optimizer).__name__}")

    def _put_together(self, optimizer: Optimizer) -> None:
        if any(sync.may_differ for sync in self._prepared.syncs):
            return
        tensors = {name: tensor for name, tensor in self._tensors(optimizer) if tensor not in self._compared}
        sums = [
            (name, tuple(tensor.shape), total)
            for (name, tensor), total in zip(tensors.items(), checksums(tensors.values()), strict=True)
        ]
        for tensor in tensors.values():
            self._compared[tensor] = True
        # A rank may lack what a lazy layer makes in a forward pass that it has not had yet.
        tables = self._comm.all_gather_object(sums)
        odd = _differing(tables)
        if not odd:
            return
        broadcast_tensors([tensors[name].detach() for name in odd], self._comm)
        if self._comm.rank == 0:
            more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
            say(
                f"{', '.join(odd[:3])}{more} differed from process to process before the first step of the "
                f"{type(optimizer).__name__}, as where a first forward pass sets them; all processes take rank 0's"
            )

    def _tensors(self, optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
        """The optimizer's parameters, and the parameters and buffers of the prepared models, by name."""
        seen: set[int] = set()
        for name, tensor in self._candidates(optimizer):
            if id(tensor) not in seen and not is_lazy(tensor) and not hasattr(tensor, "placements"):
                seen.add(id(tensor))
                yield name, tensor

    def _candidates(self, optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
        for number, model in enumerate(self._prepared.models):
            if is_sharded(model):
                continue
            title = f"{type(model).__name__} ({number + 1})" if number else type(model).__name__
            for name, param in model.named_parameters():
                yield f"{title}.{name}", param
            for name, buffer in _lasting_buffers(model):
                yield f"{title}.{name}", buffer
        yield from named_parameters(optimizer, self._prepared).items()


def _lasting_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The buffers that are to be alike, without batch statistics: each rank has its own until the first step."""
    sync = sync_of(model)
    if isinstance(sync, GradientSync) and not sync.sends_buffers:
        return
    for prefix, module in model.named_modules():
        if not isinstance(module, _NormBase):
            yield from module.named_buffers(prefix, recurse=False)


def _differing(tables: list[list[tuple[str, tuple[int, ...], int]]]) -> list[str]:
    """Names of the tensors that all ranks have in the same shape, and not with the same values."""
    every: list[Mapping[str, tuple[tuple[int, ...], int]]] = [
        {name: (shape, total) for name, shape, total in table} for table in tables
    ]
    return [
        name
        for name, (shape, total) in every[0].items()
        if all(name in table and table[name][0] == shape for table in every)
        and any(table[name][1] != total for table in every)
    ]
