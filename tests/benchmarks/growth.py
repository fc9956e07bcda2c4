"""How the tool's time grows: ``python -m tests.benchmarks.growth [--most LINES]``.

Three rows of trees are made and migrated cold: one script of more and more lines, one script in a project of more and
more modules that import one another, and more and more scripts that share modules. The number is the processor time of
the command (user and system, all processes), the least of `--rounds` runs; the last column says how it grows from the
row above: 1 is linear, 2 quadratic.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES = (100, 300, 1_000, 3_000, 10_000, 20_000)
FILES = (10, 30, 100, 300, 1_000, 3_000)
SCRIPTS = (5, 10, 20, 40, 80)
NEIGHBOURS = (50, 200, 800)  # modules beside 40 scripts
IMPORTS = 20  # of each module
SHARED = 10  # modules that all scripts import
HELPER = '''

def helper_{n}(rows, width={n}, scale=1.0):
    """Lays out `rows` in `width` columns."""
    table = []
    for start in range(0, len(rows), max(width, 1)):
        part = rows[start:start + width]
        table.append([scale * value for value in part])
    longest = max((len(row) for row in table), default=0)
    return [row + [0.0] * (longest - len(row)) for row in table]
'''


@dataclass(frozen=True)
class Tree:
    """One size: what makes it, below a folder, and how large it is."""

    name: str
    size: int
    make: Callable[[Path], None]


def golden() -> str:
    return (ROOT / "golden" / "dropout_batchnorm" / "before.py").read_text(encoding="utf-8")


def long_script(folder: Path, lines: int) -> None:
    """A golden script with helper functions before its last definition, until it has so many lines."""
    text = golden()
    each = HELPER.count("\n")
    number = max(0, math.ceil((lines - text.count("\n")) / each))
    helpers = "".join(HELPER.format(n=n) for n in range(number))
    (folder / "train.py").write_text(text.replace("\n\n\ndef ", f"{helpers}\n\ndef ", 1), encoding="utf-8")


def modules(folder: Path, count: int) -> None:
    """Modules in one package, each of which imports `IMPORTS` others."""
    package = folder / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for number in range(count):
        others = sorted(
            {(number * 7 + step + 1) % count for step in range(min(IMPORTS, count - 1))} - {number}
        )
        imports = "".join(f"from parts import m{other}\n" for other in others)
        (package / f"m{number}.py").write_text(imports + HELPER.format(n=number), encoding="utf-8")


def scripts(folder: Path, count: int, shared: int) -> None:
    """Scripts that import `shared` modules of `parts`."""
    imports = "".join(f"from parts import m{number}\n" for number in range(shared))
    for number in range(count):
        (folder / f"train{number}.py").write_text(f"{imports}{golden()}", encoding="utf-8")


def project(folder: Path, files: int, count: int = 1, shared: int = 1) -> None:
    modules(folder, files)
    scripts(folder, count, shared)


def trees(most: int) -> Iterator[Tree]:
    for lines in LINES:
        if lines <= most:
            yield Tree("lines of one script", lines, lambda folder, n=lines: long_script(folder, n))  # type: ignore[misc]
    for files in FILES:
        yield Tree("modules beside one script", files, lambda folder, n=files: project(folder, n))  # type: ignore[misc]
    for number in SCRIPTS:
        name = f"scripts that share {SHARED} modules"
        yield Tree(name, number, lambda folder, n=number: project(folder, SHARED, n, SHARED))  # type: ignore[misc]
    for files in NEIGHBOURS:
        name = f"modules with {IMPORTS} imports each beside 40 scripts"
        yield Tree(name, files, lambda folder, n=files: project(folder, n, 40))  # type: ignore[misc]


def processor_seconds(folder: Path, rounds: int) -> float:
    """The least of several cold runs."""
    migrate = [sys.executable, "-m", "crosstrain_migrate.cli", "--no-cache", "--no-diff", str(folder)]
    times = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(migrate, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--most", type=int, default=LINES[-1], help="lines of the longest script [%(default)s]"
    )
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    print("| what | size | CPU s | growth |\n|---|---:|---:|---:|")
    last: tuple[Tree, float] | None = None
    with tempfile.TemporaryDirectory() as name:
        os.environ["PYTHONPYCACHEPREFIX"] = name
        subprocess.run(
            [sys.executable, "-m", "crosstrain_migrate.cli", "--no-cache", str(ROOT / "golden")],
            capture_output=True,
        )
        for number, tree in enumerate(trees(options.most)):
            folder = Path(name) / str(number)
            folder.mkdir()
            tree.make(folder)
            seconds = processor_seconds(folder, options.rounds)
            growth = ""
            if last is not None and last[0].name == tree.name:
                growth = f"{math.log(seconds / last[1]) / math.log(tree.size / last[0].size):.2f}"
            print(f"| {tree.name} | {tree.size:,} | {seconds:.2f} | {growth} |", flush=True)
            last = tree, seconds


if __name__ == "__main__":
    main()
