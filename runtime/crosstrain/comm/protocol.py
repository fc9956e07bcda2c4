"""What the runtime needs of a backend: `TorchComm` (see `torch_backend`) and `XlaComm` (see `xla.backend`) have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol, TypeVar

import torch
from torch import Tensor, nn

from crosstrain.comm.types import DistributedType

T = TypeVar("T")


class Pending(Protocol):
    """A collective that has been started."""

    def wait(self) -> object: ...


class Comm(Protocol):
    """What the runtime needs of a backend. P is `world`; a *replica* is what holds one share of a batch."""

    device: torch.device
    rank: int
    world: int
    local_rank: int
    local_world: int
    replicas: int
    distributed_type: DistributedType
    backend: str | None
    gradient_group: Any  # the process group in which gradients are averaged
    averages: bool  # the processes compute apart, each on its own rows; False: one process, or one program
    fixed_shapes: bool  # the device compiles for every shape of a batch
    debug: bool  # before every collective and averaging of gradients, compare what the ranks are about to do
    landing: torch.device  # where tensors from other processes arrive before they are placed

    def all_gather(self, tensor: Tensor) -> Tensor:
        """(world, *shape) in rank order; the same shape on every rank."""
        ...

    def all_gather_several(self, tensors: list[Tensor]) -> list[Tensor]:
        """`all_gather` of each, with one collective for all of them where they are on one device."""
        ...

    def all_reduce(self, tensor: Tensor, op: str) -> Tensor:
        """A new tensor, the same on every rank; op is "sum", "mean", "max" or "min"."""
        ...

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        """In place; returns the tensor."""
        ...

    def scatter(self, tensors: list[Tensor] | None, out: Tensor) -> Tensor:
        """tensors[r] of rank 0 arrives in `out` of rank r; returns `out`.

        Rank 0 may return earlier: it does not change the tensors, and calls `flush` after the last scatter.
        """
        ...

    def flush(self, *, leaving: bool = False) -> None:
        """Wait until what this rank has scattered has arrived; ``leaving``: ranks that are gone are no error."""
        ...

    def all_gather_object(self, obj: object) -> list[Any]: ...

    def broadcast_object(self, obj: T, src: int = 0) -> T: ...

    def barrier(self) -> None: ...

    def agree(self, operation: str) -> None:
        """Check that every rank is about to do the same; RuntimeError names those that are not."""
        ...

    def refuse(self, problem: str) -> NoReturn:
        """Raise ``problem`` here, and on the other ranks in the exchange that they are about to make."""
        ...

    def wait_for(self, operation: str, work: Callable[[], T]) -> T:
        """``work()``, which waits for another rank; where it fails, the error says what every rank is doing."""
        ...

    def start_average(self, tensor: Tensor) -> Pending:
        """Begin averaging a gradient buffer over the ranks, in place."""
        ...

    def placer(self, non_blocking: bool, source: str) -> Callable[[Any], Any] | None:
        """What puts the batches of one loader (``source``, for messages) on the device; None: nothing to do."""
        ...

    def move(self, model: nn.Module) -> None:
        """Put a model's parameters and buffers on the device."""
        ...

    def shard(self, params: Iterable[nn.Parameter]) -> None:
        """Leave every device its part of them, where one program computes on several; elsewhere nothing."""
        ...

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Make sure that an optimizer holds the parameters that `move` put on the device."""
        ...

    def to_host(self, data: T) -> T:
        """The tensors in ``data`` as files can hold them, those that are one and the same still so."""
        ...

    def settle_precision(self, name: str, downcast: bool) -> None:
        """Compute in this precision from now on; ValueError where the device cannot."""
        ...

    def seed(self, seed: int) -> None:
        """Seed the streams that `torch.manual_seed` does not reach on every process alike."""
        ...

    def random_state(self) -> Any:
        """The device's random stream, None where the CPU's is all there is."""
        ...

    def set_random_state(self, state: Any) -> None: ...

    def batch_done(self) -> None:
        """The body of a loop over a prepared loader is through with its batch."""
        ...

    def step_done(self) -> None:
        """A prepared optimizer has made its step."""
        ...

    @property
    def in_group(self) -> bool:
        """Whether the other processes can still be reached: a script may have left the group itself."""
        ...

    def on_host(self) -> Comm | None:
        """The same place among the processes, computing on the CPU; this object is closed. None: not possible."""
        ...

    def close(self) -> None:
        """Leave the group that this object started."""
        ...
