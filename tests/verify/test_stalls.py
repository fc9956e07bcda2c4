"""Ranks that wait for each other: what counts as waiting."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from crosstrain_verify.running import waiting
from crosstrain_verify.running.waiting import Rank, StallWatch

# Writes down a place in `barrier` when asked to, as ranks do.
RANK = """
import signal, sys, time
def say(*_):
    with open(sys.argv[1], "a") as stack:
        stack.write("PLACE")
signal.signal(signal.SIGUSR1, say)
print("ready", flush=True)
while True:
    BODY
"""
WAITS = "time.sleep(1)"
POLLS = "sum(range(1000))"  # without rest: more than any waiting costs
NEVER, HANGS = 5, 300  # seconds


@contextmanager
def rank(folder: Path, name: str, body: str) -> Iterator[Rank]:
    trace, stack = folder / f"{name}.trace", folder / f"{name}.stack"
    place = "distributed_c10d.py, line 1 in barrier" if body == WAITS else "train.py, line 1"
    command = [sys.executable, "-c", RANK.replace("BODY", body).replace("PLACE", place), str(stack)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        try:
            yield Rank(process.pid, trace, stack)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("body", "done", "stuck"), [(WAITS, False, True), (POLLS, True, True), (POLLS, False, False)]
)
def test_stalled(body: str, done: bool, stuck: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank waits; the other waits too, is done and polls for the first one's trace, or computes."""
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(waiting, "STALL_SECONDS", 0.5)
    with ExitStack() as stack:
        ranks = [stack.enter_context(rank(tmp_path, *names)) for names in (("0", WAITS), ("1", body))]
        if done:
            ranks[1].trace.touch()
        watch = StallWatch(ranks)
        deadline = time.monotonic() + (HANGS if stuck else NEVER)
        found = False
        while not found and time.monotonic() < deadline:
            found = watch.stalled()
            time.sleep(0.01)
    assert found is stuck
