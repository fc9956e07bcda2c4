"""What the tool makes of scripts in other words.

    python -m tests.corpora.variations [--seed N] [--count N] [--run N] [--case NUMBER]

Plans the conversion of `--count` varied scripts, and prints the rate by transformation. Scripts that the tool does not
convert as they are take no part. Of those that are converted, `--run` are trained before and after the conversion, on one
process and on two. `--case` shows one case: what was applied, its text, and what the tool says of it. A case that is not
converted, or that does not train the same, is shrunk to the transformations that it takes. The exit code is 1 if a
transformation made no Python, or the tool crashed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.corpora.variations.drawing import Case, as_it_is, drawn, golden, shrunk, varied
from tests.corpora.variations.planning import Planned, planned
from tests.corpora.variations.registry import Broken
from tests.corpora.variations.running import Outcome, compared
from tests.corpora.variations.table import Row, by_transformation, causes, summary
from tests.golden import cases

_bases: list[cases.Case] = []


def plan_case(job: tuple[int, int]) -> Row:
    """Draw and plan one case; where it is not converted, find the smallest set that is not converted either."""
    seed, number = job
    try:
        case = drawn(_bases, seed, number)
    except Broken as error:
        return Row(seed, number, "", (), "broken", str(error))
    result = _planned(case)
    smallest: tuple[str, ...] = ()
    if not result.converted:
        smallest = shrunk(case, lambda one: not _planned(one).converted).applied
    return Row(
        seed, number, case.base.name, case.applied, result.outcome, result.about, smallest, rules=result.rules
    )


def _planned(case: Case) -> Planned:
    return planned(case.project)


def run_case(base: cases.Case, row: Row) -> Row:
    """Train a converted case before and after; a wrong one is shrunk."""
    case = varied(base, row.applied, row.seed, row.number)
    outcome = _ran(case)
    row = replace(row, ran=outcome.words, right=outcome.ok, said=outcome.said)
    if outcome.ok:
        return row
    if not compared(base, as_it_is(base), planned(as_it_is(base)).after).ok:
        return replace(row, smallest=("the script as it is",))
    return replace(row, smallest=shrunk(case, lambda one: not _ran(one).ok).applied)


def _ran(case: Case) -> Outcome:
    result = _planned(case)
    return compared(case.base, case.project, result.after) if result.converted else Outcome("", True)


def measured(seed: int, count: int, processes: int) -> list[Row]:
    """Plan cases 0 to `count` of a seed."""
    jobs = [(seed, number) for number in range(count)]
    if processes == 1:
        return list(map(plan_case, jobs))
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return pool.map(plan_case, jobs, chunksize=4)


def show(seed: int, number: int) -> None:
    """One case, whole."""
    case = drawn(_bases, seed, number)
    result = _planned(case)
    print(f"{case.base.name}: {', '.join(case.applied)}\n")
    for name, text in case.project.files.items():
        print(f"# {name}\n{text}")
    print(f"\n{result.outcome} {result.about}")
    for name, text in result.after.items():
        print(f"# {name}\n{text}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100, help="cases that are planned")
    parser.add_argument("--run", type=int, default=0, help="converted cases that are trained")
    parser.add_argument("--case", type=int, metavar="NUMBER", help="show this case of the seed")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args(arguments)
    known = golden()
    _bases[:] = [base for base in known if planned(as_it_is(base)).converted]
    print(f"{len(_bases)} of {len(known)} scripts are converted as they are", flush=True)
    if chosen.case is not None:
        show(chosen.seed, chosen.case)
        return 0
    start = time.monotonic()
    rows = measured(chosen.seed, chosen.count, chosen.processes)
    print(f"{len(rows)} cases planned in {time.monotonic() - start:.0f} s", flush=True)
    rows = _with_runs(rows, chosen.seed, chosen.run)
    print(f"\n{summary(rows)}\n\n{by_transformation(rows)}\n{causes(rows)}")
    return int(any(row.outcome in ("broken", "crashed") for row in rows))


def _with_runs(rows: list[Row], seed: int, count: int) -> list[Row]:
    """The rows, some of the converted ones trained."""
    by_name = {base.name: base for base in _bases}
    fit = [i for i, row in enumerate(rows) if row.outcome == "converted" and row.base in by_name]
    for index in Random(seed).sample(fit, min(count, len(fit))):
        rows[index] = run_case(by_name[rows[index].base], rows[index])
        print(rows[index].line, flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
