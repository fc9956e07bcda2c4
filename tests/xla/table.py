"""Which golden cases run on a second device, after conversion: ``python -m tests.xla.table`` on XLA's CPU client."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.golden.cases import cases
from tests.golden.trees import trees
from tests.gpu_check.report import table
from tests.support.forked import Job, run_all
from tests.xla.expected import DEVICE, EXPECTED
from tests.xla.outcomes import Outcome, count_graphs, judged, load, watch

OUTPUT = Path("build") / "xla.json"


def jobs() -> Iterator[Job]:
    """Every converted golden case; of a project every script that trains."""
    for case in cases():
        if case.expect != "refused":
            args = (*case.args, *DEVICE.get(case.name, ()))
            prelude = count_graphs if case.name in EXPECTED else watch
            yield Job(case.name, case.folder, "after.py", args, prelude=prelude)
    for tree in trees():
        entries = sorted({tree.entry, *(path.name for path in tree.after.glob("finetune.py"))}, reverse=True)
        for entry in entries:
            name = tree.name if entry == tree.entry else f"{tree.name}, {entry}"
            script = Path(entry).with_suffix(".py").name
            prelude = watch if entry == script else _cells
            yield Job(name, tree.after, script, tree.case.args, prelude=prelude)


def _cells() -> None:
    """In the script's process: write the notebook's code as a script, without what only a kernel knows."""
    watch()
    (notebook,) = Path().glob("*.ipynb")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = [line for line in "\n".join(code).splitlines() if not line.lstrip().startswith(("%", "!"))]
    notebook.with_suffix(".py").write_text("\n".join(lines), encoding="utf-8")


class Results:
    """What the runs came to, kept in a file, so that some of them can be made again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, list[str]] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def add(self, name: str, found: Outcome, *more: str) -> None:
        """Keep a run's row, and what it printed beside the file."""
        print(f"{name}: {found.cell} [{found.seconds:.0f} s]", flush=True)
        self._rows[name] = [name, *more, found.cell]
        logs = self._path.with_suffix(".logs")
        logs.mkdir(parents=True, exist_ok=True)
        (logs / f"{name}.txt").write_text(found.text, encoding="utf-8")
        self._path.write_text(json.dumps(self._rows, indent=1), encoding="utf-8")

    def finish(self, *columns: str) -> int:
        """Print the whole table; the exit code."""
        rows = [self._rows[name] for name in sorted(self._rows)]
        print(table([*columns, "on XLA's CPU client"], rows))
        return 0 if all(row[-1].startswith("runs") for row in rows) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.xla.table", description=__doc__)
    parser.add_argument("--cases", nargs="*", help="golden cases; none: the table alone [all]")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where results are kept [%(default)s]")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once [%(default)s]")
    options = parser.parse_args(arguments)
    load()
    results = Results(options.output)
    wanted = [job for job in jobs() if options.cases is None or job.name in options.cases]
    for job, ran in run_all(wanted, options.jobs):
        results.add(job.name, judged(ran))
    return results.finish("case")


if __name__ == "__main__":
    sys.exit(main())
