"""The whole pipeline over every Python file there is: `python -m tests.corpora.everything [ROOT ...]`.

Without roots: this environment's site-packages and the standard library. Files that the tool's text test leaves alone are
converted all the same, but with `--no-deep`. Five things must never happen, each found by code that the tool does not share:
a crash, a result that does not parse, a lost comment, a change in a file without training code, a second run that plans
something.
"""

import argparse
import ast
import contextlib
import io
import multiprocessing
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
from crosstrain_migrate.results import Options

_IMPORTS_TORCH = re.compile(r"^[ \t]*(?:import|from)[ \t]+torch\b", re.MULTILINE)
SECONDS = 60.0  # of processor time


@dataclass
class Verdict:
    """What one file came to. `wrong` names the oracles that it violates, each with the evidence."""

    path: str
    lines: int = 0
    state: str = "untouched"  # or: unusable, changed, refused
    wrong: dict[str, str] = field(default_factory=dict)


class TooLong(Exception):
    pass


def comments(text: str) -> Counter[str]:
    """Every comment with how often it occurs; empty where the tokenizer cannot read what the parser can."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))
    except (tokenize.TokenError, SyntaxError):
        return Counter()
    return Counter(token.string.rstrip() for token in tokens if token.type == tokenize.COMMENT)


def parses(text: str) -> bool:
    try:
        compile(text, "<text>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def judge(path: Path, text: str, *, deep: bool = False) -> tuple[str, dict[str, str]]:
    """(state, violated oracles) of one text."""
    result = migrate_text(path, text, Options())
    if result.error is not None:
        return "unusable", {}
    if deep and not result.trains:
        convert(text, "crosstrain", lambda rule, node: True)
    wrong = {f"failed its own checks: {f.reason}": str(path) for f in result.findings if f.rule == "CT001"}
    if result.changed:
        said = " ".join(one.reason for one in result.findings)
        return "changed", wrong | violations(path, text, result.after, said)
    return "refused" if result.refused else "untouched", wrong


def violations(path: Path, before: str, after: str, said: str = "") -> dict[str, str]:
    """The oracles that a changed text violates. A comment may go with its code where the findings quote it."""
    wrong: dict[str, str] = {}
    if not _IMPORTS_TORCH.search(before) or not re.search(r"backward\b", before):
        wrong["changed without training code"] = str(path)
    if not parses(after):
        return wrong | {"does not parse": after}
    if lost := [one for one in comments(before) - comments(after) if one not in said]:
        wrong["lost comments"] = ", ".join(lost)
    again = migrate_text(path, after, Options())
    if again.changed or any(finding.rule != "CT002" for finding in again.findings):
        wrong["second run plans something"] = "; ".join(f"{f.line}: {f.reason}" for f in again.findings)
    return wrong


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TooLong inside, after so many seconds of this process's time."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def examine(job: tuple[str, bool]) -> Verdict:
    """One file, whatever it holds and however long it takes."""
    name, deep = job
    verdict = Verdict(name)
    try:
        with limited(SECONDS):
            text = read(Path(name)).text
            verdict.lines = text.count("\n") + 1
            verdict.state, verdict.wrong = judge(Path(name), text, deep=deep)
    except (Unusable, RecursionError, MemoryError):
        verdict.state = "unusable"  # the command says so, with a remedy
    except TooLong:
        verdict.wrong = {"took too long": f"more than {SECONDS:.0f} s"}
    except Exception:  # a crash is what this looks for
        verdict.wrong = {"crashed": traceback.format_exc()}
    return verdict


def files(roots: list[Path]) -> Iterator[str]:
    for root in roots:
        yield from map(str, sorted(root.rglob("*.py")) if root.is_dir() else [root])


def default_roots() -> list[Path]:
    return [Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("stdlib"))]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("roots", nargs="*", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--deep", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--sample", type=int, help="so many of the files, the same for the same --seed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys(files(options.roots or default_roots())))
    if options.sample is not None and options.sample < len(names):
        names = random.Random(options.seed).sample(names, options.sample)
    counts, lines, start = Counter[str](), 0, time.monotonic()
    with multiprocessing.Pool(options.processes) as pool:
        for verdict in pool.imap_unordered(examine, [(name, options.deep) for name in names], chunksize=8):
            counts.update([verdict.state, *("wrong" for _ in verdict.wrong)])
            lines += verdict.lines
            for oracle, evidence in verdict.wrong.items():
                print(f"{oracle}: {verdict.path}\n{evidence}", flush=True)
    rate = lines / (time.monotonic() - start)
    print(f"{len(names)} files, {lines:,} lines, {rate:,.0f} a second: {dict(counts)}")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
