"""Run a function on several processes that form a gloo group, and get their results back.

The processes are forked from a server that has torch loaded, so that starting one costs milliseconds instead
of two seconds. The function must be importable (a module-level function of a test module).
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import pickle
import random
import socket
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosstrain.comm.torch_backend import TorchComm

PATIENCE = 300.0  # seconds, for what hangs alone: a busy machine may take its time
FIRST_PORT = 20_000  # and the next 12,000: below what Linux gives to outgoing connections
WORKERS = 4  # so many never choose the same port
_PRELOAD = ["torch", "torch.distributed", "torch.utils.data", "tests.support.preload"]


def run_ranks(
    fn: Callable[..., Any],
    world: int,
    *args: Any,
    timeout: float = PATIENCE,
    env: dict[str, str] | None = None,
    forks: bool = False,
) -> list[Any]:
    """``fn(*args)`` in ``world`` new processes with RANK, WORLD_SIZE and MASTER_* set; results in rank order.

    The first failing rank's traceback is raised as RuntimeError; every process is gone when this returns.
    ``world=1`` sets the variables too (a launcher with one process).

    ``forks``: the processes fork workers beside the threads of their process group. Once in some thousand times such a
    worker starts with a lock that another thread held and never runs (seen with py-spy: a worker of a DataLoader without
    any Python thread); a run that hangs is then made once more. A hang of ours hangs again.
    """
    if forks:
        try:
            return run_ranks(fn, world, *args, timeout=timeout / 2, env=env)
        except TimeoutError:
            pass
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    port = free_port()
    pipes: list[Connection] = []
    processes: list[BaseProcess] = []
    try:
        for rank in range(world):
            receive, send = context.Pipe(duplex=False)
            variables = rank_variables(rank, world, port) | (env or {})
            process = context.Process(target=_child, args=(send, variables, fn, args), daemon=False)
            process.start()
            send.close()
            pipes.append(receive)
            processes.append(process)
        return _collect(pipes, processes, time.monotonic() + timeout)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
        for pipe in pipes:
            pipe.close()


def on_ranks(*worlds: int, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test that runs itself on so many processes, one number after the other; its assertions hold on every rank."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def each(**given: Any) -> None:
            for world in worlds:
                run_ranks(_itself, world, test.__module__, test.__name__, given, **options)

        return each

    return decorate


def _itself(module: str, test: str, given: dict[str, Any]) -> None:
    getattr(importlib.import_module(module), test).__wrapped__(**given)


def errors_of(fn: Callable[..., Any], world: int, *args: Any, **options: Any) -> list[str]:
    """The message of the error that ``fn(*args)`` raises on each rank, "no error" where it raises none."""
    return run_ranks(_message, world, fn, args, **options)


def _message(fn: Callable[..., Any], args: tuple[Any, ...]) -> str:
    try:
        fn(*args)
    except Exception as error:
        return str(error)
    return "no error"


@functools.cache
def this_rank() -> TorchComm:
    """The one communicator of this process, as in a real run."""
    from crosstrain.comm.torch_backend import TorchComm

    return TorchComm.start(cpu=True)


def infos() -> list[str]:
    """What the runtime says at INFO in this process from here on."""
    from crosstrain.utils import messages

    os.environ["CROSSTRAIN_QUIET"] = "0"
    said: list[str] = []
    messages.logger.hasHandlers = lambda: True  # type: ignore[method-assign]
    messages.logger.info = said.append  # type: ignore[method-assign,assignment]
    return said


def free_port() -> int:
    """A TCP port that nothing of this machine holds, none that an outgoing connection is given meanwhile, and none that
    another worker of pytest may choose before this one's rank 0 listens on it."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    while True:
        port = FIRST_PORT + worker + WORKERS * random.SystemRandom().randrange(3_000)
        with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port


def rank_variables(rank: int, world: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "CROSSTRAIN_QUIET": "1",
    }


def _child(send: Connection, env: dict[str, str], fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ.update(env)
    import torch

    torch.set_num_threads(int(env["OMP_NUM_THREADS"]))
    try:
        result = ("ok", fn(*args))
    except BaseException:
        result = ("error", traceback.format_exc())
    try:
        data = pickle.dumps(result)  # plain: torch's own pickler would share memory of a process that is gone
    except Exception:
        data = pickle.dumps(("error", traceback.format_exc()))
    send.send_bytes(data)
    send.close()
    if torch.distributed.is_available() and torch.distributed.is_initialized() and result[0] == "ok":
        torch.distributed.destroy_process_group()


def _collect(pipes: list[Connection], processes: list[BaseProcess], deadline: float) -> list[Any]:
    results: dict[int, Any] = {}
    while len(results) < len(pipes):
        waiting = {pipe: rank for rank, pipe in enumerate(pipes) if rank not in results}
        ready = wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f"ranks {sorted(waiting.values())} did not finish in time")
        for pipe in ready:
            rank = waiting[pipe]  # type: ignore[index]
            try:
                kind, value = pickle.loads(pipe.recv_bytes())  # type: ignore[union-attr]
            except EOFError:
                processes[rank].join(5)
                raise RuntimeError(f"rank {rank} died with exit code {processes[rank].exitcode}") from None
            if kind == "error":
                raise RuntimeError(f"rank {rank} failed:\n{value}")
            results[rank] = value
    return [results[rank] for rank in range(len(pipes))]
