"""One script at first look: the tool run on a copy of its tree, and what came of it.

    python -m tests.corpora.first_look.look find CHECKOUT [--timeout SECONDS]
    python -m tests.corpora.first_look.look plan CHECKOUT SCRIPT [--timeout SECONDS] [--diff FILE]

Both print JSON. The command runs them as processes of their own, so that nothing in a tree can stop it.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .checkout import Checkout, copy, read
from .entries import find
from .preparation import UNPREPARED
from .reach import Reach
from .training import Data, Training


@dataclass(frozen=True)
class Refusal:
    rule: str
    place: str  # path:line, or path:cell N:line
    reason: str


@dataclass
class Look:
    """What the tool does with one script the first time it meets it.

    outcome: converted, refused, untouched, unreadable (not Python 3), timed out, or crashed.
    """

    checkout: str
    script: str
    outcome: str
    refusals: list[Refusal] = field(default_factory=list)
    seconds: float = 0.0
    files: list[str] = field(default_factory=list)
    changed_lines: int = 0
    notes: int = 0
    assumptions: int = 0
    unprepared: bool = False
    data: list[Data] = field(default_factory=list)
    reason: str = ""  # of an outcome without a report


def look(root: Path, script: str, timeout: float, diff: Path | None = None) -> Look:
    """Plan one script of a checkout."""
    found = Look(root.name, script, "crashed")
    with tempfile.TemporaryDirectory(prefix="first-look-") as folder:
        tree = Path(folder) / root.name
        copy(root, tree)
        started = time.monotonic()
        report, error = _migrate(tree, script, timeout)
        found.seconds = round(time.monotonic() - started, 2)
        if report is None:
            found.outcome, found.reason = error
            return found
        _told(found, report)
        before = Checkout(root)
        _compared(found, before, tree, diff)
    return found


def _migrate(tree: Path, script: str, timeout: float) -> tuple[dict[str, Any] | None, tuple[str, str]]:
    """The tool's report; where it gave none, the outcome and why."""
    options = ["--write", "--output-format", "json", "--no-cache"]
    command = [sys.executable, "-m", "crosstrain_migrate.cli", script, *options]
    # The tree's `ast.py` is not Python's.
    return answered(command, timeout, tree, os.environ | {"PYTHONUTF8": "1", "PYTHONSAFEPATH": "1"})


def answered(
    command: list[str], timeout: float, cwd: Path | None = None, env: dict[str, str] | None = None
) -> tuple[Any, tuple[str, str]]:
    """The JSON that a command prints, as a process group that is ended with all it started; None, and why, otherwise."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ("timed out", f"no answer in {timeout:g} s")
    try:
        return json.loads(out), ("", "")
    except ValueError:
        last = err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {process.returncode}"]
        return None, ("crashed", last[-1][:300])


def _told(found: Look, report: dict[str, Any]) -> None:
    """What the tool says: outcome, refusals, notes."""
    for file in report["files"]:
        for one in file["findings"]:
            if one["severity"] == "refused":
                found.refusals.append(Refusal(one["rule"], _place(file["path"], one), one["reason"]))
            else:
                found.notes += 1
        found.assumptions += len(file.get("assumptions", ()))
    if found.refusals or any(file["refused"] for file in report["files"]):
        found.outcome = "refused"
    elif report["errors"]:
        found.outcome = "unreadable"
        found.reason = "; ".join(f"{error['path']}: {error['reason']}" for error in report["errors"])[:300]
    else:
        found.outcome = "converted" if any(file["changed"] for file in report["files"]) else "untouched"


def _place(path: str, finding: dict[str, Any]) -> str:
    cell = f"cell {finding['cell']}:" if finding.get("cell") is not None else ""
    return f"{path}:{cell}{finding['line']}"


def _compared(found: Look, before: Checkout, tree: Path, diff: Path | None) -> None:
    """What was written, and what our own reading of both programs says about it."""
    texts = []
    for path in before.files:
        try:
            same = (before.root / path).read_bytes() == (tree / path).read_bytes()
        except OSError:
            continue
        if same:
            continue
        found.files.append(path)
        sides = (before.code(path).text.split("\n"), read(tree, path).text.split("\n"))
        lines = list(difflib.unified_diff(*sides, f"a/{path}", f"b/{path}", lineterm="", n=6))
        found.changed_lines += sum(line[:1] in "+-" for line in lines) - 2
        texts += lines
    if diff is not None and texts:
        diff.parent.mkdir(parents=True, exist_ok=True)
        diff.write_text("\n".join(texts) + "\n", errors="surrogateescape")
    if found.files:
        found.data = Training(Reach(Checkout(tree), found.script)).data()
        found.unprepared = any(one.state == UNPREPARED for one in found.data)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    finding, plan = commands.add_parser("find"), commands.add_parser("plan")
    for command in (finding, plan):
        command.add_argument("checkout", type=Path)
        command.add_argument("--timeout", type=float, default=120.0)
    plan.add_argument("script")
    plan.add_argument("--diff", type=Path)
    options = parser.parse_args(arguments)
    if options.what == "find":
        print(json.dumps(find(Checkout(options.checkout), options.timeout)))
    else:
        found = look(options.checkout, options.script, options.timeout, options.diff)
        print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
