"""`verify`: run the original once and the migrated script with each number of processes, and judge."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from crosstrain.verify import traces
from crosstrain.verify.client import Job, Server, shared_server
from crosstrain.verify.compare import Comparison, compare, ranks_disagree
from crosstrain.verify.report import Report, Run, Verdict
from crosstrain.verify.scratch import TooLargeError, copy_project
from crosstrain.verify.traces import RankTrace

Expectation = Literal["equal", "agree"]

# Several processes share each batch of the script, uneven ones too: the mathematics of one process.
SHARED_BATCHES = {"cpu": True, "split_batches": True, "even_batches": "weighted"}
STACK_LINES = 30  # of each rank that hangs


class VerifyInputError(Exception):
    """What was asked for cannot be run: a script that does not exist, a folder too large, a bad number."""


def verify(
    original: str | Path,
    migrated: str | Path,
    *,
    args: Sequence[str] = (),
    processes: Sequence[int] = (1, 2),
    steps: int | None = None,
    expect: Expectation = "equal",
    timeout: float = 300.0,
    folder: str | Path | None = None,
    links: Sequence[str] = (),
    ignore: Iterable[str] = (),
    seed: int = 0,
    server: Server | None = None,
) -> Report:
    """Compare training by two scripts on the CPU.

    The original runs once, in one process; the migrated script with each number in `processes`, with the same
    arguments, start of random numbers and files. One process must be identical bit for bit, several equal to
    the tolerance of `tolerance.py`; with expect="agree" several must only finish with ranks that agree (for
    training that draws random numbers or uses batch statistics).

    steps: compare at most so many optimizer steps, then end the runs. timeout: seconds for each run.
    folder: copied for every run as its working directory (scripts inside it run from the copy); None: every
    run starts in an empty directory and the scripts run where they are. links: names in `folder` that are
    linked instead of copied. ignore: regular expressions of printed lines to leave out.

    Raises VerifyInputError for what cannot be run, ServerError where torch cannot be loaded. Everything that
    goes wrong in a script is in the report.
    """
    request = Request(
        args=tuple(args),
        steps=steps,
        timeout=timeout,
        folder=Path(folder).resolve() if folder is not None else None,
        links=tuple(links),
        seed=seed,
    )
    paths = Path(original).resolve(), Path(migrated).resolve()
    _check(request, paths, processes)
    patterns = _patterns(ignore)
    server = server or shared_server()
    with tempfile.TemporaryDirectory(prefix="crosstrain-verify-") as scratch:
        room = Path(scratch).resolve()
        reference = run_script(server, paths[0], 1, request, room / "original")
        if not reference.run.verdict.ok:
            return Report(paths[0], paths[1], reference.run, ())
        runs: list[Run] = []
        for number in processes:
            done = run_script(server, paths[1], number, request, room / f"processes-{number}")
            runs.append(judge(reference.ranks[0], done, expect, patterns))
    return Report(paths[0], paths[1], reference.run, tuple(runs))


@dataclass(frozen=True)
class Request:
    """What is the same for every run of one `verify`."""

    args: tuple[str, ...] = ()
    steps: int | None = None
    timeout: float = 300.0
    folder: Path | None = None
    links: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Finished:
    """A run that is over: what each rank left, and how it went as long as nothing is compared."""

    run: Run
    ranks: tuple[RankTrace, ...]


def _check(request: Request, paths: Iterable[Path], processes: Sequence[int]) -> None:
    for path in paths:
        if not path.is_file():
            raise VerifyInputError(f"no script {path}")
    if not processes or any(number < 1 for number in processes):
        raise VerifyInputError("processes: one or more numbers, each at least 1")
    if request.steps is not None and request.steps < 1:
        raise VerifyInputError("steps: at least 1")
    if request.folder is not None and not request.folder.is_dir():
        raise VerifyInputError(f"no folder {request.folder}")
    for name in request.links:
        if request.folder is None or not (request.folder / name).exists():
            raise VerifyInputError(f"link: no {name!r} in {request.folder or 'an empty working directory'}")


def _patterns(ignore: Iterable[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(pattern) for pattern in ignore]
    except re.error as error:
        raise VerifyInputError(f"--ignore {error.pattern!r} is not a regular expression: {error}") from None


def run_script(server: Server, script: Path, world: int, request: Request, room: Path) -> Finished:
    """Run one script with `world` ranks in `room`, which must not exist and is removed again."""
    room.mkdir()
    cwd, out = room / "work", room / "out"
    for rank in range(world):
        (out / str(rank)).mkdir(parents=True)
    if request.folder is None:
        cwd.mkdir()
    else:
        try:
            copy_project(request.folder, cwd, request.links)
        except TooLargeError as error:
            raise VerifyInputError(str(error)) from None
        if script.is_relative_to(request.folder):
            script = cwd / script.relative_to(request.folder)
    config = SHARED_BATCHES if world > 1 else {"cpu": True}
    result = server.run(
        Job(
            script=str(script),
            args=request.args,
            cwd=str(cwd),
            out=str(out),
            world=world,
            seed=request.seed,
            steps=request.steps,
            timeout=request.timeout,
            env={"CROSSTRAIN_CONFIG": json.dumps(config)},
        )
    )
    ranks = tuple(_without_place(traces.read(out / str(rank)), cwd) for rank in range(world))
    shutil.rmtree(room, ignore_errors=True)
    run = _outcome(ranks, result.timed_out, request.timeout)
    return Finished(replace(run, seconds=result.seconds), ranks)


def _without_place(trace: RankTrace, cwd: Path) -> RankTrace:
    """Every run has another working directory: in what it printed, that directory is `.`."""
    return replace(
        trace,
        lines=tuple(line.replace(str(cwd), ".") for line in trace.lines),
        error=trace.error.replace(str(cwd), "."),
        stack=trace.stack.replace(str(cwd), "."),
    )


def _outcome(ranks: Sequence[RankTrace], timed_out: bool, timeout: float) -> Run:
    """How a run went by itself, before anything is compared."""
    world, steps = len(ranks), ranks[0].steps
    crashed = [number for number, trace in enumerate(ranks) if trace.ending == "crashed"]
    ended = [number for number, trace in enumerate(ranks) if trace.ending == "unfinished"]
    if crashed:
        first = min(crashed, key=lambda number: ranks[number].time_ns)
        name = f"rank {first} of {world}:\n" if world > 1 else ""
        return Run(world, Verdict.FAILED, steps, error=name + ranks[first].error)
    if timed_out:
        where = "\n".join(_position(number, ranks[number]) for number in ended)
        return Run(world, Verdict.HUNG, steps, error=f"not done after {timeout:g} s\n{where}")
    if ended:
        text = "\n".join(f"rank {number} of {world} died\n{ranks[number].stderr[-2000:]}" for number in ended)
        return Run(world, Verdict.FAILED, steps, error=text)
    if not steps:
        return Run(world, Verdict.NO_STEPS)
    notes = tuple(
        f"rank {number} printed {_lines(len(trace.lines))} of its own: {trace.lines[0]!r}"
        for number, trace in enumerate(ranks)
        if number and trace.lines
    )
    return Run(world, Verdict.RAN, steps, notes=notes)


def _lines(number: int) -> str:
    return "1 line" if number == 1 else f"{number} lines"


def _position(rank: int, trace: RankTrace) -> str:
    lines = trace.stack.splitlines()
    shown = lines[:STACK_LINES] or ["(it did not say where)"]
    return "\n".join([f"rank {rank} is at (innermost call first)", *shown])


def judge(original: RankTrace, done: Finished, expect: Expectation, ignore: Sequence[re.Pattern[str]]) -> Run:
    """The verdict on a run that may have failed by itself."""
    run, ranks = done.run, done.ranks
    if not run.verdict.ok:
        return run
    alone = len(ranks) == 1
    if expect == "agree" and not alone:
        result = Comparison(ranks_disagree(ranks))
        good = Verdict.AGREE
    else:
        result = compare(original, ranks, ignore)
        good = Verdict.IDENTICAL if alone else Verdict.EQUAL
    return replace(
        run,
        verdict=Verdict.DIFFERENT if result.difference else good,
        difference=result.difference,
        largest=result.largest,
        notes=(*run.notes, *result.notes),
    )
