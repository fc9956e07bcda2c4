"""A clock that is fast for the script: each time it is read, it has gained a few seconds more.

How long something took differs from run to run, but not always in the digits that are printed: an epoch takes "1 s" in
two runs and "0 s" in the third. With this clock what depends on the time is printed differently, so that a comparison with a
run under the true clock finds it. Libraries read the true clock.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from types import FrameType

GAIN = 7  # seconds for each reading
CLOCKS = ("time", "monotonic", "perf_counter", "process_time")


def install(is_script: Callable[[FrameType], bool]) -> None:
    """Make Python's clocks fast for code of the script, for the rest of this process."""
    gained = [0]
    for name in CLOCKS:
        for clock, second in ((name, 1), (f"{name}_ns", 10**9)):
            setattr(time, clock, _fast(getattr(time, clock), second, gained, is_script))


def _fast(
    clock: Callable[[], float], second: int, gained: list[int], is_script: Callable[[FrameType], bool]
) -> Callable[[], float]:
    @functools.wraps(clock)
    def read() -> float:
        if not is_script(sys._getframe(1)):
            return clock()
        gained[0] += GAIN
        return clock() + gained[0] * second

    return read
