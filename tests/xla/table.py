"""Which golden cases run on a second device, after conversion: ``python -m tests.xla.table`` on XLA's CPU client."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.golden.cases import cases
from tests.golden.trees import trees
from tests.gpu_check.report import table
from tests.xla.outcomes import ONE_CHIP, Outcome, run

OUTPUT = Path("build") / "xla.json"
# What makes a case train on a device where CUDA is not what the machine has.
DEVICE = {
    "char_lm": ("--cuda",),
    "ddp_mapped": ("--device", "cuda"),
    "main_argparse": ("--device", "cuda"),
}


@dataclass(frozen=True)
class Program:
    """What is run: a script in a folder that is copied first."""

    name: str
    folder: Path
    script: str
    args: tuple[str, ...]


def programs() -> Iterator[Program]:
    """Every converted golden case; of a project every script that trains."""
    for case in cases():
        if case.expect != "refused":
            yield Program(case.name, case.folder, "after.py", (*case.args, *DEVICE.get(case.name, ())))
    for tree in trees():
        entries = sorted({tree.entry, *(path.name for path in tree.after.glob("finetune.py"))}, reverse=True)
        for entry in entries:
            name = tree.name if entry == tree.entry else f"{tree.name}, {entry}"
            yield Program(name, tree.after, entry, tree.case.args)


def outcome(program: Program) -> Outcome:
    """Of one run in a copy of its folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / program.folder.name
        shutil.copytree(program.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        script = folder / program.script
        if script.suffix == ".ipynb":
            script = _cells(script)
        return run(script.name, program.args, folder)


def load() -> None:
    """Load, once for all runs, what they import."""
    os.environ.update(ONE_CHIP)
    for name in ("torch_xla", "crosstrain", "crosstrain.comm.xla.backend"):
        importlib.import_module(name)


def _cells(notebook: Path) -> Path:
    """The notebook's code as a script beside it, without what only a kernel knows."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script = notebook.with_suffix(".py")
    lines = [line for line in "\n".join(code).splitlines() if not line.lstrip().startswith(("%", "!"))]
    script.write_text("\n".join(lines), encoding="utf-8")
    return script


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
    options = parser.parse_args(arguments)
    load()
    results = Results(options.output)
    for program in programs():
        if options.cases is None or program.name in options.cases:
            results.add(program.name, outcome(program))
    return results.finish("case")


if __name__ == "__main__":
    sys.exit(main())
