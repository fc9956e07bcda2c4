"""`verify` runs the original once and the migrated script with each number of processes, and judges every run.

One process must be identical to the original bit for bit; several must be equal within the tolerance of `tolerance.py`.
Where training draws random numbers or uses batch statistics, several processes are compared with a run of the original
that draws and normalises share by share (`draws.py`). In the default launch each process takes batches of its own.
That run undoes every optimizer step: the ranks must agree, and evaluations must print what the original prints when its
steps are undone, too (`evaluation.py`).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from crosstrain_verify.emulation.emulated import NOTES
from crosstrain_verify.judging import xla
from crosstrain_verify.judging.default_launch import DefaultLaunch
from crosstrain_verify.judging.migrated_runs import Expectation, MigratedRuns, losses_of
from crosstrain_verify.judging.original_runs import OriginalRuns
from crosstrain_verify.judging.passes import training_loaders
from crosstrain_verify.judging.rank_by_rank import RankByRank, Started, start
from crosstrain_verify.report.report import Report
from crosstrain_verify.running import notebook_cells
from crosstrain_verify.running.client import Data, Devices, VerifyInputError, shared_server
from crosstrain_verify.running.runs import Progress, Request, Runner, rank_option

Backend = Literal["torch", "xla"]
ONE_PROCESS_ONLY = (
    "the notebook trains in its own process and starts no others: it was compared on one process"
)
LOADER_SCAN = 200  # Python files of a project that are searched for the word "cuda"


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
    default_launch: bool = False,
    devices: Devices | None = None,
    confined: bool = True,
    overlay: str | Path | None = None,
    data: Data = "real",
    backend: Backend = "torch",
    progress: Progress | None = None,
    rank_by_rank: bool = True,
) -> Report:
    """Compare how two scripts train on the CPU. Both get the same arguments, files and random seeds.

    Args:
        original, migrated: paths of scripts or notebooks.
        args: command line arguments of both scripts.
        processes: the numbers of processes on which the migrated script runs.
        steps: optimizer steps after which a run ends; None runs the scripts to their end.
        expect: "equal", or "agree" if several processes only have to finish with ranks that agree.
        timeout: seconds for each run.
        folder: the project, copied for every run as its working directory; scripts in it run from the copy. None: every
            run starts in an empty directory, and the scripts run where they are.
        links: names in ``folder`` that are linked instead of copied.
        ignore: regular expressions; printed lines that match one are not compared.
        default_launch: run the largest number of processes once more, as `crosstrain launch` starts them.
        devices: what torch.cuda.is_available() returns: true ("present"), false ("absent") or the machine's own answer
            ("real"). None: false, or true if the original refuses to run otherwise.
        confined: write nothing outside of the runs' scratch folders.
        overlay: a folder whose files replace those of the copy when the migrated script runs; ``migrated`` is then its
            path in ``folder``.
        data: "synthetic" replaces torchvision's data sets by small synthetic ones where their files are missing.
        backend: "xla" makes one more run, on XLA's CPU client (`xla.py`).
        progress: called with the name of the current run and its optimizer steps so far.
        rank_by_rank: compare an original that distributes itself with itself, on the largest number of processes
            (`rank_by_rank.py`). False compares it with one process of itself.

    Raises:
        VerifyInputError: the scripts, the folder or an argument cannot be used.
        ServerError: torch cannot be loaded.

    An error inside a script is no exception here: it is part of the report.
    """
    paths = Path(original).resolve(), Path(migrated).resolve()
    request = Request(
        args=tuple(args),
        steps=steps,
        timeout=timeout,
        folder=Path(folder).resolve() if folder is not None else None,
        links=tuple(links),
        confined=confined,
        overlay=Path(overlay).resolve() if overlay is not None else None,
        data=data,
    )
    _check(request, paths, processes)
    if backend == "xla":
        xla.check_installed()
    request = replace(request, devices=devices or devices_for(request, paths))
    patterns = _patterns(ignore)
    with tempfile.TemporaryDirectory(prefix="crosstrain-verify-") as scratch:
        runner = Runner(shared_server(), request, Path(scratch).resolve(), progress)
        originals = OriginalRuns(runner, paths[0])
        compared = rank_by_rank and expect == "equal"
        started = _started(runner, paths, max(processes)) if compared else None
        migrated_runs = MigratedRuns(runner, originals, paths[1], patterns)
        runner.starts_processes = _needs_launcher(runner.request, paths, started)
        one_process = _starts_no_processes(request, paths[1])
        numbers = [number for number in processes if number == 1 or started is None]
        numbers = [1] if one_process else numbers
        runs = []
        for number in numbers if originals.trains else ():
            if number == 1 or migrated_runs.on_runtime or not training_loaders(originals.trace):
                runs.append(migrated_runs.judge(number, expect))
            else:  # another library's processes take batches of their own: there is no other launch
                apart = DefaultLaunch(runner, originals, number, patterns, on_runtime=False)
                runs.append(apart.judge(paths[1]))
        if started is not None:
            runs.append(RankByRank(runner, started, *paths, patterns).judge())
        elif runs and default_launch and max(numbers) > 1 and migrated_runs.on_runtime:
            runs.append(DefaultLaunch(runner, originals, max(processes), patterns).judge(paths[1]))
        if runs and originals.trains and backend == "xla":
            runs.append(xla.judge(runner, originals, migrated_runs, paths[1]))
        done = originals.done if originals.trains or started is None else started.done
        losses = losses_of(done.ranks) if done.run.verdict.ok else ()
        notes = (*_notes(runner.request, originals, started), *((ONE_PROCESS_ONLY,) if one_process else ()))
        return Report(*paths, replace(done.run, losses=losses), tuple(runs), notes)


def _starts_no_processes(request: Request, migrated: Path) -> bool:
    """Whether the migrated script is a notebook that starts no processes and so trains in its own."""
    return notebook_cells.is_notebook(migrated) and not notebook_cells.launches(_overlaid(request, migrated))


def _needs_launcher(request: Request, paths: tuple[Path, Path], started: Started | None) -> bool:
    """Whether the migrated script makes a process group on one process, too, for which it needs a launcher."""
    original, migrated = (path.read_bytes() for path in (paths[0], _overlaid(request, paths[1])))
    if started is not None:
        return b"spawn(" in original
    return b"init_process_group" in migrated and b"spawn(" not in migrated


def _overlaid(request: Request, migrated: Path) -> Path:
    """The file that the migrated script is read from."""
    if request.overlay is None or request.folder is None or not migrated.is_relative_to(request.folder):
        return migrated
    over = request.overlay / migrated.relative_to(request.folder)
    return over if over.exists() else migrated


def _started(runner: Runner, paths: tuple[Path, Path], world: int) -> Started | None:
    """The original's run on several processes; None if it does not distribute itself."""
    if world == 1 or not any(b"init_process_group" in text for text in _texts(runner.request, paths[:1])):
        return None
    return start(runner, paths[0], world)


def _notes(request: Request, originals: OriginalRuns, started: Started | None) -> tuple[str, ...]:
    """How the original and every other run was started, and what the comparison does not show because of that."""
    text = originals.script.read_bytes()
    notes = list(_about_several(originals, started)) if started is not None else []
    if request.devices == "present":
        notes.append(
            "the original refuses to run without a GPU: torch.cuda.is_available() was true in all runs, "
            "and the CPU took the place of every CUDA device"
        )
    elif request.devices == "absent":
        notes.append(
            "torch.cuda.is_available() was false in all runs; code that names a CUDA device used the CPU"
        )
        if b"autocast" in text:
            notes.append("the script's mixed precision on a GPU was not run; --cuda present runs it")
    if request.launched:
        notes.append("the original needs a launcher: it was started as the only process of one")
    if b"DistributedSampler" in text:
        notes.append(
            "a DistributedSampler takes its order from its own seed and the epoch; where one shuffled"
            f"{' for one process' if started else ''}, the order was drawn from torch's random state instead, as in a "
            "script without it"
        )
    asked = {*originals.trace.asked, *(started.ranks[0].asked if started else ())}
    notes += [NOTES[name] for name in sorted(asked)]
    steps = originals.trace.events_of("step")
    if steps and not any(event.values[0] for event in steps):
        notes.append("every gradient was zero: training changed nothing, so the comparison shows little")
    return tuple(notes)


def _about_several(originals: OriginalRuns, started: Started) -> Iterator[str]:
    """How an original that distributes itself was started."""
    world = started.world
    option = rank_option(originals.script) if started.variant.launcher_option else ""
    how = f"as torch.distributed.launch does, with {option}" if option else "as torchrun does"
    yield f"the original distributes itself: it was started with {world} processes {how}, over gloo"
    if started.variant.devices == "present":
        yield f"torch.cuda reported {world} devices to its {world} processes; all of them were the CPU"
    if not originals.trains:
        error = (originals.done.run.error.strip().splitlines() or ["it makes no step"])[-1]
        yield f"the original does not train on one process ({error}), so one process was not compared"


def _check(request: Request, paths: Iterable[Path], processes: Sequence[int]) -> None:
    for path in paths:
        if not path.is_file():
            raise VerifyInputError(f"no script {path}")
    if not processes or any(number < 1 for number in processes):
        raise VerifyInputError("processes must be one or more numbers, each at least 1")
    if request.steps is not None and request.steps < 1:
        raise VerifyInputError("steps must be at least 1")
    if request.folder is not None and not request.folder.is_dir():
        raise VerifyInputError(f"no folder {request.folder}")
    for name in request.links:
        if request.folder is None or not (request.folder / name).exists():
            raise VerifyInputError(f"link: no {name!r} in {request.folder or 'an empty working directory'}")


def devices_for(request: Request, paths: Sequence[Path]) -> Devices:
    """How torch.cuda answers: "absent" if the scripts or their local modules mention CUDA, else "real".

    Emulation replaces many of torch's functions, so scripts that do not need it run without.
    """
    named = (b"cuda" in text or b"nccl" in text for text in _texts(request, paths))
    return "absent" if any(named) else "real"


def _texts(request: Request, paths: Sequence[Path]) -> Iterator[bytes]:
    """The contents of the scripts and of the local modules that they may import."""
    modules = [*paths, *(file for path in paths for file in sorted(path.parent.glob("*.py")))]
    if request.folder is not None:
        modules += sorted(request.folder.glob("*/*.py"))
    return (module.read_bytes() for module in modules[:LOADER_SCAN] if module.is_file())


def _patterns(ignore: Iterable[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(pattern) for pattern in ignore]
    except re.error as error:
        raise VerifyInputError(f"--ignore {error.pattern!r} is not a regular expression: {error}") from None
