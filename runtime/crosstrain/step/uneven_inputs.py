"""Training with different numbers of batches: ranks that are done take part in the others' averaging with zeros."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from crosstrain.comm.collectives import broadcast_tensors
from crosstrain.comm.protocol import Comm
from crosstrain.step.gradients import GradientSync


class _Model(Joinable):
    """One model's gradients as a `Joinable` of torch's `Join`."""

    def __init__(self, sync: GradientSync, comm: Comm) -> None:
        super().__init__()
        self._sync = sync
        self._comm = comm

    def notify(self) -> None:
        """Called before each averaging: tell the others that this rank still has batches."""
        Join.notify_join_context(self)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _Hook(self._sync, self._comm)

    @property
    def join_device(self) -> torch.device:
        return self._comm.device

    @property
    def join_process_group(self) -> Any:
        return self._comm.gradient_group


class _Hook(JoinHook):
    def __init__(self, sync: GradientSync, comm: Comm) -> None:
        self._sync = sync
        self._comm = comm

    def main_hook(self) -> None:
        self._sync.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when all ranks are done: copy the model of a rank that trained to the end."""
        last = [rank for rank, is_last in enumerate(self._comm.all_gather_object(is_last_joiner)) if is_last]
        watched = self._sync.watched
        tensors = [*watched.named().values(), *watched.buffers()]
        broadcast_tensors([tensor.detach() for tensor in tensors], self._comm, src=last[-1])


@contextmanager
def join(
    syncs: Sequence[Any], comm: Comm, *, throws: bool = False, among_active: bool = False
) -> Iterator[None]:
    """A context in which processes may have different numbers of batches, as ``model.join()`` of DDP's.

    A process that has run out of batches contributes zeros to the others' averages, and takes over the final weights at
    the end. Warns, and has no other effect, for models that are sharded.

    ``throws``: raise on all ranks where the first one runs out of batches. ``among_active``: divide the sum of the
    gradients by the number of ranks that still have batches, rather than by that of all.
    """
    if not all(isinstance(sync, GradientSync) for sync in syncs):
        warnings.warn("join has no effect on a model that is sharded", stacklevel=3)
        yield
        return
    members: list[Any] = [_Model(sync, comm) for sync in syncs]
    for sync, member in zip(syncs, members, strict=True):
        sync.joining, sync.among_active = member.notify, among_active
    try:
        with Join(members, throw_on_early_termination=throws):
            yield
    finally:
        for sync in syncs:
            sync.joining, sync.among_active = None, False
