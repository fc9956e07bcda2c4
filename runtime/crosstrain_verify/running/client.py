"""The other end of the server: start it once, hand it jobs."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from crosstrain.requirements import install

# torch._dynamo: the first optimizer of a process imports it, which costs a second.
PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.utils.data",
    "torch._dynamo",
    "numpy",
    "crosstrain.accelerator",
)
LOOK_SECONDS = 0.1
# Launchers' variables around us must not make a single process believe that it is a rank.
FOREIGN_PREFIXES = ("ACCELERATE_", "CROSSTRAIN_", "TORCHELASTIC_", "SLURM_", "PMI_", "OMPI_")
FOREIGN = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)


class ServerError(RuntimeError):
    """The server could not start or went away; the message has what it said last."""


@dataclass(frozen=True)
class Job:
    """One run. `out` holds a folder for each rank; `timeout` in seconds; `steps` None: to its end.

    devices: "real", or what torch.cuda.is_available() says where CUDA is emulated ("absent", "present").
    launched: a launcher's variables also for one process. per_rank: each rank is compared by itself, and all start with
    the same random numbers and with a device each. rank_option: a launcher's option for the local rank. ranks_env: variables of each rank. shares: draw random numbers as so many processes
    would, of which each reads the loaders `whole` by itself. frozen: undo every step; after `steps`,
    end the passes over the loaders `cut_short` and go on until another one begins. rows: keep what is gathered for the first batch of each pass, and permute that batch
    (`rows.py`). observed: note what each expression stands for (`tracing.observation`), with batches as they are,
    permuted, doubled, or with the first half of the rows in the place of the second; few: and end each pass after some batches. double: float64 for float32. leave_out: samples to leave out, by loader. confined: write below the
    parent of `out` only. imports: modules that the server may load first, once for all runs.
    data: whether torchvision's data sets are replaced by small synthetic ones where their files are missing.
    launches: of a notebook, whose own process is the only one at first: the processes that each launch starts.
    """

    script: str
    args: tuple[str, ...]
    cwd: str
    out: str
    world: int = 1
    seed: int = 0
    steps: int | None = None
    timeout: float = 300.0
    env: dict[str, str] = field(default_factory=dict)
    devices: Literal["real", "absent", "present"] = "real"
    launched: bool = False
    per_rank: bool = False
    rank_option: str = ""
    ranks_env: list[dict[str, str]] = field(default_factory=list)
    shares: int = 0
    whole: tuple[int, ...] = ()
    frozen: bool = False
    cut_short: tuple[int, ...] = ()
    rows: Literal["", "kept", "permuted"] = ""
    observed: Literal["", "seen", "permuted", "doubled", "halved"] = ""
    few: bool = False
    double: bool = False
    leave_out: dict[int, int] = field(default_factory=dict)
    confined: bool = True
    imports: tuple[str, ...] = ()
    data: Literal["real", "synthetic"] = "real"
    launches: int = 0


@dataclass(frozen=True)
class JobResult:
    """How the job went as seen from outside; everything else is in the ranks' folders."""

    timed_out: bool
    stalled: bool  # every rank waited for another
    seconds: float


class Server:
    """A running server process; `run` blocks until a job's last process is gone."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="crosstrain-server-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crosstrain_verify.running.server", *PRELOAD, *preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # An empty directory: `-m` puts it first on the path, where nothing of the user's may be found.
            cwd=self._directory.name,
            env=clean_environment(os.environ),
            text=True,
            encoding="utf-8",
        )
        self._ready = False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, job: Job, waiting: Callable[[], None] | None = None) -> JobResult:
        """Run a job to its end; `waiting` is called from time to time until then."""
        if not self._ready:
            self._answer()
            self._ready = True
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        answers = self._process.stdout
        if waiting is not None and answers is not None:
            while not select.select([answers], [], [], LOOK_SECONDS)[0]:
                waiting()
        return JobResult(**self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise ServerError(
                f"the verify server ended with code {code} (its error, if it gave one, is above); "
                f"is torch installed? {install('torch')}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the server and whatever it runs."""
        if not self._ready:  # still importing: it would not look at its stdin for seconds
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._directory.cleanup()


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """One thread, one hash seed, no devices, no compiler, no traces of a launcher; module paths made absolute."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in FOREIGN and not name.startswith(FOREIGN_PREFIXES)
    }
    if "PYTHONPATH" in kept:
        kept["PYTHONPATH"] = os.pathsep.join(
            str(Path(p).resolve()) for p in kept["PYTHONPATH"].split(os.pathsep)
        )
    return kept | {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "CROSSTRAIN_QUIET": "1",
        "TORCH_COMPILE_DISABLE": "1",  # see `eager_compile`
        **({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}),
    }


_shared: dict[tuple[str, ...], Server] = {}


def shared_server(preload: Sequence[str] = ()) -> Server:
    """This process's server for these preloaded modules, started on first use and ended at exit."""
    key = tuple(preload)
    server = _shared.get(key)
    if server is None or not server.alive:
        server = _shared[key] = Server(preload)
        atexit.register(server.close)
    return server
