"""The client of the server: it starts the server once and gives it jobs."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from crosstrain.requirements import install

# What the server imports before it forks any run.
# torch._dynamo is here because the first optimizer of a process imports it, which takes a second.
PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.utils.data",
    "torch._dynamo",
    "numpy",
    "crosstrain.accelerator",
)
LOOK_SECONDS = 0.1
# Variables that a launcher around this process has set. A run must not take itself for a rank because of them.
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


Devices = Literal["real", "absent", "present"]
Data = Literal["real", "synthetic"]
Alteration = Literal["", "seen", "doubled"]


class VerifyInputError(Exception):
    """The request cannot be run: a script does not exist, a folder is too large, or an argument is wrong."""


class ServerError(RuntimeError):
    """The server could not start, or has ended; the message says with what exit code."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a run changes around its script. Loaders are named by the order in which they were made, from 0.

    Args:
        per_rank: each rank is compared by itself; all ranks start with the same random numbers and have a device each.
        shares: draw random numbers as this many processes would, which share each batch.
        whole: loaders of which each of these processes reads everything.
        frozen: undo every optimizer step.
        cut_short: after the last step, end the passes over these loaders and continue until the next one begins.
        leave_out: (loader, samples): how many samples to leave out at the end of a loader's data set.
        observed: record the numbers that expressions stand for (`tracing.observation`) while batches are as they are
            ("seen"), or have every row twice ("doubled").
        few: end each pass of an observed run after a few batches.
        double: compute in float64 instead of float32.
        keep: loaders whose batches are kept for another run.
        replay: the folder of a run that kept batches: what its processes got is joined and takes the place of this run's.
        row_by_row: the model computes each row by itself (`emulation.row_by_row`).
        fast_clock: the script's clock gains seconds with each reading (`emulation.fast_clock`).
    """

    per_rank: bool = False
    shares: int = 0
    whole: tuple[int, ...] = ()
    frozen: bool = False
    cut_short: tuple[int, ...] = ()
    leave_out: tuple[tuple[int, int], ...] = ()
    observed: Alteration = ""
    few: bool = False
    double: bool = False
    keep: tuple[int, ...] = ()
    replay: str = ""
    row_by_row: bool = False
    fast_clock: bool = False


@dataclass(frozen=True, kw_only=True)
class Job(Conditions):
    """One run, as the client describes it to the server.

    Args:
        out: has a folder for each rank.
        steps: optimizer steps; None runs the script to its end.
        timeout: seconds.
        devices: what torch.cuda.is_available() says; "real" does not emulate CUDA.
        launched: set a launcher's variables for a single process, too.
        rank_option: the option in which a launcher tells the script its local rank.
        ranks_env: environment variables of each rank.
        confined: the run can write only below the parent of `out`.
        imports: modules that the server may load once, for all runs.
        data: "synthetic" replaces torchvision's data sets by small synthetic ones where their files are missing.
        launches: how many processes each launch of a notebook starts; the notebook itself runs in one.
    """

    script: str
    args: tuple[str, ...]
    cwd: str
    out: str
    world: int = 1
    steps: int | None = None
    timeout: float = 300.0
    env: dict[str, str] = field(default_factory=dict)
    devices: Devices = "real"
    launched: bool = False
    rank_option: str = ""
    ranks_env: list[dict[str, str]] = field(default_factory=list)
    confined: bool = True
    imports: tuple[str, ...] = ()
    data: Data = "real"
    launches: int = 0


@dataclass(frozen=True)
class JobResult:
    """How a job ended, as seen from outside; everything else is in the ranks' folders.

    stalled: every rank waited for another one.
    """

    timed_out: bool
    stalled: bool
    seconds: float


class Server:
    """A server process."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="crosstrain-server-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crosstrain_verify.running.server", *PRELOAD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # `-m` puts the working directory first on the module path, where no file of the user's may be found.
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
        """Run a job and return when its last process has ended; `waiting` is called from time to time until then."""
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
        if not self._ready:  # it is still importing, and would not read its stdin for seconds
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
    """The environment for runs: one thread, a fixed hash seed, no devices, no compiler and no launcher's variables.

    The entries of PYTHONPATH become absolute.
    """
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


_shared: list[Server] = []


def shared_server() -> Server:
    """This process's server. It is started on first use and ended at exit."""
    if not _shared or not _shared[-1].alive:
        _shared.append(Server())
        atexit.register(_shared[-1].close)
    return _shared[-1]
