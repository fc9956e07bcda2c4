"""What the tool does with scripts that nobody showed it before.

    python -m tests.corpora.first_look FOLDER --entries FILE [--timeout SECONDS] [--diffs FOLDER]

FOLDER holds checkouts, one folder each (`owner+name`), and is only read. FILE names scripts, one a line:
`owner+name/path/to/script.py`, or is `public/scripts.json`, the list of those that are known. Prints as JSON for each the outcome, the refusing rules with their places, and of a conversion
the files and lines that it changes and its notes. Each script is planned on a copy of its checkout, within a time limit.
"""

import argparse
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

LEFT_OUT = shutil.ignore_patterns(".git", "__pycache__", "node_modules", "site-packages")


@dataclass
class Look:
    """One script. outcome: converted, refused, untouched, unreadable (no Python 3), missing, timed out or crashed."""

    checkout: str
    script: str
    outcome: str
    refusals: list[str] = field(default_factory=list)  # "CT202 path:line reason"
    seconds: float = 0.0
    files: list[str] = field(default_factory=list)
    changed_lines: int = 0
    notes: int = 0
    assumed: int = 0
    same_data: bool = False  # the tool says that every process trains on the same data
    reason: str = ""


def look(checkout: Path, script: str, timeout: float, diffs: Path | None) -> Look:
    if not (checkout / script).is_file():
        return Look(checkout.name, script, "missing", reason="there is no such file")
    found = Look(checkout.name, script, "crashed")
    with tempfile.TemporaryDirectory(prefix="first-look-") as folder:
        tree = Path(folder) / checkout.name
        shutil.copytree(checkout, tree, symlinks=True, ignore=LEFT_OUT, ignore_dangling_symlinks=True)
        options = ["--write", "--output-format", "json", "--no-cache"]
        started = time.monotonic()
        command = [sys.executable, "-m", "crosstrain_migrate.cli", script, *options]
        # timeout(1) ends with the command whatever that has started. The tree's `ast.py` is not Python's.
        limited = ["timeout", "--signal=KILL", str(timeout), *command]
        env = os.environ | {"PYTHONUTF8": "1", "PYTHONSAFEPATH": "1"}
        done = subprocess.run(limited, cwd=tree, env=env, stdin=subprocess.DEVNULL, capture_output=True)
        found.seconds = round(time.monotonic() - started, 2)
        try:
            report = json.loads(done.stdout)
        except ValueError:
            if done.returncode == -signal.SIGKILL:
                found.outcome, found.reason = "timed out", f"no answer in {timeout:g} s"
            else:
                lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
                found.reason = (lines or [f"exit code {done.returncode}"])[-1][:300]
            return found
        _told(found, report)
        diff = [line for path in _written(report) for line in _changed(found, checkout, tree, path)]
    if diffs is not None and diff:
        file = diffs / checkout.name / f"{script}.diff"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(diff) + "\n", errors="surrogateescape")
    return found


def _told(found: Look, report: dict[str, Any]) -> None:
    """What the tool says: outcome, refusals, notes."""
    for file in report["files"]:
        found.assumed += len(file.get("assumptions", ()))
        for one in file["findings"]:
            if one["severity"] == "refused":
                found.refusals.append(f"{one['rule']} {file['path']}:{one['line']} {one['reason']}")
            else:
                found.notes += 1
                found.same_data |= one["rule"] == "CT902"
    found.reason = "; ".join(f"{error['path']}: {error['reason']}" for error in report["errors"])[:300]
    if found.refusals:
        found.outcome = "refused"
    elif report["errors"]:
        found.outcome = "unreadable"
    else:
        found.outcome = "converted" if _written(report) else "untouched"


def _written(report: dict[str, Any]) -> list[str]:
    return [file["path"] for file in report["files"] if file["changed"]]


def _changed(found: Look, before: Path, after: Path, path: str) -> list[str]:
    """The diff of one file."""
    sides = [(tree / path).read_text("utf-8", "surrogateescape").split("\n") for tree in (before, after)]
    lines = list(difflib.unified_diff(*sides, f"a/{path}", f"b/{path}", lineterm="", n=6))
    found.files.append(path)
    found.changed_lines += sum(line[:1] in "+-" for line in lines) - 2
    return lines


def summary(looks: list[Look]) -> dict[str, Any]:
    converted = [one for one in looks if one.outcome == "converted"]
    rules = Counter(rule for one in looks for rule in {refusal.split()[0] for refusal in one.refusals})
    return {
        "scripts": len(looks),
        "outcomes": dict(Counter(one.outcome for one in looks).most_common()),
        "median notes": median([one.notes for one in converted] or [0]),
        "median changed lines": median([one.changed_lines for one in converted] or [0]),
        "same data": sum(one.same_data for one in converted),
        "rules": dict(rules.most_common()),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entries", type=Path, metavar="FILE", required=True, help="the scripts to plan")
    parser.add_argument("--timeout", type=float, default=120.0, help="of planning one script, in seconds")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--diffs", type=Path, help="write each conversion's diff into this folder")
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    text = options.entries.read_text()
    if options.entries.suffix == ".json":
        text = "\n".join(f"{x['repo'].replace('/', '+')}/{x['script']}" for x in json.loads(text)["scripts"])
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    wanted = [line.partition("/") for line in lines if "/" in line]
    with ThreadPoolExecutor(options.processes) as pool:
        looks = list(pool.map(lambda at: look(folder / at[0], at[2], options.timeout, options.diffs), wanted))
    print(json.dumps({"scripts": [asdict(one) for one in looks], "summary": summary(looks)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
