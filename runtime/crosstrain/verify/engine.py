"""`verify`: run the original once and the migrated script with each number of processes, and judge.

One process must be identical bit for bit, several equal to the tolerance of `tolerance.py`. Where training draws
random numbers or uses batch statistics, several processes are compared with an original that does so share by
share (`draws.py`). The default launch, with batches of its own, is run with every step undone: ranks must agree,
and what is printed about evaluations must be what the original prints when its steps are undone (`evaluation.py`).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from crosstrain.verify import rows, xla
from crosstrain.verify.client import Server, shared_server
from crosstrain.verify.comparing import Comparing, Expectation, losses_of
from crosstrain.verify.defaults import DefaultLaunch
from crosstrain.verify.originals import Originals
from crosstrain.verify.passes import training_loaders
from crosstrain.verify.report import Report
from crosstrain.verify.runs import Data, Devices, Progress, Request, Runner, VerifyInputError

Backend = Literal["torch", "xla"]
LOADER_SCAN = 200  # Python files of a folder in which the word "cuda" is looked for


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
    default_launch: bool = False,
    devices: Devices | None = None,
    confined: bool = True,
    overlay: str | Path | None = None,
    data: Data = "real",
    backend: Backend = "torch",
    progress: Progress | None = None,
) -> Report:
    """Compare training by two scripts on the CPU, as the module's docstring says.

    Both get the same arguments, start of random numbers and files. processes: how many run the migrated script.
    expect: "agree": several processes need only finish with ranks that agree. default_launch: run the largest
    number of processes once more as `crosstrain launch` starts them.

    steps: compare at most so many optimizer steps, then end the runs. timeout: seconds for each run.
    folder: copied for every run as its working directory (scripts inside it run from the copy); None: every
    run starts in an empty directory and the scripts run where they are. links: names in `folder` that are
    linked instead of copied. ignore: regular expressions of printed lines to leave out. devices: whether
    torch.cuda.is_available() is true in both scripts ("present", "absent", "real"); None: false, and true if
    the original refuses to run otherwise. confined: nothing outside of the runs' scratch folders is written.
    overlay: a folder whose files are laid over the copy for the migrated script, whose path is then that in
    `folder`. data: "synthetic": torchvision's data sets are small synthetic ones where files are missing.
    backend: "xla": one more run, on XLA's CPU client (`xla.py`). progress: told which run goes on, and its optimizer steps so far.

    Raises VerifyInputError for what cannot be run, ServerError where torch cannot be loaded. Everything that
    goes wrong in a script is in the report.
    """
    paths = Path(original).resolve(), Path(migrated).resolve()
    request = Request(
        args=tuple(args),
        steps=steps,
        timeout=timeout,
        folder=Path(folder).resolve() if folder is not None else None,
        links=tuple(links),
        seed=seed,
        confined=confined,
        overlay=Path(overlay).resolve() if overlay is not None else None,
        data=data,
    )
    _check(request, paths, processes)
    if backend == "xla":
        xla.check_installed()
    request = replace(request, devices=devices or _devices(request, paths))
    patterns = _patterns(ignore)
    with tempfile.TemporaryDirectory(prefix="crosstrain-verify-") as scratch:
        runner = Runner(server or shared_server(), request, Path(scratch).resolve(), progress)
        originals = Originals(runner, paths[0])
        comparing = Comparing(runner, originals, paths[1], patterns)
        runs = [comparing.judged(number, expect) for number in processes] if originals.trains else []
        if runs and default_launch and max(processes) > 1:
            runs.append(DefaultLaunch(runner, originals, max(processes), patterns).judged(paths[1]))
        misplaced = rows.judged(runner, paths[1], runs, training_loaders(originals.trace)) if runs else None
        runs += [misplaced] if misplaced is not None else []
        if runs and backend == "xla":
            runs.append(xla.judged(runner, originals, comparing, paths[1]))
        losses = losses_of(originals.done.ranks) if originals.trains else ()
        done = replace(originals.done.run, losses=losses)
        return Report(*paths, done, tuple(runs), _notes(runner.request, originals))


def _notes(request: Request, originals: Originals) -> tuple[str, ...]:
    """How the original, and so every run, was started, and what that proves little about."""
    text, notes = originals.script.read_bytes(), []
    if request.devices == "present":
        notes.append(
            "the original refuses to run without a GPU: torch.cuda.is_available() was true in all runs, "
            "and every CUDA device the CPU"
        )
    elif request.devices == "absent":
        notes.append("torch.cuda.is_available() was false in all runs; what names a CUDA device got the CPU")
        if b"autocast" in text:
            notes.append("what the script does in mixed precision on a GPU was not run: --cuda present does")
    if request.launched:
        notes.append("the original asks for a launcher: it ran as the only process of one")
    if b"DistributedSampler" in text:
        notes.append(
            "where a DistributedSampler shuffles, its order, which comes from its own seed and the epoch, was drawn "
            "from torch's random state instead, as in a script without it"
        )
    if originals.trace.compiles:
        notes.append("torch.compile compiled nothing in any run: the models ran as they are written")
    steps = [event for event in originals.trace.events if event.kind == "step"]
    if steps and not any(event.values[0] for event in steps):
        notes.append("every gradient was zero: training changed nothing, and the comparison says little")
    return tuple(notes)


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


def _devices(request: Request, paths: Sequence[Path]) -> Devices:
    """Emulate CUDA only for scripts, or local modules, that say its name: replacing functions has a price."""
    modules = [*paths, *(file for path in paths for file in sorted(path.parent.glob("*.py")))]
    if request.folder is not None:
        modules += sorted(request.folder.glob("*/*.py"))
    named = (b"cuda" in module.read_bytes() for module in modules[:LOADER_SCAN] if module.is_file())
    return "absent" if any(named) else "real"


def _patterns(ignore: Iterable[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(pattern) for pattern in ignore]
    except re.error as error:
        raise VerifyInputError(f"--ignore {error.pattern!r} is not a regular expression: {error}") from None
