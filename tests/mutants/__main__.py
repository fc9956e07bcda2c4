"""Plants mistakes in a copy of the repository, one after another, and says which test notices each: ``make mutants``.

The tests near a mistake run first, then the short suite. Exit codes: 0 at least 90 % were noticed; 1 fewer; 2 a wrong
option, a mistake whose text is no longer found once, or tests that do not run. A test that fails without a mistake too is
left out, and named at the end. CROSSTRAIN_TEST_ALL=1 runs the long suite in place of the short one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.planted import REPOSITORY, Planted, Stale, chosen, read_table
from tests.mutants.suites import BrokenTests, Noticed, Suites
from tests.mutants.tree import Tree

WANTED = 0.9
REPORT = Path("build") / "mutants.md"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="ids of mistakes, or rooms [all]"
    )
    parser.add_argument("--near", action="store_true", help="run the near tests only")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="of the short suite [%(default)s]"
    )
    parser.add_argument("--output", type=Path, default=REPORT, help="the table [%(default)s]")
    options = parser.parse_args(arguments)
    try:
        planted = chosen(read_table(), options.only)
        check(planted)
    except (ValueError, Stale) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    found: list[Noticed] = []
    with tempfile.TemporaryDirectory(prefix="crosstrain-mutants-") as folder:
        suites = Suites(Tree(Path(folder)), None if options.near else options.workers)
        for one in planted:
            try:
                found.append(suites.notice(one))
            except BrokenTests as error:
                print(f"mutants: {one.id}: {error}", file=sys.stderr)
                return 2
            print(" | ".join(row(found[-1])), flush=True)
            write(options.output, found)
    for test in suites.broken:
        print(f"left out, because it fails without a mistake too: {test}")
    noticed = sum(bool(one.test) for one in found)
    print(f"{noticed} of {len(found)} mistakes were noticed; the table is in {options.output}")
    return 0 if noticed >= WANTED * len(found) else 1


def check(planted: Sequence[Planted]) -> None:
    """Raises `Stale` where a mistake can no longer be planted, before anything runs."""
    for one in planted:
        one.applied((REPOSITORY / one.file).read_text(encoding="utf-8"))


def row(one: Noticed) -> tuple[str, ...]:
    caught = f"{one.test} ({one.suite})" if one.test else "nothing"
    return one.planted.id, one.planted.what, caught, f"{one.seconds:.0f}"


def write(file: Path, found: Sequence[Noticed]) -> None:
    """Writes the table so far, so that an interrupted run leaves what it has found."""
    rows: list[tuple[str, ...]] = [("mistake", "what a user sees", "noticed by", "seconds")]
    rows += [("---", "---", "---", "---:")]
    rows += [tuple(cell.replace("|", "\\|") for cell in row(one)) for one in found]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"| {' | '.join(cells)} |\n" for cells in rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
