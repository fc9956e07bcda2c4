"""What `migrate --verify` says of public training scripts, run with small stand-ins for what they would download.

    python -m tests.corpora.public.verify CHECKOUTS [--only ID ...] [--markdown]

Needs torchvision and what else the scripts import (`requirements.txt` here) beside crosstrain. A script runs in a copy
of its repository, after `runs.py` has made the files that it reads; `stand_ins` has modules in the place of libraries
that cannot be had. Prints a line for each script; the exit code is the number of those that do not agree.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.corpora.public.runs import RUNS, Run

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts.json"
STAND_INS = HERE / "stand_ins"
REPOSITORY = HERE.parents[2]
TIMEOUT = 900.0


@dataclass(frozen=True)
class Verdict:
    """One script: what was compared, and with what outcome."""

    id: str
    outcome: str  # agrees, differs, failed
    seconds: float
    said: str = ""


def main() -> int:
    """Verify what the command line asks for; the number of scripts that do not agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--markdown", action="store_true", help="the table for docs/")
    parser.add_argument("--show", action="store_true", help="all that migrate prints")
    chosen = parser.parse_args()
    failures = 0
    for script in json.loads(SCRIPTS.read_text())["scripts"]:
        run = RUNS.get(script["id"])
        if run is None or (chosen.only and script["id"] not in chosen.only):
            continue
        checkout = chosen.checkouts / script["repo"].replace("/", "+")
        verdict = _verify(script, run, checkout, show=chosen.show)
        failures += verdict.outcome != "agrees"
        print(_markdown(verdict) if chosen.markdown else _line(verdict), flush=True)
    return failures


@contextmanager
def staged(script: dict[str, Any], run: Run, checkout: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A script in a copy of its repository with the files that it reads, and the environment to run it in."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(checkout, copy)
        path = copy / script["script"]
        run.prepare(path.parent)
        libraries = [str(copy / folder) for folder in run.libraries]
        # This working tree's own packages, wherever crosstrain is installed from.
        own = [str(REPOSITORY / folder) for folder in ("", "migrate", "runtime", "templates")]
        paths = os.pathsep.join([str(STAND_INS), *own, *libraries])
        yield path, {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **run.variables}


def _verify(script: dict[str, Any], run: Run, checkout: Path, *, show: bool) -> Verdict:
    with staged(script, run, checkout) as (path, variables):
        command = [sys.executable, "-m", "crosstrain_migrate.cli", path.name, "--no-cache", "--verify"]
        command += ["--verify-data", "synthetic", "--verify-steps", str(run.steps)]
        command += [*([] if show else ["--output-format", "json"]), "--", *run.args]
        started = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=path.parent,
                env=variables,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return Verdict(script["id"], "failed", TIMEOUT, "it took too long")
    if show:
        print(done.stdout + done.stderr)
        return Verdict(script["id"], "agrees" if done.returncode == 0 else "differs", 0.0)
    seconds = time.monotonic() - started
    try:
        verified = json.loads(done.stdout).get("verify")
    except json.JSONDecodeError:
        return Verdict(script["id"], "failed", seconds, (done.stderr.splitlines() or ["?"])[-1])
    if verified is None:
        return Verdict(script["id"], "not converted", seconds)
    runs = [verified["original"], *verified["runs"]]
    said = ", ".join(f"{run['name']}: {run['verdict']} ({run['steps']} steps)" for run in runs)
    return Verdict(script["id"], "agrees" if verified["ok"] else "differs", seconds, said)


def _line(verdict: Verdict) -> str:
    return f"{verdict.id:16} {verdict.outcome:13} {verdict.seconds:5.0f} s  {verdict.said}"


def _markdown(verdict: Verdict) -> str:
    return f"| {verdict.id} | {verdict.outcome} | {verdict.said} |"


if __name__ == "__main__":
    raise SystemExit(main())
