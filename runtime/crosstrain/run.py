"""The run that this process takes part in."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from crosstrain.comm.devices import has_device
from crosstrain.comm.protocol import Comm
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.comm.types import HOST
from crosstrain.comm.visible_devices import VISIBLE_DEVICES
from crosstrain.comm.xla.chips import xla_wanted
from crosstrain.config import LaunchConfig, check_precision, debug_mode, read_launch_config
from crosstrain.step.window import Gradients
from crosstrain.utils import checks
from crosstrain.utils.messages import say

if TYPE_CHECKING:
    from crosstrain.utils.dataclasses import FullyShardedDataParallelPlugin


def _visible(comm: Comm) -> str | None:
    """What the environment lets a process see of the devices of its type."""
    return os.environ.get(VISIBLE_DEVICES.get(comm.device.type, ""))


class Unfinished(Protocol):
    """Work in the background of the training that needs the other processes, such as a checkpoint being written."""

    def finish(self, comm: Comm) -> None:
        """Wait for the work on every process (collective); an error on one process is raised on all of them."""
        ...

    def join(self) -> None:
        """Wait for this process's part; an error becomes a warning."""
        ...


class Run:
    """The state of this process's run: its place among the processes, its precision, its accumulation window.

    There is one per process, `RUN`; every Accelerator shares it.
    """

    def __init__(self) -> None:
        self.gradients = Gradients()
        self.unfinished: Unfinished | None = None
        self._exported: dict[str, str | None] = {}
        self._forget()

    def _forget(self) -> None:
        for name, before in self._exported.items():
            os.environ.pop(name) if before is None else os.environ.update({name: before})
        self._exported = {}
        self._comm: Comm | None = None
        self._visible: str | None = None  # of the devices, when the run started
        self.first: Any = None  # the first Accelerator, whose parts the others share
        self.asks_for_group = False  # whether the script does, as one that distributes itself
        self.streams_alike = False  # whether an Accelerator has made the random streams of all ranks alike
        # Called where a script makes its own group behind its first Accelerator, as one that distributes itself.
        self.give_streams_back: Callable[[], None] | None = None
        self._ended = False
        self.triggered = False  # whether this process has called `set_trigger`
        self.takes_turns = False  # within `main_process_first()`
        self.launch = LaunchConfig()
        self.mixed_precision: str | None = None
        self.sharded = False
        self.fsdp_plugin: FullyShardedDataParallelPlugin | None = None
        self.debug = False
        self.gradients.reset()
        self.gradients.forget_draws()
        checks.reset()

    @property
    def comm(self) -> Comm:
        """The backend; RuntimeError before the first Accelerator() or PartialState()."""
        if self._comm is None:
            raise RuntimeError(
                "nothing has been started yet: construct Accelerator() (or PartialState()) before this call."
            )
        return self._comm

    @property
    def started(self) -> bool:
        return self._comm is not None

    def start(
        self,
        cpu: bool | None = None,
        *,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        group_of_one: bool | None = None,
        index: int | None = None,
    ) -> Comm:
        """Start the backend (XLA if PJRT_DEVICE is set or there is a TPU, else torch's), or return the one that runs.

        Args:
            cpu: stay on the CPU; None for the launcher's choice.
            backend, init_method: as in `torch.distributed.init_process_group`.
            timeout: of every collective; None for the launcher's choice.
            group_of_one: make a process group although this process is alone; a later call that asks for it gets one
                too.
            index: of the device, if no launcher started this process.

        Raises ValueError for ``cpu=True``, and for another index, where this process uses a device already.
        """
        self.asks_for_group = self.asks_for_group or bool(group_of_one)
        if group_of_one and self.give_streams_back is not None:
            self.give_streams_back()
            self.give_streams_back = None
        if self._comm is not None:
            if cpu and self._comm.device != HOST:
                self._comm = self._on_the_host(self._comm)
            elif index is not None:
                self._use(self._comm, index)
            if timeout is not None:  # a PartialState may have started the group, which knows of no time-out
                self._comm.wait_up_to(timeout)
            if group_of_one:
                self._comm.start_group_of_one()
            if not (group_of_one and self._comm.world == 1 and self._comm.backend is None):
                return self._comm
            cpu = self._comm.device == HOST
        self.launch = read_launch_config()
        if timeout is None and self.launch.timeout is not None:
            timeout = timedelta(seconds=self.launch.timeout)
        cpu = bool(self.launch.cpu if cpu is None else cpu)
        if not cpu and xla_wanted(os.environ):
            from crosstrain.comm.xla.backend import XlaComm

            self._comm = XlaComm.start(init_method=init_method, timeout=timeout, group_of_one=group_of_one)
        else:
            self._comm = TorchComm.start(
                cpu=cpu,
                backend=backend,
                init_method=init_method,
                timeout=timeout,
                group_of_one=group_of_one,
                index=index,
            )
        self._visible = _visible(self._comm)
        self.debug = debug_mode()
        return self._comm

    def _use(self, comm: Comm, index: int) -> None:
        """Take another device; a launched process keeps its own. A PartialState may have taken the first one."""
        if comm.world > 1 or "LOCAL_RANK" in os.environ or comm.device.index in (None, index):
            return
        if self.mixed_precision is not None:
            raise ValueError(
                f"this process already runs on {comm.device}; another device must be given to the first "
                f"Accelerator() of the process."
            )
        comm.use(index)

    def heed_hidden_devices(self, cpu: bool | None, index: int | None) -> tuple[bool | None, int | None]:
        """``cpu`` and ``index`` as given, or the CPU where the script has hidden all GPUs since a PartialState took one.

        A launched process has its device by then: that the script's choice comes too late is said.
        """
        comm = self._comm if self.mixed_precision is None else None
        if comm is None or _visible(comm) == self._visible:
            return cpu, index
        if comm.world == 1 and "LOCAL_RANK" not in os.environ:
            is_lost = cpu is None and index is None and not has_device(comm.device.type)
            return True if is_lost else cpu, index
        if comm.rank == 0:
            name = VISIBLE_DEVICES[comm.device.type]
            say(
                f"{name}={_visible(comm)} comes too late: each process has its device by then "
                f"(`crosstrain launch --gpu-ids` chooses them)"
            )
        return cpu, index

    def _on_the_host(self, comm: Comm) -> Comm:
        """The same backend on the CPU.

        A PartialState may have taken the device; only an Accelerator puts data there.
        """
        on_host = comm.on_host() if self.mixed_precision is None else None
        if on_host is None:
            raise ValueError(
                f"this process already runs on {comm.device}; cpu=True must be given to the first Accelerator() of "
                f"the process."
            )
        on_host.debug = self._debug
        return on_host

    @property
    def debug(self) -> bool:
        """Whether the ranks compare every collective before they make it; every rank must have the same value."""
        return self._debug

    @debug.setter
    def debug(self, value: bool) -> None:
        self._debug = value
        if self._comm is not None:
            self._comm.debug = value

    def settle_precision(self, wanted: str | None) -> str:
        """The run's precision: the first explicit choice, else the launcher's, else "no".

        Raises ValueError for another choice later, and for an unknown precision.
        """
        if wanted is not None:
            check_precision(wanted)
        if self.mixed_precision is None:
            self.mixed_precision = wanted or self.launch.mixed_precision or "no"
        elif wanted is not None and wanted != self.mixed_precision:
            raise ValueError(
                f"mixed_precision={wanted!r} was asked for, but this process already runs with "
                f"{self.mixed_precision!r}; one precision per process "
                f"(AcceleratorState._reset_state() starts anew)."
            )
        return self.mixed_precision

    def export(self, **variables: str) -> None:
        """Set environment variables that other libraries read, until the run is forgotten."""
        for name, value in variables.items():
            self._exported.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def end(self) -> None:
        """Finish background work and leave the process group (collective); a second call does nothing.

        Rank and device can still be asked for.
        """
        if self._comm is not None and not self._ended:
            self._ended = True
            try:
                if self.unfinished is not None and self._comm.in_group:
                    self.unfinished.finish(self._comm)
            finally:
                if self._comm.in_group:
                    self._comm.barrier()
                self.leave()

    def close(self) -> None:
        """Leave the process group and forget the run: the next Accelerator() starts another one."""
        self.leave()
        self._forget()

    def leave(self) -> None:
        """Leave the process group without waiting for the other processes."""
        if self.unfinished is not None:
            self.unfinished.join()
        if self._comm is not None:
            self._comm.close()


RUN = Run()
