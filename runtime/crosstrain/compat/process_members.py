"""The members of an Accelerator that give this process's place, its device, and the run's precision."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

import torch

from crosstrain.comm.types import DistributedType
from crosstrain.data.self_sharded import tells_rank
from crosstrain.state import AcceleratorState

P = ParamSpec("P")
R = TypeVar("R")


class ProcessMembers:
    """Views of the run's state, which does not change while the run lasts."""

    state: AcceleratorState

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return self.state.device

    @property
    def distributed_type(self) -> DistributedType:
        """How the run is distributed, a `DistributedType`."""
        return self.state.distributed_type

    @property
    def num_processes(self) -> int:
        """The number of processes."""
        return self.state.num_processes

    @property
    def num_replicas(self) -> int:
        """The number of devices that share a step, which is that of processes, or on a TPU that of all hosts' chips."""
        return self.state.num_replicas

    @property
    @tells_rank
    def process_index(self) -> int:
        """The rank of this process."""
        return self.state.process_index

    @property
    @tells_rank
    def local_process_index(self) -> int:
        """The rank of this process among those of its machine."""
        return self.state.local_process_index

    @property
    def is_main_process(self) -> bool:
        """Whether this is the process of rank 0."""
        return self.state.is_main_process

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first process of its machine."""
        return self.state.is_local_main_process

    @property
    def is_last_process(self) -> bool:
        """Whether this is the process of the highest rank."""
        return self.state.is_last_process

    @property
    def use_distributed(self) -> bool:
        """Whether there are several processes."""
        return self.state.use_distributed

    @property
    def multi_device(self) -> bool:
        """Whether there are several processes."""
        return self.state.use_distributed

    @property
    def mixed_precision(self) -> str:
        """The precision in which prepared models compute, "no", "fp16" or "bf16"."""
        return self.state.mixed_precision

    @property
    def native_amp(self) -> bool:
        """Whether models compute in mixed precision."""
        return self.state.mixed_precision != "no"

    def wait_for_everyone(self) -> None:
        """Wait until every process has called this (collective)."""
        self.state.wait_for_everyone()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """`print`, on one process per machine."""
        self.state.print(*args, **kwargs)

    def main_process_first(self) -> AbstractContextManager[None]:
        """Return a context whose body the main process runs before the others do (collective)."""
        return self.state.main_process_first()

    def local_main_process_first(self) -> AbstractContextManager[None]:
        """Return a context whose body each machine's main process runs before its other processes do (collective)."""
        return self.state.local_main_process_first()

    def on_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: call the function on the main process only; elsewhere it returns None."""
        return self.state.on_main_process(function)

    def on_local_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: call the function on one process per machine only; elsewhere it returns None."""
        return self.state.on_local_main_process(function)

    def on_last_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: call the function on the last process only; elsewhere it returns None."""
        return self.state.on_last_process(function)

    def on_process(
        self, function: Callable[P, R] | None = None, process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator, bare or with ``process_index``: call the function on that process only (default: 0)."""
        return self.state.on_process(function, process_index)

    def on_local_process(
        self, function: Callable[P, R] | None = None, local_process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator, bare or with ``local_process_index``: call it on that process of each machine only; 0 if bare."""
        return self.state.on_local_process(function, local_process_index)

    def split_between_processes(
        self, inputs: Any, apply_padding: bool = False
    ) -> AbstractContextManager[Any]:
        """Return a context that gives this process's share of a list, tensor, dict of them or data set.

        See `crosstrain.utils.splitting.share`.
        """
        return self.state.split_between_processes(inputs, apply_padding)
