"""What a script that distributes itself finds in a run: its launcher, and the other processes.

Every rank of a run is a process that a launcher has started (`server.isolate`). If a script starts its processes itself,
by `torch.multiprocessing.spawn`, every rank does what the script does before and after that, and the call itself calls the
function for this rank. The processes connect at the run's own address, whatever the script says: a port that was free on
the author's machine may be in use here, and a script that searches for a free port would find another one on every rank.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d


class Launcher:
    """This process's place among ``world`` processes, which connect at ``port``; 0 if it was not launched.

    Attributes:
        joined: how many processes the script's process group has; 0 without a group.
        spawned: how many processes the script wants to start, if that is not ``world``; else 0.
        wrapped: whether a model was wrapped, so that its gradients can be averaged.
    """

    def __init__(self, rank: int, world: int, port: int) -> None:
        self._rank = rank
        self._world = world
        self._port = port
        self.joined = 0
        self.spawned = 0
        self.wrapped = False
        # If a wrapper holds the last reference to a gloo group, the group ends while Python's lock is held, and waits for
        # its thread, which may be waiting for that lock. A group that is held here never ends: the process leaves before.
        self._groups: list[Any] = []

    def install(self) -> None:
        """Replace the functions, for the rest of this process."""
        self._replace_spawn()
        self._replace_group()
        self._watch_wrapper()

    def _watch_wrapper(self) -> None:
        module: Any = torch.nn.parallel.DistributedDataParallel
        real: Callable[..., None] = module.__init__

        @functools.wraps(real)
        def init(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            self.wrapped = True
            real(wrapper, *args, **kwargs)

        module.__init__ = init

    def _replace_spawn(self) -> None:
        processes: Any = torch.multiprocessing
        real: Callable[..., Any] = processes.spawn

        @functools.wraps(real)
        def spawn(fn: Callable[..., Any], args: Any = (), nprocs: int = 1, *rest: Any, **kwargs: Any) -> Any:
            if nprocs == self._world:
                return fn(self._rank, *args)
            if nprocs == 1:
                return fn(0, *args)
            if nprocs > 1:
                self.spawned = nprocs
                raise RuntimeError(
                    f"the script starts {nprocs} processes, and this is a run with {self._world}"
                )
            return None

        processes.spawn = spawn

    def _replace_group(self) -> None:
        plain: Callable[..., None] = distributed_c10d.init_process_group
        real: Callable[..., None] = dist.init_process_group

        @functools.wraps(plain)
        def init(
            backend: Any = None,
            init_method: Any = None,
            timeout: Any = None,
            world_size: int = -1,
            rank: int = -1,
            store: Any = None,
            *rest: Any,
            **kwargs: Any,
        ) -> None:
            if self._port and store is None:
                init_method = "env://"
                os.environ.update(address(self._port))
            # Looked up now, because the runtime may have replaced the function.
            start = distributed_c10d.init_process_group if real is plain else real
            start(backend, init_method, timeout, world_size, rank, store, *rest, **kwargs)
            self.joined = max(self.joined, dist.get_world_size())
            self._groups.append(dist.group.WORLD)

        dist.init_process_group = init


def address(port: int) -> dict[str, str]:
    """The variables that tell the processes of a run where to connect."""
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
