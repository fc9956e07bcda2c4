"""Conversions by the tool beside conversions by hand, on two processes: ``python -m tests.benchmarks.conversions``.

`by_hand` holds ten of the golden scripts as somebody who knows Accelerate would convert them; the tool's conversions are
`golden/*/after.py`. Both run on crosstrain, in turns; the hand's also runs on Accelerate where that is installed (what
its gradients say is not counted there, because DDP talks below Python).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import crosstrain
import tomllib

from tests.benchmarks.peers import environment
from tests.benchmarks.talk import MARK, Talk
from tests.support.ranks import free_port

ROOT = Path(__file__).parents[2]
BY_HAND = Path(__file__).with_name("by_hand")
LIMIT = 1.05
SOURCES = (str(ROOT), str(Path(crosstrain.__file__).parents[1]))

# How each script says how many epochs it trains, in its text or on its command line.
EPOCHS = 10
IN_TEXT = re.compile(r"^(\s*)(num_epochs = |EPOCHS = |for epoch in range\()2(\)?)", re.MULTILINE)
IN_DEFAULT = "epochs=2, "
OPTIONS = ("--epochs", "--niter", "-e")


@dataclass(frozen=True)
class Version:
    """A script in one of its conversions. text: its source."""

    name: str
    text: str
    python: Path


def longer(text: str) -> str:
    """The script with more epochs, so that a median of its steps says something."""
    return IN_TEXT.sub(rf"\g<1>\g<2>{EPOCHS}\g<3>", text).replace(IN_DEFAULT, f"epochs={EPOCHS}, ")


def arguments(case: str) -> list[str]:
    """Of the golden case, with more epochs."""
    given = tomllib.loads((ROOT / "golden" / case / "run.toml").read_text(encoding="utf-8")).get("args", [])
    return [
        str(EPOCHS) if before in OPTIONS else one for before, one in zip(["", *given], given, strict=False)
    ]


def versions(case: str, peer: Path | None) -> Iterator[Version]:
    ours = Path(sys.executable)
    by_hand = longer((BY_HAND / f"{case}.py").read_text(encoding="utf-8"))
    yield Version("hand", by_hand, ours)
    after = (ROOT / "golden" / case / "after.py").read_text(encoding="utf-8")
    yield Version("tool", longer(after), ours)
    if peer is not None:
        text = by_hand.replace("from crosstrain import", "from accelerate import")
        yield Version("hand on accelerate", text, peer)


def run(version: Version, options: list[str]) -> Talk | str:
    """Two ranks in a folder of their own; rank 0's counts, or the last line of what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(version.text, encoding="utf-8")
        command = [str(version.python), "-m", "tests.benchmarks.talk", str(script), *options]
        rendezvous = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(SOURCES)}
        env |= rendezvous | {"MASTER_PORT": str(free_port()), "ACCELERATE_USE_CPU": "true"}
        ranks = [
            subprocess.Popen(
                command,
                env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                cwd=folder,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(2)
        ]
        said = [process.communicate() for process in ranks]
    if any(process.returncode for process in ranks):
        return next((line for _, text in said for line in reversed(text.splitlines()) if line.strip()), "?")
    line = next(line for line in said[0][0].splitlines() if line.startswith(MARK))
    return Talk(**json.loads(line.removeprefix(MARK)))


def cells(hand: float, tool: float, digits: int, ratio: float | None = None) -> str:
    """By hand, by the tool, and the ratio."""
    if not hand and not tool:
        return "- | - | -"
    ratio = (tool / hand if hand else float("inf")) if ratio is None else ratio
    return f"{hand:,.{digits}f} | {tool:,.{digits}f} | {ratio:.2f}"


def row(case: str, phase: str, runs: dict[str, list[Talk]]) -> str:
    """What is said and taken in a training step or in an evaluation."""
    hand, tool = runs["hand"], runs["tool"]
    counts, what = ("steps", "step") if phase == "training" else ("evaluations", "evaluation")

    def each(talk: Talk, table: dict[str, int]) -> float:
        return table.get(phase, 0) / max(1, getattr(talk, counts))

    def seconds(talks: list[Talk]) -> list[float]:
        return [getattr(talk, what) for talk in talks]

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
    peer = runs.get("hand on accelerate", [])
    against = [a / b for a, b in zip(seconds(tool), seconds(peer), strict=False) if b]
    shown.append(f"{statistics.median(against):.2f}" if against else "-")
    return f"| {' | '.join(shown)} |"


def table(phase: str, runs: dict[str, dict[str, list[Talk]]]) -> str:
    unit = "step" if phase == "training" else "evaluation"
    head = (
        f"| {phase} | collectives, by hand | tool | ratio | bytes, by hand | tool | ratio "
        f"| ms a {unit}, by hand | tool | ratio | ratio to accelerate |\n|---|{'---:|' * 10}"
    )
    return "\n".join([head, *(row(case, phase, each) for case, each in runs.items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=sorted(path.stem for path in BY_HAND.glob("*.py")))
    default = Path(tempfile.gettempdir()) / "crosstrain-benchmark"
    parser.add_argument(
        "--keep", type=Path, default=default, help="where the peers are installed [%(default)s]"
    )
    options = parser.parse_args()
    python, missing = environment(options.keep)
    peer = None if "accelerate" in missing else python
    found: dict[str, dict[str, list[Talk]]] = {}
    for turn in range(options.rounds):
        for case in options.only:
            for version in versions(case, peer):
                talk = run(version, arguments(case))
                if isinstance(talk, Talk):
                    found.setdefault(case, {}).setdefault(version.name, []).append(talk)
                elif turn == 0:
                    print(f"not measured: {case}, {version.name}: {talk}", file=sys.stderr)
    whole = {case: runs for case, runs in found.items() if {"hand", "tool"} <= runs.keys()}
    print(
        f"The tool's conversions beside those by hand, two processes, gloo, of one optimizer step and one evaluation; "
        f"medians of {options.rounds} runs in turns; a ratio of {LIMIT} is wanted."
    )
    for phase in ("training", "evaluation"):
        print(f"\n{table(phase, whole)}")


if __name__ == "__main__":
    main()
