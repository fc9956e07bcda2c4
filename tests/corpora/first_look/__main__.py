"""Scripts at first look.

    python -m tests.corpora.first_look FOLDER [--entries FILE] [--timeout SECONDS] [--diffs FOLDER]

FOLDER holds checkouts, one folder each (`owner+name`), that nobody looked at. The scripts of --entries
(`owner+name/path/to/script.py`, one a line) are planned, or all that train: those that reach a backward and an
optimizer's step from a main guard or their top level. Prints as JSON for each: the outcome, every refusing rule with
its place, and of a conversion the files and lines that it changes, its notes, and training loaders that are not
prepared. Each script is planned on a copy of its checkout, in a process of its own with a time limit; FOLDER is only
read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from .entries import listed
from .look import Look, answered

AROUND = 120.0  # seconds beside the planning: the copy, and our own reading of both programs


def main(arguments: list[str]) -> int:
    """Plan every script; the exit code is 0 whatever became of them."""
    options = _options(arguments)
    folder = options.folder.resolve()
    wanted = listed(options.entries) if options.entries else _found(folder, options.timeout)
    with ThreadPoolExecutor(options.processes) as pool:
        looks = list(pool.map(lambda one: _look(folder / one[0], one[1], options), wanted))
    print(json.dumps({"scripts": looks, "summary": summary(looks)}, indent=1))
    return 0


def summary(looks: list[dict[str, Any]]) -> dict[str, Any]:
    """The totals, and for each refusing rule the number of scripts and the first place."""
    rules: dict[str, dict[str, Any]] = {}
    for found in looks:
        places = {one["rule"]: one["place"] for one in reversed(found["refusals"])}
        for rule, place in places.items():
            entry = rules.setdefault(rule, {"scripts": 0, "first": f"{found['checkout']}/{place}"})
            entry["scripts"] += 1
    converted = [found for found in looks if found["outcome"] == "converted"]
    return {
        "scripts": len(looks),
        "checkouts": len({found["checkout"] for found in looks}),
        "outcomes": dict(Counter(found["outcome"] for found in looks).most_common()),
        "median notes": median([found["notes"] for found in converted] or [0]),
        "median changed lines": median([found["changed_lines"] for found in converted] or [0]),
        "unprepared": sum(found["unprepared"] for found in converted),
        "rules": dict(sorted(rules.items(), key=lambda item: (-item[1]["scripts"], item[0]))),
    }


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entries", type=Path, metavar="FILE", help="the scripts to plan [all that train]")
    parser.add_argument("--timeout", type=float, default=120.0, help="of planning one script, in seconds")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--diffs", type=Path, help="write each conversion's diff into this folder")
    return parser.parse_args(arguments)


def _found(folder: Path, timeout: float) -> list[tuple[str, str]]:
    """The entry scripts of every checkout; one that cannot be read in time is named on standard error."""
    found = []
    for checkout in sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()):
        answer, why = _apart(["find", str(checkout), "--timeout", str(timeout)], timeout + AROUND)
        if answer is None:
            print(f"{checkout.name}: not searched: {why}", file=sys.stderr)
        found += [(checkout.name, script) for script in answer or ()]
    return found


def _look(checkout: Path, script: str, options: argparse.Namespace) -> dict[str, Any]:
    words = ["plan", str(checkout), script, "--timeout", str(options.timeout)]
    if options.diffs:
        words += ["--diff", str(options.diffs / checkout.name / f"{script}.diff")]
    why = "there is no such file"
    if (checkout / script).is_file():
        answer, why = _apart(words, options.timeout + AROUND)
        if answer is not None:
            return dict(answer)
    return asdict(Look(checkout.name, script, "crashed", reason=why))


def _apart(words: list[str], timeout: float) -> tuple[Any, str]:
    """What `look` prints in a process of its own; None and why otherwise."""
    command = [sys.executable, "-m", "tests.corpora.first_look.look", *words]
    answer, (_, why) = answered(command, timeout)
    return answer, why


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
