"""Conversions by the tool beside conversions by hand, on two processes: ``python -m tests.benchmarks.conversions``.

`by_hand` holds what somebody who knows Accelerate would change in ten of the golden scripts; the tool's conversions are
`golden/*/after.py`. Both run on crosstrain, in turns. What they say is the same in every turn, so it is counted in the
first one; times are medians.
"""

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

from tests.benchmarks.talk import Talk, listen_to
from tests.support.ranks import run_ranks

ROOT = Path(__file__).parents[2]
BY_HAND = Path(__file__).with_name("by_hand")
LIMIT = 1.05

# How each script says how many epochs it trains, in its text or on its command line.
EPOCHS = 10
IN_TEXT = re.compile(r"^(\s*)(num_epochs = |EPOCHS = |for epoch in range\()2(\)?)", re.MULTILINE)
IN_DEFAULT = "epochs=2, "
OPTIONS = ("--epochs", "--niter", "-e")


# What is counted and timed of a phase. What a version says before an evaluation the other may say behind it: all of
# what a run says is shown as well.
UNITS = {"training": ("steps", "step"), "evaluation": ("evaluations", "evaluation"), "whole run": ("", "run")}


def longer(text: str) -> str:
    """The script with more epochs, so that a median of its steps says something."""
    return IN_TEXT.sub(rf"\g<1>\g<2>{EPOCHS}\g<3>", text).replace(IN_DEFAULT, f"epochs={EPOCHS}, ")


def arguments(case: str) -> list[str]:
    """Of the golden case, with more epochs."""
    given = tomllib.loads((ROOT / "golden" / case / "run.toml").read_text(encoding="utf-8")).get("args", [])
    return [str(EPOCHS) if last in OPTIONS else one for last, one in zip(["", *given], given, strict=False)]


def converted_by_hand(case: str) -> str:
    """The golden script with the patch of `by_hand`."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "before.py"
        shutil.copy(ROOT / "golden" / case / script.name, script)
        subprocess.run(["git", "apply", str(BY_HAND / f"{case}.patch")], cwd=folder, check=True)
        return script.read_text(encoding="utf-8")


def versions(case: str) -> dict[str, str]:
    """The texts of a script's conversions."""
    after = (ROOT / "golden" / case / "after.py").read_text(encoding="utf-8")
    return {"hand": longer(converted_by_hand(case)), "tool": longer(after)}


def run(text: str, options: list[str]) -> Talk | str:
    """Two ranks, forked from a process that has torch loaded; rank 0's counts, or the last line of what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(text, encoding="utf-8")
        try:
            ranks = run_ranks(listen_to, 2, str(script), options, env={"ACCELERATE_USE_CPU": "true"})
        except (RuntimeError, TimeoutError) as error:
            return str(error).rstrip().splitlines()[-1]
    return ranks[0]


def cells(hand: float, tool: float, digits: int, ratio: float | None = None) -> str:
    """By hand, by the tool, and the ratio."""
    if not hand and not tool:
        return "- | - | -"
    ratio = (tool / hand if hand else float("inf")) if ratio is None else ratio
    return f"{hand:,.{digits}f} | {tool:,.{digits}f} | {ratio:.2f}"


def row(case: str, phase: str, runs: dict[str, list[Talk]]) -> str:
    """What is said and taken in a training step or in an evaluation."""
    hand, tool = runs["hand"], runs["tool"]
    counts, what = UNITS[phase]

    def each(talk: Talk, table: dict[str, int]) -> float:
        return table.get(phase, 0) / max(1, getattr(talk, counts)) if counts else sum(table.values())

    def seconds(talks: list[Talk]) -> list[float]:
        return [getattr(talk, what) for talk in talks] if counts else [0.0]

    pairs = [b / a for a, b in zip(seconds(hand), seconds(tool), strict=False) if a]
    shown = [
        case,
        cells(each(hand[0], hand[0].calls), each(tool[0], tool[0].calls), 1),
        cells(each(hand[0], hand[0].sent), each(tool[0], tool[0].sent), 0),
        cells(
            statistics.median(seconds(hand)) * 1e3,
            statistics.median(seconds(tool)) * 1e3,
            2,
            statistics.median(pairs) if pairs else None,
        ),
    ]
    return f"| {' | '.join(shown)} |"


def table(phase: str, runs: dict[str, dict[str, list[Talk]]]) -> str:
    unit = UNITS[phase][1]
    head = (
        f"| {phase} | collectives, by hand | tool | ratio | bytes, by hand | tool | ratio "
        f"| ms a {unit}, by hand | tool | ratio |\n|---|{'---:|' * 9}"
    )
    return "\n".join([head, *(row(case, phase, each) for case, each in runs.items())])


def measure(cases: list[str], turns: int) -> dict[str, dict[str, list[Talk]]]:
    """What each version of each case says and takes; a case that fails is told and left out."""
    found: dict[str, dict[str, list[Talk]]] = {}
    failed: set[str] = set()
    for turn in range(turns):
        for case in (one for one in cases if one not in failed):
            for name, text in versions(case).items():
                talk = run(text, arguments(case))
                if isinstance(talk, Talk):
                    found.setdefault(case, {}).setdefault(name, []).append(talk)
                else:
                    failed.add(case)
                    print(f"not measured: {case}, {name}: {talk}", file=sys.stderr)
        print(f"turn {turn + 1} of {turns}", file=sys.stderr, flush=True)
    return {case: runs for case, runs in found.items() if case not in failed}


def main() -> None:
    known = sorted(path.stem for path in BY_HAND.glob("*.patch"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(known)} [all]")
    parser.add_argument("--turns", type=int, default=5, help="how often each is timed [%(default)s]")
    options = parser.parse_args()
    unknown = [case for case in options.cases if case not in known]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; choose from {', '.join(known)}")
    runs = measure(options.cases or known, options.turns)
    print(
        f"The tool's conversions beside those by hand, two processes, gloo, of one optimizer step and one evaluation; "
        f"times are medians of {options.turns} turns; a ratio of {LIMIT} is wanted."
    )
    for phase in UNITS:
        print(f"\n{table(phase, runs)}")


if __name__ == "__main__":
    main()
