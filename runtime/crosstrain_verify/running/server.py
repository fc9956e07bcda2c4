"""A process that has torch loaded and forks runs, so that each run starts in milliseconds and in a fresh state.

It reads a job from each line of standard input (JSON, see `client.Job`) and answers with one line when all ranks of the
job have ended. Ranks are session leaders, so everything that they start ends with them. When the client is gone, the
server ends the ranks and itself.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import faulthandler
import importlib
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from crosstrain.launch.target import Target, clean_traceback, hide_from_tracebacks
from crosstrain.launch.worker import die_with_parent

from crosstrain_verify.emulation.emulated import asked
from crosstrain_verify.records import traces
from crosstrain_verify.running import notebook_cells
from crosstrain_verify.running.run_environment import RunEnvironment
from crosstrain_verify.running.stalls import Rank, StallWatch, ask_for_stacks
from crosstrain_verify.tracing.printing import Output

if TYPE_CHECKING:
    from crosstrain_verify.running.notebook_launches import Launches

hide_from_tracebacks(__file__)

POLL_SECONDS = 0.005
_open = os.open  # the real function: a run that is confined replaces it


def main(preload: Sequence[str]) -> None:
    """Serve until stdin closes. In a forked rank this returns when the script has ended."""
    die_with_parent()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    load(preload)
    import torch

    torch.set_num_threads(1)
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        load(job["imports"])
        started = time.monotonic()
        reply = serve(job)
        if reply is None:  # this is a forked rank, and its script has ended
            return
        reply["seconds"] = time.monotonic() - started
        print(json.dumps(reply), file=replies, flush=True)


def load(names: Sequence[str]) -> None:
    """Import modules before forking. A missing or broken one is no error here: a script that needs it reports it."""
    for name in names:
        if name not in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def serve(job: Mapping[str, Any]) -> dict[str, Any] | None:
    """Fork the job's ranks and wait for them. Returns None in a forked rank when its script has ended."""
    world = job["world"]
    store: int | None = None
    port = 0
    if world > 1 or job["launched"]:
        store, port = fork_store()
    pids: list[int] = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            run_rank(job, rank, port)
            return None
        pids.append(pid)
    try:
        ended = wait(pids, job["timeout"], Path(job["out"]))
        hung = Path(job["out"]) / traces.HUNG_FILE
        return json.loads(hung.read_text()) if hung.exists() else ended
    finally:
        if store is not None:
            os.kill(store, signal.SIGKILL)
            os.waitpid(store, 0)


def fork_store() -> tuple[int, int]:
    """Start the store of one run in its own process; returns (pid, port). The port is bound already."""
    from crosstrain.launch import loopback

    listener, port = loopback.listen()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        store = loopback.serve(listener)
        while store:  # the store's thread serves; this one has nothing to do
            signal.pause()
    listener.close()
    return pid, port


def wait(
    pids: Sequence[int], timeout: float, out: Path, gone: Callable[[], bool] | None = None
) -> dict[str, Any]:
    """Wait until all ranks have ended, one has failed, they stall, or the time is up. Then end all of them and their children.

    Args:
        pids: the ranks' processes.
        timeout: seconds.
        out: the run's folder.
        gone: returns whether nobody waits for the ranks any more; None asks whether the client is gone.
    """
    deadline = time.monotonic() + timeout
    folders = [out / str(rank) for rank in range(len(pids))]
    ranks = [
        Rank(pid, folder / traces.TRACE_FILE, folder / traces.STACK_FILE)
        for pid, folder in zip(pids, folders, strict=True)
    ]
    watch = StallWatch(ranks)
    running = set(pids)
    timed_out = failed = stalled = False
    while running and not failed and not timed_out and not stalled:
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.discard(pid)
                failed = failed or status != 0
        timed_out = time.monotonic() > deadline
        if running and (gone or client_is_gone)():
            break
        stalled = len(running) == len(pids) and watch.stalled()
        time.sleep(POLL_SECONDS)
    if timed_out and running:
        ask_for_stacks(sorted(running), ranks)
    for pid in pids:
        kill_session(pid)
    for pid in running:
        os.kill(pid, signal.SIGKILL)  # it may not have started its session yet
        os.waitpid(pid, 0)
    return {"timed_out": timed_out and bool(running), "stalled": stalled}


def kill_session(pid: int) -> None:
    """End a rank's process group; it may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def client_is_gone() -> bool:
    """Whether standard input is closed. The client sends nothing while a job runs, so it is readable only if it is closed."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable)


def run_rank(job: Mapping[str, Any], rank: int, port: int) -> None:
    """Become one rank of the job and run its script. The trace is written at interpreter exit.

    The caller must then return to the interpreter, which waits for threads and runs the script's exit handlers as it does
    under `python script.py`.
    """
    from crosstrain.comm import torch_backend

    folder = Path(job["out"]) / str(rank)
    torch_backend.ends_by_itself = False
    isolate(job, rank, port, folder)
    recorder = Recorder(job, folder)
    # Registered first, so it runs after every exit handler of the script.
    atexit.register(recorder.leave)
    option = [f"{job['rank_option']}={rank}"] if job["rank_option"] else []
    target = Target(job["script"], is_module=False, arguments=(*option, *job["args"]))
    # Only Accelerator() gives the ranks equal random streams; what is drawn before it differs, as in a real launch. In an
    # original that distributes itself nothing does, so the ranks of both scripts start with the same streams.
    seed(job["seed"], 0 if job["per_rank"] else rank)
    environment = RunEnvironment(job, recorder.tracer, rank, port)
    recorder.environment = environment
    try:
        with environment.applied():
            if job["launches"]:
                recorder.launches = _launches(job, recorder, environment)
                recorder.launches.install()
            if notebook_cells.is_notebook(target.name):
                notebook_cells.run(target, environment.compiled)
            else:
                target.run(environment.compiled)
    except SystemExit as end:
        recorder.exited(end)
    except BaseException as error:
        recorder.crashed(clean_traceback(error))


def _launches(job: Mapping[str, Any], recorder: Recorder, environment: RunEnvironment) -> Launches:
    """The launches of a notebook, with what its process needs to start ranks."""
    from crosstrain_verify.running.notebook_launches import Launches, RankStarter

    out, world = Path(job["out"]), job["launches"]

    def become(rank: int, port: int) -> None:
        folder = out / str(rank)
        os.setsid()
        die_with_parent()
        os.environ.update(rank_variables(rank, world, port, folder))
        if rank:
            write_to(folder)
        stacks_to(folder)
        recorder.become(folder, world)

    starter = RankStarter(
        become,
        lambda error: recorder.crashed(clean_traceback(error)),
        fork_store,
        lambda pids, timeout, place: wait(pids, timeout, place, gone=lambda: False),
    )
    deadline = time.monotonic() + job["timeout"]
    return Launches(world, out, deadline, recorder.tracer, environment.written, starter)


def isolate(job: Mapping[str, Any], rank: int, port: int, folder: Path) -> None:
    """Give this rank its own session, working directory, output files and environment."""
    os.setsid()
    die_with_parent()
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    os.environ.update(job["ranks_env"][rank] if job["ranks_env"] else {})
    if job["world"] > 1 or job["launched"]:
        os.environ.update(rank_variables(rank, job["world"], port, folder))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    write_to(folder)
    sys.stdout = Output(1)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    stacks_to(folder)
    faulthandler.enable(all_threads=True)
    sys.dont_write_bytecode = True


def rank_variables(rank: int, world: int, port: int, folder: Path) -> dict[str, str]:
    """The variables that a launcher sets for a rank; with several ranks also the path of the runtime's journal."""
    from crosstrain.utils import checks

    from crosstrain_verify.emulation.launcher import address

    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        **address(port),
    }
    return variables | ({checks.JOURNAL: str(folder / traces.CHECKS_FILE)} if world > 1 else {})


def write_to(folder: Path) -> None:
    """Redirect standard output and error to this rank's files."""
    for descriptor, name in ((1, traces.STDOUT_FILE), (2, traces.STDERR_FILE)):
        file = _open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)


def stacks_to(folder: Path) -> None:
    """Make this rank write its stacks to a file of the folder when it gets SIGUSR1."""
    stack = _open(folder / traces.STACK_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)


def seed(value: int, rank: int) -> None:
    """Seed the random streams: every run starts alike and every rank differently, even if the script seeds nothing.

    The ranks' seeds for torch are as far apart as random ones, because the runtime takes closer ones for the script's own
    choice. They differ in their lower 32 bits, too, which are all that torch's generator on the CPU uses.
    """
    import numpy
    import torch

    random.seed(value + 1000 * rank)
    numpy.random.seed(value + 1000 * rank)
    torch.manual_seed(value + rank * ((1 << 40) + 1000))


class Recorder:
    """Ends a rank: writes its trace, waits for the other ranks, and leaves without the interpreter's slow shutdown."""

    def __init__(self, job: Mapping[str, Any], folder: Path) -> None:
        from crosstrain_verify.tracing.tracer import Tracer

        self._folder = folder
        self._world = job["world"]
        self._ending: traces.Ending = "finished"
        self._error = ""
        self._time = 0
        self.environment: RunEnvironment | None = None
        self.launches: Launches | None = None  # of a notebook
        self.tracer = Tracer(job["steps"], self.stop)
        # Opened now, because the script will be confined.
        self._steps = os.open(folder / traces.STEPS_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
        self.tracer.steps_done = lambda steps: os.pwrite(self._steps, steps.to_bytes(8, "little"), 0)
        output = sys.stdout
        assert isinstance(output, Output)
        self._output = output
        output.now = self.tracer.now

    def become(self, folder: Path, world: int) -> None:
        """Called in a process that a notebook has started as a rank."""
        self._folder, self._world, self.launches = folder, world, None
        self.tracer.several = world > 1
        if folder.name != "0":
            self.tracer.steps_done = lambda steps: None

    def exited(self, end: SystemExit) -> None:
        """Called when the script calls `sys.exit`; an exit code of 0 or None is a normal end."""
        if end.code not in (None, 0):
            self.crashed(f"SystemExit: {end.code}\n")

    def crashed(self, error: str) -> NoReturn:
        """Leave at once, because threads and exit handlers of a failed script may never end."""
        self._ending, self._error, self._time = "crashed", error, time.time_ns()
        self.leave()

    def stop(self) -> NoReturn:
        """Leave after the last step, from within the optimizer, so that no `except` of the script can prevent it."""
        self._ending = "stopped"
        self.leave()

    def leave(self) -> NoReturn:
        """Write the trace, wait for the other ranks, and end the process."""
        from crosstrain.utils import checks

        sys.stdout.flush()
        sys.stderr.flush()
        checks.reset()  # writes the checks that were not reached; nothing of the script runs after this
        trace = self.tracer.trace(self._ending, self._error, self._time)
        recorded = self.environment.recorded() if self.environment is not None else {}
        trace = dataclasses.replace(
            trace, printed=tuple(self._output.printed), asked=tuple(sorted(asked)), **recorded
        )
        if self.environment is not None and self.environment.keeping is not None:
            self.environment.keeping.write(self._folder)
        traces.write(self._folder, trace)
        if self.launches is not None:
            self.launches.write_others(trace)
        if self._ending == "crashed":
            os._exit(1)
        self._wait_for_others()
        os._exit(0)

    def _wait_for_others(self) -> None:
        """Wait until all ranks have written their traces: the end of a rank closes connections that others may still use."""
        others = [self._folder.parent / str(rank) / traces.TRACE_FILE for rank in range(self._world)]
        while not all(file.exists() for file in others):
            time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
