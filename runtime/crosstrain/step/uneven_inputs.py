"""Training with different numbers of batches: ranks that are done take part in the others' averaging with zeros."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from crosstrain.comm.collectives import broadcast_tensors
from crosstrain.comm.protocol import Comm
from crosstrain.step.gradients import GradientSync

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


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
    syncs: Sequence[Any],
    comm: Comm,
    loaders: Sequence[DataLoader[Any]],
    even_batches: Any = None,
    *,
    throws: bool = False,
    among_active: bool = False,
) -> Iterator[None]:
    """See `Accelerator.join_uneven_inputs`.

    ``throws``: raise on all ranks where the first one runs out of batches. ``among_active``: divide the sum of the
    gradients by the number of ranks that still have batches, rather than by that of all.
    """
    if comm.world == 1:
        yield
        return
    if not syncs or not all(isinstance(sync, GradientSync) for sync in syncs):
        warnings.warn(
            "join_uneven_inputs is only supported for multi-GPU and multi-CPU training, of prepared models that "
            "are not sharded; it has no effect here",
            stacklevel=3,
        )
        yield
        return
    members: list[Any] = [_Model(sync, comm) for sync in syncs]
    for sync, member in zip(syncs, members, strict=True):
        sync.joining, sync.among_active = member.notify, among_active
    try:
        with _evenness(loaders, even_batches), Join(members, throw_on_early_termination=throws):
            yield
    finally:
        for sync in syncs:
            sync.joining, sync.among_active = None, False


@contextmanager
def _evenness(loaders: Sequence[Any], even_batches: Any) -> Iterator[None]:
    """A context in which map-style loaders have another `even_batches`."""
    changed = []
    for loader in loaders if even_batches is not None else ():
        index_sampler: Any = getattr(loader._crosstrain.feed, "index_sampler", None)
        if hasattr(index_sampler, "batches") and hasattr(index_sampler, "how"):
            changed.append((index_sampler, index_sampler.how))
            index_sampler.how = replace(index_sampler.how, even=even_batches)
        else:
            warnings.warn(
                "join_uneven_inputs: changing even_batches is only supported for map-style datasets; a loader "
                "of another kind keeps its own",
                stacklevel=5,
            )
    try:
        yield
    finally:
        for index_sampler, how in changed:
            index_sampler.how = how
