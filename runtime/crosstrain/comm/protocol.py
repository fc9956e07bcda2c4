"""The interface of a backend, which `TorchComm` (see `torch_backend`) and `XlaComm` (see `xla.backend`) implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NoReturn, Protocol, TypeVar

import torch
from torch import Tensor, nn

from crosstrain.comm.types import DistributedType

T = TypeVar("T")


class Pending(Protocol):
    """A collective that has been started."""

    def wait(self) -> object: ...


class Comm(Protocol):
    """The processes and devices of a run. A *replica* holds one share of each batch: a process, or a chip of a TPU.

    What a backend need not do, it inherits from here: nothing.
    """

    device: torch.device
    rank: int
    world: int
    local_rank: int
    local_world: int
    replicas: int
    distributed_type: DistributedType
    backend: str | None
    averages: bool  # each process computes on its own rows; False: there is one process, or one program for all of them
    fixed_shapes: bool  # the device compiles for every shape of a batch
    debug: bool  # compare what the ranks are about to do before every collective and every averaging of gradients
    landing: torch.device  # the device on which tensors from other processes arrive

    @property
    def gradient_group(self) -> Any:
        """The process group in which gradients are averaged."""
        ...

    @property
    def is_scripts_own(self) -> bool:
        """Whether the script has made the process group, or has asked for one, by itself."""
        ...

    def all_gather(self, tensor: Tensor) -> Tensor:
        """All ranks' tensors as (world, *shape), in rank order. Every rank must bring the same shape and dtype."""
        ...

    def all_gather_several(self, tensors: list[Tensor]) -> list[Tensor]:
        """`all_gather` of each tensor, with one collective for all of them if they are on one device."""
        ...

    def all_reduce(self, tensor: Tensor, op: str) -> Tensor:
        """A new tensor, the same on every rank; op is "sum", "mean", "max" or "min"."""
        ...

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        """In place; returns the tensor."""
        ...

    def scatter(self, tensors: list[Tensor] | None, out: Tensor) -> Tensor:
        """Send tensors[r] of rank 0 to rank r, into `out`; returns `out`.

        Rank 0 may return before the tensors have arrived: it must not change them, and calls `flush` after its last scatter.
        """
        ...

    def flush(self, *, leaving: bool = False) -> None:
        """Wait until what this rank has scattered has arrived. ``leaving``: ranks that are gone are no error."""
        ...

    def all_gather_object(self, obj: object) -> list[Any]: ...

    def broadcast_object(self, obj: T, src: int = 0) -> T: ...

    def barrier(self) -> None: ...

    def agree(self, operation: str, told: str = "") -> None:
        """Check that every rank is about to do the same; RuntimeError names those that are not, with what each has told."""
        ...

    def refuse(self, problem: str) -> NoReturn:
        """Raise ``problem`` here, and on the other ranks in their next exchange."""
        ...

    def wait_for(self, operation: str, work: Callable[[], T]) -> T:
        """Return ``work()``, which waits for another rank. If it fails, the error says where every rank is."""
        ...

    def start_average(self, tensor: Tensor) -> Pending:
        """Begin averaging a gradient buffer over the ranks, in place."""
        ...

    def placer(self, non_blocking: bool, source: str) -> Callable[[Any], Any] | None:
        """A function that moves batches to the device; None if there is nothing to do. source: the loader, for messages."""
        ...

    def move(self, model: nn.Module) -> None:
        """Put a model's parameters and buffers on the device."""
        ...

    def shard(self, params: Iterable[nn.Parameter]) -> None:
        """Where one program computes on several devices, leave each device its part of the parameters.

        Processes shard through `fully_shard`.
        """
        return

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Make sure that an optimizer holds the parameters that `move` put on the device, where these are new ones."""
        return

    def to_host(self, data: T) -> T:
        """The tensors in ``data`` in a form that files can hold; names of one tensor stay names of one tensor."""
        ...

    def settle_precision(self, name: str, downcast: bool) -> None:
        """Compute in this precision from now on, where autocast does not; ValueError if the device cannot."""
        return

    def seed(self, seed: int) -> None:
        """Seed the device's streams that `torch.manual_seed` does not seed alike on every process."""
        return

    def seed_own(self, seed: int) -> None:
        """Seed the device's stream of this process, which then draws other numbers than those of the others."""
        ...

    def random_state(self) -> Any:
        """The state of the device's random stream; None if there is only the CPU's."""
        ...

    def set_random_state(self, state: Any) -> None: ...

    def batch_done(self) -> None:
        """Called when the body of a loop over a prepared loader has finished with a batch."""
        return

    def step_done(self) -> None:
        """Called when a prepared optimizer has made a step."""
        return

    @property
    def in_group(self) -> bool:
        """Whether the other processes can still be reached; a script may have left the group itself."""
        ...

    def wait_up_to(self, timeout: timedelta) -> None:
        """Give every collective another time-out, unless the script has made the group by itself."""
        return

    def use(self, index: int) -> None:
        """Take another device of this machine, alone and before anything is on the first one."""
        return

    def start_group_of_one(self) -> None:
        """Give a script that is alone, and asks for one, a process group beside the running backend.

        `TorchComm.start` makes it, with another backend of its class.
        """
        return

    def on_host(self) -> Comm | None:
        """A Comm with the same place among the processes that computes on the CPU; closes this one. None if impossible."""
        ...

    def close(self) -> None:
        """Leave the group that this object started."""
        ...
