"""The plain report: the diff, as `git apply` takes it."""

from __future__ import annotations

from crosstrain_migrate.outcome import Outcome

from .diff import patch


def render(outcome: Outcome) -> bytes:
    """One patch for all scripts, to be applied with -p1 in the working directory; notebooks cell by cell."""
    return b"".join(patch(file) for file in outcome.changed)
