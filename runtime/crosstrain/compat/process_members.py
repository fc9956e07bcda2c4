"""The members of an Accelerator that identify this process and choose where code runs."""

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


class ProcessViews:
    """Properties of the run's state, which are constant once the Accelerator exists."""

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
        """How many devices share a step: the number of processes; on a TPU that of all hosts' chips."""
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

    def wait_for_everyone(self) -> None:
        """Wait until every process has called this."""
        self.state.wait_for_everyone()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print on one process of each machine."""
        self.state.print(*args, **kwargs)

    def main_process_first(self) -> AbstractContextManager[None]:
        """Run the body on the main process first, then on the others."""
        return self.state.main_process_first()

    def local_main_process_first(self) -> AbstractContextManager[None]:
        """Run the body on each machine's main process first, then on its others."""
        return self.state.local_main_process_first()

    def on_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: call the function on the main process; on the others it returns None."""
        return self.state.on_main_process(function)

    def on_local_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: call the function on each machine's main process; on the others it returns None."""
        return self.state.on_local_main_process(function)

    def on_last_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: call the function on the last process; on the others it returns None."""
        return self.state.on_last_process(function)

    def on_process(
        self, function: Callable[P, R] | None = None, process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator, with or without ``process_index``: call the function on that process; on others it returns None."""
        return self.state.on_process(function, process_index)

    def on_local_process(
        self, function: Callable[P, R] | None = None, local_process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator, with or without ``local_process_index``: call the function on that process of each machine; on others
        it returns None."""
        return self.state.on_local_process(function, local_process_index)

    def split_between_processes(
        self, inputs: Any, apply_padding: bool = False
    ) -> AbstractContextManager[Any]:
        """A context with this process's part of a list, tensor, dict of them or data set; see `utils.splitting.share`."""
        return self.state.split_between_processes(inputs, apply_padding)
