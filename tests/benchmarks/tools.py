"""Tools that rewrite Python, on one tree in turns: ``python -m tests.benchmarks.tools [TREE] [--rounds N]``.

Each tool gets copies of the tree (the golden corpus unless one is named) and works as its users call it: on two
processors, with its own defaults, first writing the results. Beside the time stands what it did: how many files it
changed, comments that are gone, results that do not parse, files that a second run changes again. They do not do the
same work (no other one migrates anything to several processes); what they share is that they read a tree, decide, and
write it back.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.peers import pip_install
from tests.corpora.everything import comments, parses

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Measured:
    """What a tool took and what it left behind."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    megabytes: float = 0.0
    changed: int = 0
    lost_comments: int = 0
    unparsable: int = 0
    changed_again: int = 0


def _files(tree: Path) -> list[Path]:
    return sorted(tree.rglob("*.py"))


# Tools by the package that they come from (none: this project), and their arguments for a tree.
TOOLS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "migrate": ("", lambda tree: ["--write", "--no-cache", "--no-diff", str(tree)]),
    "pyupgrade": ("pyupgrade==3.22.*", lambda tree: ["--py310-plus", *map(str, _files(tree))]),
    "paconvert": ("paconvert==3.3.*", lambda tree: ["-i", str(tree), "-o", str(tree.with_name("out"))]),
    "fixit": ("fixit==2.2.*", lambda tree: ["fix", "--automatic", str(tree)]),
    "torchfix": ("torchfix==0.7.*", lambda tree: ["--fix", "-j2", str(tree)]),
}


def program(name: str, keep: Path) -> Path | str:
    """Where the tool's program is, in an environment of its own under `keep`; or why it is not there."""
    package, _ = TOOLS[name]
    if not package:
        return Path(sys.executable).parent / name
    folder = keep / name
    found = folder / "bin" / name
    if not found.exists():
        venv.EnvBuilder(with_pip=True).create(folder)
        if problem := pip_install(folder / "bin" / "python", package):
            return problem
    return found


def run(command: list[str], folder: Path) -> tuple[float, float, float]:
    """(seconds, seconds of processor, megabytes of the largest process). The exit code says different things of
    different tools, so nothing is made of it."""
    env = os.environ | {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    start = time.perf_counter()
    job = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(job.pid, 0)
    seconds = time.perf_counter() - start
    job.returncode = 0  # it has been waited for
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def texts(tree: Path) -> dict[Path, str]:
    return {path.relative_to(tree): path.read_text(encoding="utf-8") for path in _files(tree)}


def measure(name: str, found: Path, tree: Path, into: Measured, last: bool) -> None:
    """One turn of one tool on a fresh copy; in the last turn the result is judged, too."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve() / "tree"
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        command = [str(found), *TOOLS[name][1](copy)]
        before = texts(copy)
        seconds, processor, megabytes = run(command, copy.parent)
        into.seconds.append(seconds)
        into.processor.append(processor)
        into.megabytes = max(into.megabytes, megabytes)
        if last:
            after = texts(_settled(copy))
            run(command, copy.parent)
            again = texts(_settled(copy))
            for name, old in before.items():
                new = after.get(name, old)
                into.changed += old != new
                into.lost_comments += (comments(old) - comments(new)).total()
                into.unparsable += parses(old) and not parses(new)
                into.changed_again += again.get(name, new) != new


def _settled(copy: Path) -> Path:
    """The tree with its result, also where a tool has written it beside the tree."""
    out = copy.with_name("out")
    if out.exists():
        shutil.rmtree(copy)
        (out / copy.name if (out / copy.name).is_dir() else out).rename(copy)
        shutil.rmtree(out, ignore_errors=True)
    return copy


def table(results: dict[str, Measured], lines: int) -> str:
    """Markdown; `ratio` is the time by that of migrate in the same run."""
    base = statistics.median(results["migrate"].seconds)
    rows = [
        "| tool | lines/s | ratio | CPU s | MB | files changed | comments lost | do not parse | second run changes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in results.items():
        seconds = statistics.median(one.seconds)
        rows.append(
            f"| {name} | {lines / seconds:,.0f} | {seconds / base:.2f} | {statistics.median(one.processor):.2f} "
            f"| {one.megabytes:.0f} | {one.changed} | {one.lost_comments} | {one.unparsable} | {one.changed_again} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT / "golden")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[*TOOLS], choices=[*TOOLS], help="tools [all]")
    default = Path(tempfile.gettempdir()) / "crosstrain-tools"
    parser.add_argument("--keep", type=Path, default=default, help="where the tools are [%(default)s]")
    options = parser.parse_args()
    usable: dict[str, Path] = {}
    for name in (name for name in TOOLS if name in {"migrate", *options.only}):
        where = program(name, options.keep)
        if isinstance(where, Path):
            usable[name] = where
        else:
            print(f"not measured: {name}: {where}")
    results = {name: Measured() for name in usable}
    for turn in range(options.rounds):
        shift = turn % len(usable)
        for name in [*usable][shift:] + [*usable][:shift]:
            measure(name, usable[name], options.tree, results[name], last=turn == options.rounds - 1)
    before = texts(options.tree)
    lines = sum(text.count("\n") for text in before.values())
    print(f"{len(before)} files, {lines:,} lines; medians of {options.rounds} runs in turns\n")
    print(table(results, lines))


if __name__ == "__main__":
    main()
