"""Where one round happens: its folder, the training that runs in it, and its disk."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crosstrain.checkpoint import manifests

from tests.faults import journal, training
from tests.support.processes import is_running
from tests.support.ranks import run_ranks

DEADLINE = 180.0  # seconds until something that should happen is given up
DISK = "64m"
LAUNCH = [sys.executable, "-c", "from crosstrain.cli import main; main()", "launch", "--cpu"]


@dataclass(frozen=True)
class Place:
    """A folder with the journals and the project of one training, which may save in the background."""

    folder: Path
    background: bool = False

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def train(self) -> str | None:
        """Train on forked ranks to the end; the error that ended it, None if it finished."""
        try:
            where = (str(self.folder), str(self.project), self.background)
            run_ranks(training.train, journal.WORLD, *where, timeout=DEADLINE)
        except RuntimeError as error:
            return str(error)
        return None

    def launch(self, *options: str, on: Sequence[str] = ()) -> subprocess.Popen[str]:
        """The same training, by `crosstrain launch`, on the host that the words `on` lead to."""
        command = [*on, *LAUNCH, "--num-processes", str(journal.WORLD), *options, training.__file__]
        return subprocess.Popen(
            [*command, str(self.folder), str(self.project), *(["background"] if self.background else [])],
            cwd=self.folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "CROSSTRAIN_QUIET": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def complete(self) -> list[Path]:
        """The checkpoints that say they are complete, oldest first."""
        return [path for _, path in manifests.complete_checkpoints(self.project)]

    def saving(self) -> bool:
        """Whether a checkpoint is being written at this moment."""
        return any((self.project / "checkpoints").glob(".checkpoint_*.new"))

    def trains(self) -> Callable[[], bool]:
        """A condition: a batch has been trained since now."""
        before = journal.steps_written(self.folder)
        return lambda: journal.steps_written(self.folder) > before

    def mount_disk(self) -> None:
        """A small file system of its own for the project. Raises PermissionError where that is not allowed."""
        self.project.mkdir()
        self.mount("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs")

    def mount(self, *options: str) -> None:
        """mount(8) on the project. Raises PermissionError with its words."""
        command = ["mount", *options, str(self.project)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PermissionError(f"{' '.join(command)}: {done.stderr.strip()}")

    def remove(self) -> None:
        """Everything, the disk included."""
        if self.project.is_mount():
            subprocess.run(["umount", "--lazy", str(self.project)], check=True)
        shutil.rmtree(self.folder)

    def kill(self, *ranks: int) -> bool:
        """SIGKILL; whether one of them was still there."""
        return sum(kill(journal.last_pid(self.folder, rank)) for rank in ranks) > 0


def kill(pid: int) -> bool:
    """SIGKILL; whether the process was there and running."""
    running = is_running(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return running


def wait_for(condition: Callable[[], bool]) -> bool:
    """Whether it came true in time; looked at often enough to meet a save that takes milliseconds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


class Strike(threading.Thread):
    """Does something `delay` seconds after a condition came true, while the training runs."""

    def __init__(self, condition: Callable[[], bool], delay: float, act: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self._condition, self._delay, self._act = condition, delay, act
        self._over = threading.Event()
        self.struck = False
        self.start()

    def run(self) -> None:
        if wait_for(lambda: self._condition() or self._over.is_set()) and not self._over.wait(self._delay):
            self.struck = self._act()

    def result(self) -> bool:
        """After the training has ended: whether it was struck."""
        self._over.set()
        self.join()
        return self.struck
