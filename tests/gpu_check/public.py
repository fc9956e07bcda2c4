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
from tests.gpu_check.golden import alone, at_once, load_for, reason
from tests.support.forked import Job, Ran, run_all
from tests.xla.strict import be_strict

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
        shares = any(b"RANK" in path.read_bytes() for path in (folder / "before").rglob("*.py"))
        launched = alone() if shares else {}
        yield "original", job(folder, "before", no_gpu=kind == "cpu", variables=launched, limit=LIMIT)
    prelude = be_strict if kind == "xla" else None
    yield "1 process", job(folder, "after", variables=shared, prelude=prelude, limit=LIMIT)
    if kind != "xla":
        yield "2 processes", job(folder, "after", variables=shared, world=2, limit=LIMIT)


def main() -> int:
    """Print every outcome as JSON, for the section that asks."""
    (kind,) = sys.argv[1:]
    load_for(kind)
    wanted = {id(one): (folder.name, name, one) for folder in staged() for name, one in jobs(folder, kind)}
    ended: dict[tuple[str, str], Ran] = {}
    for one, ran in run_all([one for _, _, one in wanted.values()], at_once()):
        case, name, _ = wanted[id(one)]
        ended[case, name] = ran
    rows = [row(*key, ran, ended.get((key[0], "original"))) for key, ran in sorted(ended.items())]
    print(json.dumps(rows))
    return 0


def row(case: str, name: str, ran: Ran, original: Ran | None) -> list[str]:
    """How a run ended. What the original cannot do here, such as use a fourth GPU, its conversion need not."""
    failure = failed(ran)
    if absent := ABSENT.search(failure):
        return [case, name, f"not run: no {absent[1]} here", ""]
    if failure and original is not None and (theirs := failed(original)):
        whose = "as the original, which fails here" if ran is not original else "fails here"
        return [case, name, f"{whose}: {theirs}", ""]
    return [case, name, "**failed**" if failure else f"{ran.steps} steps", failure]


def failed(ran: Ran) -> str:
    """Why a run failed; nothing where it ended, or trained until it was stopped."""
    return reason(ran) if ran.code and not (ran.was_stopped and ran.steps > 0) else ""


if __name__ == "__main__":
    sys.exit(main())
