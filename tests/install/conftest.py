"""A fresh virtual environment with the wheel in it, and nothing else of this checkout."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"PYTHONPATH", "CROSSTRAIN_QUIET"}  # what these tests run with, and no user has
CONSTRAINTS = ROOT / "constraints.txt"


@dataclass(frozen=True)
class Installed:
    """The environment and the wheel that it was made from."""

    binaries: Path
    wheel: Path

    def run(self, *command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a console script of the environment as a user would: without this checkout on the path."""
        environment = {name: value for name, value in os.environ.items() if name not in OURS} | variables
        environment["PATH"] = f"{self.binaries}{os.pathsep}{os.environ['PATH']}"
        place = [str(self.binaries / command[0]), *command[1:]]
        return subprocess.run(place, cwd=cwd, env=environment, capture_output=True, text=True, timeout=1800)

    def pip_install(self, *what: str, cwd: Path) -> None:
        done = self.run("pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), *what, cwd=cwd)
        assert done.returncode == 0, done.stderr


def _done(command: Sequence[str], **variables: str) -> None:
    environment = os.environ | variables
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=1800)


@pytest.fixture(scope="package")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("install")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), "."]
    _done(build, PIP_CONSTRAINT=str(CONSTRAINTS))
    (wheel,) = place.glob("crosstrain-*.whl")
    _done([sys.executable, "-m", "venv", str(place / "venv")])
    found = Installed(place / "venv" / "bin", wheel)
    found.pip_install(str(wheel), cwd=place)
    return found
