"""Shared fixtures: every test starts without a run, whatever the test before it left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CROSSTRAIN_QUIET", "1")


@pytest.fixture(autouse=True)
def _fresh_run() -> Iterator[None]:
    """The runtime keeps one run per process; a test must not inherit another test's."""
    yield
    state = sys.modules.get("crosstrain.state")
    if state is not None:
        state.RUN.close()
