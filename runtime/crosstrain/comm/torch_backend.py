"""The backend that uses torch.accelerator and torch.distributed.

With one process every collective returns its input at once. A process group then exists only if the script was launched, for
the script's own calls of torch.distributed.
"""

from __future__ import annotations

import atexit
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import accumulate, chain
from typing import Any, NoReturn, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from crosstrain.comm import host_links
from crosstrain.comm.collectives import reduce_rows
from crosstrain.comm.device_limits import SparseSum, as_bytes, from_reducible, to_reducible
from crosstrain.comm.devices import pick_device
from crosstrain.comm.frames import CAPACITY, Frames, describe, from_raw, raw
from crosstrain.comm.hang_report import HangWatch, StartedCollective
from crosstrain.comm.host_links import SMALL, HostGather, connect_all
from crosstrain.comm.outbox import Outbox
from crosstrain.comm.pending import PendingWork
from crosstrain.comm.placement import Placer, host
from crosstrain.comm.process_group import (
    SecondStart,
    group_backends,
    group_timeout,
    joined_place,
    no_group,
    set_group_timeouts,
    start_group,
)
from crosstrain.comm.protocol import Comm as Comm
from crosstrain.comm.protocol import Pending as Pending
from crosstrain.comm.types import HOST
from crosstrain.comm.types import DistributedType as DistributedType
from crosstrain.config import Place, is_workers, mark_started, read_place

T = TypeVar("T")
BRIEFLY = timedelta(seconds=10)
# Whether a process destroys its group when it ends. The verify server ends its ranks all together, and until then it must
# see which of them wait for another.
ends_by_itself = True

_AVERAGING = "the averaging of gradients"
_SCATTER = "scatter from rank 0"
_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
# torch 2.13 renamed the function; 2.9 to 2.12 have only the old name.
_gather_single = cast(
    "Callable[..., Any]", getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
)


class TorchComm(Comm):
    """torch.accelerator and torch.distributed: CPU, CUDA, ROCm, XPU, NPU, MPS and other devices that register with them.

    Small CPU tensors, objects and barriers are sent as frames (see `frames`). On the CPU, gradients have their own group, so
    that averaging gradients on one rank never matches gathering metrics on another.
    """

    def __init__(
        self,
        device: torch.device,
        place: Place,
        *,
        owns_group: bool,
        grouped: bool,
        timeout: timedelta | None = None,
    ) -> None:
        self.device = device
        self.rank = place.rank
        self.world = self.replicas = place.world
        self.local_rank = place.local_rank
        self.local_world = place.local_world
        self.distributed_type = _distributed_type(device, place.world)
        self.averages = place.world > 1
        self.fixed_shapes = False
        self.landing = device
        self.backend: str | None = dist.get_backend() if grouped else None
        self._owns_group = owns_group
        self._timeout = timeout
        self._device_types = set(group_backends()) if grouped else {device.type}
        self._gradient_group: dist.ProcessGroup | None = None
        self._frames = Frames(self.rank, self.world, self._gather_bytes)
        self._nearby: HostGather | None = None
        self.debug = False
        self._compared: set[tuple[Any, ...]] = set()
        self._outbox: Outbox | None = None
        self._pending = PendingWork()
        self._watch: HangWatch | None = None
        self._second_start = SecondStart() if owns_group else None
        if grouped:
            atexit.register(self._exit)
        if self.world > 1:
            self._watch = HangWatch(self.rank, self.world, self._activity)
        if owns_group:  # every process is here
            _ = self.gradient_group
            if self.world > 1:
                self._nearby = connect_all(self.rank, self.world, self.all_gather_object, group_timeout())

    @classmethod
    def start(
        cls,
        *,
        cpu: bool = False,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        group_of_one: bool | None = None,
        index: int | None = None,
    ) -> TorchComm:
        """Choose this process's device and group: join an existing group, else follow the launcher's variables.

        ``index``: of the device of a process that no launcher started; None for the current one.
        ``group_of_one``: whether a single process gets a group, too, for the script's own collectives; None: if it was
        launched.

        Raises RuntimeError if a launcher's variables are incomplete or the process has no device.
        """
        if dist.is_initialized():
            place = joined_place()
            return cls(pick_device(cpu, place, index), place, owns_group=False, grouped=True)
        launched = read_place()
        if launched is not None and is_workers(os.environ):
            return cls(HOST, replace(launched, world=1, local_world=1), owns_group=False, grouped=False)
        place = launched or Place(0, 1, 0, 1)
        device = pick_device(cpu, place, index)
        grouped = launched is not None if group_of_one is None else group_of_one
        if place.world == 1 and not grouped:
            return cls(device, place, owns_group=False, grouped=False)
        start_group(device, place, backend, init_method, timeout)
        mark_started(os.environ)
        return cls(device, place, owns_group=True, grouped=True, timeout=timeout)

    def all_gather(self, tensor: Tensor) -> Tensor:
        source = tensor.detach().contiguous()
        if self.world == 1:
            return source.unsqueeze(0)
        small = self._small("all_gather", [source])
        return self._gather_large(source) if small is None else small[0]

    def _gather_large(self, source: Tensor) -> Tensor:
        """`all_gather` of a tensor whose shape and dtype are known to be the same on all ranks."""
        reachable = self._reachable(source)
        out = reachable.new_empty((self.world, *source.shape))
        if out.numel():
            start = partial(_gather_single, as_bytes(out), as_bytes(reachable))
            self._collective(f"all_gather {describe([source])}", out, start)
        return out.to(source.device)

    def all_gather_several(self, tensors: list[Tensor]) -> list[Tensor]:
        sources = [tensor.detach().contiguous() for tensor in tensors]
        if self.world == 1 or len({source.device for source in sources}) != 1:
            return [self.all_gather(source) for source in sources]
        if (small := self._small("all_gather", sources)) is not None:
            return small
        parts = [_aligned(as_bytes(source)) for source in sources]
        table = self._gather_large(torch.cat(parts))
        out, start = [], 0
        for source, part in zip(sources, parts, strict=True):
            rows = table[:, start : start + source.nbytes].contiguous()
            out.append(rows.view(-1).view(source.dtype).view(self.world, *source.shape))
            start += part.numel()
        return out

    def _small(self, operation: str, sources: list[Tensor]) -> list[Tensor] | None:
        """All ranks' tensors, each as (world, *shape); None if they do not fit into a frame, or are on a device.

        Shapes and dtypes of tensors that do not fit are still compared over the ranks; for those on a device see `_compare`.
        """
        if sources[0].device.type != "cpu":
            self._compare(operation, sources)
            return None
        sizes = [source.nbytes for source in sources]
        fits = sum(sizes) <= CAPACITY
        payload = b"".join(map(raw, sources)) if fits else b""
        parts = self._frames.exchange(operation, payload, describe(sources))
        if not fits:
            return None
        if len(sources) == 1:
            return [from_raw(parts, sources[0])]
        ends = [*accumulate(sizes)]
        spans = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        cut = ([part[span] for part in parts] for span in spans)
        return [from_raw(rows, source) for rows, source in zip(cut, sources, strict=True)]

    def _compare(self, operation: str, sources: list[Tensor]) -> None:
        """Check that every rank is about to do the same, with tensors of these shapes and dtypes.

        Under `debug` this is checked always, else once for each kind of call. Ranks that do the same agree on the kind, so
        either all of them check or none.
        """
        kind = (operation, *((source.dtype, source.dim()) for source in sources))
        if self.debug or kind not in self._compared:
            self._compared.add(kind)
            self._frames.agree(operation, describe(sources))

    def all_reduce(self, tensor: Tensor, op: str) -> Tensor:
        if op not in (*_OPS, "mean"):
            raise ValueError(f"reduction {op!r} is unknown; choose one of sum, mean, max, min.")
        source = tensor.detach().contiguous()
        if self.world == 1:
            return source.clone()
        if (small := self._small(f"all_reduce({op})", [source])) is not None:
            return reduce_rows(small[0], op)
        out = to_reducible(self._reachable(source).clone(), op)
        start = partial(dist.all_reduce, out, op=_OPS["sum" if op == "mean" else op])
        self._collective(f"all_reduce({op}) {describe([source])}", out, start)
        out = from_reducible(out, source).to(source.device)
        return out / self.world if op == "mean" else out

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        if self.world == 1:
            return tensor
        source = tensor.detach().contiguous()
        if (small := self._small(f"broadcast from rank {src}", [source])) is not None:
            return _overwrite(tensor, small[0][src]) if self.rank != src else tensor
        buffer = self._reachable(source)
        start = partial(dist.broadcast, as_bytes(buffer), src=src)
        self._collective(f"broadcast from rank {src} {describe([source])}", buffer, start)
        return tensor if _shares(buffer, tensor) else _overwrite(tensor, buffer)

    def scatter(self, tensors: list[Tensor] | None, out: Tensor) -> Tensor:
        if self.rank == 0 and tensors is None:
            raise ValueError("rank 0 is the source of a scatter and brings no tensors")
        tensors = [self._reachable(part) for part in tensors or [] if self.rank == 0]
        buffer = tensors[0] if tensors else self._reachable(out)
        if buffer.device.type != "cpu":
            buffer = torch.empty_like(buffer)
            self._collective(_SCATTER, buffer, partial(dist.scatter, buffer, tensors or None, src=0))
        elif tensors:
            self._waiting(_SCATTER, partial(self._mail().send, dict(enumerate(tensors[1:], 1))))
        else:
            self._waiting(_SCATTER, partial(self._mail().receive, buffer, 0))
        return out if _shares(buffer, out) else _overwrite(out, buffer)

    def flush(self, *, leaving: bool = False) -> None:
        if self._outbox is not None:
            self._waiting(_SCATTER, self._outbox.leave if leaving else self._outbox.flush)

    def _mail(self) -> Outbox:
        """The outbox, which all ranks make together in their first scatter."""
        if self._outbox is None:
            links = host_links.connect(self.rank, self.all_gather_object, group_timeout())
            self._outbox = Outbox(links)
        return self._outbox

    def all_gather_object(self, obj: object) -> list[Any]:
        if self.world == 1:
            return [obj]
        return [pickle.loads(part) for part in self._frames.exchange("all_gather_object", pickle.dumps(obj))]

    def broadcast_object(self, obj: T, src: int = 0) -> T:
        if self.world == 1:
            return obj
        mine = pickle.dumps(obj) if self.rank == src else b""
        parts = self._frames.exchange(f"broadcast_object from rank {src}", mine)
        return obj if self.rank == src else cast("T", pickle.loads(parts[src]))

    def barrier(self) -> None:
        self.agree("wait_for_everyone")

    def agree(self, operation: str, told: str = "") -> None:
        if self.world > 1:
            self._frames.agree(operation, told=told)

    def refuse(self, problem: str) -> NoReturn:
        self._frames.refuse(problem)

    def wait_for(self, operation: str, work: Callable[[], T]) -> T:
        return cast("T", self._waiting(operation, work))

    def start_average(self, tensor: Tensor) -> Pending:
        if self.debug:
            self._frames.agree(_AVERAGING, describe([tensor]))
        if tensor.is_sparse and self._lacks_sparse(tensor.device.type):
            return StartedCollective(SparseSum(tensor), partial(self._waiting, _AVERAGING))
        op = dist.ReduceOp.SUM if tensor.is_sparse else dist.ReduceOp.AVG
        work = dist.all_reduce(tensor, op=op, group=self.gradient_group, async_op=True)
        assert work is not None, "an asynchronous all_reduce must return its handle"
        self._remember(_AVERAGING, tensor, work)
        return StartedCollective(work, partial(self._waiting, _AVERAGING))

    def _lacks_sparse(self, kind: str) -> bool:
        """Whether the group's backend for this device type cannot reduce sparse tensors, and the host's backend can."""
        return kind != "cpu" and "cpu" in self._device_types and group_backends().get(kind) != "gloo"

    def _collective(self, operation: str, on: Tensor, start: Callable[..., Any]) -> None:
        """Run a collective. On a device this returns before it is complete; `_pending` keeps it for the watch."""

        def make() -> None:
            work = start(async_op=True)
            self._remember(operation, on, work)
            work.wait()

        self._waiting(operation, make)

    def _remember(self, operation: str, on: Tensor, work: Any) -> None:
        if on.device.type != "cpu":
            self._pending.add(operation, work)

    def _activity(self) -> tuple[int, str]:
        """The collective that this rank's main thread waits for, or else its device."""
        frames = self._frames
        return (frames.turn, frames.operation) if frames.operation else self._pending.oldest()

    def _waiting(self, operation: str, work: Callable[[], object]) -> object:
        self._frames.enter(operation)
        result = self._explained(work)
        self._frames.operation = ""
        return result

    def _explained(self, work: Callable[[], object]) -> object:
        try:
            return work()
        except RuntimeError as error:
            if self._watch is None:
                raise
            raise self._watch.explain(error) from None

    def placer(self, non_blocking: bool, source: str) -> Callable[[Any], Any] | None:
        return None if self.device == host() else Placer(self.device, non_blocking)

    def move(self, model: nn.Module) -> None:
        tensors = chain(model.parameters(), model.buffers())
        if self.device != host() or any(one.device != self.device for one in tensors):
            model.to(self.device)  # where nothing moves, a model that cannot be asked for it is not asked

    def to_host(self, data: T) -> T:
        return data

    def seed_own(self, seed: int) -> None:
        if self.device.index is not None:
            torch.get_device_module(self.device).manual_seed(seed)

    def random_state(self) -> Any:
        if self.device.index is None:
            return None
        return torch.get_device_module(self.device).get_rng_state(self.device)

    def set_random_state(self, state: Any) -> None:
        torch.get_device_module(self.device).set_rng_state(state, self.device)

    @property
    def gradient_group(self) -> dist.ProcessGroup | None:
        """The group in which gradients are averaged (collective at first). In a group that the script has made it waits
        until it is needed: one process alone may have come to an Accelerator there."""
        if self._gradient_group is None and self.world > 1 and self.device.type == "cpu":
            shared = self.backend is not None and ":" in self.backend  # it also has a device's backend
            backend = "gloo" if shared else self.backend
            self._gradient_group = dist.new_group(backend=backend, timeout=self._timeout)
        return self._gradient_group

    @property
    def is_scripts_own(self) -> bool:
        """Whether the script has made the group, or asked for it, by itself: it knows its processes."""
        return self.backend is not None and (
            not self._owns_group or (self._second_start is not None and self._second_start.asked)
        )

    @property
    def in_group(self) -> bool:
        return self.world == 1 or dist.is_initialized()

    def wait_up_to(self, timeout: timedelta) -> None:
        if not self._owns_group:
            return
        self._timeout = timeout
        set_group_timeouts(timeout, self._gradient_group)
        if self._nearby is not None:
            self._nearby.wait_up_to(timeout)

    def use(self, index: int) -> None:
        place = Place(self.rank, self.world, self.local_rank, self.local_world)
        self.device = self.landing = pick_device(self.device == HOST, place, index)

    def on_host(self) -> TorchComm:
        place = Place(self.rank, self.world, self.local_rank, self.local_world)
        grouped, owns_group = self.backend is not None, self._owns_group
        self._owns_group = False  # the group stays
        self.close()
        return TorchComm(HOST, place, owns_group=owns_group, grouped=grouped, timeout=self._timeout)

    def close(self) -> None:
        if self._outbox is not None:
            self._outbox.leave()
            self._outbox.close()
            self._outbox = None
        if self._nearby is not None:
            self._nearby.close()
            self._nearby = None
        if self._watch is not None:
            self._watch.close()
        self._gradient_group = None  # or its threads would outlive it
        if self._second_start is not None:
            self._second_start.stop()
            self._second_start = None
        if self._owns_group and dist.is_initialized():
            dist.destroy_process_group()
            self._frames = Frames(self.rank, self.world, no_group)
        self._owns_group = False
        atexit.unregister(self._exit)

    def _exit(self) -> None:
        """Called when the process ends. Destroying the group waits for gloo's threads; one that is still finishing a
        collective would need the interpreter after its end, and abort. A process that failed does not wait, because the
        ranks that it would wait for may be waiting for it.
        """
        failed = getattr(sys, "last_value", None) is not None
        if ends_by_itself and not failed:
            self.close()
        elif self._outbox is not None:
            self._outbox.leave(BRIEFLY if failed else None)

    def _gather_bytes(self, out: Tensor, mine: Tensor) -> None:
        if "cpu" in self._device_types:
            # torch's own function around it would take as long as the rest of a small gather.
            group: Any = dist.group.WORLD
            if group is None:  # the script's own destroy_process_group()
                no_group(out, mine)
            if self._nearby is not None and mine.nbytes <= SMALL:
                self._explained(partial(self._nearby.gather, out, mine))
                return
            gather = getattr(group, "all_gather_single", group._allgather_base)
            self._explained(gather(out, mine).wait)
        else:
            there = out.to(self.device)
            _gather_single(there, mine.to(self.device))
            out.copy_(there)

    def _reachable(self, tensor: Tensor) -> Tensor:
        """The tensor on a device that the group's backend supports: a group with only NCCL does not support the CPU."""
        return tensor if tensor.device.type in self._device_types else tensor.to(self.device)


def _overwrite(tensor: Tensor, value: Tensor) -> Tensor:
    with torch.no_grad():
        tensor.copy_(value)
    return tensor


def _shares(a: Tensor, b: Tensor) -> bool:
    return a.device == b.device and a.data_ptr() == b.data_ptr()


def _aligned(flat: Tensor) -> Tensor:
    """Bytes, padded to a multiple of 16 so that a tensor of any dtype may follow."""
    return torch.nn.functional.pad(flat, (0, -flat.numel() % 16))


def _distributed_type(device: torch.device, world: int) -> DistributedType:
    if world == 1:
        return DistributedType.NO
    name = "GPU" if device.type in ("cuda", "mps") else device.type.upper()
    return DistributedType.__members__.get(f"MULTI_{name}", DistributedType.MULTI_GPU)
