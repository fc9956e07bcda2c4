"""What becomes of public training scripts that nobody tuned the tool for.

    python -m tests.corpora.public CHECKOUTS [--only ID ...] [--markdown]

CHECKOUTS holds a folder ``owner+name`` for each repository of `scripts.json`, at the commit named there. Prints a line
for each script: what an expert does, what the tool does, how much it assumes, how many lines it changes, how long it
takes, and the first refusal. The exit code is the number of scripts whose conversion crashed.
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
    outcome: str
    assumptions: int = 0
    changed_lines: int = 0
    seconds: float = 0.0
    reason: str = ""


def main() -> int:
    """Migrate, in preview, what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--markdown", action="store_true", help="the table for docs/")
    chosen = parser.parse_args()
    rows = []
    for script in json.loads(SCRIPTS.read_text())["scripts"]:
        if chosen.only and script["id"] not in chosen.only:
            continue
        rows.append(_row(script, chosen.checkouts / script["repo"].replace("/", "+")))
        print(_markdown(rows[-1]) if chosen.markdown else _line(rows[-1]), flush=True)
    print(_summary(rows))
    return sum(row.outcome == "crashed" for row in rows)


def _row(script: dict[str, Any], folder: Path) -> Row:
    known = script["id"], script["expected"], script["distributed"]
    path = folder / script["script"]
    if not path.exists():
        return Row(*known, "missing")
    command = [
        sys.executable,
        "-m",
        "crosstrain_migrate.cli",
        path.name,
        "--output-format",
        "json",
        "--no-cache",
    ]
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


def _outcome(report: dict[str, Any]) -> tuple[str, int, int]:
    """The word for what happened, the number of assumptions, and of lines that were added or taken away."""
    assumptions = sum(len(one.get("assumptions", ())) for one in report["files"])
    if any(one["refused"] for one in report["files"]):
        return "refused", 0, 0
    if report["errors"]:
        return "failed", 0, 0
    lines = [line for one in report["files"] for line in one["diff"].splitlines()]
    changed = sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in lines if line)
    return ("converted" if changed else "untouched"), assumptions, changed


def _reason(report: dict[str, Any]) -> str:
    """The first refusal, or what could not be read."""
    for one in report["files"]:
        for found in one["findings"]:
            if found["severity"] == "refused":
                return f"{one['path']}:{found['line']} {found['rule']} {found['reason']}"
    return next((error["reason"] for error in report["errors"]), "")


def _line(row: Row) -> str:
    kind = "distributed" if row.distributed else ""
    counts = f"{row.assumptions:3} assumed {row.changed_lines:4} lines {row.seconds:5.1f} s"
    return f"{row.id:16} {row.expected:8} {kind:11} {row.outcome:10} {counts}  {row.reason[:120]}".rstrip()


def _markdown(row: Row) -> str:
    kind = ", distributed" if row.distributed else ""
    return (
        f"| {row.id} | {row.expected}{kind} | {row.outcome} | {row.assumptions} | {row.changed_lines} | "
        f"{row.seconds:.1f} | {row.reason} |"
    )


def _summary(rows: list[Row]) -> str:
    def share(distributed: bool) -> str:
        wanted = [row for row in rows if row.expected == "convert" and row.distributed == distributed]
        return f"{sum(row.outcome == 'converted' for row in wanted)} of {len(wanted)}"

    counts = ", ".join(
        f"{count} {outcome}" for outcome, count in Counter(row.outcome for row in rows).items()
    )
    return f"{counts}; converted of those an expert converts: {share(False)} plain, {share(True)} distributed"


if __name__ == "__main__":
    raise SystemExit(main())
