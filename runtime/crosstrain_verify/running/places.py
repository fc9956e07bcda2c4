"""Where a trace's lines stand, told as the author knows the files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from crosstrain_verify.records.observations import Observations
from crosstrain_verify.records.traces import RankTrace


def without_place(trace: RankTrace, cwd: Path, script: Path) -> RankTrace:
    """The trace without the path of the run's working directory, which differs from run to run.

    In printed text the directory becomes `.`. Source lines are named by their path in it, or in the script's folder.
    """

    def short(place: str) -> str:
        return place.replace(f"{cwd}/", "").replace(f"{script.parent}/", "")

    return replace(
        trace,
        lines=tuple(line.replace(str(cwd), ".") for line in trace.lines),
        error=short(trace.error).replace(str(cwd), "."),
        stack=short(trace.stack).replace(str(cwd), "."),
        observations=_below(trace.observations, script) if trace.observations is not None else None,
        checks=tuple(
            replace(check, file=short(check.file), message=short(check.message)) for check in trace.checks
        ),
        events=tuple(replace(event, place=short(event.place)) for event in trace.events),
        batches=tuple(replace(batch, place=short(batch.place)) for batch in trace.batches),
        printed=tuple(replace(line, place=short(line.place)) for line in trace.printed),
    )


def _below(seen: Observations, script: Path) -> Observations:
    """The observations with files named by their path from the script's folder."""

    def short(file: str) -> str:
        return os.path.relpath(file, script.parent)

    numbers = {place._replace(file=short(place.file)): passes for place, passes in seen.numbers.items()}
    return Observations([short(file) for file in seen.files], numbers)
