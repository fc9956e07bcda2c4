"""`verify`: run the original once and the migrated script with each number of processes, and judge."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from crosstrain.verify.causes import Evidence, likely_cause
from crosstrain.verify.client import Server, shared_server
from crosstrain.verify.compare import Comparison, compare, global_events, out_of_order, ranks_disagree
from crosstrain.verify.evaluation import compare_frozen
from crosstrain.verify.noise import beyond_noise
from crosstrain.verify.passes import batches_of, evaluation_loaders, training_loaders, whole_loaders
from crosstrain.verify.report import Difference, Report, Run, Verdict
from crosstrain.verify.runs import (
    Data,
    Devices,
    Finished,
    Progress,
    Request,
    Runner,
    Variant,
    VerifyInputError,
)
from crosstrain.verify.traces import RankTrace

Expectation = Literal["equal", "agree"]
SINGLE = 2.0**-23  # machine epsilon
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
    progress: Progress | None = None,
) -> Report:
    """Compare training by two scripts on the CPU.

    The original runs once, in one process; the migrated script with each number in `processes`, with the same
    arguments, start of random numbers and files. One process must be identical bit for bit, several equal to
    the tolerance of `tolerance.py`. Where training draws random numbers or uses batch statistics, several
    processes are compared with an original that does so share by share (`draws.py`); with expect="agree"
    they must only finish with ranks that agree.

    default_launch: run the largest number of processes once more as `crosstrain launch` starts them, with
    batches of their own and with every step undone: ranks must agree, and what is printed about evaluations
    must be what the original prints when its steps are undone (`evaluation.py`).

    steps: compare at most so many optimizer steps, then end the runs. timeout: seconds for each run.
    folder: copied for every run as its working directory (scripts inside it run from the copy); None: every
    run starts in an empty directory and the scripts run where they are. links: names in `folder` that are
    linked instead of copied. ignore: regular expressions of printed lines to leave out. devices: whether
    torch.cuda.is_available() is true in both scripts ("present", "absent", "real"); None: false, and true if
    the original refuses to run otherwise. confined: nothing outside of the runs' scratch folders is written.
    overlay: a folder whose files are laid over the copy for the migrated script, whose path is then that in
    `folder`. data: "synthetic": torchvision's data sets are small synthetic ones where files are missing.
    progress: told which run goes on, and its optimizer steps so far.

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
    request = replace(request, devices=devices or _devices(request, paths))
    patterns = _patterns(ignore)
    with tempfile.TemporaryDirectory(prefix="crosstrain-verify-") as scratch:
        runner = Runner(server or shared_server(), request, Path(scratch).resolve(), progress)
        return Comparing(runner, paths, expect, patterns).report(processes, default_launch)


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


class Comparing:
    """One comparison: its runs, and the verdict on each."""

    def __init__(
        self,
        runner: Runner,
        paths: tuple[Path, Path],
        expect: Expectation,
        ignore: Sequence[re.Pattern[str]],
    ) -> None:
        self._runner = runner
        self._before, self._after = paths
        self._expect = expect
        self._ignore = ignore
        self._shared: dict[tuple[int, tuple[int, ...]], RankTrace | None] = {}

    def report(self, processes: Sequence[int], default_launch: bool) -> Report:
        """All runs, in order; only the original's where that does not train."""
        done = self._runner.original(self._before)
        if not done.run.verdict.ok:
            return Report(self._before, self._after, done.run, (), self._notes())
        self._original = done.ranks[0]
        runs = [self._judged(number) for number in processes]
        if default_launch and max(processes) > 1:
            runs.append(self._default(max(processes)))
        original = replace(done.run, losses=_losses(done.ranks))
        return Report(self._before, self._after, original, tuple(runs), self._notes())

    def _notes(self) -> tuple[str, ...]:
        request = self._runner.request
        notes = []
        if request.devices == "present":
            notes.append(
                "the original refuses to run without a GPU: torch.cuda.is_available() was true in all runs, "
                "and every CUDA device the CPU"
            )
        elif request.devices == "absent":
            notes.append(
                "torch.cuda.is_available() was false in all runs; what names a CUDA device got the CPU"
            )
            if b"autocast" in self._before.read_bytes():
                notes.append(
                    "what the script does in mixed precision on a GPU was not run: --cuda present does"
                )
        if request.launched:
            notes.append("the original asks for a launcher: it ran as the only process of one")
        return tuple(notes)

    def _judged(self, world: int) -> Run:
        name = "1 process" if world == 1 else f"{world} processes"
        done = self._runner.run(self._after, Variant(name, True, world))
        launch = f"crosstrain launch --num-processes {world}" + (" --split-batches" if world > 1 else "")
        run = replace(self._verdict(done), launch=f"{launch} {self._after.name}")
        evidence = Evidence(self._original, done.ranks, run, run.difference)
        return replace(run, cause=likely_cause(evidence), losses=_losses(done.ranks))

    def _verdict(self, done: Finished) -> Run:
        """The verdict on a run that may have failed by itself."""
        run, ranks = done.run, done.ranks
        if not run.verdict.ok:
            return run
        if self._expect == "agree" and len(ranks) > 1:
            return _concluded(run, Comparison(ranks_disagree(ranks)), Verdict.AGREE)
        if len(ranks) == 1:
            run = _concluded(run, compare(self._original, ranks, self._ignore), Verdict.IDENTICAL)
            return run if run.verdict.ok else self._against_itself(run, done)
        run = _concluded(run, compare(self._original, ranks, self._ignore), Verdict.EQUAL)
        if run.verdict.ok:
            return run
        if self._original.draws or self._original.statistics:
            return self._against_shares(run, done)
        return self._in_double(run, done, Variant("")) or run

    def _against_itself(self, run: Run, done: Finished) -> Run:
        """One process differs: perhaps the original's own second run does, too."""
        again = self._runner.run(self._before, Variant("original again"))
        if not again.run.verdict.ok or compare(self._original, again.ranks, self._ignore).difference is None:
            return run
        return _by_noise(run, [self._original, again.ranks[0]], done, "another run of the original")

    def _against_shares(self, run: Run, done: Finished) -> Run:
        """Several processes differ where they may: compare with an original that draws share by share."""
        world = len(done.ranks)
        whole = whole_loaders(done.ranks)
        shared = self._drawn_for(world, whole)
        if shared is None:
            return run
        what = "random draws" if not self._original.statistics else "random draws and batch statistics"
        against = f"the original with {what} taken for each process's rows by themselves"
        equal = _concluded(done.run, compare(shared, done.ranks, self._ignore), Verdict.EQUAL)
        if equal.verdict.ok:
            return replace(equal, against=against)
        exact = self._in_double(equal, done, Variant("", shares=world, whole=whole))
        if exact is not None:
            return replace(exact, against=against)
        other = self._drawn_for(world + 1, whole)
        members = [self._original, shared, *([other] if other else [])]
        return _by_noise(replace(equal, against=against), members, done, "other random numbers")

    def _in_double(self, run: Run, done: Finished, reference: Variant) -> Run | None:
        """EQUAL, if both agree in double precision; None if they do not, or if that cannot be told.

        What single precision showed about ranks and files, or a run that is coarser than it, stays.
        """
        assert run.difference is not None
        if run.difference.quantity in ("ranks", "files", "batch", "order") or self._coarse():
            return None
        world = len(done.ranks)
        ours = self._runner.run(self._before, replace(reference, name="original, float64", double=True))
        theirs = self._runner.run(self._after, Variant(f"{done.run.name}, float64", True, world, double=True))
        if not ours.run.verdict.ok or not theirs.run.verdict.ok:
            return None
        result = compare(ours.ranks[0], theirs.ranks, self._ignore)
        if result.difference is not None:
            return None
        note = f"rounding was amplified in float32 ({run.difference}); in float64 nothing differs"
        return replace(_concluded(done.run, result, Verdict.EQUAL), notes=(*done.run.notes, note))

    def _coarse(self) -> bool:
        """Whether the original computes in less than single precision."""
        return self._original.epsilon > SINGLE

    def _drawn_for(self, world: int, whole: tuple[int, ...]) -> RankTrace | None:
        if (world, whole) not in self._shared:
            variant = Variant(f"original, drawing as {world} processes", shares=world, whole=whole)
            done = self._runner.run(self._before, variant)
            self._shared[world, whole] = done.ranks[0] if done.run.verdict.ok else None
        return self._shared[world, whole]

    def _default(self, world: int) -> Run:
        """The default launch, frozen: batches of their own, evaluation sets that do not divide evenly."""
        uneven = self._uneven(world)
        training = tuple(sorted(training_loaders(self._original)))
        fewer = dict.fromkeys(training_loaders(self._original), self._rows() + 1)
        full = self._runner.run(
            self._before,
            Variant("original, frozen", shares=world, frozen=True, cut_short=training, leave_out=uneven),
        )
        less = self._runner.run(
            self._before,
            Variant(
                "original, frozen, less data",
                shares=world,
                frozen=True,
                cut_short=training,
                leave_out=uneven | fewer,
            ),
        )
        name = f"{world} processes, default launch"
        done = self._runner.run(
            self._after,
            Variant(name, True, world, own_batches=True, frozen=True, cut_short=training, leave_out=uneven),
        )
        launch = f"crosstrain launch --num-processes {world} {self._after.name}"
        run = replace(done.run, launch=launch, against="the original, every step of both undone", frozen=True)
        trace = full.ranks[0]
        if run.verdict.ok and full.run.verdict.ok and less.run.verdict.ok:
            run = _concluded(
                run, compare_frozen(trace, less.ranks[0], done.ranks, self._ignore), Verdict.AGREE
            )
        elif run.verdict.ok:
            reason = (
                f"could not decide, because the original fails when its steps are undone: {full.run.error}"
            )
            run = replace(run, verdict=Verdict.UNDECIDED, notes=(*run.notes, reason.strip()))
        evidence = Evidence(trace, done.ranks, run, run.difference, frozen=True)
        notes = (*run.notes, self._what_changes(world))
        return replace(run, cause=likely_cause(evidence), notes=notes)

    def _rows(self) -> int:
        found = [batch.rows or 0 for batch in batches_of(self._original, training_loaders(self._original))]
        return max(found, default=0)

    def _uneven(self, world: int) -> dict[int, int]:
        """One sample less for every evaluation set that the processes would share evenly."""
        out = {}
        for loader in evaluation_loaders(self._original):
            rows = 0
            for batch in batches_of(self._original, {loader}):
                rows = (0 if batch.first else rows) + (batch.rows or 0)
            if rows and rows % world == 0:
                out[loader] = 1
        return out

    def _what_changes(self, world: int) -> str:
        rows = self._rows()
        batch = f"{rows} x {world} = {rows * world} rows" if rows else f"{world} times the script's batch"
        return (
            f"without --split-batches a step takes {batch}, an epoch has 1/{world} of the steps and the learning "
            "rate is the same: another training than one process's, and not compared with it"
        )


def _concluded(run: Run, result: Comparison, good: Verdict) -> Run:
    return replace(
        run,
        verdict=Verdict.DIFFERENT if result.difference else good,
        difference=result.difference,
        largest=result.largest,
        notes=(*run.notes, *result.notes),
    )


def _by_noise(run: Run, members: Sequence[RankTrace], done: Finished, what: str) -> Run:
    """Judge a difference by the original's own spread over `members`, its runs with `what`."""
    if any(len(member.events) != len(members[0].events) for member in members):
        reason = f"could not decide, because {what} give the original another number of steps"
        return replace(run, verdict=Verdict.UNDECIDED, notes=(*run.notes, reason))
    beyond: Difference | None = beyond_noise(members, done.ranks)
    if beyond is not None:
        return replace(run, notes=(*run.notes, f"beyond the original's own noise: {beyond}"))
    if run.difference is not None and run.difference.quantity in ("ranks", "files", "batch"):
        return run  # nothing that noise can explain
    note = f"judged by the spread of {len(members)} runs of the original, with {what}"
    return replace(run, verdict=Verdict.NOISE, difference=None, notes=(*run.notes, note))


def _losses(ranks: Sequence[RankTrace]) -> tuple[float, ...]:
    """The global loss of every backward pass; of rank 0 where the ranks are out of step."""
    events = ranks[0].events if out_of_order(ranks) else global_events(ranks)
    return tuple(event.values[0] for event in events if event.kind == "loss")
