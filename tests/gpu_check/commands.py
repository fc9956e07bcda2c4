"""Running scripts in processes of their own, and what the sections share."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [str(ROOT), *(str(ROOT / name) for name in ("migrate", "runtime", "templates"))]
LAUNCH = [sys.executable, "-c", "from crosstrain.cli import main; main()", "launch"]
MIGRATE = [sys.executable, "-m", "crosstrain_migrate.cli"]
PATIENCE = 600.0  # seconds for one command


@dataclass(frozen=True)
class Check:
    """What the command line asks for."""

    kind: str  # torch's name of the device's type
    cases: tuple[str, ...]  # golden cases; none: all
    fast: bool  # shorter benchmarks

    @property
    def cpu(self) -> bool:
        return self.kind == "cpu"

    @property
    def torchs_own(self) -> str:
        """The device for what compares with plain torch, which knows nothing of XLA's steps."""
        return "cpu" if self.kind == "xla" else self.kind


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def reason(self) -> str:
        """The last words of one that failed."""
        lines = [line for line in self.err.strip().splitlines() if line.strip()]
        return f"exit code {self.code}: {lines[-1] if lines else ''}"


def run(
    command: list[str],
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    patience: float | None = None,
) -> Done:
    """Run it with this tree's packages, before those of PYTHONPATH; a command that takes too long has failed."""
    limit = patience or PATIENCE
    path = [*SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path), "CROSSTRAIN_QUIET": "1"} | dict(variables or {})
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return Done(-1, "", f"no end after {limit:.0f} s")
    return Done(done.returncode, done.stdout, done.stderr)
