"""Processes that tests start and expect to end, looked at the Linux way."""

import time
from collections.abc import Sequence
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process exists and is more than an entry waiting for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def remaining(pids: Sequence[int], seconds: float = 120.0) -> list[int]:
    """Those that are still running after as long as ending them may take."""
    deadline = time.monotonic() + seconds
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [pid for pid in pids if is_running(pid)]
