"""Ten public scripts on the device, before and after: ``python -m tests.gpu_check.public DEVICE``, in a process of its own.

`python -m tests.corpora.trial.staged` puts them, with their stand-ins, into build/public-scripts; none of them is kept here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.corpora.trial.staged import FOLDER, job
from tests.gpu_check.golden import at_once, load_for, reason
from tests.support.forked import Job, run_all

ABSENT = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'\s*$")
LIMIT = 20.0  # seconds of a processor; what has made steps until then has passed


def staged() -> list[Path]:
    """The cases that are there."""
    return sorted(path.parent for path in FOLDER.glob("*/facts.json"))


def jobs(folder: Path, kind: str) -> Iterator[tuple[str, Job]]:
    """The original, the conversion on one process, and on two that share the device; on XLA's client one process alone."""
    config = {"cpu": True} if kind == "cpu" else {}
    shared = {
        "CROSSTRAIN_SHARE_DEVICES": "1",
        "CROSSTRAIN_QUIET": "1",
        "CROSSTRAIN_CONFIG": json.dumps(config),
    }
    if kind != "xla":
        yield "original", job(folder, "before", no_gpu=kind == "cpu", limit=LIMIT)
    yield "1 process", job(folder, "after", variables=shared, limit=LIMIT)
    if kind != "xla":
        yield "2 processes", job(folder, "after", variables=shared, world=2, limit=LIMIT)


def main() -> int:
    """Print every outcome as JSON, for the section that asks."""
    (kind,) = sys.argv[1:]
    load_for(kind)
    wanted = {id(one): (folder.name, name, one) for folder in staged() for name, one in jobs(folder, kind)}
    rows = []
    for one, ran in run_all([one for _, _, one in wanted.values()], at_once()):
        case, name, _ = wanted[id(one)]
        is_long = ran.was_stopped and ran.steps > 0
        failure = reason(ran) if ran.code and not is_long else ""
        if absent := ABSENT.search(failure):
            rows.append([case, name, f"not run: no {absent[1]} here", ""])
        else:
            rows.append([case, name, "**failed**" if failure else f"{ran.steps} steps", failure])
    print(json.dumps(sorted(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
