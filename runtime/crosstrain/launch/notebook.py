"""Trains on several processes from a notebook cell: `notebook_launcher`, and `debug_launcher` for the CPU.

The ranks are forked from the notebook if that is safe, so that they have what its cells defined without copying it. It is
not safe once the notebook has a context on an accelerator, because a context does not survive a fork. Then new processes are
started, and cloudpickle sends them the function.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import elastic_launch

import __main__
from crosstrain.comm.devices import may_have_context
from crosstrain.comm.random_streams import COMMON, State, capture, restore
from crosstrain.comm.types import HOST
from crosstrain.comm.visible_devices import Devices, visible_devices
from crosstrain.launch import agent, failure
from crosstrain.launch.options import LaunchOptions, Precision, RendezvousBackend, Resolved, resolve
from crosstrain.launch.target import hide_from_tracebacks
from crosstrain.launch.worker import die_with_parent, record_exception
from crosstrain.utils.nested import map_tensors

AGENTS_VARIABLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"  # the agent sets it in this process
StartMethod = Literal["fork", "spawn"]


hide_from_tracebacks(__file__)


class LaunchError(RuntimeError):
    """A rank failed; the message has its number and traceback."""


def notebook_launcher(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    num_processes: int | None = None,
    mixed_precision: Precision = "no",
    use_port: int | str | None = None,
    master_addr: str = "127.0.0.1",
    node_rank: int = 0,
    num_nodes: int = 1,
    rdzv_backend: RendezvousBackend = "static",
    max_restarts: int = 0,
    monitor_interval: float = 0.1,
) -> Any:
    """Run ``function(*args)`` on several processes and return rank 0's result.

    The function builds its own Accelerator; one that a cell built before belongs to a single process and is not used by the
    ranks. With several processes the result must pickle, and its tensors are returned on the CPU. If the ranks cannot be
    forked, the function must pickle, too, which cloudpickle does for functions of a notebook. The notebook continues with
    rank 0's random streams, as it does after training in one process, so a second launch does not repeat the first one's
    random numbers.

    Args:
        num_processes: processes of each machine; None: one for each visible accelerator. A single process is the notebook
            itself: nothing is started, and the function sees the notebook's objects. On a TPU through torch_xla there is
            always one process, which drives all chips.
        use_port: the main machine's port; by default a free one on one machine.
        master_addr: the main machine's address.
        node_rank: this machine's number, from 0.
        num_nodes: machines that take part.
        max_restarts: how often all ranks are restarted after a failure.
        monitor_interval: seconds between checks of the ranks.

    Raises:
        LaunchError: a rank failed; the message has the traceback of the one that failed first.
        KeyboardInterrupt: the cell was interrupted; all ranks have been ended.
        UsageError: this machine cannot carry out the options.
    """
    devices = visible_devices()
    if num_processes is None or devices.one_process:
        num_processes = max(1, devices.count)
    options = LaunchOptions(
        num_processes=num_processes * num_nodes,
        mixed_precision=mixed_precision,
        num_machines=num_nodes,
        machine_rank=node_rank if num_nodes > 1 else None,
        main_process_ip=master_addr if num_nodes > 1 else None,
        main_process_port=int(use_port) if use_port else None,
        rdzv_backend=rdzv_backend if num_nodes > 1 else None,
        max_restarts=max_restarts,
        monitor_interval=monitor_interval,
    )
    resolved = resolve(options, devices)
    if resolved.world_size == 1:
        with variables(resolved.environment):
            return function(*args)
    return _run(resolved, function, args)


def debug_launcher(function: Callable[..., Any], args: Sequence[Any] = (), num_processes: int = 2) -> Any:
    """Run ``function(*args)`` on several CPU processes, to try out on any machine what several processes change.

    Results and errors are those of `notebook_launcher`.
    """
    resolved = resolve(LaunchOptions(cpu=True, num_processes=num_processes), Devices())
    return _run(resolved, function, args)


def _run(resolved: Resolved, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    method = _start_method()
    agent.quiet()
    entry: Callable[..., Any] = Rank(function, forked=method == "fork")
    try:
        with ExitStack() as stack:
            stack.enter_context(variables(resolved.environment))
            stack.enter_context(_signal_handlers())
            logs = Path(stack.enter_context(TemporaryDirectory(prefix="crosstrain-")))
            config = agent.launch_config(resolved, logs)
            config.start_method = method
            results = _results(elastic_launch(config, entry), args, logs, resolved.world_size)
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise
    return take_over(results[min(results)])


@dataclass(frozen=True)
class RankResult:
    """What a rank returns: the function's result, and the states of its random streams."""

    result: Any
    streams: State


def take_over(rank: RankResult) -> Any:
    """Continue with a rank's random streams, and return its result."""
    restore(rank.streams)
    # Its tensors are in memory that processes forked later would share, so they are copied.
    return map_tensors(torch.clone, rank.result)


def _results(
    launch: Callable[..., Mapping[int, Any]], args: Sequence[Any], logs: Path, world_size: int
) -> Mapping[int, Any]:
    try:
        return launch(*args)
    except ChildFailedError as error:
        failures = failure.order_of_failure(error.failures, failure.error_files(logs))
        raise LaunchError("\n" + failure.describe(failures, world_size, "launcher")) from None


class Rank:
    """What every rank runs: the user's function, after the notebook's state has been dropped.

    forked: the process is a fork of the notebook.
    """

    def __init__(self, function: Callable[..., Any], *, forked: bool) -> None:
        self.__name__ = self.__qualname__ = "rank"  # the agent asks its entry point for them
        self._function = function
        self._forked = forked
        self._streams = capture(COMMON)  # for a process that is not forked

    def __call__(self, *args: Any) -> Any:
        die_with_parent()
        try:
            return self.run(*args)
        except BaseException as error:
            record_exception(type(error), error, error.__traceback__)
            sys.exit(1)

    def run(self, *args: Any) -> RankResult:
        """Call the function in this process."""
        if self._forked:
            self._forget_the_notebook()
        else:
            restore(self._streams)
        # The memory of this rank's device is freed with the process, so the result is returned in host memory.
        result = map_tensors(lambda tensor: tensor.detach().cpu(), self._function(*args))
        return RankResult(result, capture(COMMON))

    def _forget_the_notebook(self) -> None:
        models = sys.modules.get("crosstrain.step.model")
        if models is not None:
            models.forget_all()
        run = sys.modules.get("crosstrain.run")
        if run is not None:
            run.RUN.close()
        # A forked process inherits the OpenMP runtime but not its threads, and waiting for them would hang.
        torch.set_num_threads(1)

    def __getstate__(self) -> bytes:
        """Pickle the function by value, because a new process cannot import the notebook."""
        dumps = import_module("cloudpickle").dumps
        payload: bytes = dumps((self._function, self._forked, self._streams))
        return payload

    def __setstate__(self, payload: bytes) -> None:
        self._function, self._forked, self._streams = pickle.loads(payload)


def _start_method() -> StartMethod:
    """The start method: "fork", or "spawn" if an accelerator is in use here. RuntimeError if neither is possible."""
    if not may_have_context():
        return "fork"
    if find_spec("cloudpickle") is not None:
        return "spawn"
    holders = ", ".join(names_on_accelerator(vars(__main__))) or "no variable, but a library may use it"
    raise RuntimeError(
        "this notebook uses an accelerator already, or may do so, and processes forked from it could not use it. "
        f"On the device: {holders}. Restart the kernel and build these inside the function you launch, "
        "or install cloudpickle, with which new processes can be started: pip install cloudpickle"
    )


def names_on_accelerator(namespace: Mapping[str, Any]) -> list[str]:
    """The names of variables that hold tensors or modules on an accelerator."""
    found: list[str] = []
    for name, value in namespace.items():
        if isinstance(value, torch.nn.Module):
            value = next(value.parameters(), None)
        if isinstance(value, torch.Tensor) and not (value.device == HOST or value.is_meta):
            found.append(name)
    return found


@contextmanager
def variables(chosen: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside, and restore all of them, and AGENTS_VARIABLE, afterwards."""
    before = {name: os.environ.get(name) for name in (*chosen, AGENTS_VARIABLE)}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _signal_handlers() -> Iterator[None]:
    """Restore the signal handlers afterwards. The agent installs its own, with which a cell could not be interrupted."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
