"""Plants mistakes in a copy of the repository, one after another, and says which test notices each: ``make mutants``.

The tests near a mistake run first, then the short suite. Exit codes: 0 at least 90 % were noticed; 1 fewer; 2 a wrong
option, a mistake whose text is no longer found once, or tests that do not run. A test that fails without a mistake too is
left out, and named at the end. CROSSTRAIN_TEST_ALL=1 runs the long suite in place of the short one.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.planted import REPOSITORY, Planted, Stale, chosen, read_table
from tests.mutants.suites import BrokenTests, noticed_by
from tests.mutants.tree import Tree

WANTED = 0.9
REPORT = Path("build") / "mutants.md"
NOTHING = "nothing"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="mistakes, or rooms [all]")
    parser.add_argument("--near", action="store_true", help="run the near tests only")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="short suite [%(default)s]")
    parser.add_argument("--output", type=Path, default=REPORT, help="the table [%(default)s]")
    options = parser.parse_args(arguments)
    try:
        planted = chosen(read_table(), options.only)
        check(planted)
    except (ValueError, Stale) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    rows: list[tuple[str, ...]] = []
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="crosstrain-mutants-") as folder:
        tree = Tree(Path(folder))
        for one in planted:
            began = time.monotonic()
            try:
                test = noticed_by(tree, one, None if options.near else options.workers, broken)
            except BrokenTests as error:
                print(f"mutants: {one.id}: {error}", file=sys.stderr)
                return 2
            rows.append((one.id, one.what, test or NOTHING, f"{time.monotonic() - began:.0f}"))
            print(" | ".join(rows[-1]), flush=True)
            write(options.output, rows)
    for test in broken:
        print(f"left out, because it fails without a mistake too: {test}")
    noticed = sum(row[2] != NOTHING for row in rows)
    print(f"{noticed} of {len(rows)} mistakes were noticed; the table is in {options.output}")
    return 0 if noticed >= WANTED * len(rows) else 1


def check(planted: Sequence[Planted]) -> None:
    """Raises `Stale` where a mistake can no longer be planted, before anything runs."""
    for one in planted:
        one.applied((REPOSITORY / one.file).read_text(encoding="utf-8"))


def write(file: Path, rows: Sequence[tuple[str, ...]]) -> None:
    """Writes the table so far, so that an interrupted run leaves what it has found."""
    lines: list[tuple[str, ...]] = [
        ("mistake", "what a user sees", "noticed by", "seconds"),
        ("---", "---", "---", "---:"),
    ]
    lines += [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"| {' | '.join(cells)} |\n" for cells in lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
