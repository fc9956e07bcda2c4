"""What `migrate --observe` adds on public training scripts, run with the stand-ins of `verify`.

    python -m tests.corpora.public.observe CHECKOUTS [--only ID ...] [--markdown]

Prints a line for each script: how many assumptions its conversion rests on without a run and with one, and how many
numbers stay local or loaders whole for want of knowledge.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.corpora.public.runs import RUNS, Run
from tests.corpora.public.verify import SCRIPTS, TIMEOUT, staged

# What a note says where a number stays one process's own, or a loader is not shared, because too little is known.
LEFT = (
    "stays this process's",
    "is not a DataLoader",
    "stays whole",
    "evaluates the whole",
    "cannot be told",
    "cannot be traced",
)


@dataclass(frozen=True)
class KnownValues:
    """One conversion: its outcome, its assumptions, what was left for want of knowledge."""

    outcome: str
    assumed: int = 0
    observed: int = 0
    left: int = 0


def main() -> int:
    """Observe what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--markdown", action="store_true", help="the table for docs/")
    parser.add_argument("--keep", type=Path, help="a folder for the facts files and reports")
    chosen = parser.parse_args()
    totals: Counter[str] = Counter()
    for script in json.loads(SCRIPTS.read_text())["scripts"]:
        run = RUNS.get(script["id"])
        if run is None or (chosen.only and script["id"] not in chosen.only):
            continue
        checkout = chosen.checkouts / script["repo"].replace("/", "+")
        before, after = _both(script, run, checkout, chosen.keep)
        totals.update(assumed=before.assumed, rest=after.assumed, left=before.left, still=after.left)
        row = f"{before.outcome} | {before.assumed} | {after.outcome} | {after.assumed} | {before.left} | {after.left}"
        print(f"| {script['id']} | {row} |", flush=True)
    print(dict(totals))
    return 0


def _both(
    script: dict[str, Any], run: Run, checkout: Path, keep: Path | None
) -> tuple[KnownValues, KnownValues]:
    with staged(script, run, checkout) as (path, variables):
        options = ["--no-cache", "--output-format", "json"]
        command = [sys.executable, "-m", "crosstrain_migrate.cli", path.name, *options]
        facts = ["--facts", str((keep / f"{script['id']}.facts.json").resolve())] if keep else []
        observing = ["--observe", *facts, "--verify-data", "synthetic", "--", *run.args]
        found = []
        for name, arguments in (("without", []), ("with", observing)):
            try:
                done = subprocess.run(
                    [*command, *arguments],
                    cwd=path.parent,
                    env=variables,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=TIMEOUT,
                )
            except subprocess.TimeoutExpired:
                found.append(KnownValues("no answer"))
                continue
            if keep:
                (keep / f"{script['id']}.{name}.json").write_text(done.stdout + done.stderr)
            found.append(_known(done.stdout, done.stderr))
    return found[0], found[1]


def _known(text: str, said: str) -> KnownValues:
    try:
        report = json.loads(text)
    except json.JSONDecodeError:
        return KnownValues(f"failed: {(said.splitlines() or ['?'])[-1][:100]}")
    files = report["files"]
    findings = [found for one in files for found in one["findings"]]
    refused = any(one["refused"] for one in files)
    changed = any(one["changed"] for one in files)
    return KnownValues(
        "refused" if refused else "converted" if changed else "untouched",
        sum(len(one["assumptions"]) for one in files),
        sum(found["severity"] == "observed" for found in findings),
        sum(any(words in found["reason"] for words in LEFT) for found in findings),
    )


if __name__ == "__main__":
    raise SystemExit(main())
