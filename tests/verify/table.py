"""The golden corpus, verified in full, as a Markdown table: `python -m tests.verify.table [CASES] [--repeat N]`.

With --repeat every case is verified N times (`make verify-soak`: 20), and a case that does not come out as its
run.toml says even once makes the exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from crosstrain_verify import Report, Run, verify

from tests.golden.cases import Case, cases

# Written by hand with a schedule by steps that a default launch does not speed up: found, and true.
LATE = {"already_migrated"}


def expected(case: Case, run: Run) -> bool:
    """Whether this is the verdict that the case must have."""
    if run.frozen and case.name in LATE:
        return run.cause is not None and run.cause.rule == "scheduler-late"
    if run.processes > 1 and not run.frozen and case.two_processes == "agree":
        return run.verdict.value == "different" and run.cause is not None
    return run.verdict.ok


def verified(case: Case) -> tuple[Report, float]:
    started = time.monotonic()
    report = verify(case.before, case.after, args=case.args, timeout=300, default_launch=True)
    return report, time.monotonic() - started


def row(case: Case, report: Report, seconds: float) -> str:
    verdicts = [run.verdict.value for run in report.runs] or [report.original.verdict.value]
    largest = max((run.largest.get("loss", 0.0) for run in report.runs), default=0.0)
    cells = [case.name, *(verdicts + [""] * 3)[:3], f"{largest:.0e}", f"{seconds:.0f}"]
    return f"| {' | '.join(cells)} |"


def table(chosen: list[str], repeat: int) -> Iterator[tuple[str, bool]]:
    """Each line, and whether all is as expected."""
    yield "| case | 1 process | 2 processes, shared batches | 2, default launch | loss error | s |", True
    yield "|---|---|---|---|---|---|", True
    for case in cases():
        if case.expect == "refused" or (chosen and case.name not in chosen):
            continue
        for number in range(repeat):
            report, seconds = verified(case)
            good = bool(report.runs) and all(expected(case, run) for run in report.runs)
            if number == 0 or not good:
                yield row(case, report, seconds), good
            for run in report.runs if not good else ():
                yield (
                    f"<!-- {run.name}: {run.difference or run.error} {run.cause or ''} {run.notes} -->",
                    good,
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    fine = True
    for line, good in table(options.cases, options.repeat):
        print(line, flush=True)
        fine = fine and good
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
