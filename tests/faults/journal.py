"""What the journals of a training say: which batches made the weights, however often it was started again."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORLD = 2
Batches = dict[int, list[int]]  # the rows of each step, from 1


@dataclass(frozen=True)
class Reference:
    """The training that nothing happened to: each rank's batches, the digest of the weights, the seconds from its
    first batch to its last."""

    batches: list[Batches]
    digest: str
    seconds: float


def entries(folder: Path, rank: int) -> list[dict[str, Any]]:
    """A rank's whole lines, oldest first; none before it has written one."""
    path = folder / f"journal-{rank}.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def last_pid(folder: Path, rank: int) -> int:
    """The process that is, or was last, this rank."""
    return int(next(entry["pid"] for entry in reversed(entries(folder, rank)) if "pid" in entry))


def steps_written(folder: Path) -> int:
    """Batches of all attempts of rank 0; grows as long as it trains."""
    return sum("rows" in entry for entry in entries(folder, 0))


def last_saved(folder: Path) -> int:
    """The number of the newest checkpoint that `save_state` has returned for; -1 before the first."""
    saved = [int(one["saved"].removeprefix("checkpoint_")) for one in entries(folder, 0) if "saved" in one]
    return saved[-1] if saved else -1


def loaded(folder: Path) -> int | None:
    """The step that the last attempt went on from, None if it started anew."""
    return next((entry["loaded"] for entry in reversed(entries(folder, 0)) if "loaded" in entry), None)


def digest(folder: Path, rank: int) -> str:
    """Of the final weights; empty for a training that did not finish."""
    last = entries(folder, rank)[-1:]
    return str(last[0].get("finished", "")) if last else ""


def trained(folder: Path, rank: int) -> Batches:
    """The batches in the final weights: an attempt that went on from step n takes back those after n."""
    history: Batches = {}
    for entry in entries(folder, rank):
        if "loaded" in entry:
            history = {step: rows for step, rows in history.items() if step <= (entry["loaded"] or 0)}
        elif "rows" in entry:
            history[entry["step"]] = entry["rows"]
    return history


def differences(folder: Path, reference: Reference) -> tuple[int, int]:
    """(repeated, dropped) batches, all ranks: those that were trained more, or less, often than they should."""
    repeated = dropped = 0
    for rank in range(WORLD):
        ours = Counter(tuple(rows) for rows in trained(folder, rank).values())
        theirs = Counter(tuple(rows) for rows in reference.batches[rank].values())
        repeated += (ours - theirs).total()
        dropped += (theirs - ours).total()
    return repeated, dropped
