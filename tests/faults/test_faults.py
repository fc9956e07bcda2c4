"""One round of every fault; `make faults` runs hundreds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import journal
from tests.faults.journal import Reference
from tests.faults.rounds import FAULTS, make_reference, run

TRIES = 8  # a training may be over before it is struck: each try strikes in half the time


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference()


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.filterwarnings("ignore:the checkpoint .* is corrupted:UserWarning")
def test_nothing_is_lost_repeated_or_dropped(name: str, reference: Reference) -> None:
    for seed in range(TRIES):
        try:
            outcome = run(FAULTS[name], replace(reference, seconds=reference.seconds / 2**seed), seed)
        except PermissionError as error:
            pytest.skip(f"needs a disk of its own: {error}")
        assert not outcome.bad, outcome
        if outcome.struck:
            return
    pytest.fail(f"{name} never struck before the training was over")


def test_repeated_and_dropped_batches_would_be_seen(tmp_path: Path) -> None:
    """An attempt that went on from step 2 takes step 3 back; then one batch is trained twice, another never."""
    reference = Reference([{1: [0], 2: [1], 3: [2], 4: [3]}, {1: [4], 2: [5]}], "", 0.0)
    lines = [{"pid": 1}, {"loaded": None}, *({"step": step, "rows": [step - 1]} for step in (1, 2, 3))]
    lines += [{"pid": 2}, {"loaded": 2}, {"step": 3, "rows": [2]}, {"step": 4, "rows": [3]}]
    write(tmp_path, 0, lines)
    write(tmp_path, 1, [{"loaded": None}, {"step": 1, "rows": [4]}, {"step": 2, "rows": [5]}])
    assert journal.differences(tmp_path, reference) == (0, 0)
    write(tmp_path, 0, [*lines[:-1], {"step": 4, "rows": [2]}])
    assert journal.differences(tmp_path, reference) == (1, 1)
    write(tmp_path, 0, lines[:-1])
    assert journal.differences(tmp_path, reference) == (0, 1)


def write(folder: Path, rank: int, lines: list[dict[str, object]]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / f"journal-{rank}.jsonl").write_text(text)
