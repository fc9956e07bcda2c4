"""One run of one script: its scratch copy, its job, and its result before anything is compared."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from crosstrain.utils.messages import shortened

from crosstrain_verify.emulation.confine import OUTSIDE
from crosstrain_verify.records import journal, traces
from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.report.report import Run, Verdict
from crosstrain_verify.running import notebook_cells
from crosstrain_verify.running.client import Conditions, Data, Devices, Job, JobResult, Server
from crosstrain_verify.running.places import without_place
from crosstrain_verify.running.scratch import copy_project, large_folders

Progress = Callable[[str, int], None]  # (name of the run, optimizer steps so far)

# Several processes share each batch of the script, even one that does not divide, and draw the same random numbers, so they
# compute what one process does.
AS_ONE: Mapping[str, object] = {"split_batches": True, "even_batches": "weighted", "common_draws": True}
SHARED_BATCHES: Mapping[str, object] = {"cpu": True, **AS_ONE}
OWN_BATCHES: Mapping[str, object] = {"cpu": True}
ACCELERATE_ON_CPU = {"ACCELERATE_USE_CPU": "true"}
# Four virtual chips of XLA's CPU client.
ON_XLA = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "4", "CROSSTRAIN_CONFIG": json.dumps(AS_ONE)}
SHOWN = 80  # characters of a line that another rank printed
STACK_LINES = 30  # that are shown of each rank that hangs
# Modules that are slow to import and do not depend on what a run replaces in torch. The server loads them once if a script
# names them.
SLOW_IMPORTS = ("sklearn.datasets", "pandas", "scipy", "accelerate", "lightning_fabric", "lightning.fabric")
# Texts in the output or error of a script that needs a launcher.
NEEDS_LAUNCHER = re.compile(
    r"\b(LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|OMPI_\w+|SLURM_\w+)\b|--local[-_]rank\b"
)
# The option in which torch.distributed.launch tells a script its rank.
RANK_OPTION = re.compile(r"""["'](--local[-_]rank)["']""")
SAID = 2000  # characters at the end of a rank's standard error that are searched
NEEDS_CUDA = re.compile(r"cuda|gpu", re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """What all runs of one comparison have in common; see `engine.verify` and `client.Job` for the fields."""

    args: tuple[str, ...] = ()
    steps: int | None = None
    timeout: float = 300.0
    folder: Path | None = None
    links: tuple[str, ...] = ()
    devices: Devices = "real"
    launched: bool = False
    confined: bool = True
    overlay: Path | None = None
    data: Data = "real"


@dataclass(frozen=True)
class Variant(Conditions):
    """What is particular about one run, besides the conditions in which its script runs.

    Args:
        name: what the report calls the run.
        migrated: lay the request's overlay over the working directory.
        own_batches: each process takes batches of the script's size instead of sharing them.
        steps: fewer optimizer steps than the request's.
        xla: run on XLA's CPU client.
        devices: overrides the request's.
        launcher_option: give the original the option in which its launcher tells it the local rank.
    """

    name: str
    migrated: bool = False
    world: int = 1
    own_batches: bool = False
    steps: int | None = None
    xla: bool = False
    devices: Devices | None = None
    launcher_option: bool = False


ORIGINAL = Variant("original")


@dataclass(frozen=True)
class Finished:
    """A run that has ended: its result before anything is compared, and the ranks' traces.

    files: the files that it made or changed, if it is compared rank by rank. kept: a folder, if it kept batches.
    """

    run: Run
    ranks: tuple[RankTrace, ...]
    files: frozenset[str] = frozenset()
    kept: Path | None = None


class Runner:
    """Runs scripts, each in its own folder below ``room``, which is removed afterwards."""

    def __init__(
        self, server: Server, request: Request, room: Path, progress: Progress | None = None
    ) -> None:
        self.request = request
        self._server = server
        self._room = room
        self._progress = progress
        self._count = 0
        # The original starts its processes itself, so even a single process forms a group: start the migrated script by a
        # launcher on one process, too.
        self.starts_processes = False

    def original(self, script: Path, variant: Variant = ORIGINAL) -> Finished:
        """The first run of the original, as its author would start it: plainly, as on one GPU, or by a launcher.

        Later runs are started in the first of these ways that works.
        """
        plain = self.request
        ways = [plain]
        first: Finished | None = None
        for way in ways:  # the list grows in the loop
            self.request = way
            done = self.run(script, variant)
            if done.run.verdict is Verdict.RAN:
                return done
            first = first or done
            ways += [other for other in other_ways(way, done) if other not in ways]
        self.request = plain
        assert first is not None
        return first

    def run(self, script: Path, variant: Variant) -> Finished:
        """Run a script once, with `variant.world` ranks."""
        self._count += 1
        room = self._room / str(self._count)
        cwd, out = room / "work", room / "out"
        for rank in range(variant.world):
            (out / str(rank)).mkdir(parents=True)
        script = self._scratch(script, cwd, self.request.overlay if variant.migrated else None)
        before = stamps(cwd) if variant.per_rank else {}
        waiting = None
        if self._progress is not None:
            progress = self._progress
            progress(variant.name, 0)

            def waiting() -> None:
                progress(variant.name, traces.steps_so_far(out / "0"))

        result = self._server.run(self._job(script, variant, cwd, out), waiting)
        ranks = tuple(
            without_place(traces.read(out / str(rank)), cwd, script) for rank in range(variant.world)
        )
        files = written_since(before, room) if variant.per_rank else frozenset[str]()
        kept = out.rename(self._room / f"kept-{self._count}") if variant.keep else None
        shutil.rmtree(room, ignore_errors=True)
        run = checked(outcome(ranks, result, self.request.timeout), ranks)
        if variant.observed and run.verdict is Verdict.NO_STEPS and ranks[0].events_of("loss"):
            # A loss scaler found infinities: no step was made, but there is something to observe.
            run = replace(run, verdict=Verdict.RAN)
        return Finished(replace(run, name=variant.name, seconds=result.seconds), ranks, files, kept)

    def _scratch(self, script: Path, cwd: Path, overlay: Path | None) -> Path:
        """Make the working directory, and return the script's path: in the copy, if it is in the copied folder."""
        folder = self.request.folder
        if folder is None:
            cwd.mkdir()
            return script
        links = {*self.request.links, *(large_folders(folder) if self.request.confined else ())}
        copy_project(folder, cwd, links)
        if overlay is not None:
            shutil.copytree(overlay, cwd, dirs_exist_ok=True)
        return cwd / script.relative_to(folder) if script.is_relative_to(folder) else script

    def _tells_rank(self, variant: Variant) -> bool:
        """Whether the launcher passes the local rank to the script as an option."""
        return not variant.migrated and (
            variant.launcher_option or (self.request.launched and variant.world == 1)
        )

    def _job(self, script: Path, variant: Variant, cwd: Path, out: Path) -> Job:
        request, world = self.request, variant.world
        shared = world > 1 and not variant.own_batches
        of_notebook = notebook_cells.is_notebook(script)
        original = not variant.migrated and (variant.per_rank or request.launched)
        conditions: dict[str, Any] = {one.name: getattr(variant, one.name) for one in fields(Conditions)}
        return Job(
            **conditions,
            script=str(script),
            args=request.args,
            cwd=str(cwd),
            out=str(out),
            world=1 if of_notebook else world,
            steps=variant.steps or request.steps,
            timeout=request.timeout,
            env=ON_XLA
            if variant.xla
            else {
                "CROSSTRAIN_CONFIG": json.dumps(SHARED_BATCHES if shared else OWN_BATCHES),
                **({} if (variant.devices or request.devices) == "present" else ACCELERATE_ON_CPU),
            },
            devices=variant.devices or request.devices,
            launched=request.launched or (self.starts_processes and variant.migrated),
            ranks_env=[other_launchers(script, rank, world) for rank in range(world)] if original else [],
            rank_option=rank_option(script) if self._tells_rank(variant) else "",
            confined=request.confined,
            imports=slow_imports(script),
            data=request.data,
            launches=world if of_notebook else 0,
        )


def other_ways(way: Request, failed: Finished) -> Iterator[Request]:
    """Other ways of starting a script that failed in this one, as its output suggests."""
    said = "\n".join([failed.run.error, *(line for rank in failed.ranks for line in rank.lines[-3:])])
    caught = "".join(rank.stderr[-SAID:] for rank in failed.ranks)  # errors that somebody caught and printed
    idle = failed.run.verdict is Verdict.NO_STEPS  # it may start as many processes as there are GPUs
    if way.devices == "absent" and (idle or NEEDS_CUDA.search(said + caught)):
        yield replace(way, devices="present")
    if not way.launched and NEEDS_LAUNCHER.search(said + caught):
        yield replace(way, launched=True)


def other_launchers(script: Path, rank: int, world: int) -> dict[str, str]:
    """The variables of mpirun and srun that a script mentions.

    For a script that starts its processes itself, they count machines, of which there is one.
    """
    text = _text(script)
    if "OMPI_COMM_WORLD" not in text and "SLURM_PROCID" not in text:
        return {}
    place, size = ("0", "1") if "spawn(" in text else (str(rank), str(world))
    ours = {"OMPI_COMM_WORLD_RANK": place, "OMPI_COMM_WORLD_LOCAL_RANK": place, "OMPI_COMM_WORLD_SIZE": size}
    slurm = {"SLURM_PROCID": place, "SLURM_LOCALID": place, "SLURM_NTASKS": size, "SLURM_NPROCS": size}
    return {name: value for name, value in {**ours, **slurm}.items() if name in text}


def rank_option(script: Path) -> str:
    """The option by which a script takes its local rank from torch.distributed.launch; "" if there is none."""
    found = RANK_OPTION.search(_text(script))
    return found[1] if found else ""


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Every file below a folder, with its time of change and size."""
    files = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return {file: (file.lstat().st_mtime_ns, file.lstat().st_size) for file in files}


def written_since(before: Mapping[Path, tuple[int, int]], room: Path) -> frozenset[str]:
    """The files below a run's folder that are new or changed, without those in the user's ``.cache``.

    "#" stands for the numbers in a name, which may be times or process ids.
    """
    folders = ((room / "work", ""), (room / OUTSIDE, "/"))
    changed = (
        f"{start}{file.relative_to(folder)}"
        for folder, start in folders
        for file, stamp in stamps(folder).items()
        if before.get(file) != stamp
    )
    return frozenset(re.sub(r"\d+", "#", name) for name in changed if "/.cache/" not in name)


def launch_line(script: Path, world: int, *, shared: bool, on_runtime: bool = True) -> str:
    """The command or call by which a user starts this many processes. shared: they share each batch, and draw alike."""
    if not on_runtime:
        return f"torchrun --nproc-per-node {world} {script.name}"
    if not notebook_cells.is_notebook(script):
        split = " --split-batches --common-draws" if shared else ""
        return f"crosstrain launch --num-processes {world}{split} {script.name}"
    split = " with Accelerator(split_batches=True, own_draws=False)" if shared else ""
    return f"notebook_launcher(..., num_processes={world}){split} in {script.name}"


def slow_imports(script: Path) -> tuple[str, ...]:
    """The modules of SLOW_IMPORTS that a script mentions."""
    text = _text(script)
    return tuple(name for name in SLOW_IMPORTS if re.search(rf"\b{name.partition('.')[0]}\b", text))


def outcome(ranks: Sequence[RankTrace], result: JobResult, timeout: float) -> Run:
    """The result of a run before anything is compared."""
    world, steps = len(ranks), ranks[0].steps
    crashed = [number for number, trace in enumerate(ranks) if trace.ending == "crashed"]
    ended = [number for number, trace in enumerate(ranks) if trace.ending == "unfinished"]
    if crashed:
        first = min(crashed, key=lambda number: ranks[number].time_ns)
        name = f"rank {first} of {world}:\n" if world > 1 else ""
        return Run(world, Verdict.FAILED, steps, error=name + ranks[first].error)
    if result.timed_out or result.stalled:
        where = "\n".join(_position(number, ranks[number]) for number in range(world))
        reason = "every rank waits for another" if result.stalled else f"not done after {timeout:g} s"
        return Run(world, Verdict.HUNG, steps, error=f"{reason}\n{where}")
    if ended:
        text = "\n".join(f"rank {number} of {world} died\n{ranks[number].stderr[-2000:]}" for number in ended)
        return Run(world, Verdict.FAILED, steps, error=text)
    if not steps:
        return Run(world, Verdict.NO_STEPS)
    notes = tuple(
        f"rank {number} printed {_lines(len(trace.lines))} of its own: {shortened(trace.lines[0], SHOWN)!r}"
        for number, trace in enumerate(ranks)
        if number and trace.lines
    )
    return Run(world, Verdict.RAN, steps, notes=notes)


def checked(run: Run, ranks: Sequence[RankTrace]) -> Run:
    """The run with the runtime's checks. A check that failed makes the run fail, even if the script continued."""
    checks = journal.merged(rank.checks for rank in ranks)
    failed = [check for check in checks if check.status == "failed"]
    if failed and run.verdict.ok:
        return replace(run, checks=checks, verdict=Verdict.FAILED, error=failed[0].message)
    return replace(run, checks=checks)


def _text(script: Path) -> str:
    return script.read_text(encoding="utf-8", errors="replace")


def _lines(number: int) -> str:
    return "1 line" if number == 1 else f"{number} lines"


def _position(rank: int, trace: RankTrace) -> str:
    if trace.ending != "unfinished":
        return f"rank {rank} is done"
    shown = trace.stack.splitlines()[:STACK_LINES] or ["(it did not say where)"]
    return "\n".join([f"rank {rank} is at (innermost call first)", *shown])
