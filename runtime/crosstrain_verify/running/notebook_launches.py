"""Traces the processes that a notebook starts by `notebook_launcher`.

They are forked from the notebook's process, as they are outside of `verify`, and the notebook gets back what it gets there:
the result of rank 0, and its random numbers. They also write what they have recorded to files. The trace of each rank
consists of what the notebook recorded and, for the launches, of what this rank recorded.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import crosstrain
import torch
from crosstrain import launchers
from crosstrain.comm.visible_devices import Devices
from crosstrain.launch import notebook
from crosstrain.launch.options import Resolved
from crosstrain.launch.target import clean_traceback, hide_from_tracebacks
from crosstrain.launch.worker import die_with_parent
from crosstrain.utils import checks

from crosstrain_verify.emulation import single_process
from crosstrain_verify.records import traces
from crosstrain_verify.records.traces import Printed
from crosstrain_verify.running.rank import Recorder, rank_variables, stacks_to, write_to
from crosstrain_verify.running.waiting import fork_store, wait
from crosstrain_verify.tracing.printing import Output
from crosstrain_verify.tracing.tracer import Recorded
from crosstrain_verify.tracing.tracked_optimizers import living

hide_from_tracebacks(__file__)

STATE_FILE = "launched.pt"  # a rank writes it when its function has returned
MARGIN = 2.0  # seconds before the end of the run's time, which hanging ranks need to write where they are
_open = open  # the real function: a run that is confined replaces it


@dataclass
class RankState:
    """What a rank writes when its function has returned.

    loaders: how many loaders it has made, including the notebook's. result: of the function, on rank 0.
    """

    recorded: Recorded
    printed: list[Printed]
    written: dict[str, bool]
    loaders: int
    result: Any = None


class Launches:
    """The launches of one notebook on several processes; with one, functions run in the notebook's process."""

    def __init__(self, job: Mapping[str, Any], recorder: Recorder) -> None:
        self._world = job["launches"]
        self._out = Path(job["out"])
        self._deadline = time.monotonic() + job["timeout"]
        self._recorder = recorder
        self._tracer = recorder.tracer
        self._written = recorder.environment.written  # the files that this process opened for writing
        self._others: dict[int, RankState] = {}  # by rank, without rank 0, after the last launch
        self._known = (0, 0)  # events and batches after the last launch
        self._kept_alive: list[Any] = []

    def install(self) -> None:
        """Make every launch of the notebook start these processes, and the recorder write what they have recorded."""
        self._recorder.write_others = self.write_others
        module: Any = notebook
        real = module.notebook_launcher

        def notebook_launcher(
            function: Callable[..., Any],
            args: Sequence[Any] = (),
            num_processes: int | None = None,
            *more: Any,
            **options: Any,
        ) -> Any:
            return real(function, args, self._world, *more, **options)

        module.notebook_launcher = notebook_launcher
        module.visible_devices = Devices
        module._run = self._run
        for place in (crosstrain, launchers):
            vars(place)["notebook_launcher"] = notebook_launcher

    def _run(self, resolved: Resolved, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        if self._world == 1:
            with notebook.variables(resolved.environment):
                return function(*args)
        sys.stdout.flush()
        sys.stderr.flush()
        for rank in range(self._world):
            (self._out / str(rank) / STATE_FILE).unlink(missing_ok=True)
        store, port = fork_store()
        pids = []
        for rank in range(self._world):
            pid = os.fork()
            if pid == 0:
                self._run_rank(rank, port, resolved, function, args)
            pids.append(pid)
        ended = wait(pids, self._deadline - time.monotonic() - MARGIN, self._out, gone=lambda: False)
        os.kill(store, signal.SIGKILL)
        os.waitpid(store, 0)
        return self._resume(ended)

    def _resume(self, ended: Mapping[str, Any]) -> Any:
        """Continue the notebook, or end it if a rank has failed, hangs, or has made enough steps."""
        folders = [self._out / str(rank) for rank in range(self._world)]
        if not all((folder / STATE_FILE).exists() for folder in folders):
            if ended["timed_out"] or ended["stalled"]:
                _write(self._out / traces.HUNG_FILE, json.dumps(dict(ended)).encode())
            os._exit(0 if all((folder / traces.TRACE_FILE).exists() for folder in folders) else 1)
        first, *others = [_read_state(folder / STATE_FILE) for folder in folders]
        self._others = dict(enumerate(others, 1))
        self._tracer.go_on_with(first.recorded)
        self._known = len(first.recorded.events), len(first.recorded.batches)
        _output().printed[:] = first.printed
        self._written.update(first.written)
        single_process.loaders.made = first.loaders
        return notebook.take_over(first.result)

    # -- a rank ----------------------------------------------------------------------------------------------

    def _run_rank(
        self, rank: int, port: int, resolved: Resolved, function: Callable[..., Any], args: Sequence[Any]
    ) -> NoReturn:
        try:
            self._kept_alive = living()  # so that no other object gets one of their addresses
            self._become(rank, port)
            os.environ.update(resolved.environment)
            if rank:
                self._become_other(rank)
            result = notebook.Rank(function, forked=True).run(*args)
            self._end_rank(rank, result)
        except BaseException as error:
            self._recorder.crashed(clean_traceback(error))

    def _become(self, rank: int, port: int) -> None:
        """Make this forked process a rank."""
        folder = self._out / str(rank)
        os.setsid()
        die_with_parent()
        os.environ.update(rank_variables(rank, self._world, port, folder))
        if rank:
            write_to(folder)
        stacks_to(folder)
        self._recorder.become(folder, self._world)

    def _become_other(self, rank: int) -> None:
        """Take over what this rank recorded in earlier launches, and what the notebook recorded since then."""
        state = self._others.get(rank)
        more = self._tracer.since(*self._known)
        if state is not None:
            self._tracer.go_on_with(state.recorded)
            self._tracer.add(*more)
        _output().printed[:] = state.printed if state is not None else []
        self._written.clear()
        self._written.update(state.written if state is not None else {})

    def _end_rank(self, rank: int, result: Any) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        checks.reset()  # writes the checks that were not reached
        recorded, made = self._tracer.recorded(), single_process.loaders.made
        state = RankState(
            recorded, list(_output().printed), dict(self._written), made, None if rank else result
        )
        buffer = io.BytesIO()
        torch.save(state, buffer)
        _write(self._out / str(rank) / STATE_FILE, buffer.getvalue())
        folders = [self._out / str(number) for number in range(self._world)]
        while not all((f / STATE_FILE).exists() or (f / traces.TRACE_FILE).exists() for f in folders):
            time.sleep(0.005)
        os._exit(0)

    # -- the end of the notebook -----------------------------------------------------------------------------

    def write_others(self, first: traces.RankTrace) -> None:
        """Write the traces of all ranks but rank 0. first: rank 0's trace."""
        more = self._tracer.since(*self._known)
        trains = any(event.kind == "step" for event in more[0])
        for rank in range(1, self._world):
            state, trace = self._others.get(rank), first
            if state is not None:
                self._tracer.go_on_with(state.recorded)
                self._tracer.add(*more)
                trace = self._tracer.trace(first.ending, first.error, first.time_ns)
            if trains:
                trace = replace(trace, parameters=first.parameters, weights=first.weights)
            printed = tuple(state.printed) if state is not None else ()
            written = state.written if state is not None else {}
            traces.write(self._out / str(rank), replace(trace, printed=printed, written=written))


def _output() -> Output:
    output = sys.stdout
    assert isinstance(output, Output)
    return output


def _read_state(path: Path) -> RankState:
    with _open(path, "rb") as file:
        state = torch.load(file, weights_only=False)
    assert isinstance(state, RankState)
    return state


def _write(path: Path, data: bytes) -> None:
    """Write a file that appears only when it is complete."""
    partial = path.with_name(path.name + ".part")
    with _open(partial, "wb") as file:
        file.write(data)
    partial.replace(path)
