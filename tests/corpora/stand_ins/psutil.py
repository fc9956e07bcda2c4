"""A stand-in for `psutil`."""

from __future__ import annotations

import resource
from types import SimpleNamespace


class Process:
    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
