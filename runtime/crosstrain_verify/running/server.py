"""A process that has torch loaded and forks runs, so that each run starts in milliseconds and in a fresh state.

It reads a job from each line of standard input (JSON, see `client.Job`) and answers with one line when all ranks of the
job have ended. Ranks are session leaders, so everything that they start ends with them. When the client is gone, the
server ends the ranks and itself.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crosstrain.launch.target import Target, clean_traceback, hide_from_tracebacks
from crosstrain.launch.worker import die_with_parent

from crosstrain_verify.records import traces
from crosstrain_verify.running import notebook_cells
from crosstrain_verify.running.rank import Recorder, isolate, seed
from crosstrain_verify.running.waiting import fork_store, wait

hide_from_tracebacks(__file__)


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


def run_rank(job: Mapping[str, Any], rank: int, port: int) -> None:
    """Become one rank of the job and run its script. The trace is written at interpreter exit.

    The caller must then return to the interpreter, which waits for threads and runs the script's exit handlers as it does
    under `python script.py`.
    """
    from crosstrain.comm import torch_backend

    folder = Path(job["out"]) / str(rank)
    torch_backend.ends_by_itself = False
    isolate(job, rank, port, folder)
    recorder = Recorder(job, rank, port, folder)
    # Registered first, so it runs after every exit handler of the script.
    atexit.register(recorder.leave)
    option = [f"{job['rank_option']}={rank}"] if job["rank_option"] else []
    target = Target(job["script"], is_module=False, arguments=(*option, *job["args"]))
    # Only Accelerator() gives the ranks equal random streams; what is drawn before it differs, as in a real launch. In an
    # original that distributes itself nothing does, so the ranks of both scripts start with the same streams.
    seed(0 if job["per_rank"] else rank)
    environment = recorder.environment
    try:
        with environment.applied():
            if job["launches"]:
                from crosstrain_verify.running.notebook_launches import Launches

                Launches(job, recorder).install()
            if notebook_cells.is_notebook(target.name):
                notebook_cells.run(target, environment.compiled)
            else:
                target.run(environment.compiled)
    except SystemExit as end:
        recorder.exited(end)
    except BaseException as error:
        recorder.crashed(clean_traceback(error))


if __name__ == "__main__":
    main(sys.argv[1:])
