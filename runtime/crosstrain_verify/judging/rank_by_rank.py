"""Compares a script that distributes itself with itself: the original and the result on several processes, rank by rank.

Its author has decided what each process does: which rows it reads, how batch size and learning rate depend on the number
of processes, what is summed over them and which one prints. So each rank of the result is compared with the same rank of
the original, which is started as `torchrun` or `torch.distributed.launch` does, or starts its processes itself, over gloo.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crosstrain_verify.judging.causes import Evidence, likely_cause
from crosstrain_verify.judging.compare import (
    Comparison,
    compare_batch_by_batch,
    compare_events,
    compare_lines,
    compare_trained_parameters,
    compare_weights,
    files_of_several,
    listed,
)
from crosstrain_verify.judging.migrated_runs import judge_by_noise, losses_of
from crosstrain_verify.judging.original_runs import SINGLE
from crosstrain_verify.judging.passes import batches_of, training_loaders
from crosstrain_verify.judging.printed_lines import Volatile, about, same_line, volatile
from crosstrain_verify.judging.tolerance import Tolerance
from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.report.report import Difference, Run, Verdict
from crosstrain_verify.running.client import Alteration, Devices
from crosstrain_verify.running.runs import Finished, Runner, Variant, rank_option

MOST = 8  # processes that a script may start itself

ROUNDED = ("loss", "gradient norm", "weight norm", "weights", "printed line")
ORDER = ("gradient", "batch", "loss")  # what comes first in a step


@dataclass(frozen=True)
class Started:
    """The original's run on `world` processes: how it was started, and its traces."""

    variant: Variant
    done: Finished

    @property
    def world(self) -> int:
        return self.variant.world

    @property
    def ranks(self) -> tuple[RankTrace, ...]:
        return self.done.ranks


def start(runner: Runner, script: Path, world: int, observed: Alteration = "") -> Started | None:
    """Run the original on several processes, in the first way in which it forms a group of all of them and trains.

    None if there is no such way: it does not distribute itself, or cannot on this machine. Where the script starts its
    processes itself, their number is the script's. observed: see `client.Conditions`.
    """
    ways = list(_ways(runner, script))
    while ways:
        devices, option = ways.pop(0)
        name = f"original, {world} processes"
        variant = Variant(
            name,
            world=world,
            own_batches=True,
            per_rank=True,
            devices=devices,
            launcher_option=option,
            observed=observed,
        )
        done = runner.run(script, variant)
        asked = max(rank.spawned for rank in done.ranks)
        if world < asked <= MOST:
            world, ways = asked, list(_ways(runner, script))
        elif done.run.verdict is Verdict.RAN and all(rank.joined == world for rank in done.ranks):
            return Started(variant, done)
    return None


def _ways(runner: Runner, script: Path) -> Iterator[tuple[Devices, bool]]:
    """(devices, whether the launcher passes the local rank as an option), the likeliest way first."""
    chosen = runner.request.devices
    kinds: list[Devices] = [chosen, "present"] if chosen == "absent" else [chosen]
    for devices in kinds:
        if rank_option(script):
            yield devices, True
        yield devices, False


class RankByRank:
    """Runs the migrated script on as many processes as the original and compares each rank with the original's."""

    def __init__(
        self, runner: Runner, started: Started, script: Path, after: Path, ignore: Sequence[re.Pattern[str]]
    ) -> None:
        self._runner = runner
        self._started = started
        self._script = script
        self._after = after
        self._ignore = ignore
        self._again: Finished | None = None

    def judge(self) -> Run:
        """Run the script; the run with its verdict."""
        world = self._started.world
        name = f"{world} processes, as the original's"
        variant = replace(self._started.variant, name=name, migrated=True, launcher_option=False)
        done = self._runner.run(self._after, variant)
        against = f"the original on {world} processes, rank by rank"
        launch = f"crosstrain launch --num-processes {world} {self._after.name}"
        run = replace(done.run, against=against, launch=launch, notes=(), by_rank=True)
        losses, compared = losses_of(done.ranks), losses_of(self._started.ranks)
        return replace(self._verdict(run, done), losses=losses, compared=compared)

    def _verdict(self, run: Run, done: Finished) -> Run:
        """The run with its verdict, which the first rank that differs decides; a run that failed keeps the one it has."""
        if not run.verdict.ok:
            evidence = Evidence(self._started.ranks[0], done.ranks, run, None)
            return replace(run, cause=likely_cause(evidence))
        exact = self._compared(done, exactly=True)
        found = exact if agree(exact) else self._compared(done, exactly=False)
        if {one.difference.quantity for one in found if one.difference} == {"printed line"}:
            found = self._compared(done, exactly=False, but_volatile=True)
        largest = {
            name: max(one.largest.get(name, 0.0) for one in found) for one in found for name in one.largest
        }
        notes = (*run.notes, *dict.fromkeys(note for one in found for note in one.notes))
        verdict = Verdict.IDENTICAL if found is exact else Verdict.EQUAL
        run = replace(run, verdict=verdict, largest=largest, notes=notes)
        if not agree(found):
            return self._differs(run, found, done)
        difference = self._other_files(done)
        return replace(run, verdict=Verdict.DIFFERENT, difference=difference) if difference else run

    def _compared(self, done: Finished, *, exactly: bool, but_volatile: bool = False) -> list[Comparison]:
        """Compare every rank.

        exactly: bit for bit. but_volatile: without printed numbers that differ in each run of the original.
        """
        found = []
        for rank, (ours, theirs) in enumerate(zip(self._started.ranks, done.ranks, strict=True)):
            places = volatile(ours.lines, self._second().ranks[rank].lines) if but_volatile else None
            epsilon = 0.0 if exactly else ours.epsilon
            found.append(compare_rank(ours, theirs, self._ignore, epsilon, places, first=not rank))
        return found

    def _differs(self, run: Run, found: Sequence[Comparison], done: Finished) -> Run:
        """Judge ranks that differ: those of a second run of the original may differ from the first, too."""
        rank, difference = earliest(found)
        ours, theirs = self._started.ranks[rank], done.ranks[rank]
        named = replace(difference, detail=", ".join(filter(None, [difference.detail, f"rank {rank}"])))
        run = replace(run, verdict=Verdict.DIFFERENT, difference=named)
        run = replace(run, cause=likely_cause(Evidence(ours, (theirs,), run, difference)))
        again = self._second().ranks[rank]
        if compare_rank(ours, again, self._ignore, 0.0, None, first=not rank).difference is None:
            return self._in_double(run, difference) or run
        return judge_by_noise(
            run, [ours, again], replace(done, ranks=(theirs,)), "another run of the original"
        )

    def _in_double(self, run: Run, difference: Difference) -> Run | None:
        """The run as EQUAL if all ranks agree in double precision, else None; see `MigratedRuns._in_double`."""
        if difference.quantity not in ROUNDED:
            return None
        variant = replace(self._started.variant, name="original, float64", double=True)
        ours = self._runner.run(self._script, variant)
        theirs = self._runner.run(
            self._after, replace(variant, name=f"{run.name}, float64", migrated=True, launcher_option=False)
        )
        if not (ours.run.verdict.ok and theirs.run.verdict.ok):
            return None
        pairs = enumerate(zip(ours.ranks, theirs.ranks, strict=True))
        if not agree(
            [compare_rank(a, b, self._ignore, SINGLE, None, first=not rank) for rank, (a, b) in pairs]
        ):
            return None
        note = f"rounding was amplified in float32 ({difference}); in float64 it makes no difference"
        return replace(run, verdict=Verdict.EQUAL, difference=None, cause=None, notes=(*run.notes, note))

    def _second(self) -> Finished:
        """A second run of the original under the same conditions."""
        if self._again is None:
            self._again = self._runner.run(self._script, self._started.variant)
        return self._again

    def _other_files(self, done: Finished) -> Difference | None:
        """Files that only one of the two scripts writes, or that several processes write only in the result."""
        ours, theirs = self._started.done.files, done.files
        if ours != theirs and self._second().files == ours:
            missing, added = sorted(ours - theirs), sorted(theirs - ours)
            before = f"{listed(missing) or 'nothing'} written"
            return Difference("files", None, before, f"{listed(added) or 'nothing'} written instead")
        known = {str(found) for found in files_of_several(self._started.ranks, text=False)}
        found = (one for one in files_of_several(done.ranks, text=False) if str(one) not in known)
        return next(found, None)


def agree(found: Sequence[Comparison]) -> bool:
    """Whether no rank differs."""
    return all(one.difference is None for one in found)


def earliest(found: Sequence[Comparison]) -> tuple[int, Difference]:
    """The rank whose difference comes first. One rank's wrong loss makes the gradients of all ranks differ later."""
    differences = [(rank, one.difference) for rank, one in enumerate(found) if one.difference]

    def place(one: tuple[int, Difference]) -> tuple[float, int]:
        step, quantity = one[1].step, one[1].quantity
        return (math.inf if step is None else step), ORDER.index(quantity) if quantity in ORDER else len(
            ORDER
        )

    return min(differences, key=place)


def compare_rank(
    original: RankTrace,
    run: RankTrace,
    ignore: Sequence[re.Pattern[str]],
    epsilon: float,
    places: Volatile | None,
    *,
    first: bool,
) -> Comparison:
    """Compare one rank of both scripts.

    epsilon: of the tolerance; 0.0 asks for identical bits. places: printed numbers to leave out. first: this is rank 0,
    which must print every line of the original's; another rank may print fewer.
    """
    result = Comparison()
    tolerance = Tolerance(epsilon)
    compare_printed = compare_lines if first else _lines_of_its_own
    result.difference = (
        compare_trained_parameters(original, run, step_by_step=original.steps == run.steps)
        or _training_batches(original, run)
        or compare_events(original, (run,), tolerance, result)
        or compare_weights(original, run, tolerance, result)
        or compare_printed(original, run, tolerance, ignore, places)
    )
    if places and result.difference is None:
        result.notes.append(about(places))
    return result


def _training_batches(original: RankTrace, run: RankTrace) -> Difference | None:
    """Compare the batches of the loaders that train. Evaluation may be shared differently; what it prints is compared."""
    ours = replace(original, batches=tuple(batches_of(original, training_loaders(original))))
    theirs = replace(run, batches=tuple(batches_of(run, training_loaders(run))))
    return compare_batch_by_batch(ours, theirs)


def _lines_of_its_own(
    original: RankTrace,
    run: RankTrace,
    tolerance: Tolerance,
    ignore: Sequence[re.Pattern[str]],
    places: Volatile | None,
) -> Difference | None:
    """The first line that a rank other than 0 prints and the original's does not; it may print fewer lines."""
    lines = iter(original.lines)
    for got in run.lines:
        if any(pattern.search(got) for pattern in ignore):
            continue
        if not any(same_line(line, got, tolerance, original.steps, places) for line in lines):
            return Difference("printed line", None, "'nothing'", repr(got))
    return None
