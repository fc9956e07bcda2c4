"""The tests that compare numbers, under every setting that changes how this machine rounds.

    python -m tests.cpus [--only NAME ...] [--all] [PYTEST ARGUMENTS]

Shows pytest at work and prints a table of settings; exit code 1 if any setting failed. A setting that this CPU does not have is
skipped, and the table says so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TESTS = ["tests/golden", "tests/verify", "tests/runtime", "tests/notebooks", "tests/corpora"]
"""Where numbers are compared; ``--all`` runs the whole suite."""


@dataclass(frozen=True)
class Setting:
    """Environment variables, and the CPU flag without which they mean nothing."""

    name: str
    variables: dict[str, str]
    needs: str = ""


SETTINGS = (
    Setting("native", {}),
    Setting("aten default", {"ATEN_CPU_CAPABILITY": "default"}),
    Setting("aten avx2", {"ATEN_CPU_CAPABILITY": "avx2"}, "avx2"),
    Setting("aten avx512", {"ATEN_CPU_CAPABILITY": "avx512"}, "avx512f"),
    Setting("mkl and onednn sse4", {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41"}),
    Setting("two threads", {"OMP_NUM_THREADS": "2"}),
)


def main() -> int:
    """Run every setting; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--only", action="append", choices=names, help="this setting (repeatable)")
    parser.add_argument("--all", action="store_true", help="the whole suite, not only what compares numbers")
    chosen, arguments = parser.parse_known_args()
    flags = _flags()
    rows = []
    for setting in SETTINGS:
        if chosen.only and setting.name not in chosen.only:
            continue
        if setting.needs and setting.needs not in flags:
            rows.append((setting.name, f"skipped: this CPU has no {setting.needs}", 0.0))
            continue
        started = time.monotonic()
        rows.append(
            (
                setting.name,
                _run(setting, ["tests"] if chosen.all else TESTS, arguments),
                time.monotonic() - started,
            )
        )
    for name, outcome, seconds in rows:
        print(f"{name:22} {outcome} ({seconds:.0f} s)")
    return int(any("failed" in outcome or "error" in outcome for _, outcome, _ in rows))


def _run(setting: Setting, tests: list[str], arguments: list[str]) -> str:
    """The last line that pytest prints; all of them are shown as they come."""
    print(f"== {setting.name}", flush=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *(arguments or ["-n", "2", "--dist", "worksteal"]),
        *tests,
    ]
    process = subprocess.Popen(command, env=os.environ | setting.variables, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = "nothing was printed"
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    code = process.wait()
    return last if code == 0 or "failed" in last else f"error: exit code {code}: {last}"


def _flags() -> set[str]:
    """What this CPU can do, in Linux's words; nothing where Linux does not say."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return {flag for line in lines if line.startswith("flags") for flag in line.partition(":")[2].split()}


if __name__ == "__main__":
    raise SystemExit(main())
