"""The whole pipeline over every Python file there is: `python -m tests.corpora.everything [ROOT ...]`.

Without roots: this environment's site-packages and the standard library. Each file is read, understood, planned,
rewritten and checked as `migrate` would; with `--deep` (the default) files that the tool's text test leaves alone are
converted all the same. Five things must never happen, each found by code that the tool does not share:
a crash, a result that does not parse, a lost comment, a change in a file without training code, a second run that
plans something.

With `--table` every file that trains has a line of its own: what became of it, the codes of its refusals, the calls
that still name a CUDA device, and whether a second run plans nothing.
"""

from __future__ import annotations

import argparse
import ast
import io
import multiprocessing
import os
import random
import re
import signal
import sys
import sysconfig
import time
import tokenize
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from crosstrain_migrate.core.conversion import convert
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.files.reading import read
from crosstrain_migrate.files.sources import Unusable
from crosstrain_migrate.results import Options, Severity

_IMPORTS_TORCH = re.compile(r"^[ \t]*(?:import|from)[ \t]+torch\b", re.MULTILINE)
_DEVICE = re.compile(r"cuda(:\d+)?$")
_TRAINS = re.compile(r"backward\b")
SECONDS = 60.0  # of processor time


@dataclass
class Verdict:
    """What one file came to. `wrong` names the oracles that it violates, each with the evidence."""

    path: str
    lines: int = 0
    seconds: float = 0.0
    state: str = "untouched"  # or: unusable, changed, refused
    wrong: dict[str, str] = field(default_factory=dict)
    trains: bool = False
    codes: tuple[str, ...] = ()  # of the findings that refuse
    residual: int = 0  # calls and strings of the result that name a CUDA device

    def row(self, width: int) -> str:
        """The file's line of the table."""
        state = {"changed": "converted", "untouched": "nothing to do"}.get(self.state, self.state)
        if "crashed" in self.wrong or "took too long" in self.wrong:
            state = "crashed"
        said = ", ".join((*self.codes, *(oracle for oracle in self.wrong if oracle != "crashed")))
        residual = str(self.residual) if self.state == "changed" else ""
        again = (
            "" if self.state != "changed" else "no" if "second run plans something" in self.wrong else "yes"
        )
        return f"{self.path:{width}}  {state:14} {residual:>8}  {again:10} {said}".rstrip()


class TooLong(Exception):
    pass


def looks_like_training(text: str) -> bool:
    """The independent test: torch is imported, and something is called or defined that is named backward."""
    return bool(_IMPORTS_TORCH.search(text) and _TRAINS.search(text))


def comments(text: str) -> Counter[str]:
    """Every comment with how often it occurs; empty where the tokenizer cannot read what the parser can."""
    found: Counter[str] = Counter()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                found[token.string.rstrip()] += 1
    except (tokenize.TokenError, SyntaxError):
        return Counter()
    return found


def judge(path: Path, text: str, *, deep: bool = False) -> tuple[str, dict[str, str]]:
    """(state, violated oracles) of one text."""
    verdict = Verdict(str(path))
    _judge(verdict, path, text, deep=deep)
    return verdict.state, verdict.wrong


def _judge(verdict: Verdict, path: Path, text: str, *, deep: bool) -> None:
    result = migrate_text(path, text, Options())
    if result.error is not None:
        verdict.state = "unusable"
        return
    if deep and not result.trains:
        convert(text, "crosstrain", lambda rule, node: True)
    verdict.state = "changed" if result.changed else "refused" if result.refused else "untouched"
    verdict.trains = result.trains or result.changed or result.refused
    verdict.codes = tuple(sorted({f.rule for f in result.findings if f.severity is Severity.REFUSED}))
    if result.changed:
        said = " ".join(one.reason for one in result.findings)
        verdict.wrong = violations(path, text, result.after, said)
        verdict.residual = sum(_names_cuda(node) for node in ast.walk(ast.parse(result.after)))
    if any(finding.rule == "CT001" for finding in result.findings):
        verdict.wrong["failed its own checks"] = next(f.reason for f in result.findings if f.rule == "CT001")


def _names_cuda(node: ast.AST) -> bool:
    """`x.cuda()`, `"cuda:0"`: a device that the launcher does not hand out."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_DEVICE.match(node.value))


def violations(path: Path, before: str, after: str, said: str = "") -> dict[str, str]:
    """The oracles that a changed text violates. A comment may go with its code where the findings quote it."""
    wrong: dict[str, str] = {}
    if not looks_like_training(before):
        wrong["changed without training code"] = str(path)
    try:
        ast.parse(after)
    except SyntaxError as error:
        return wrong | {"does not parse": str(error)}
    if lost := [one for one in comments(before) - comments(after) if one not in said]:
        wrong["lost comments"] = ", ".join(lost)
    again = migrate_text(path, after, Options())
    if again.changed or any(finding.rule != "CT002" for finding in again.findings):
        wrong["second run plans something"] = "; ".join(f"{f.line}: {f.reason}" for f in again.findings)
    return wrong


def examine(job: tuple[str, bool]) -> Verdict:
    """One file, whatever it holds and however long it takes."""
    name, deep = job
    verdict = Verdict(name)
    start = time.process_time()
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        text = read(Path(name)).text
        verdict.lines = text.count("\n") + 1
        _judge(verdict, Path(name), text, deep=deep)
    except Unusable:
        verdict.state = "unusable"
    except TooLong:
        verdict.wrong = {"took too long": f"more than {SECONDS:.0f} s"}
    except (RecursionError, MemoryError):
        verdict.state = "unusable"  # the command says so, with a remedy
    except Exception:  # a crash is what this looks for
        verdict.wrong = {"crashed": traceback.format_exc()}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    verdict.seconds = time.process_time() - start
    return verdict


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong


def files(roots: list[Path]) -> Iterator[str]:
    for root in roots:
        if root.is_file():
            yield str(root)
            continue
        for folder, below, names in os.walk(root):
            below[:] = sorted(name for name in below if name != "__pycache__")
            yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".py"))  # noqa: PTH118


def default_roots() -> list[Path]:
    return [Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("stdlib"))]


@dataclass
class Totals:
    states: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    slowest: list[tuple[float, str]] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        self.states[verdict.state] += 1
        self.wrong.update(verdict.wrong.keys())
        self.lines += verdict.lines
        self.slowest = sorted([*self.slowest, (verdict.seconds, verdict.path)], reverse=True)[:5]

    def table(self, wall: float) -> str:
        rows = [("files", sum(self.states.values())), ("lines", self.lines), *sorted(self.states.items())]
        names = (
            *("crashed", "does not parse", "lost comments", "changed without training code"),
            *("second run plans something", "failed its own checks", "took too long"),
        )
        rows += [(name, self.wrong[name]) for name in names]
        text = "".join(f"{name:32} {value:>12,}\n" for name, value in rows)
        text += f"{'lines a second':32} {self.lines / wall:>12,.0f}\n"
        return text + "".join(f"slowest: {seconds:6.1f} s  {path}\n" for seconds, path in self.slowest)


def _table(rows: list[Verdict]) -> str:
    width = max((len(row.path) for row in rows), default=0)
    head = f"{'file':{width}}  {'outcome':14} {'residual':>8}  {'idempotent':10} codes"
    return "\n".join([head, *(row.row(width) for row in sorted(rows, key=lambda one: one.path))])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("roots", nargs="*", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--deep", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--sample", type=int, help="so many of the files, the same for the same --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", action="store_true", help="a line for every file that trains")
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys(files(options.roots or default_roots())))
    if options.sample is not None and options.sample < len(names):
        names = random.Random(options.seed).sample(names, options.sample)
    jobs = [(name, options.deep) for name in names]
    totals = Totals()
    rows: list[Verdict] = []
    start = time.monotonic()
    with multiprocessing.Pool(options.processes) as pool:
        for verdict in pool.imap_unordered(examine, jobs, chunksize=8):
            totals.add(verdict)
            if verdict.trains or verdict.wrong:
                rows.append(verdict)
            for oracle, evidence in verdict.wrong.items():
                print(f"{oracle}: {verdict.path}\n{evidence}", flush=True)
    if options.table:
        print(_table(rows))
    print(totals.table(time.monotonic() - start))
    return int(bool(totals.wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
