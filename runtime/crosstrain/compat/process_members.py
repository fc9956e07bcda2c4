"""The part of an Accelerator that says who this process is and what runs where."""

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
    """Views on the run's state; constants once the Accelerator exists."""

    state: AcceleratorState

    @property
    def device(self) -> torch.device:
        return self.state.device

    @property
    def distributed_type(self) -> DistributedType:
        return self.state.distributed_type

    @property
    def num_processes(self) -> int:
        return self.state.num_processes

    @property
    def num_replicas(self) -> int:
        """Devices that share a step: the processes, but on a TPU the chips of all hosts."""
        return self.state.num_replicas

    @property
    @tells_rank
    def process_index(self) -> int:
        return self.state.process_index

    @property
    @tells_rank
    def local_process_index(self) -> int:
        return self.state.local_process_index

    @property
    def is_main_process(self) -> bool:
        return self.state.is_main_process

    @property
    def is_local_main_process(self) -> bool:
        return self.state.is_local_main_process

    @property
    def is_last_process(self) -> bool:
        return self.state.is_last_process

    @property
    def use_distributed(self) -> bool:
        return self.state.use_distributed

    @property
    def multi_device(self) -> bool:
        return self.state.use_distributed

    @property
    def mixed_precision(self) -> str:
        return self.state.mixed_precision

    @property
    def native_amp(self) -> bool:
        """Whether models compute in mixed precision."""
        return self.state.mixed_precision != "no"

    def wait_for_everyone(self) -> None:
        """Return when every process has come here; at once with one process."""
        self.state.wait_for_everyone()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """print, once per machine."""
        self.state.print(*args, **kwargs)

    def main_process_first(self) -> AbstractContextManager[None]:
        """The main process runs the body, then the others do."""
        return self.state.main_process_first()

    def local_main_process_first(self) -> AbstractContextManager[None]:
        """The same with one main process per machine."""
        return self.state.local_main_process_first()

    def on_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: run on the main process; None elsewhere."""
        return self.state.on_main_process(function)

    def on_local_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: run once per machine; None elsewhere."""
        return self.state.on_local_main_process(function)

    def on_last_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: run on the last process; None elsewhere."""
        return self.state.on_last_process(function)

    def on_process(
        self, function: Callable[P, R] | None = None, process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator, bare or with ``process_index``: run on that process; None elsewhere."""
        return self.state.on_process(function, process_index)

    def on_local_process(
        self, function: Callable[P, R] | None = None, local_process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator, bare or with ``local_process_index``: run there on each machine; None elsewhere."""
        return self.state.on_local_process(function, local_process_index)

    def split_between_processes(
        self, inputs: Any, apply_padding: bool = False
    ) -> AbstractContextManager[Any]:
        """This process's part of a list, tensor, dict of them or data set: see `crosstrain.utils.splitting.share`."""
        return self.state.split_between_processes(inputs, apply_padding)
