"""Which public scripts run on a second device, after conversion: ``python -m tests.xla.public`` on XLA's CPU client.

Their data and what they import are stand-ins: those of the shared trial (tests/corpora/trial/README.md).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.corpora.trial.staged import ROOT, Trial, job
from tests.support.forked import run_all
from tests.xla.outcomes import Outcome, judged, load, watch
from tests.xla.table import Results

OUTPUT = Path("build") / "xla-public.json"
LIMIT = 20.0  # seconds of a processor: enough for some steps of the largest


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.xla.public", description=__doc__)
    parser.add_argument("--trial", type=Path, default=ROOT.parent / "shared" / "trial")
    parser.add_argument("--mirror", type=Path, required=True, help="where `fetch` brought the repositories")
    parser.add_argument("--ids", nargs="*", help="cases; none: the table alone [all]")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where results are kept [%(default)s]")
    options = parser.parse_args(arguments)
    load()
    trial, results = Trial(options.trial.resolve(), options.mirror), Results(options.output)
    for case in trial.cases(options.ids):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place).resolve() / case["id"]
            problem = trial.stage(case, folder)
            found = Outcome("cannot", f"not converted: {problem}")
            if not problem:
                ((_, ran),) = run_all([job(folder, "after", prelude=watch, limit=LIMIT)])
                found = judged(ran)
            of = json.loads((folder / "facts.json").read_text(encoding="utf-8"))["of"]
        results.add(case["id"], found, of)
    return results.finish("case", "script")


if __name__ == "__main__":
    sys.exit(main())
