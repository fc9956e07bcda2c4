"""CPU seconds of the command line, for the documentation's table: `python -m tests.measure`.

Each command runs five times in a process of its own; the median of user + system time is printed. Nothing is asserted:
the numbers are this machine's.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES = 300
ROUNDS = 5
HELPER = '''

def helper_{n}(rows, width={n}, scale=1.0):
    """Lays out `rows` in `width` columns."""
    table = []
    for start in range(0, len(rows), max(width, 1)):
        part = rows[start:start + width]
        table.append([scale * value for value in part])
    longest = max((len(row) for row in table), default=0)
    return [row + [0.0] * (longest - len(row)) for row in table]
'''


def script(folder: Path) -> Path:
    """A golden script, made 300 lines long by helper functions before its last definition."""
    text = (ROOT / "golden" / "dropout_batchnorm" / "before.py").read_text(encoding="utf-8")
    number = 1
    while len(text.splitlines()) < LINES:
        text = text.replace("\n\n\ndef ", HELPER.format(n=number) + "\n\ndef ", 1)
        number += 1
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return path


def cpu_seconds(command: list[str], forgotten: Path | None = None) -> float:
    """User and system time of a command and its children, the median of `ROUNDS` runs; `forgotten` goes before each."""
    times = []
    for _ in range(ROUNDS):
        if forgotten is not None:
            shutil.rmtree(forgotten, ignore_errors=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def main() -> None:
    migrate = str(Path(sys.executable).parent / "migrate")
    with tempfile.TemporaryDirectory() as folder:
        path, cache = script(Path(folder)), Path(folder) / "cache"
        lines = len(path.read_text(encoding="utf-8").splitlines())
        os.environ["XDG_CACHE_HOME"] = str(cache)
        # An installed package has its bytecode.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        subprocess.run([migrate, "--no-cache", str(path)], capture_output=True, check=True)
        table = {
            "migrate --help": ([migrate, "--help"], None),
            f"migrate train.py ({lines} lines, first time)": ([migrate, str(path)], cache),
            f"migrate train.py ({lines} lines, unchanged since)": ([migrate, str(path)], None),
        }
        for name, (command, forgotten) in table.items():
            print(f"{name:48s} {cpu_seconds(command, forgotten):6.2f} s of CPU")


if __name__ == "__main__":
    main()
