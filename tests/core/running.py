"""Conversions that are run: under plain python, and on two processes by the launcher."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_LAUNCH = "from crosstrain.cli import main; raise SystemExit(main())"


def plain(folder: Path, text: str, *options: str) -> list[str]:
    """The lines that a script prints under plain python."""
    return _lines(folder, text, [sys.executable, "script.py", *options])


def launched(folder: Path, text: str, *options: str, processes: int = 2) -> list[str]:
    """The lines that the launcher's processes print on the CPU, sorted."""
    launcher = [sys.executable, "-c", _LAUNCH, "launch", "--cpu", "--num-processes", str(processes)]
    return sorted(_lines(folder, text, [*launcher, "script.py", *options]))


def _lines(folder: Path, text: str, command: list[str]) -> list[str]:
    (folder / "script.py").write_text(text, encoding="utf-8")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("=")]
