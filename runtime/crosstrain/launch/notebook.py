"""Training on several processes from a notebook cell: `notebook_launcher`, and `debug_launcher` for the CPU.

The ranks are forked from the notebook where that is safe, so that they see what its cells defined without
copying it. It is not safe once an accelerator has a context in the notebook: a context does not survive a
fork. Then fresh processes are started and the function travels to them with cloudpickle.
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

AGENTS_VARIABLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"  # which the agent sets in its own process
StartMethod = Literal["fork", "spawn"]


hide_from_tracebacks(__file__)


class LaunchError(RuntimeError):
    """A rank failed; the message holds its traceback and which rank it was."""


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
    """Run `function(*args)` on `num_processes` processes of each machine and return rank 0's result.

    num_processes None: one per visible accelerator; a single process is this one:
    the function runs here and nothing is started, with the notebook's own objects. On a TPU through torch_xla it
    is always one, which drives all chips. The function builds its own Accelerator: one that a cell built
    before stays a single process's and is not used by the ranks. What several processes return must pickle, and
    its tensors come on the CPU; where the ranks cannot be forked, the function must pickle, too (functions of
    a notebook do, by cloudpickle). The notebook goes on with rank 0's random numbers, as it does when one process has
    trained: a second launch does not draw those of the first again.

    use_port: a free one by default on one machine. Raises LaunchError with the traceback of the rank that
    failed first, KeyboardInterrupt when interrupted (every rank is ended), UsageError for options that this
    machine cannot carry out.
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
    """Run `function(*args)` on CPU processes, to try on any machine what several processes change."""
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
    """What comes back from a rank: its result, and its random numbers."""

    result: Any
    streams: State


def take_over(rank: RankResult) -> Any:
    """Rank 0's result, in a notebook that goes on with its random numbers."""
    restore(rank.streams)
    # It came in memory that is shared with the next processes forked from here: an optimizer would keep it as its state.
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
    """What every rank runs: the user's function, after the notebook's own state has been put aside."""

    def __init__(self, function: Callable[..., Any], *, forked: bool) -> None:
        self.__name__ = self.__qualname__ = "rank"  # the agent asks its entry point for them
        self._function = function
        self._forked = forked
        self._streams = capture(COMMON)  # a fresh process has others

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
        # The memory of this rank's device ends with it: what goes home goes as host memory.
        result = map_tensors(lambda tensor: tensor.detach().cpu(), self._function(*args))
        return RankResult(result, capture(COMMON))

    def _forget_the_notebook(self) -> None:
        models = sys.modules.get("crosstrain.step.model")
        if models is not None:
            models.forget_all()
        state = sys.modules.get("crosstrain.state")
        if state is not None:
            state.RUN.close()
        # A forked process inherits the OpenMP runtime but not its threads; waiting for them would hang.
        torch.set_num_threads(1)

    def __getstate__(self) -> bytes:
        """Fresh processes do not import the notebook, so the function travels by value."""
        dumps = import_module("cloudpickle").dumps
        payload: bytes = dumps((self._function, self._forked, self._streams))
        return payload

    def __setstate__(self, payload: bytes) -> None:
        self._function, self._forked, self._streams = pickle.loads(payload)


def _start_method() -> StartMethod:
    """fork, unless an accelerator is in use here. Raises RuntimeError where neither way is open."""
    if not may_have_context():  # else fresh processes are right always
        return "fork"
    if find_spec("cloudpickle") is not None:
        return "spawn"
    holders = ", ".join(names_on_accelerator(vars(__main__))) or "no variable, but a library may use it"
    raise RuntimeError(
        "an accelerator is, or may be, in use in this notebook already, and processes forked from it could not use it. "
        f"On the device: {holders}. Restart the kernel and build these inside the function you launch, "
        "or install cloudpickle, with which fresh processes can be started: pip install cloudpickle"
    )


def names_on_accelerator(namespace: Mapping[str, Any]) -> list[str]:
    """The variables, of a notebook for instance, that hold tensors or modules on an accelerator."""
    found: list[str] = []
    for name, value in namespace.items():
        if isinstance(value, torch.nn.Module):
            value = next(value.parameters(), None)
        if isinstance(value, torch.Tensor) and not (value.device == HOST or value.is_meta):
            found.append(name)
    return found


@contextmanager
def variables(chosen: Mapping[str, str]) -> Iterator[None]:
    """The variables for as long as the ranks run: the next cell finds its environment as it was."""
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
    """The agent installs its own; afterwards interrupting a cell must again be interrupting a cell."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
