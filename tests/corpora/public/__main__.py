"""What becomes of the public training scripts of `scripts.json`.

    python -m tests.corpora.public CHECKOUTS [--only ID ...] [--new]

CHECKOUTS holds a folder ``owner+name`` for each repository of `scripts.json`, at the commit named there. Prints a line
for each script: what an expert does, what the tool does, how much it assumes, how many lines it changes, how many notes
it makes, how long it takes, and the first refusal. The tool was developed with the older scripts. The first look at the
newer ones is on docs/first_look.md; since then they are known, too. The exit code is the number of scripts whose
conversion crashed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts.json"
TIMEOUT = 300.0


@dataclass(frozen=True)
class Row:
    """One script: what an expert does with it, and what the tool does."""

    id: str
    expected: str
    distributed: bool
    new: bool
    outcome: str
    assumptions: int = 0
    changed_lines: int = 0
    notes: int = 0
    seconds: float = 0.0
    reason: str = ""


def main() -> int:
    """Migrate, in preview, what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument(
        "--new", action="store_true", help="only the scripts that the tool was not developed with"
    )
    chosen = parser.parse_args()
    rows = []
    for script in json.loads(SCRIPTS.read_text())["scripts"]:
        if (chosen.only and script["id"] not in chosen.only) or (chosen.new and not script.get("new")):
            continue
        rows.append(_row(script, chosen.checkouts / script["repo"].replace("/", "+")))
        print(_line(rows[-1]), flush=True)
    print(_summary(rows))
    return sum(row.outcome == "crashed" for row in rows)


def _row(script: dict[str, Any], folder: Path) -> Row:
    known = script["id"], script["expected"], script["distributed"], script.get("new", False)
    path = folder / script["script"]
    if not path.exists():
        return Row(*known, "missing")
    command = [sys.executable, "-m", "crosstrain_migrate.cli", path.name]
    command += ["--output-format", "json", "--no-cache"]
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=path.parent, capture_output=True, text=True, check=False, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return Row(*known, "crashed", reason=f"no answer in {TIMEOUT:.0f} s")
    seconds = time.monotonic() - started
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        return Row(*known, "crashed", seconds=seconds, reason=(done.stderr.splitlines() or ["?"])[-1])
    return Row(*known, *_outcome(report), seconds, _reason(report))


def _outcome(report: dict[str, Any]) -> tuple[str, int, int, int]:
    """The word for what happened, and how many assumptions, lines added or taken away, and notes there are."""
    assumptions = sum(len(one.get("assumptions", ())) for one in report["files"])
    notes = sum(found["severity"] == "note" for one in report["files"] for found in one["findings"])
    if any(one["refused"] for one in report["files"]):
        return "refused", 0, 0, notes
    if report["errors"]:
        return "failed", 0, 0, notes
    lines = [line for one in report["files"] for line in one["diff"].splitlines()]
    changed = sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in lines if line)
    return ("converted" if changed else "untouched"), assumptions, changed, notes


def _reason(report: dict[str, Any]) -> str:
    """The first refusal, or what could not be read."""
    for one in report["files"]:
        for found in one["findings"]:
            if found["severity"] == "refused":
                return f"{one['path']}:{found['line']} {found['rule']} {found['reason']}"
    return next((error["reason"] for error in report["errors"]), "")


def _line(row: Row) -> str:
    kind = "distributed" if row.distributed else ""
    counts = (
        f"{row.assumptions:3} assumed {row.changed_lines:4} lines {row.notes:3} notes {row.seconds:5.1f} s"
    )
    return f"{row.id:16} {row.expected:8} {kind:11} {row.outcome:10} {counts}  {row.reason[:120]}".rstrip()


def _summary(rows: list[Row]) -> str:
    """The outcomes, and for the older and the newer scripts how many are converted of those that an expert converts."""
    counts = ", ".join(
        f"{count} {outcome}" for outcome, count in Counter(row.outcome for row in rows).items()
    )
    shares = "".join(
        f"\n{name}: {_share(rows, new, False)} plain, {_share(rows, new, True)} distributed are converted"
        for name, new in (("developed with", False), ("new", True))
        if any(row.new == new for row in rows)
    )
    return counts + shares


def _share(rows: list[Row], new: bool, distributed: bool) -> str:
    wanted = [
        row for row in rows if row.expected == "convert" and row.new == new and row.distributed == distributed
    ]
    return f"{sum(row.outcome == 'converted' for row in wanted)} of {len(wanted)}"


if __name__ == "__main__":
    raise SystemExit(main())
