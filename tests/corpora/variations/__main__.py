"""What the tool makes of scripts in other words.

    python -m tests.corpora.variations [--seed N] [--count N] [--run N] [--case NUMBER]

Plans the conversion of `--count` varied scripts, and prints the rate by transformation. Scripts that the tool does not
convert as they are take no part. Of those that are converted, `--run` are trained before and after the conversion, on one
process and on two. `--case` shows one case: what was applied, its text, and what the tool says of it. A case that is not
converted, or that does not train the same, is shrunk to the transformations that it takes. The exit code is 1 if a
transformation made no Python, or the tool crashed.
"""

import argparse
import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.corpora.variations.drawing import Case, as_it_is, drawn, golden, shrunk
from tests.corpora.variations.registry import VARIATIONS
from tests.corpora.variations.trying import Planned, compared, planned
from tests.golden import cases

_bases: list[cases.Case] = []


@dataclass
class Row:
    """One case: how planning ended, what the runs came to and the first thing wrong in them, the smallest set that fails."""

    case: Case
    result: Planned
    ran: str = ""
    wrong: str = ""
    smallest: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        return " + ".join(self.smallest) or "?"

    @property
    def line(self) -> str:
        one, ended = self.case, self.ran or self.result.outcome
        smallest = f" [smallest: {self.cause}]" if self.smallest else ""
        said = self.wrong or self.result.about
        return f"{one.seed}/{one.number} {one.base.name}: {', '.join(one.applied)}: {ended}{smallest} {said[:200]}"


def plan_case(job: tuple[int, int]) -> Row:
    """Draw and plan one case; where it is not converted, find the smallest set that is not converted either."""
    row = Row(case := drawn(_bases, *job), planned(case.project))
    if not row.result.converted:
        row.smallest = shrunk(case, lambda one: not planned(one.project).converted).applied
    return row


def run_case(row: Row) -> None:
    """Train a converted case before and after; a wrong one is shrunk."""
    row.ran, row.wrong = compared(row.case.base, row.case.project, row.result.after)
    if row.wrong:
        as_before = Case(0, 0, row.case.base, (), as_it_is(row.case.base))
        row.smallest = ("the script as it is",) if _fails(as_before) else shrunk(row.case, _fails).applied
    print(row.line, flush=True)


def _fails(case: Case) -> bool:
    result = planned(case.project)
    return result.converted and bool(compared(case.base, case.project, result.after)[1])


def show(case: Case) -> None:
    """One case, whole."""
    result = planned(case.project)
    print(f"{case.base.name}: {', '.join(case.applied)}\n{result.outcome} {result.about}")
    for name, text in [*case.project.files.items(), *result.after.items()]:
        print(f"\n# {name}\n{text}")


def by_transformation(rows: Sequence[Row]) -> str:
    """A table in Markdown: for each transformation, the cases that have it alone or among others."""
    head = "| transformation | what it does | alone | in combinations | failures by it alone |"
    lines = [head, "|---" * 5 + "|"]
    for name, one in VARIATIONS.items():
        having = [row for row in rows if name in row.case.applied]
        shares = []
        for is_alone in (True, False):
            some = [row.result.converted for row in having if (len(row.case.applied) == 1) is is_alone]
            shares.append(f"{sum(some)} of {len(some)}" if some else "")
        blamed = sum(not row.result.converted and row.smallest == (name,) for row in having)
        if having:
            lines.append(f"| `{name}` | {one.about} | {' | '.join(shares)} | {blamed or ''} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """How planning and the runs ended, the rules that spoke, and the smallest sets that fail, the most frequent first."""
    failed = [row for row in rows if not row.result.converted or row.wrong]
    first = {row.cause: row.line for row in reversed(failed)}
    told = Counter(rule for row in rows if row.result.converted for rule in row.result.rules)
    lines = [f"{word}: {count}" for word, count in Counter(row.result.outcome for row in rows).most_common()]
    lines.append("converted with findings of: " + ", ".join(f"{rule} {n}" for rule, n in told.most_common()))
    ran = Counter((row.ran, "wrong" if row.wrong else "right") for row in rows if row.ran)
    lines += [f"ran {', '.join(words)}: {count}" for words, count in ran.most_common()]
    causes = Counter(row.cause for row in failed)
    return "\n".join([*lines, *(f"{n:4} {cause}, as in {first[cause]}" for cause, n in causes.most_common())])


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
        show(drawn(_bases, chosen.seed, chosen.case))
        return 0
    with multiprocessing.get_context("fork").Pool(chosen.processes) as pool:
        rows = pool.map(plan_case, [(chosen.seed, number) for number in range(chosen.count)], chunksize=4)
    converted = [row for row in rows if row.result.converted]
    for row in Random(chosen.seed).sample(converted, min(chosen.run, len(converted))):
        run_case(row)
    print(f"\n{by_transformation(rows)}\n\n{summary(rows)}")
    return int(any(row.result.outcome == "crashed" for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
