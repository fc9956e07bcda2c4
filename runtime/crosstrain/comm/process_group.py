"""The process group: the existing one, or a new one that the launcher's variables describe."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from inspect import signature
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from crosstrain.comm.hang_report import REPORT_SECONDS
from crosstrain.comm.visible_devices import SHARE
from crosstrain.config import Place, read_place
from crosstrain.utils.messages import say
from crosstrain.utils.script_frames import caller


def joined_place() -> Place:
    """This process's place in an existing group. Local numbers come from the environment if its rank and world agree."""
    rank, world = dist.get_rank(), dist.get_world_size()
    said = read_place()
    if said is not None and (said.rank, said.world) == (rank, world):
        return said
    count = max(1, torch.accelerator.device_count())
    return Place(rank, world, local_rank=rank % count, local_world=min(world, count))


def start_group(
    device: torch.device,
    place: Place,
    backend: str | None,
    init_method: str | None,
    timeout: timedelta | None,
) -> None:
    """Start the process group of this process's place.

    A single process gets a group, too, so that the script's own calls of torch.distributed work; it needs no address.

    Raises RuntimeError if the address of the other processes is unknown, or if they are not found there.
    """
    single = place.world == 1 and init_method is None
    if not single and init_method is None and (place.master_addr is None or place.master_port is None):
        raise RuntimeError(
            f"RANK={place.rank} and WORLD_SIZE={place.world} are set, but not MASTER_ADDR and MASTER_PORT: "
            f"the {place.world} processes cannot find each other. Start the script with `crosstrain launch` "
            f"or `torchrun`, or unset RANK and WORLD_SIZE to run one process."
        )
    if init_method is None:
        init_method = f"tcp://{place.master_addr}:{place.master_port}"
        if "RANK" in os.environ:
            init_method = "env://"
    rendezvous: dict[str, Any] = (
        {"store": cast("Any", dist).HashStore()} if single else {"init_method": init_method}
    )
    backend = backend or _backend_for(device, place.world)
    if _has_own_backend(device, backend):  # else NCCL guesses the device at its first collective
        rendezvous["device_id"] = device
    # The default arguments in this module are the group that exists at its first import. A group that they hold would not
    # end, and its threads would run on while the interpreter shuts down. So it is imported before the group exists.
    importlib.import_module("torch.distributed.nn.functional")
    try:
        with _patience(place):
            dist.init_process_group(
                backend, rank=place.rank, world_size=place.world, timeout=timeout, **rendezvous
            )
    except dist.DistError as error:
        if "Duplicate GPU" in str(error):
            raise RuntimeError(
                f"two processes of this machine use {device}: each needs a device of its own. Start fewer processes, "
                f"let each see its own device, or use the CPU: `crosstrain launch --cpu`, or Accelerator(cpu=True)."
            ) from error
        raise RuntimeError(
            f"{caller()}: rank {place.rank} of {place.world} did not find the others at "
            f"{place.master_addr}:{place.master_port} ({error}). Are all {place.world} processes started, do all of "
            f"them construct Accelerator() or PartialState() (not under `if rank == 0:`), and is the port free and "
            f"reachable?"
        ) from error


@contextmanager
def _patience(place: Place) -> Iterator[None]:
    """A context that says where this process waits for the others, if they do not come for `REPORT_SECONDS`."""
    if place.world == 1:
        yield
        return
    here = caller()

    def tell() -> None:
        sys.stderr.write(
            f"crosstrain: rank {place.rank} has waited {REPORT_SECONDS:.0f} s at {here} for the other processes to "
            f"start. Each of the {place.world} processes must construct Accelerator() or PartialState(): do not make "
            f"the first one under `if rank == 0:`.\n"
        )

    timer = threading.Timer(REPORT_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _has_own_backend(device: torch.device, backend: str) -> bool:
    """Whether the device's tensors use a backend that is bound to one device."""
    if device.index is None or backend.rpartition(f"{device.type}:")[2] == "gloo":
        return False
    return dist.get_default_backend_for_device(device) in backend


def _backend_for(device: torch.device, world: int) -> str:
    """The backends of a group. Objects and CPU tensors use gloo even if the device has its own backend."""
    own = dist.get_default_backend_for_device(device)
    if os.environ.get(SHARE) == "1" and device.type != "cpu":
        own = "gloo"  # NCCL refuses two processes on one device
    if world == 1 and not dist.is_backend_available(own):
        own = "gloo"  # torch was built without the device's backend, which a single process does not need
    return own if device.type == "cpu" else f"cpu:gloo,{device.type}:{own}"


def group_backends() -> dict[str, str]:
    """The default group's backend for each type of device; "cpu:gloo,cuda:nccl" has two."""
    return dict(part.split(":") for part in dist.get_backend_config().split(","))


def set_group_timeouts(timeout: timedelta, *others: dist.ProcessGroup | None) -> None:
    """Give the default group, and others, another time-out."""
    for group in (None, *filter(None, others)):
        dist.distributed_c10d._set_pg_timeout(timeout, group)


def group_timeout() -> timedelta:
    """The time-out of the default group's backend for CPU tensors."""
    group: Any = dist.group.WORLD
    timeout: timedelta = group._get_backend(torch.device("cpu")).options._timeout
    return timeout


class SecondStart:
    """Answers the script's own calls of `init_process_group` while the runtime's group exists, until `stop` is called.

    A call for the same group changes nothing; a call for another group is a ValueError. The function is replaced in every
    module that has imported it.
    """

    asked = False  # whether there was such a call

    def __init__(self) -> None:
        self._plain: Callable[..., None] = distributed_c10d.init_process_group

        @wraps(self._plain)
        def init_process_group(*args: Any, **kwargs: Any) -> None:
            if dist.is_initialized():
                self.asked = True
                _answer_second_start(signature(self._plain).bind(*args, **kwargs).arguments)
            else:
                self._plain(*args, **kwargs)

        self._ours = init_process_group
        _rebind(self._plain, self._ours)

    def stop(self) -> None:
        """Restore torch's function."""
        _rebind(self._ours, self._plain)


def _answer_second_start(asked: Mapping[str, Any]) -> None:
    _check_same_group(asked)
    unused = sorted(asked.keys() - {"backend", "init_method", "rank", "world_size"})
    if dist.get_rank() == 0:
        say(
            f"init_process_group at {caller()} changes nothing: Accelerator() has started this group"
            + (f" already, and {', '.join(unused)} of the call are not used." if unused else " already.")
        )


def _check_same_group(asked: Mapping[str, Any]) -> None:
    """Raise ValueError, as torch does for a second group, unless backend, rank and world size are those of the group."""
    has = dist.get_backend_config()
    wanted = str(asked.get("backend") or has).lower()
    place = {"rank": dist.get_rank(), "world_size": dist.get_world_size()}
    differs = [f"{name}={asked[name]}" for name in place if asked.get(name, -1) not in (-1, place[name])]
    if not _backends(wanted) <= _backends(has):
        differs.insert(0, f"backend={wanted!r}")
    if differs:
        raise ValueError(
            f"trying to initialize the default process group twice! {caller()} asks for {', '.join(differs)}, but "
            f"Accelerator() has started the group already: backend {has!r}, rank {place['rank']} of "
            f"{place['world_size']}. Remove the call, or give Accelerator() what it needs: "
            f"Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend=...)])."
        )


def _backends(config: str) -> set[str]:
    """The names of the backends in a configuration such as ``gloo`` or ``cpu:gloo,xpu:xccl``."""
    return {part.rpartition(":")[2] for part in config.split(",")}


def _rebind(old: Callable[..., None], new: Callable[..., None]) -> None:
    """Replace ``old`` by ``new`` in every module that has it under torch's name."""
    name = "init_process_group"
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get(name) is old:
            names[name] = new


def no_group(out: Tensor, mine: Tensor) -> None:
    """Replaces the collectives after this process has left the group: raises RuntimeError."""
    raise RuntimeError(
        "this process has left its group, so nothing can be exchanged with the others any more: call end_training() "
        "after the last gather, save_state and wait_for_everyone."
    )
