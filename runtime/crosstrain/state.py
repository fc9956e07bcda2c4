"""Accelerate's three state classes, as views of the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

from crosstrain.comm.random_streams import State
from crosstrain.comm.types import DistributedType
from crosstrain.data.self_sharded import tells_rank
from crosstrain.run import RUN
from crosstrain.utils.splitting import share

if TYPE_CHECKING:
    from crosstrain.utils.dataclasses import FullyShardedDataParallelPlugin, GradientAccumulationPlugin

P = ParamSpec("P")
R = TypeVar("R")

_ALONE = {  # what a launcher sets for one process
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


class ProcessMembers:
    """What an Accelerator and a PartialState say of this process, and run on some processes only: views of the run."""

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return RUN.comm.device

    @property
    def distributed_type(self) -> DistributedType:
        """How the run is distributed, a `DistributedType`."""
        return RUN.comm.distributed_type

    @property
    def num_processes(self) -> int:
        """The number of processes."""
        return RUN.comm.world

    @property
    def num_replicas(self) -> int:
        """The number of devices that share a step, which is that of processes, or on a TPU that of all hosts' chips."""
        return RUN.comm.replicas

    def share(self, count: int, *, drop_last: bool = False) -> int:
        """How many of the ``count`` batches of a pass each process makes: ``ceil(count / num_replicas)``, as many as a prepared loader of
        ``count`` batches has; ``count // num_replicas`` of one with ``drop_last``. With ``split_batches`` the processes share
        each batch, and every one makes all of them.

        For numbers that a script computes by itself: ``steps = accelerator.share(len(rows) // batch_size)``.
        """
        chosen = RUN.launch.split_batches if RUN.first is None else RUN.first.split_batches
        if getattr(self, "split_batches", chosen):
            return count
        return count // self.num_replicas if drop_last else -(-count // self.num_replicas)

    @property
    @tells_rank
    def process_index(self) -> int:
        """The rank of this process."""
        return RUN.comm.rank

    @property
    @tells_rank
    def local_process_index(self) -> int:
        """The rank of this process among those of its machine."""
        return RUN.comm.local_rank

    @property
    def use_distributed(self) -> bool:
        """Whether there are several processes."""
        return RUN.comm.world > 1

    @property
    def is_main_process(self) -> bool:
        """Whether this is the process of rank 0."""
        return RUN.comm.rank == 0

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first process of its machine."""
        return RUN.comm.local_rank == 0

    @property
    def is_last_process(self) -> bool:
        """Whether this is the process of the highest rank."""
        return RUN.comm.rank == RUN.comm.world - 1

    def wait_for_everyone(self) -> None:
        """Wait until every process has called this (collective)."""
        RUN.comm.barrier()

    @contextmanager
    def _first(self, goes_first: bool) -> Iterator[None]:
        if RUN.takes_turns or RUN.comm.world == 1:  # one process is there while the others wait
            yield
            return
        draws = RUN.gradients.active.draws
        before = draws.alike_from()
        nothing: tuple[State, State] = ({}, {})
        streams = nothing if goes_first else RUN.comm.broadcast_object(nothing)
        RUN.takes_turns = True
        try:
            yield
        finally:
            RUN.takes_turns = False
            if goes_first:
                streams = RUN.comm.broadcast_object((before, draws.alike_from()))
            draws.take_over(before, streams)

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """The main process runs the body before the others do; they go on even if it raises. Blocks may be nested.

        Random streams that are alike above the block are alike behind it, where the main process's are: what it drew alone, for
        files that the others then find, counts for all. Streams that the script has seeded by rank stay apart.
        """
        with self._first(self.is_main_process):
            yield

    @contextmanager
    def local_main_process_first(self) -> Iterator[None]:
        """On each machine, its main process runs the body before its other processes do."""
        with self._first(self.is_local_main_process):
            yield

    def _only_if(self, here: Callable[[], bool], function: Callable[P, R]) -> Callable[P, R | None]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            return function(*args, **kwargs) if here() else None

        return guarded

    def on_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: call the function on the main process only; elsewhere it returns None."""
        return self._only_if(lambda: RUN.comm.rank == 0, function)

    def on_local_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: call the function on one process per machine only; elsewhere it returns None."""
        return self._only_if(lambda: RUN.comm.local_rank == 0, function)

    def on_last_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: call the function on the last process only; elsewhere it returns None."""
        return self._only_if(lambda: self.is_last_process, function)

    def on_process(
        self, function: Callable[P, R] | None = None, process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator, bare or with ``process_index``: call the function on that process only (default: 0)."""
        if function is None:
            return lambda inner: self.on_process(inner, process_index)
        return self._only_if(lambda: RUN.comm.rank == (process_index or 0), function)

    def on_local_process(
        self, function: Callable[P, R] | None = None, local_process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator, bare or with ``local_process_index``: call it on that process of each machine only; 0 if bare."""
        if function is None:
            return lambda inner: self.on_local_process(inner, local_process_index)
        return self._only_if(lambda: RUN.comm.local_rank == (local_process_index or 0), function)

    @contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """Return a context that gives this process's share of ``inputs``: see `crosstrain.utils.splitting.share`."""
        yield share(inputs, RUN.comm.rank, RUN.comm.world, apply_padding)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """`print`, on one process per machine."""
        if self.is_local_main_process:
            print(*args, **kwargs)


class PartialState(ProcessMembers):
    """This process's place among the others: a view of the run, which the first construction starts.

    Args:
        cpu: stay on the CPU even where an accelerator exists.
        backend, init_method, timeout: as in `torch.distributed.init_process_group`; they matter only where this
            construction starts the run.
        group_of_one: where no launcher started the script, make a process group of this one process, for samplers and
            collectives of the script's own.
        environment: where no launcher started the script, also set the variables that launchers set, for a script that
            reads them (``os.environ["RANK"]``). A script may find out by them whether it was launched, so that they are
            not set otherwise.
    """

    def __init__(
        self,
        cpu: bool | None = None,
        *,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        group_of_one: bool | None = None,
        environment: bool = False,
    ) -> None:
        RUN.start(cpu, backend=backend, init_method=init_method, timeout=timeout, group_of_one=group_of_one)
        if environment and RUN.comm.world == 1:
            RUN.export(**{name: value for name, value in _ALONE.items() if name not in os.environ})

    @staticmethod
    def _reset_state() -> None:
        """Leave the process group and forget the run: for tests and notebooks."""
        RUN.close()

    @property
    def initialized(self) -> bool:
        """Whether the run has started."""
        return RUN.started

    @property
    def backend(self) -> str | None:
        """The backend of the process group, such as "gloo" or "nccl"; None without a group."""
        return RUN.comm.backend

    @property
    def debug(self) -> bool:
        """Whether the ranks compare every collective before they make it; set it on every rank."""
        return RUN.debug

    @debug.setter
    def debug(self, value: bool) -> None:
        RUN.debug = value

    def destroy_process_group(self, group: Any | None = None) -> None:
        """Leave the run's process group if the run started it; or destroy ``group``, one of the script's own."""
        if group is None:
            RUN.leave()
        else:
            torch.distributed.destroy_process_group(group)

    def __repr__(self) -> str:
        backend = f"  Backend: {self.backend}" if self.backend else ""
        return (
            f"Distributed environment: {self.distributed_type.name}{backend}\n"
            f"Num processes: {self.num_processes}\n"
            f"Process index: {self.process_index}\n"
            f"Local process index: {self.local_process_index}\n"
            f"Device: {self.device}\n"
        )


class AcceleratorState(PartialState):
    """`PartialState` with the run's precision ("no", "fp16" or "bf16"), which the first explicit choice settles."""

    def __init__(self, mixed_precision: str | None = None, cpu: bool | None = None, **kwargs: Any) -> None:
        super().__init__(cpu, **kwargs)
        RUN.settle_precision(mixed_precision)

    @staticmethod
    def _reset_state(reset_partial_state: bool = False) -> None:
        """Forget precision and sharding; with ``reset_partial_state`` the whole run."""
        if reset_partial_state:
            RUN.close()
        else:
            RUN.mixed_precision = RUN.fsdp_plugin = RUN.first = None
            RUN.sharded = False

    def ensure_alive(self) -> None:
        """Raise AttributeError if the state was reset after this object was made."""
        if RUN.mixed_precision is None:
            raise AttributeError(
                "`AcceleratorState` object has no attribute `mixed_precision`. This happens if "
                "`AcceleratorState._reset_state()` came after the Accelerator was made: make a new one."
            )

    @property
    def mixed_precision(self) -> str:
        self.ensure_alive()
        return RUN.mixed_precision or "no"

    @property
    def distributed_type(self) -> DistributedType:
        return DistributedType.FSDP if RUN.sharded else RUN.comm.distributed_type

    @distributed_type.setter
    def distributed_type(self, value: DistributedType) -> None:
        RUN.sharded = value == DistributedType.FSDP

    @property
    def fsdp_plugin(self) -> FullyShardedDataParallelPlugin | None:
        """How models are sharded; None if they are not."""
        return RUN.fsdp_plugin

    @property
    def deepspeed_plugin(self) -> None:
        """Always None, which scripts test before they do what only DeepSpeed needs."""
        return None

    def __repr__(self) -> str:
        return f"{super().__repr__()}\nMixed precision type: {self.mixed_precision}\n"


class GradientState:
    """The accumulation window and the loader that is being iterated: a view of the run."""

    def __init__(self, gradient_accumulation_plugin: GradientAccumulationPlugin | None = None) -> None:
        if gradient_accumulation_plugin is not None:
            RUN.gradients.configure(gradient_accumulation_plugin)

    @staticmethod
    def _reset_state() -> None:
        """Forget the accumulation options and the window."""
        RUN.gradients.reset()

    @property
    def sync_gradients(self) -> bool:
        return RUN.gradients.sync_gradients

    @property
    def num_steps(self) -> int:
        return RUN.gradients.steps

    @property
    def active_dataloader(self) -> Any:
        """The prepared loader of the innermost running loop, or None."""
        return RUN.gradients.active.current

    @property
    def end_of_dataloader(self) -> bool:
        current = RUN.gradients.active.current
        return current is not None and current.end_of_dataloader

    @property
    def remainder(self) -> int:
        """See `crosstrain.data.loader.PreparedLoader.remainder`; -1 outside every loop."""
        current = RUN.gradients.active.current
        return -1 if current is None else current.remainder

    def __repr__(self) -> str:
        return (
            f"Sync Gradients: {self.sync_gradients}\nAt end of current dataloader: {self.end_of_dataloader}\n"
            f"Extra samples added: {self.remainder}\nGradient accumulation steps: {self.num_steps}\n"
        )


def is_initialized() -> bool:
    """Whether this process has constructed an Accelerator or a state object."""
    return RUN.started
