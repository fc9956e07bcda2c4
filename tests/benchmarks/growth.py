"""How the tool's time grows: ``python -m tests.benchmarks.growth``.

Three rows of trees are made and migrated cold: one script of more and more lines, one script in a project of more and
more modules that import one another, and more and more scripts that share modules. The number is the processor time of
the command (user and system, all processes), the least of `--rounds` runs; the last column says how it grows from the
row above: 1 is linear, 2 quadratic.
"""

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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


def golden() -> str:
    return (ROOT / "golden" / "dropout_batchnorm" / "before.py").read_text(encoding="utf-8")


def long_script(folder: Path, lines: int) -> None:
    """A golden script with helper functions before its last definition, until it has so many lines."""
    text = golden()
    number = max(0, math.ceil((lines - text.count("\n")) / HELPER.count("\n")))
    helpers = "".join(HELPER.format(n=n) for n in range(number))
    (folder / "train.py").write_text(text.replace("\n\n\ndef ", f"{helpers}\n\ndef ", 1), encoding="utf-8")


def project(folder: Path, files: int, scripts: int = 1, shared: int = 1) -> None:
    """A package of modules, each of which imports `IMPORTS` others, and scripts that import the first `shared` of them."""
    package = folder / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for number in range(files):
        others = {(number * 7 + step + 1) % files for step in range(min(IMPORTS, files - 1))} - {number}
        imports = "".join(f"from parts import m{other}\n" for other in sorted(others))
        (package / f"m{number}.py").write_text(imports + HELPER.format(n=number), encoding="utf-8")
    imports = "".join(f"from parts import m{number}\n" for number in range(shared))
    for number in range(scripts):
        (folder / f"train{number}.py").write_text(f"{imports}{golden()}", encoding="utf-8")


# What grows: its sizes, and what makes a tree of a size.
TREES: dict[str, tuple[tuple[int, ...], Callable[[Path, int], None]]] = {
    "lines of one script": ((100, 300, 1_000, 3_000, 10_000, 20_000), long_script),
    "modules beside one script": ((10, 30, 100, 300, 1_000, 3_000), project),
    f"scripts that share {SHARED} modules": (
        (5, 10, 20, 40, 80),
        lambda folder, number: project(folder, SHARED, number, SHARED),
    ),
    f"modules with {IMPORTS} imports each beside 40 scripts": (
        (50, 200, 800),
        lambda folder, files: project(folder, files, 40),
    ),
}


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
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    print("| what | size | CPU s | growth |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        os.environ["PYTHONPYCACHEPREFIX"] = name
        processor_seconds(ROOT / "golden", 1)
        for what, (sizes, make) in TREES.items():
            last: tuple[int, float] | None = None
            for size in sizes:
                folder = Path(name) / what / str(size)
                folder.mkdir(parents=True)
                make(folder, size)
                seconds = processor_seconds(folder, options.rounds)
                growth = f"{math.log(seconds / last[1]) / math.log(size / last[0]):.2f}" if last else ""
                print(f"| {what} | {size:,} | {seconds:.2f} | {growth} |", flush=True)
                last = size, seconds


if __name__ == "__main__":
    main()
