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
from collections import Counter
from pathlib import Path
from typing import Any

from tests.corpora.first_look import Look, look

SCRIPTS = Path(__file__).parent / "scripts.json"
TIMEOUT = 300.0
Rows = list[tuple[dict[str, Any], Look]]


def main() -> int:
    """Migrate copies of what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument(
        "--new", action="store_true", help="only the scripts that the tool was not developed with"
    )
    chosen = parser.parse_args()
    rows: Rows = []
    for script in json.loads(SCRIPTS.read_text())["scripts"]:
        if (chosen.only and script["id"] not in chosen.only) or (chosen.new and not script.get("new")):
            continue
        found = look(chosen.checkouts / script["repo"].replace("/", "+"), script["script"], TIMEOUT, None)
        rows.append((script, found))
        print(_line(script, found), flush=True)
    print(_summary(rows))
    return sum(found.outcome in ("crashed", "timed out") for _, found in rows)


def _line(script: dict[str, Any], found: Look) -> str:
    kind = "distributed" if script["distributed"] else ""
    counts = f"{found.assumed:3} assumed {found.changed_lines:4} lines {found.notes:3} notes {found.seconds:5.1f} s"
    reason = (*found.refusals, found.reason)[0]
    return f"{script['id']:16} {script['expected']:8} {kind:11} {found.outcome:10} {counts}  {reason[:120]}".rstrip()


def _summary(rows: Rows) -> str:
    """The outcomes, and for the older and the newer scripts how many are converted of those that an expert converts."""
    outcomes = Counter(found.outcome for _, found in rows)
    shares = "".join(
        f"\n{name}: {_share(rows, new, False)} plain, {_share(rows, new, True)} distributed are converted"
        for name, new in (("developed with", False), ("new", True))
        if any(script.get("new", False) == new for script, _ in rows)
    )
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) + shares


def _share(rows: Rows, new: bool, distributed: bool) -> str:
    kind = ("convert", new, distributed)
    wanted = [
        found for of, found in rows if (of["expected"], of.get("new", False), of["distributed"]) == kind
    ]
    return f"{sum(found.outcome == 'converted' for found in wanted)} of {len(wanted)}"


if __name__ == "__main__":
    raise SystemExit(main())
